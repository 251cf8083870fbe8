"""Which ports SDP listeners take, so that a packet filter can be written for them, and whose word a client
takes for them."""

import pathlib
import subprocess
import sys
import textwrap
from xml.etree import ElementTree

import harness
import two_hosts
from sdp_world import SDPSTAT, wait_until

PORT = 6379
RULES = pathlib.Path(__file__).resolve().parent.parent.parent / "packaging" / "examples" / "sdp.nft"

SERVER = textwrap.dedent(
    """
    import socket, sys
    listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
    while True:
        connection, _ = listener.accept()
        try:
            connection.sendall(connection.recv(100))
        except OSError:
            pass
        connection.close()
    """
)
CLIENT = textwrap.dedent(
    """
    import socket, sys
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as s:
        s.sendall(b"x")
        assert s.recv(1) == b"x"
    """
)
# Connects for each line that it reads, and prints how that was served, and whether it took seconds.
CLIENT_IN_TURNS = textwrap.dedent(
    """
    import socket, sys, time
    for line in sys.stdin:
        begun = time.monotonic()
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as s:
            s.sendall(b"x")
            answer = s.recv(100).decode()
        print(answer, "late" if time.monotonic() - begun > 3 else "in time", flush=True)
    """
)
# Connects as often as that; the server closes first each time.
CLIENT_AGAIN_AND_AGAIN = textwrap.dedent(
    """
    import socket, sys
    for _ in range(int(sys.argv[3])):
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as s:
            s.sendall(b"x")
            assert s.recv(1) == b"x" and s.recv(1) == b""
    """
)
# Takes connections, and says nothing.
SILENT = textwrap.dedent(
    """
    import socket, sys
    listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
    print("ready", flush=True)
    taken = [listener.accept() for _ in range(100)]
    """
)
# Answers in a port mapper's place that each service is at the SDP port of its own: figure 17 of the draft.
IMPOSTOR = textwrap.dedent(
    """
    import socket, struct, sys
    port = int(sys.argv[1])
    answers = socket.socket(type=socket.SOCK_DGRAM)
    answers.bind(("0.0.0.0", 3935))
    listener = socket.create_server(("0.0.0.0", port))
    print("ready", flush=True)
    while True:
        question, client = answers.recvfrom(100)
        if question[0] >> 4 & 3 == 0:
            accept = bytes([question[0] & 0xCF | 0x10]) + question[1:4]
            answers.sendto(accept + struct.pack(">H", port) + question[6:], client)
    """
)


