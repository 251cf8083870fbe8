"""iperf3: one stream, eight, and in reverse."""

import json

import harness


class Iperf3(harness.ProgramTest):
    SECONDS = 3

    def setUp(self):
        harness.need("iperf3")
        super().setUp()
        self.port = harness.free_port()
        self.server = self.world.start(["iperf3", "-s", "-p", self.port, "-B", "127.0.0.1", "--forceflush"])
        self.world.wait_for_listener(self.port)

    def measure(self, *options):
        output = self.world.run(
            ["iperf3", "-c", "127.0.0.1", "-p", self.port, "-t", self.SECONDS, "-J", *options]
        )
        result = json.loads(output)
        self.assertNotIn("error", result)
        sent, received = (result["end"][k]["bytes"] for k in ("sum_sent", "sum_received"))
        self.assertGreater(received, 1 << 20)
        # What the receiver counted is at most what was sent; the rest was under way when the time was up.
        self.assertLessEqual(received, sent)
        return received

    def test_one_stream(self):
        self.assert_sdp_carried(at_least_in=self.measure("-l", "128K"), process=self.server)
        self.assert_no_tcp()

    def test_eight_streams(self):
        self.assert_sdp_carried(at_least_in=self.measure("-P", "8"), process=self.server)
        self.assert_no_tcp()

    def test_reverse(self):
        self.assert_sdp_carried(at_least_out=self.measure("-R"), process=self.server)
        self.assert_no_tcp()

    def test_both_directions_at_once(self):
        moved = self.measure("--bidir")
        self.assert_sdp_carried(at_least_in=moved, at_least_out=1 << 20, process=self.server)

    def test_a_fixed_amount_in_small_blocks(self):
        output = self.world.run(
            ["iperf3", "-c", "127.0.0.1", "-p", self.port, "-n", "20M", "-l", "777", "-J"]
        )
        end = json.loads(output)["end"]
        self.assertGreaterEqual(end["sum_sent"]["bytes"], 20 << 20)
        # The server stops reading when the client says that it is done.
        self.assert_sdp_carried(at_least_in=end["sum_received"]["bytes"], process=self.server)


if __name__ == "__main__":
    harness.main()
