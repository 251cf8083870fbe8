#!/usr/bin/env python3
"""A program over a kernel RNIC whose peer, over the embedded one, asks for Socket Duplication (SDP 13): the
cases of test/posix/suspension that have the tag [rnic], at the RDMA device's address."""

import os
import pathlib
import subprocess
import sys

from kernel_rnic import ADDRESS, DEVICE, missing

BUILD = pathlib.Path(
    os.environ.get("SDP_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build" / "release")
)
RUN = pathlib.Path(__file__).resolve().parent.parent / "posix" / "run.py"
SKIPPED = 77

if why := missing():
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
os.environ.update(SDP_RNIC="verbs", SDP_HANDSHAKE_TIMEOUT_MS="6000")
sys.exit(
    subprocess.run(
        [
            sys.executable,
            "-B",
            RUN,
            "sdp",
            "--verbose",
            "--tests",
            BUILD / "test" / "posix" / "suspension" / "suspension_tests",
            "--preload",
            BUILD / "preload" / "libsdp.so",
            "--pmd",
            BUILD / "portmapper" / "sdp-pmd",
            "--sdpstat",
            BUILD / "tools" / "sdpstat",
            "--tag",
            "[rnic]",
            "--address",
            ADDRESS,
            "--seconds",
            "90",
            # A next connection, begun or there; or that there was none.
            "--expect-log",
            rf"goes on (over another link \({DEVICE}\)|from another port)|Socket Duplication, to {ADDRESS}",
            *sys.argv[1:],
        ]
    ).returncode
)
