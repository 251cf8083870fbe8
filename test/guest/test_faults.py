"""What ends a connection over a kernel RNIC from outside, and what only slows it down: the device removed,
its port down, a peer killed; delay and loss. Both ends of each connection are plain socket programs that end
within bounded time and say how."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from kernel_rnic import ADDRESS, DEVICE, need_guest, need_kernel_rnic  # noqa: E402

NETDEV = "dum0"  # of the guest
PEER = pathlib.Path(__file__).resolve().parent / "peer.py"
PATIENT = {"SDP_PM_TIMEOUT_MS": 20000}

# Data back and forth, so much at a time, until something ends it.
TALKER = """
import errno, socket, sys
role, address, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if role == "accept":
    s = socket.create_server((address, port)).accept()[0]
else:
    s = socket.create_connection((address, port), timeout=60)
s.settimeout(None)
block = bytearray(size)
rounds = 0
try:
    while True:
        if role == "connect":
            s.sendall(block)
        left = memoryview(block)
        while left:
            received = s.recv_into(left)
            if not received:
                print("ended EOF", flush=True)
                sys.exit()
            left = left[received:]
        if role == "accept":
            s.sendall(block)
        rounds += 1
        if rounds == 3:
            print("moving", flush=True)
except OSError as e:
    print("ended", errno.errorcode[e.errno], flush=True)
"""

# Writes a number of bytes and is gone, in one of several ways.
WRITER = """
import os, socket, sys
address, port, size, way = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
s = socket.create_connection((address, port), timeout=60)
s.settimeout(None)
assert s.recv(1) == b"x"
s.sendall(bytes(i % 251 for i in range(size)))
if way == "_exit":
    os._exit(0)
os.kill(os.getpid(), 9)
"""
# Reads to the end, or from the moment its standard input ends, and says how much came and how it ended.
READER = """
import errno, socket, sys
address, port = sys.argv[1], int(sys.argv[2])
s = socket.create_server((address, port)).accept()[0]
s.sendall(b"x")
sys.stdin.read()
size, end = 0, "EOF"
try:
    while data := s.recv(65536):
        assert data == bytes((size + i) % 251 for i in range(len(data))), "other bytes"
        size += len(data)
except OSError as e:
    end = errno.errorcode[e.errno]
print("read", size, end, flush=True)
"""

# Connects to each port that it is told, and stays connected.
CALLER = """
import socket, sys
connections = []
for port in sys.stdin:
    connections.append(socket.create_connection((sys.argv[1], int(port)), timeout=60))
    connections[-1].sendall(b"x")
    assert connections[-1].recv(1) == b"x"
    print("echoed", flush=True)