class Ports(two_hosts.TwoHostsTest):
    def serve(self, port=PORT, sdp=True, **settings):
        server = self.server.start(
            [sys.executable, "-c", SERVER, self.server.address, port], environment=settings
        )
        if sdp:
            self.server.wait_for_listener(port)
        else:
            wait_until(lambda: f":{port} " in self.listening(), f"listener at {port}")
        return server

    def listening(self):
        return subprocess.run(
            [*self.server.inside(), "ss", "-tlnH"], capture_output=True, text=True, check=True
        ).stdout

    def sdp_port(self, port=PORT):
        return int(self.server.listener(port)["sdp_local"].rsplit(":", 1)[1])

    def connect(self, port=PORT, **settings):
        self.client.run([sys.executable, "-c", CLIENT, self.server.address, port], environment=settings)

    def assert_connects(self, sdp=0, port=PORT, **reasons):
        self.assertEqual(
            self.client.connects(port), (sdp, {name.replace("_", "-"): n for name, n in reasons.items()})
        )

    def check_that_a_remembered_sdp_port_is_not_trusted(self, take_port):
        """A service leaves its SDP port to another, and comes back on a second one. A client that has just
        been there reaches the service over SDP."""
        server = self.serve(SDP_PORTS="45000-45000")
        client = self.client.start(
            [sys.executable, "-c", CLIENT_IN_TURNS, self.server.address, PORT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

        def connect():
            client.popen.stdin.write(b"\n")
            client.popen.stdin.flush()
            return client.popen.stdout.readline()

        self.assertEqual(connect(), b"x in time\n")
        server.stop()
        take_port()
        self.serve(SDP_PORTS="45001-45001")
        self.assertEqual(connect(), b"x in time\n")
        self.assert_connects(sdp=2)
        client.popen.stdin.close()
        client.wait()
        client.popen.stdout.close()

    def test_a_remembered_sdp_port_that_a_program_without_sdp_has_taken(self):
        def take_port():
            argv = [sys.executable, "-c", SILENT, self.server.address, 45000]
            silent = self.server.start(argv, preload=False, stdout=subprocess.PIPE)
            self.addCleanup(silent.popen.stdout.close)
            self.assertEqual(silent.popen.stdout.readline(), b"ready\n")

        self.check_that_a_remembered_sdp_port_is_not_trusted(take_port)

    def test_a_remembered_sdp_port_that_another_service_has_taken(self):
        self.check_that_a_remembered_sdp_port_is_not_trusted(
            lambda: self.serve(PORT + 1, SDP_PORTS="45000-45000")
        )
        # The other service has not seen the client, nor does the client's host avoid it.
        self.assertEqual(self.server.listener(PORT + 1)["accepted_sdp"], 0)
        self.connect(PORT + 1)
        self.assert_connects(port=PORT + 1, sdp=1)

    def test_who_closes_first_has_time_wait(self):
        """A client with 100 ports of its own reaches a server that closes first as often as it likes."""
        self.serve(SDP_PORTS="45000-45000")
        self.client.net("sysctl", "-q", "net.ipv4.ip_local_port_range=40000 40099")
        self.client.run(
            [sys.executable, "-c", CLIENT_AGAIN_AND_AGAIN, self.server.address, PORT, 300], timeout=60
        )
        self.assert_connects(sdp=300)
        self.assertGreater(self.time_waits(self.server), 10)
        # The first connect does not know its peer.
        self.assertLessEqual(self.time_waits(self.client), 1)

    def time_waits(self, host):
        words = [*host.inside(), "ss", "-tanH", "state", "time-wait"]
        return len(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())

    def test_an_offset_gives_each_port_its_twin(self):
        server = self.serve(SDP_PORT_OFFSET=20000)
        self.assertEqual(self.sdp_port(), PORT + 20000)
        self.connect()
        server.stop()  # its connection is in TIME_WAIT at that port
        self.serve(SDP_PORT_OFFSET=20000)
        self.assertEqual(self.sdp_port(), PORT + 20000)
        self.connect()
        self.assert_connects(sdp=2)

    def test_a_rule_has_its_twin(self):
        """What an access rule says of the service's port a second one says of the SDP port."""
        self.serve(SDP_PORT_OFFSET=20000)
        for source, sdp in (self.client.address, 1), ("10.99.0.0/16", 1):
            twins = [f"tcp dport {port} ip saddr {source} accept" for port in (PORT, PORT + 20000)]
            self.server.filter("udp dport 3935 accept", *twins, "tcp flags syn reject with tcp reset")
            if source == self.client.address:
                self.connect()
            else:
                with self.assertRaises(AssertionError):
                    self.connect()
            self.assertEqual(self.client.connects(PORT)[0], sdp)

    def test_a_twin_that_is_taken(self):
        self.serve(PORT + 20000)
        server = self.serve(sdp=False, SDP_PORT_OFFSET=20000)
        self.connect()
        self.assert_connects(pm_denied=1)
        why = subprocess.run(
            [SDPSTAT, "why", "--dir", self.server.stats_dir, str(server.pid)], capture_output=True, text=True
        ).stdout
        self.assertIn("resources", why)
        self.assertIn(f"port {PORT + 20000}: Address already in use", why)

    def test_a_range(self):
        for port in PORT, PORT + 1:
            self.serve(port, SDP_PORTS="45000-45001")
        self.assertEqual({self.sdp_port(PORT), self.sdp_port(PORT + 1)}, {45000, 45001})
        self.serve(PORT + 2, sdp=False, SDP_PORTS="45000-45001")
        for port in PORT, PORT + 1, PORT + 2:
            self.connect(port)
        self.assert_connects(sdp=1)
        self.assert_connects(port=PORT + 2, pm_denied=1)

    def test_the_rules_of_the_packages(self):
        service = ElementTree.parse(RULES.with_name("sdp.firewalld.xml"))
        for port in service.findall("port"):
            self.assertIn(f" {port.get('protocol')} dport {port.get('port')} accept", RULES.read_text())
        self.assertEqual(len(service.findall("port")), 2)
        self.serve(SDP_PORTS="45000-45099")
        self.server.net("nft", "-f", RULES)
        self.connect()
        self.assert_connects(sdp=1)
        # For hosts outside of 10.0.0.0/8 there is neither an answer nor a wait.
        for host, address in (self.server, "192.168.78.1"), (self.client, "192.168.78.2"):
            host.net("ip", "addr", "add", f"{address}/24", "dev", "wire")
        self.server.start([sys.executable, "-c", SERVER, "192.168.78.1", PORT])
        wait_until(lambda: f"192.168.78.1:{PORT} " in self.listening(), "listener")
        self.client.run([sys.executable, "-c", CLIENT, "192.168.78.1", PORT])
        self.assertIn(f"connect to 192.168.78.1:{PORT}: TCP, because pm-unreachable", self.client.sdp_log())

    def test_a_port_below_1024_has_an_sdp_port_below_1024(self):
        self.serve(80)
        self.assertIn(self.sdp_port(80), range(914, 989))
        self.connect(80)
        self.assert_connects(port=80, sdp=1)

    def test_one_that_any_user_can_have_does_not_count(self):
        self.serve(80, SDP_PORT_OFFSET=20000)
        self.connect(80)
        self.assert_connects(port=80, pm_untrusted=1)
        self.connect(80, SDP_ANY_PRIVILEGED_PORT=1)
        self.assert_connects(port=80, sdp=1, pm_untrusted=1)

    def test_a_user_in_the_port_mappers_place(self):
        """A user without rights answers for the whole host; its real service on port 80 is reached by TCP."""
        self.server.pmd.stop()
        self.serve(80, sdp=False)
        impostor = self.server.start(
            [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                sys.executable,
                "-c",
                IMPOSTOR,
                45000,
            ],
            preload=False,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(impostor.popen.stdout.readline(), b"ready\n")
        self.connect(80)
        self.assert_connects(port=80, pm_untrusted=1)
        # sdp-pmd says who is there.
        with self.assertRaises(AssertionError) as failure:
            self.server.start_pmd()
        self.assertRegex(
            str(failure.exception), rf"taken on .* by process {impostor.pid} \(.*\) of user nobody"
        )


if __name__ == "__main__":
    harness.main()
