"""libev and libevent with each of their ways to wait, asio with threads, and Go's net package by gccgo: many
connections at once, each checked."""

import harness
from sdp_world import BUILD

LOOPS = BUILD / "test" / "programs" / "loops"


class EventLoops(harness.ProgramTest):
    def exchange(self, program, says=None, **environment):
        program = LOOPS / program
        if not program.exists():
            self.skipTest(f"{program.name} is not built: its library or compiler is not installed")
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(
                    [program, "serve", port], preload=ends.server, environment=environment
                )
                self.world.wait_for_listener(port, sdp=ends.server)
                # Many small ones, and some that both ends have to wait with.
                for count, size in (40, 3000), (4, 2_000_000):
                    answer = self.world.run(
                        [program, "send", port, count, size], preload=ends.client, environment=environment
                    )
                    self.assertEqual(answer, b"ok %d\n" % count)
                self.assert_carried(port, ends, at_least=44)
                if says:
                    self.assertEqual(server.output().split()[0], says)
                server.stop()

    def test_libev_with_select(self):
        self.exchange("libev_echo", LIBEV_FLAGS=1)

    def test_libev_with_poll(self):
        self.exchange("libev_echo", LIBEV_FLAGS=2)

    def test_libev_with_epoll(self):
        self.exchange("libev_echo", LIBEV_FLAGS=4)

    def test_libevent_with_epoll(self):
        self.exchange("libevent_echo", says="epoll")

    def test_libevent_with_poll(self):
        self.exchange("libevent_echo", says="poll", EVENT_NOEPOLL=1)

    def test_libevent_with_select(self):
        self.exchange("libevent_echo", says="select", EVENT_NOEPOLL=1, EVENT_NOPOLL=1)

    def test_asio(self):
        self.exchange("asio_echo")

    def test_go(self):
        self.exchange("go_echo")


if __name__ == "__main__":
    harness.main()
