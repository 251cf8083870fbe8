"""stress-ng's stressors of sockets, which check what they receive: each is client and server by fork."""

import harness


class StressNg(harness.ProgramTest):
    def setUp(self):
        harness.need("stress-ng")
        super().setUp()

    def stress(self, *arguments):
        self.world.run(
            [
                "stress-ng",
                "--verify",
                "--timeout",
                "3s",
                "--metrics-brief",
                "--temp-path",
                self.world.directory,
                *arguments,
            ]
        )

    def assert_sdp(self, port):
        # Clients that are there before their servers are TCP's for a second. The last connect may come as the
        # server ends.
        over_sdp, over_tcp = self.world.connects(port)
        print(f"{self.id()}: {over_sdp} SDP, TCP: {dict(over_tcp)}")
        self.assertLessEqual(over_tcp.pop("sdp-refused", 0), 1)
        self.assertGreater(over_sdp, 3)
        self.assertLessEqual(set(over_tcp), {"pm-denied", "pm-cached"})

    def test_sock(self):
        port = harness.free_port()
        self.stress(
            "--sock",
            "1",
            "--sock-domain",
            "ipv4",
            "--sock-type",
            "stream",
            "--sock-nodelay",
            "--sock-port",
            port,
        )
        self.assert_sdp(port)

    def test_sockmany(self):
        port = harness.free_port()
        self.stress("--sockmany", "1", "--sockmany-port", port)
        self.assert_sdp(port)

    def test_epoll(self):
        servers = 4
        port = harness.free_port(count=servers)
        self.stress("--epoll", "1", "--epoll-domain", "ipv4", "--epoll-port", port)
        self.assert_sdp("(?:" + "|".join(str(port + server) for server in range(servers)) + ")")

    def test_sendfile(self):
        self.stress("--sendfile", "1")


if __name__ == "__main__":
    harness.main()
