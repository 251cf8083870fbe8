"""stress-ng's stressors of sockets, which check what they receive: each is client and server by fork."""

import contextlib
import pathlib
import random
import socket

import harness


def first_of_free_ports(count):
    """Below the ports that the kernel gives to whoever connects: between this look and the servers' bind nobody else comes by them."""
    lowest_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        first = random.randrange(10_000, lowest_given - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("0.0.0.0", port))
            return first
    raise AssertionError(f"no {count} ports in a row are free below {lowest_given}")


class StressNg(harness.ProgramTest):
    def setUp(self):
        harness.need("stress-ng")
        super().setUp()

    def stress(self, *arguments):
        self.world.run(["stress-ng", "--verify", "--timeout", "3s", "--metrics-brief", "--temp-path", self.world.directory, *arguments])

    def assert_sdp(self, port):
        # Clients that are there before their servers are TCP's for a second.
        over_sdp, over_tcp = self.world.connects(port)
        print(f"{self.id()}: {over_sdp} SDP, TCP: {dict(over_tcp)}")
        self.assertGreater(over_sdp, 3)
        self.assertLessEqual(set(over_tcp), {"pm-denied", "pm-cached"})

    def test_sock(self):
        port = harness.free_port()
        self.stress("--sock", "1", "--sock-domain", "ipv4", "--sock-type", "stream", "--sock-nodelay", "--sock-port", port)
        self.assert_sdp(port)

    def test_sockmany(self):
        port = harness.free_port()
        self.stress("--sockmany", "1", "--sockmany-port", port)
        self.assert_sdp(port)

    def test_epoll(self):
        servers = 4
        port = first_of_free_ports(servers)
        self.stress("--epoll", "1", "--epoll-domain", "ipv4", "--epoll-port", port)
        self.assert_sdp("(?:" + "|".join(str(port + server) for server in range(servers)) + ")")

    def test_sendfile(self):
        self.stress("--sendfile", "1")


if __name__ == "__main__":
    harness.main()
