"""Ports that TCP sockets have are not free for a kernel RNIC whose connections are TCP's, too (siw): a
connection, and a listener, gets another one."""

import errno
import pathlib
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from kernel_rnic import ADDRESS, DEVICE, need_guest, need_kernel_rnic  # noqa: E402

OVER_KERNEL_RNIC = {"SDP_RNIC": "verbs", "SDP_PM_TIMEOUT_MS": 20000}
RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, PORTS, FREE = 45000, 96, 24

ECHO_EACH = """
import socket, sys
for _ in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
    s.sendall(b"x")
    assert s.recv(1) == b"x"
    s.close()
print("ok")
"""


class Ports(unittest.TestCase):
    def setUp(self):
        need_kernel_rnic()
        need_guest("its range of ports stays")
        self.world = harness.TestWorld(listen=[ADDRESS])
        self.addCleanup(self.world.stop)
        self.port = harness.free_port()

    def tearDown(self):
        harness.tell_if_failed(self)

    def take_most_ports(self):
        """Of a small range all but FREE, spread over it, by sockets that share with nobody, unless somebody
        has one already."""
        before = RANGE.read_text()
        self.addCleanup(RANGE.write_text, before)
        RANGE.write_text(f"{FIRST} {FIRST + PORTS - 1}")
        for number in range(PORTS):
            if number % (PORTS // FREE) == 0:
                continue
            taken = socket.socket()
            self.addCleanup(taken.close)
            try:
                taken.bind((ADDRESS, FIRST + number))
            except OSError as e:
                if e.errno != errno.EADDRINUSE:  # a connection's that is over, but for its TIME_WAIT
                    raise

    def server(self):
        server = self.world.start(
            [sys.executable, harness.PEER, "echo-server", self.port, ADDRESS], environment=OVER_KERNEL_RNIC
        )
        self.world.wait_for_listener(self.port, 60)
        return server

    def connects(self, count):
        output = self.world.run(
            [sys.executable, "-c", ECHO_EACH, ADDRESS, self.port, count],
            environment=OVER_KERNEL_RNIC,
            timeout=90,
        )
        self.assertEqual(output, b"ok\n")
        self.assertNotIn("TCP, because", self.world.sdp_log())

    def over_device(self):
        """How many connections the device's listener has accepted."""
        return sum(
            listener["accepted_sdp"]
            for process in self.world.sdpstat()["processes"]
            for listener in process["listeners"]
            if listener["rnic"] == DEVICE
        )

    def test_a_connection_finds_a_port(self):
        self.server()
        self.take_most_ports()
        self.connects(6)
        harness.wait_until(lambda: self.over_device() == 6, f"six connections over {DEVICE}", 20)

    def test_a_listener_finds_a_port(self):
        self.take_most_ports()
        for _ in range(3):
            server = self.server()
            self.connects(1)
            self.assertEqual(self.over_device(), 1)
            server.kill()
            server.wait()


if __name__ == "__main__":
    harness.main()
