"""Servers that put another program in their place, with the connection as its standard input and output:
inetd's way, by socat's nofork."""

import sys

import harness
from test_forking import CLIENT


class Exec(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        harness.need("socat")
        self.port = harness.free_port()

    def serve(self, program):
        server = self.world.start(
            ["socat", f"TCP-LISTEN:{self.port},bind=127.0.0.1,reuseaddr,fork", f"EXEC:{program},nofork"]
        )
        self.world.wait_for_listener(self.port)
        clients = [
            self.world.start([sys.executable, "-c", CLIENT, self.port, size])
            for size in (0, 1, 100_000, 3_000_000)
        ]
        for client in clients:
            self.assertEqual(client.wait(60), 0, client.output())
        self.assertIsNone(server.popen.poll(), server.output())
        self.assert_no_tcp()

    def test_program_with_the_library(self):
        self.serve("/bin/cat")

    def test_the_program_is_ready_for_a_lack_of_memory(self):
        """The unwinder is there before memory may run out, or before a filter forbids to load it."""
        self.world.start(
            [
                "socat",
                f"TCP-LISTEN:{self.port},bind=127.0.0.1,reuseaddr",
                "EXEC:grep -c libgcc_s /proc/self/maps,nofork",
            ]
        )
        self.world.wait_for_listener(self.port)
        with open(self.world.directory / "count", "wb") as out:
            client = self.world.start(["socat", "-u", f"TCP:127.0.0.1:{self.port}", "-"], stdout=out)
        self.assertEqual(client.wait(20), 0, client.output())
        self.assertGreater(int((self.world.directory / "count").read_text()), 0)
        self.assert_no_tcp()

    def test_script(self):
        self.serve("/bin/sh -c cat")

    def test_program_without_the_preload(self):
        self.serve("env -i /bin/cat")

    def test_static_program(self):
        harness.need("busybox")
        self.serve("busybox cat")


if __name__ == "__main__":
    harness.main()
