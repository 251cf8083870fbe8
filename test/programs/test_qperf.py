"""qperf: its SDP tests, for which it asks for SDP by its address family, as it has for fifteen years; its TCP
tests, which know nothing of it."""

import re

import harness

# qperf writes thousands with a comma, and what takes less than a microsecond in nanoseconds.
LATENCY = r"latency\s+=\s+[0-9.,]+ (us|ns)"


class Qperf(harness.ProgramTest):
    def setUp(self):
        harness.need("qperf")
        super().setUp()

    def serve(self, preload=True):
        self.port = harness.free_port()
        self.server = self.world.start(["qperf", "--listen_port", self.port], preload=preload)
        self.world.wait_for_listener(self.port, sdp=preload)

    def client(self, *tests):
        return ["qperf", "--listen_port", self.port, "--time", "1", "127.0.0.1", *tests]

    def measure(self, test):
        self.serve()
        said = self.world.run(self.client(test)).decode()
        # The one that qperf's ends talk over, and the one that is measured.
        self.assertEqual(
            len(re.findall(r"connect to .*: SDP at ", self.world.sdp_log())), 2, self.world.sdp_log()
        )
        self.assert_no_tcp()
        return said

    def test_bandwidth(self):
        said = self.measure("sdp_bw")
        self.assertRegex(said, r"bw\s+=\s+[0-9.]+ [KMG]B/sec")

    def test_latency(self):
        said = self.measure("sdp_lat")
        self.assertRegex(said, LATENCY)

    def test_each_end_alone(self):
        """The kernel knows no such streams: what the family asks for is never quietly TCP."""
        for ends in (harness.Ends(False, False), *harness.BOTH_AND_EACH_ALONE[1:]):
            with self.subTest(str(ends)):
                self.serve(ends.server)
                client = self.world.start(self.client("sdp_lat"), preload=ends.client)
                self.assertNotEqual(client.wait(20), 0, client.output())
                self.assertNotIn("latency", client.output())
                self.assert_carried(self.port, ends)
                self.server.stop()

    def test_tcp(self):
        """The connection that the ends talk over, and the one that is measured."""
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.serve(ends.server)
                said = self.world.run(self.client("tcp_bw", "tcp_lat"), preload=ends.client).decode()
                self.assertRegex(said, r"(?s)bw\s+=\s+[0-9.]+ [KMG]B/sec.*" + LATENCY)
                self.assert_carried(self.port, ends)
                self.server.stop()


if __name__ == "__main__":
    harness.main()
