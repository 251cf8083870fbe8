"""A thousand connections at once, and connections that open and close as fast as they can."""

import pathlib
import subprocess
import unittest

import harness


class Connections(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()
        self.server = self.world.start([harness.CONNECTIONS, "serve", self.port])
        self.world.wait_for_listener(self.port)

    def test_a_thousand_at_once(self):
        count = 1000
        client = self.world.start(
            [harness.CONNECTIONS, "idle", self.port, count], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.assertEqual(client.popen.stdout.readline(), b"ready\n", client.output())
        self.assertEqual(self.world.summary()["connections_open"], 2 * count)
        self.assert_sdp_carried(at_least_in=count, at_least_out=count, process=self.server)
        client.popen.stdin.close()
        self.assertEqual(client.wait(), 0)
        harness.wait_until(lambda: self.world.summary()["connections_open"] == 0, "end of the connections")
        self.assert_no_tcp()

    def test_open_and_close(self):
        rate = float(self.world.run([harness.CONNECTIONS, "rate", self.port, 2]))
        self.assertGreater(rate, 50)
        self.assert_sdp_carried(at_least_in=int(rate), process=self.server)
        self.assert_no_tcp()

    def trace(self, *options):
        harness.need("strace")
        strace = self.world.start(["strace", "-f", "-p", self.server.pid, *options], preload=False)
        harness.wait_until(lambda: "attached" in strace.output() or not strace.running(), "strace")
        if not strace.running():
            raise unittest.SkipTest("strace may not trace: " + strace.output().strip())
        return strace

    def test_a_server_slowed_down_by_its_tracer(self):
        """It has a blocking listener, so each event has to come once."""
        strace = self.trace("-o", "calls")
        try:
            self.assertGreater(float(self.world.run([harness.CONNECTIONS, "rate", self.port, 2])), 5)
        finally:
            strace.stop()

    def test_short_connections_have_the_memory_of_those_before(self):
        calls = self.world.directory / "calls"
        strace = self.trace("-e", "trace=memfd_create", "-o", calls)
        try:
            connections = float(self.world.run([harness.CONNECTIONS, "rate", self.port, 2])) * 2
        finally:
            strace.stop()
        made = calls.read_text().count("memfd_create(")
        print(f"{connections:.0f} connections, {made} memories")
        self.assertGreater(made, 0)
        self.assertLess(made, connections / 10)

        def has_memory():
            return "sdp-link" in pathlib.Path(f"/proc/{self.server.pid}/maps").read_text()

        harness.wait_until(lambda: not has_memory(), "end of the memory")
        self.assert_no_tcp()


if __name__ == "__main__":
    harness.main()
