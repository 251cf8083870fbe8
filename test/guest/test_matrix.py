"""Every pair of RNICs, connecting and accepting, through every kind of talk: plain socket programs, hashes
compared.

Runs where there is a kernel RNIC (scripts/siw-guest has one). What a row says: who connects, who accepts,
CRC, the talk, seconds.
"""

import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from kernel_rnic import ADDRESS, ADDRESS6, DEVICE, need_kernel_rnic  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parent / "peer.py"
TALKS = ["bulk", "both", "small", "banner", "urgent", "half-close", "abort"]
NAMES = {"soft": "soft", "verbs": DEVICE}


def environment(rnic, crc=False):
    # A guest may be slow to answer.
    return {"SDP_RNIC": rnic, "SDP_MPA_CRC": int(crc), "SDP_PM_TIMEOUT_MS": 20000}


class Matrix(unittest.TestCase):
    def setUp(self):
        need_kernel_rnic()
        self.world = harness.TestWorld(listen=[ADDRESS, *([f"[{ADDRESS6}]"] if ADDRESS6 else [])])
        self.addCleanup(self.world.stop)

    def pair(self, connecting, accepting, crc, talks):
        port = harness.free_port()
        server = self.world.start(
            [sys.executable, PEER, "accept", ADDRESS, port, *talks], environment=environment(accepting, crc)
        )
        self.world.wait_for_listener(port, 30)
        client = self.world.start(
            [sys.executable, PEER, "connect", ADDRESS, port, *talks], environment=environment(connecting, crc)
        )
        for end, process in ("connecting", client), ("accepting", server):
            self.assertEqual(
                process.wait(120), 0, f"{end} end:\n{process.output()}\n{self.world.sdp_log()[-3000:]}"
            )
        self.assertNotIn("TCP, because", self.world.sdp_log())
        for line in client.output().splitlines():
            talk, seconds = line.split()
            print(
                f"   {NAMES[connecting]:4} -> {NAMES[accepting]:4}  crc {'on ' if crc else 'off'}  "
                f"{talk:10} {seconds:>6} s",
                flush=True,
            )
        self.assertEqual(len(client.output().splitlines()), len(talks))

    def zcopy(self, connecting, accepting, force, mebibytes=8, address=ADDRESS, talk="large", **settings):
        """One way, with large blocking writes and reads; what each mechanism carried."""
        port = harness.free_port()
        talk = f"{talk}-{mebibytes}"
        forced = settings | ({"SDP_FORCE": force} if force else {})
        server = self.world.start(
            [sys.executable, PEER, "accept", address, port, talk],
            environment=environment(accepting) | forced,
            stdin=subprocess.PIPE,
        )
        self.world.wait_for_listener(port, 30)
        start = time.monotonic()
        client = self.world.start(
            [sys.executable, PEER, "connect", address, port, talk],
            environment=environment(connecting) | forced,
            stdin=subprocess.PIPE,
        )
        harness.wait_until(
            lambda: "moved" in client.output() or not client.running(), "end of the transfer", 120
        )
        seconds = time.monotonic() - start
        carried = [
            c for p in self.world.sdpstat()["processes"] if p["pid"] == client.pid for c in p["connections"]
        ]
        for end, process in ("connecting", client), ("accepting", server):
            process.popen.stdin.close()
            self.assertEqual(
                process.wait(60), 0, f"{end} end:\n{process.output()}\n{self.world.sdp_log()[-3000:]}"
            )
        self.assertNotIn("TCP, because", self.world.sdp_log())
        self.assertEqual([c["rnic"] for c in carried], [NAMES[connecting]])
        print(
            f"   {NAMES[connecting]:4} -> {NAMES[accepting]:4}  {force or 'chosen':7}  {talk:10} "
            f"{seconds:6.2f} s",
            flush=True,
        )
        self.sender = carried[0]
        return carried[0]["bytes_out"]

    def pairs(self, connecting, accepting):
        self.pair(connecting, accepting, False, TALKS)
        self.pair(connecting, accepting, True, ["bulk", "both"])
        if connecting == accepting == "soft":
            return  # test_mechanisms has these
        for force in "read", "write":
            # A sender copies when its reader does not come in time, which a slow guest's may not.
            self.assertTrue(
                any(self.zcopy(connecting, accepting, force)[f"{force}_zcopy"] > 0 for _ in range(5))
            )

    def test_embedded_to_embedded(self):
        self.pairs("soft", "soft")

    def test_kernel_to_embedded(self):
        self.pairs("verbs", "soft")

    def test_embedded_to_kernel(self):
        self.pairs("soft", "verbs")

    def test_kernel_to_kernel(self):
        self.pairs("verbs", "verbs")

    def test_64_mebibytes(self):
        carried = self.zcopy("verbs", "verbs", None, 64, talk="whole")
        print("  ", carried, flush=True)
        # Each end is in its one call all the time, but a slow guest's reader may be late for some of it.
        self.assertGreater(carried["read_zcopy"], 10 << 20)

    def test_a_stream_has_private_buffers_enlarged(self):
        """To what fills an FPDU; a kernel RNIC's are really posted anew."""
        for connecting, accepting in ("verbs", "verbs"), ("soft", "verbs"), ("verbs", "soft"):
            with self.subTest(connecting=connecting, accepting=accepting):
                self.zcopy(connecting, accepting, "bcopy", 2, SDP_PRIVATE_BUFFER_SIZE=4096)
                self.assertEqual(
                    (self.sender["remote_buffer_size"], self.sender["local_buffer_size"]), (64528, 4096)
                )

    def test_over_ipv6(self):
        if not ADDRESS6:
            raise unittest.SkipTest("the device has no IPv6 address")
        for connecting, accepting in ("verbs", "verbs"), ("soft", "verbs"), ("verbs", "soft"):
            self.zcopy(connecting, accepting, None, 2, ADDRESS6)

    def test_kernel_to_embedded_names_the_device(self):
        port = harness.free_port()
        self.world.start([sys.executable, harness.PEER, "echo-server", port, ADDRESS])
        self.world.wait_for_listener(port, 20)
        program = (
            "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
            "s.sendall(b'x'); s.recv(1); print('here', flush=True); s.recv(1)"
        )
        client = self.world.start(
            [sys.executable, "-c", program, ADDRESS, port], environment=environment("verbs")
        )
        harness.wait_until(lambda: "here" in client.output(), "an echo", 30)
        rnics = [
            (c["rnic"], c["link"])
            for p in self.world.sdpstat()["processes"]
            if p["pid"] == client.pid
            for c in p["connections"]
        ]
        self.assertEqual(rnics, [(NAMES["verbs"], "rdma")])


if __name__ == "__main__":
    harness.main()
