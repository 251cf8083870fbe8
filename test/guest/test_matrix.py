"""Every pair of RNICs, connecting and accepting, through every kind of talk: plain socket programs, hashes compared.

Runs where there is a kernel RNIC (scripts/siw-guest has one). What a row says: who connects, who accepts, CRC, the talk, seconds.
"""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parent / "peer.py"
ADDRESS = os.environ.get("SDP_TEST_RNIC_ADDRESS", "10.77.0.1")
TALKS = ["bulk", "both", "small", "banner", "urgent", "half-close", "abort"]
NAMES = {"soft": "soft", "verbs": "siw0"}


def environment(rnic, crc=False):
    # A guest may be slow to answer.
    return {"SDP_RNIC": rnic, "SDP_MPA_CRC": int(crc), "SDP_PM_TIMEOUT_MS": 5000}


class Matrix(unittest.TestCase):
    def setUp(self):
        if not os.path.exists("/dev/infiniband/rdma_cm"):
            raise unittest.SkipTest("no kernel RNIC (scripts/siw-guest has one)")
        self.world = harness.TestWorld(listen=[ADDRESS])
        self.addCleanup(self.world.stop)

    def pair(self, connecting, accepting, crc, talks):
        port = harness.free_port(host=ADDRESS)
        server = self.world.start([sys.executable, PEER, "accept", ADDRESS, port, *talks], environment=environment(accepting, crc))
        self.world.wait_for_listener(port, 30)
        client = self.world.start([sys.executable, PEER, "connect", ADDRESS, port, *talks], environment=environment(connecting, crc))
        for end, process in ("connecting", client), ("accepting", server):
            self.assertEqual(process.wait(120), 0, f"{end} end:\n{process.output()}\n{self.world.sdp_log()[-3000:]}")
        self.assertNotIn("TCP, because", self.world.sdp_log())
        for line in client.output().splitlines():
            talk, seconds = line.split()
            print(f"   {NAMES[connecting]:4} -> {NAMES[accepting]:4}  crc {'on ' if crc else 'off'}  {talk:10} {seconds:>6} s", flush=True)
        self.assertEqual(len(client.output().splitlines()), len(talks))

    def pairs(self, connecting, accepting):
        self.pair(connecting, accepting, False, TALKS)
        self.pair(connecting, accepting, True, ["bulk", "both"])

    def test_embedded_to_embedded(self):
        self.pairs("soft", "soft")

    def test_kernel_to_embedded(self):
        self.pairs("verbs", "soft")

    def test_embedded_to_kernel(self):
        self.pairs("soft", "verbs")

    def test_kernel_to_kernel(self):
        self.pairs("verbs", "verbs")

    def test_kernel_to_embedded_names_the_device(self):
        port = harness.free_port(host=ADDRESS)
        self.world.start([sys.executable, harness.PEER, "echo-server", port, ADDRESS])
        self.world.wait_for_listener(port, 20)
        program = ("import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'x'); s.recv(1); "
                   "print('here', flush=True); s.recv(1)")
        client = self.world.start([sys.executable, "-c", program, ADDRESS, port], environment=environment("verbs"))
        harness.wait_until(lambda: "here" in client.output(), "an echo", 30)
        rnics = [(c["rnic"], c["link"]) for p in self.world.sdpstat()["processes"] if p["pid"] == client.pid for c in p["connections"]]
        self.assertEqual(rnics, [("siw0", "rdma")])


if __name__ == "__main__":
    harness.main()