"""


def run(*argv):
    subprocess.run([harness.find(argv[0]) or argv[0], *argv[1:]], check=True, timeout=60)


class Faults(unittest.TestCase):
    def setUp(self):
        need_kernel_rnic()
        self.world = harness.TestWorld(listen=[ADDRESS])
        self.addCleanup(self.world.stop)

    def tearDown(self):
        harness.tell_if_failed(self)

    def talkers(self, connecting="verbs", accepting="verbs", size=20000):
        port = harness.free_port()
        ends = []
        for role, rnic in ("accept", accepting), ("connect", connecting):
            ends.append(
                self.world.start(
                    [sys.executable, "-c", TALKER, role, ADDRESS, port, size],
                    environment={"SDP_RNIC": rnic, **PATIENT},
                )
            )
            if role == "accept":
                harness.wait_until(
                    lambda: f"over {DEVICE}" in self.world.sdp_log(), f"a listener over {DEVICE}", 60
                )
                self.world.wait_for_listener(port, 60)
        for end in ends:
            harness.wait_until(lambda end=end: "moving" in end.output(), "data on the move", 60)
        self.assertNotIn("TCP, because", self.world.sdp_log())
        return ends

    def assert_reset(self, *ends):
        for end in ends:
            self.assertEqual(end.wait(60), 0, end.output())
            self.assertIn("ended ECONNRESET", end.output())

    def test_the_accepting_peer_killed(self):
        accepting, connecting = self.talkers()
        accepting.kill()
        self.assert_reset(connecting)

    def test_the_connecting_peer_killed(self):
        accepting, connecting = self.talkers()
        connecting.kill()
        self.assert_reset(accepting)

    def test_an_embedded_peer_killed(self):
        accepting, connecting = self.talkers(connecting="soft")
        connecting.kill()
        self.assert_reset(accepting)

    def test_the_port_goes_down(self):
        need_guest("its device stays")
        ends = self.talkers()
        self.addCleanup(self.port_up)
        run("ip", "link", "set", NETDEV, "down")
        self.assert_reset(*ends)

    def port_up(self):
        run("ip", "link", "set", NETDEV, "up")
        for address in "fd77::1/64", "fd77::2/64":  # a device that goes down loses them
            run("ip", "address", "replace", address, "dev", NETDEV, "nodad")

    def test_the_device_is_removed(self):
        need_guest("its device stays")
        harness.need("rdma")
        # Small messages; and blocks that go by RDMA.
        ends = [*self.talkers(), *self.talkers(size=2 << 20)]
        # A listener that goes on: with its kernel side gone, clients are sent to its own.
        port = harness.free_port()
        echo = self.world.start(
            [sys.executable, harness.PEER, "echo-server", port, ADDRESS],
            environment={"SDP_RNIC": "auto", **PATIENT},
        )
        harness.wait_until(
            lambda: f"{ADDRESS}:{port}: SDP on {ADDRESS}" in self.world.sdp_log(),
            "a listener over the device",
            60,
        )
        self.world.wait_for_listener(port, 60)
        # It ends when the last process has let the device go.
        removal = subprocess.Popen([harness.find("rdma"), "link", "del", DEVICE])
        self.addCleanup(run, "rdma", "link", "add", DEVICE, "type", "siw", "netdev", NETDEV)
        self.assert_reset(*ends)
        harness.wait_until(
            lambda: f"the RDMA device {DEVICE} was removed: no longer SDP on" in self.world.sdp_log(),
            "a listener without it",
            60,
        )
        program = (
            "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
            "s.sendall(b'x'); "
            "assert s.recv(1) == b'x'; print('echoed')"
        )
        self.assertEqual(
            self.world.run([sys.executable, "-c", program, ADDRESS, port], environment=PATIENT), b"echoed\n"
        )
        self.assertNotIn("TCP, because", self.world.sdp_log())
        echo.kill()
        self.assertEqual(removal.wait(60), 0)
        self.assertIn(f"{DEVICE} was removed", self.world.sdp_log())

    def test_a_device_that_comes_while_programs_run(self):
        """Those that run already connect over it, whatever the listener has; it is on the device if it was
        opened when that was there."""
        need_guest("its device stays")
        harness.need("rdma")
        add = ["rdma", "link", "add", DEVICE, "type", "siw", "netdev", NETDEV]
        run("rdma", "link", "del", DEVICE)
        self.addCleanup(lambda: os.path.exists(f"/sys/class/infiniband/{DEVICE}") or run(*add))
        caller = self.world.start(
            [sys.executable, "-c", CALLER, ADDRESS],
            environment={"SDP_RNIC": "auto", **PATIENT},
            stdin=subprocess.PIPE,
        )

        def listen():
            port = harness.free_port()
            self.world.start(
                [sys.executable, harness.PEER, "echo-server", port, ADDRESS],
                environment={"SDP_RNIC": "auto", **PATIENT},
            )
            self.world.wait_for_listener(port, 60)
            return port

        def call(port):
            """What the caller's connections go over, when it has one more."""
            calls = caller.output().count("echoed")
            caller.popen.stdin.write(b"%d\n" % port)
            caller.popen.stdin.flush()
            harness.wait_until(
                lambda: caller.output().count("echoed") > calls or not caller.running(), "an echo", 60
            )
            return sorted(
                (
                    c["rnic"]
                    for p in self.world.sdpstat()["processes"]
                    if p["pid"] == caller.pid
                    for c in p["connections"]
                ),
                key=lambda rnic: rnic == "soft",
            )

        earlier = listen()
        self.assertEqual(call(earlier), ["soft"])
        run(*add)
        self.assertEqual(call(earlier), [DEVICE, "soft"])
        later = listen()
        harness.wait_until(
            lambda: f"{ADDRESS}:{later}: SDP on {ADDRESS}" in self.world.sdp_log(),
            "a listener over the device",
            60,
        )
        self.assertEqual(call(later), [DEVICE, DEVICE, "soft"])
        self.assertNotIn("TCP, because", self.world.sdp_log())

    def tail(self, way, accepting, late=False):
        """What a process has written, of which its device has most when it goes: (bytes that the peer reads,
        how they end), and all of them."""
        port, size = harness.free_port(), 400_000
        reader = self.world.start(
            [sys.executable, "-c", READER, ADDRESS, port],
            environment={"SDP_RNIC": accepting, **PATIENT},
            stdin=subprocess.PIPE,
        )
        self.world.wait_for_listener(port, 60)
        if not late:
            reader.popen.stdin.close()
        writer = self.world.start(
            [sys.executable, "-c", WRITER, ADDRESS, port, size, way],
            environment={"SDP_RNIC": "verbs", **PATIENT},
        )
        writer.wait(60)
        if late:
            reader.popen.stdin.close()
        self.assertEqual(reader.wait(60), 0, reader.output())
        _, read, end = reader.output().split()
        print(
            f"   {way} -> {accepting}{' that reads late' if late else ''}: {read} of {size} bytes, {end}",
            flush=True,
        )
        self.assertNotIn("TCP, because", self.world.sdp_log())
        return (int(read), end), size

    def test_what_is_in_the_device_when_a_process_ends(self):
        need_guest("its network stays")
        harness.need("tc")
        # So that a device has a few KiB on their way at most, and the rest in its queue.
        buffers = pathlib.Path("/proc/sys/net/ipv4/tcp_wmem")
        self.addCleanup(buffers.write_text, buffers.read_text())
        buffers.write_text("4096 16384 16384")
        run("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "5ms")
        self.addCleanup(run, "tc", "qdisc", "del", "dev", "lo", "root")
        for accepting in "verbs", "soft":
            with self.subTest("all of it arrives", accepting=accepting):
                ended, size = self.tail("_exit", accepting)
                self.assertEqual(ended, (size, "EOF"))
        # Not all of it can: then that is no end like any other.
        for way, accepting, late in (
            ("_exit", "soft", True),
            ("kill", "verbs", False),
            ("kill", "soft", False),
        ):
            with self.subTest("all of it, or a reset", way=way, accepting=accepting, late=late):
                ended, size = self.tail(way, accepting, late)
                self.assertIn(ended, [(size, "EOF"), (ended[0], "ECONNRESET")])

    def test_delay_and_loss(self):
        self.talk_over_a_bad_path(("soft", "verbs"), ("verbs", "soft"))

    def test_delay_and_loss_between_kernels(self):
        self.talk_over_a_bad_path(("verbs", "verbs"))

    def talk_over_a_bad_path(self, *pairs):
        need_guest("its network stays")
        harness.need("tc")
        run("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "200ms", "loss", "1%")
        self.addCleanup(run, "tc", "qdisc", "del", "dev", "lo", "root")
        for connecting, accepting in pairs:
            with self.subTest(f"{connecting} to {accepting}"):
                port = harness.free_port()
                # A SYN that is lost must not give TCP the race.
                slow = {
                    "SDP_PM_TIMEOUT_MS": 20000,
                    "SDP_CONNECT_BUDGET_MS": 60000,
                    "SDP_HANDSHAKE_TIMEOUT_MS": 60000,
                }
                talks = ["both", "banner"]
                server = self.world.start(
                    [sys.executable, PEER, "accept", ADDRESS, port, *talks],
                    environment={"SDP_RNIC": accepting, **slow},
                )
                self.world.wait_for_listener(port, 60)
                client = self.world.start(
                    [sys.executable, PEER, "connect", ADDRESS, port, *talks],
                    environment={"SDP_RNIC": connecting, **slow},
                )
                for end, process in ("connecting", client), ("accepting", server):
                    self.assertEqual(process.wait(120), 0, f"{end} end:\n{process.output()}")
                print("  ", connecting, "->", accepting, *client.output().split(), flush=True)
        self.assertNotIn("TCP, because", self.world.sdp_log())


if __name__ == "__main__":
    harness.main()
