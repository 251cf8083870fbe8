"""stress-ng's stressors of sockets, which check what they receive: each is client and server by fork."""

import re

import harness


class StressNg(harness.ProgramTest):
    def setUp(self):
        harness.need("stress-ng")
        super().setUp()

    def stress(self, *arguments, port=None):
        output = self.world.run(["stress-ng", "--verify", "--timeout", "3s", "--metrics-brief", "--temp-path", self.world.directory, *arguments]).decode()
        return output

    def test_sock(self):
        port = harness.free_port()
        self.stress("--sock", "1", "--sock-domain", "ipv4", "--sock-type", "stream", "--sock-nodelay", "--sock-port", port)
        self.assertGreater(self.world.connects(port)[0], 3)

    def test_sockmany(self):
        port = harness.free_port()
        self.stress("--sockmany", "1", "--sockmany-port", port)
        self.assertGreater(self.world.connects(port)[0], 3)

    def test_epoll(self):
        port = harness.free_port()
        self.stress("--epoll", "1", "--epoll-domain", "ipv4", "--epoll-port", port)
        # Its clients may be there before its servers, and are TCP's then for a while.
        over_sdp, over_tcp = self.world.connects(r"\d+")
        print(over_sdp, dict(over_tcp))
        self.assertGreater(over_sdp + over_tcp.total(), 0)

    def test_sendfile(self):
        self.stress("--sendfile", "1")


if __name__ == "__main__":
    harness.main()
