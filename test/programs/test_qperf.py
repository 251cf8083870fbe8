"""qperf's SDP tests, a program that asks for SDP by its address family, as it has for fifteen years."""

import re

import harness


class Qperf(harness.ProgramTest):
    def setUp(self):
        harness.need("qperf")
        super().setUp()
        self.port = harness.free_port()
        self.server = self.world.start(["qperf", "--listen_port", self.port])
        harness.wait_until(lambda: harness.tcp_listens(self.port), "qperf's server")

    def measure(self, test):
        said = self.world.run(["qperf", "--listen_port", self.port, "--time", "1", "127.0.0.1", test], timeout=20,
                              environment={"SDP_LOG": "debug"}).decode()
        # The one that qperf's ends talk over, and the one that is measured.
        self.assertEqual(len(re.findall(r"connect to .*: SDP at ", self.world.sdp_log())), 2, self.world.sdp_log())
        self.assert_no_tcp()
        return said

    def test_bandwidth(self):
        said = self.measure("sdp_bw")
        self.assertRegex(said, r"bw\s+=\s+[0-9.]+ [KMG]B/sec")

    def test_latency(self):
        said = self.measure("sdp_lat")
        latency = re.search(r"latency\s+=\s+([0-9.]+) us", said)
        self.assertIsNotNone(latency, said)

    def test_without_the_library(self):
        """The kernel knows no such streams: what the family asks for is never quietly TCP."""
        with self.assertRaises(AssertionError):
            self.world.run(["qperf", "--listen_port", self.port, "--time", "1", "127.0.0.1", "sdp_lat"], preload=False, timeout=20)


if __name__ == "__main__":
    harness.main()
