"""The other way to have sockets over a kernel RNIC: rstream over rsockets, the same rstream over plain TCP,
and over SDP with the RNIC at both ends.

Rounds alternate, so that a busy host slows all of them; each row's verdict is the ratio of the medians.
Wanted: at least as fast as rsockets at 64 bytes, and 1.5 times as fast from 64 KiB on. A row is long enough
for what happens once (in a guest also the translation of code) not to count. rstream's two ends call without
pause (without -T b) or sleep in their calls (with it: SDP_COMPARE_ALL=1).

A guest's processors are threads of a host that has other work: one row then differs from itself by a factor
of three. So the table is printed, and a verdict fails the test only where somebody asks for that, on a host
at rest: SDP_COMPARE_STRICT=1. SDP_COMPARE_ROUNDS: how many rounds (1).
"""

import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from kernel_rnic import ADDRESS, need_kernel_rnic  # noqa: E402

ROUNDS = int(os.environ.get("SDP_COMPARE_ROUNDS", "1"))
OVER_KERNEL_RNIC = {"SDP_RNIC": "verbs", "SDP_PM_TIMEOUT_MS": 20000}
# Bytes of a transfer, iterations, transfers in a row; how many times as fast as rsockets SDP is to be.
ROWS = [(64, 5000, 1, 1.0), (65536, 1, 300, 1.5), (1 << 20, 1, 200, 1.5)]
MODES = {"": []} | ({"blocking": ["-T", "b"]} if os.environ.get("SDP_COMPARE_ALL") == "1" else {})
WAYS = ["rsockets", "tcp", "sdp"]


def rsocket_listens(port):
    found = subprocess.run(
        [harness.find("rdma"), "resource", "show", "cm_id"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return any("LISTEN" in line and f":{port} " in line + " " for line in found.stdout.splitlines())


class Rsockets(unittest.TestCase):
    def setUp(self):
        need_kernel_rnic()
        harness.need("rstream", "rdma", "taskset")
        self.world = harness.TestWorld(listen=[ADDRESS])
        self.addCleanup(self.world.stop)

    def tearDown(self):
        harness.tell_if_failed(self)

    def microseconds(self, way, mode, size, iterations, transfers):
        """Of one transfer, as the connecting end reports it. Ends that never sleep need a processor each."""
        port = harness.free_port()
        options = [
            "-p",
            port,
            "-S",
            size,
            "-I",
            iterations,
            "-C",
            transfers,
            *([] if way == "rsockets" else ["-T", "s"]),
            *MODES[mode],
        ]
        preload, environment = way == "sdp", OVER_KERNEL_RNIC if way == "sdp" else {}
        server = self.world.start(
            ["taskset", "-c", "0", "rstream", "-b", ADDRESS, *options],
            preload=preload,
            environment=environment,
        )
        listens = {"rsockets": rsocket_listens, "tcp": harness.tcp_listens, "sdp": self.world.listener}[way]
        harness.wait_until(lambda: listens(port), f"a listener ({way})", 60)
        output = self.world.run(
            ["taskset", "-c", "1", "rstream", "-s", ADDRESS, *options],
            preload=preload,
            environment=environment,
            timeout=120,
        )
        self.assertEqual(server.wait(60), 0, server.output())
        return float(output.split()[-1])

    def test_against_rsockets_and_tcp(self):
        slow = []
        for mode, (size, iterations, transfers, wanted) in itertools.product(MODES, ROWS):
            taken = {way: [] for way in WAYS}
            for _ in range(ROUNDS):
                for way in WAYS:
                    taken[way].append(self.microseconds(way, mode, size, iterations, transfers))
            medians = {way: statistics.median(values) for way, values in taken.items()}
            ratio = medians["rsockets"] / medians["sdp"]
            verdict = "as wanted" if ratio >= wanted else "too slow"
            print(
                f"   {size:8} bytes {mode:8} ",
                *(f"{way} {medians[way]:9.1f} us " for way in WAYS),
                f" {ratio:.2f} times as fast as rsockets, wanted {wanted}: {verdict}",
                flush=True,
            )
            if ratio < wanted:
                slow.append((size, mode))
        self.assertNotIn("TCP, because", self.world.sdp_log())
        if os.environ.get("SDP_COMPARE_STRICT") == "1":
            self.assertEqual(slow, [])


if __name__ == "__main__":
    harness.main()
