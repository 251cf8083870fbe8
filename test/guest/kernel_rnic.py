"""The kernel RNIC of the tests in this folder: that of a guest (scripts/siw-guest), or the one that scripts/test --rnic names."""

import os
import socket
import unittest

ADDRESS = os.environ.get("SDP_TEST_RNIC_ADDRESS", "10.77.0.1")
ADDRESS6 = os.environ.get("SDP_TEST_RNIC_ADDRESS6", "fd77::1")  # may be empty
DEVICE = os.environ.get("SDP_TEST_RNIC", "siw0")


def missing():
    """Why there is no such RNIC here; empty if there is one."""
    for path in "/dev/infiniband/rdma_cm", f"/sys/class/infiniband/{DEVICE}":
        if not os.path.exists(path):
            return f"no kernel RNIC: there is no {path} (scripts/siw-guest has one)"
    with socket.socket() as probe:
        try:
            probe.bind((ADDRESS, 0))
        except OSError as e:
            return f"no kernel RNIC at {ADDRESS}: {e.strerror} (scripts/siw-guest has one)"
    return ""


def need_kernel_rnic():
    """Skips the test, with the reason, where there is none."""
    if why := missing():
        raise unittest.SkipTest(why)
