"""The kernel RNIC of the tests in this folder: that of a guest (scripts/siw-guest), or the one that
scripts/test --rnic names.

As a program: says why that cannot be used here, and fails; or says nothing.
"""

import os
import pathlib
import resource
import socket
import sys
import unittest

ADDRESS = os.environ.get("SDP_TEST_RNIC_ADDRESS", "10.77.0.1")
ADDRESS6 = os.environ.get("SDP_TEST_RNIC_ADDRESS6", "fd77::1")  # may be empty
DEVICE = os.environ.get("SDP_TEST_RNIC", "siw0")
LOCKED = (
    256 << 20
)  # what a process may have to be able to lock: both ends of 64 MiB by Zcopy, and all that is there beside


def uverbs():
    """The device files of the RNIC."""
    return [
        f"/dev/infiniband/{entry.parent.name}"
        for entry in pathlib.Path("/sys/class/infiniband_verbs").glob("uverbs*/ibdev")
        if entry.read_text().strip() == DEVICE
    ]


def missing():
    """Why there is no such RNIC here, or none for this user; empty if there is one."""
    for path in "/dev/infiniband/rdma_cm", f"/sys/class/infiniband/{DEVICE}":
        if not os.path.exists(path):
            return f"no kernel RNIC: there is no {path} (scripts/siw-guest has one)"
    kind = pathlib.Path(f"/sys/class/infiniband/{DEVICE}/node_type").read_text().strip()
    if not kind.endswith("RNIC"):
        return f"{DEVICE} is no iWARP device, but \"{kind}\": the embedded RNIC cannot talk to it"
    for path in "/dev/infiniband/rdma_cm", *uverbs():
        if not os.access(path, os.R_OK | os.W_OK):
            return f"no permission for {path}: this user may not use {DEVICE}"
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and limit < LOCKED:
        return (
            f"the limit on locked memory, ulimit -l, is {limit >> 10} KiB: "
            f"these tests lock up to {LOCKED >> 10} KiB in a process"
        )
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


def need_guest(what):
    """Skips the test where `what` it changes, for all of the host, is not that of a guest that was made for
    tests."""
    if "siw_guest_run=" not in pathlib.Path("/proc/cmdline").read_text():
        raise unittest.SkipTest(f"this host is no guest of scripts/siw-guest: {what} as it is")
    if os.geteuid() != 0:
        raise unittest.SkipTest(f"not root: {what} as it is")


if __name__ == "__main__":
    sys.exit(missing() or 0)
