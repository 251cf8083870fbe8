"""What a peer says to a program that makes no call is answered within a second; and what has nothing to
answer makes no system call."""

import pathlib
import re
import socket
import struct
import subprocess
import time
import unittest

import harness
import wire_peer as wire

LIMIT = 1.0  # seconds
PATIENCE = 5.0
TIME_WAIT = "06"  # /proc/net/tcp

# Accepts COUNT connections, says so, and makes no call on them ever after.
SLEEPER = """
import signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connections = [server.accept()[0] for _ in range(int(sys.argv[2]))]
print("accepted", flush=True)
signal.pause()
"""

# Both ends of a connection that has been used, and is not any more.
IDLE = """
import signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection = server.accept()[0]
client.sendall(b"x")
connection.recv(1)
print("used", flush=True)
signal.pause()
"""

# Likewise, and no more fits into one end.
FULL = """
import signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection = server.accept()[0]
client.setblocking(False)
try:
    while True:
        client.send(bytes(65536))
except BlockingIOError:
    print("used", flush=True)
signal.pause()
"""


def threads(pid):
    return [task for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


def helper(pid):
    return next((task for task in threads(pid) if (task / "comm").read_text().strip() == "sdp-helper"), None)


def sleeps(pid):
    """How often the process's threads have gone to sleep."""
    counts = [
        re.search(r"^voluntary_ctxt_switches:\t(\d+)", (task / "status").read_text(), re.M)
        for task in threads(pid)
    ]
    return sum(int(count[1]) for count in counts)


def watched(pid):
    """How many descriptors the epoll sets of the process watch."""
    total = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if fd.readlink().name == "anon_inode:[eventpoll]":
            total += pathlib.Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text().count("tfd:")
    return total


class Answers(harness.ProgramTest):
    TRIES = 3

    def setUp(self):
        super().setUp()
        self.start()

    def start(self):
        port = harness.free_port()
        self.program = self.world.start(["python3", "-c", SLEEPER, port, self.TRIES], stdout=subprocess.PIPE)
        host, sdp_port = self.world.wait_for_listener(port)["sdp_local"].rsplit(":", 1)
        self.sdp_port = int(sdp_port)
        self.peers = [wire.WirePeer((host, self.sdp_port)) for _ in range(self.TRIES)]
        for peer in self.peers:
            self.addCleanup(peer.socket.close)
        self.assertEqual(self.program.popen.stdout.readline(), b"accepted\n")

    def assert_in_time(self, took):
        """But for one of three, which a busy machine may keep waiting."""
        self.assertEqual(len(took), self.TRIES)
        self.assertLess(sorted(took)[1], LIMIT, took)

    def assert_answered(self, say, wanted):
        """say(peer) is followed by a message for which wanted(message) holds, on each connection, and on two
        in time: just behind the set-up, and when all have been quiet."""
        for quiet in (False, True):
            took = []
            for peer in self.peers:
                if quiet:
                    harness.wait_until(
                        lambda: watched(self.program.pid) >= len(self.peers), "watch over all links"
                    )
                begun = time.monotonic()
                say(peer)
                self.assertIsNotNone(peer.await_message(wanted, PATIENCE), "no answer")
                took.append(time.monotonic() - begun)
            self.assert_in_time(took)

    def test_credit(self):
        """10.5: a peer that has none is given some, whether or not anything is read."""
        took = []
        for peer in self.peers:
            begun = time.monotonic()
            while peer.sent < peer.hello_ack.bufs - 2:  # the last two carry no payload
                peer.send(wire.DATA, b"x")
            last = peer.sent
            answer = peer.await_message(
                lambda message, last=last: message.ack + 1 + message.bufs > last + 2, PATIENCE
            )
            self.assertIsNotNone(answer, "no credit")
            took.append(time.monotonic() - begun)
        self.assert_in_time(took)

    def test_src_avail_cancel(self):
        """9.5.4: exactly one SendSm."""

        def cancel(peer):
            peer.send(wire.SRC_AVAIL, struct.pack(">IIQ", 1 << 20, 0x1234, 0) + b"beginning")
            peer.send(wire.SRC_AVAIL_CANCEL)

        self.assert_answered(cancel, lambda message: message.mid == wire.SEND_SM)

    def test_change_of_receive_buffers(self):
        sizes = iter(range(60_000, 20_000, -1000))  # a larger one waits for the use of the smaller
        self.assert_answered(
            lambda peer: peer.send(wire.CH_RCV_BUF, struct.pack(">I", next(sizes))),
            lambda message: message.mid == wire.CH_RCV_BUF_ACK,
        )

    def test_suspension(self):
        """13.1.1: SuspCommAck, the end of the link, and the next connection."""
        took = []
        for peer in self.peers:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                begun = time.monotonic()
                peer.send(wire.SUSP_COMM, struct.pack(">IHH", 0, listener.getsockname()[1], 1))
                self.assertIsNotNone(
                    peer.await_message(lambda message: message.mid == wire.SUSP_COMM_ACK, PATIENCE),
                    "no answer",
                )
                took.append(time.monotonic() - begun)
                self.assertTrue(peer.await_end(PATIENCE), "the link does not end")
                peer.socket.close()
                listener.settimeout(PATIENCE)
                listener.accept()[0].close()
        self.assert_in_time(took)

    def test_violation(self):
        took = []
        for peer in self.peers:
            begun = time.monotonic()
            peer.segment(7, bytes(16))
            self.assertIsNotNone(
                peer.await_message(lambda message: message.mid == wire.TERMINATE, PATIENCE), "no Terminate"
            )
            took.append(time.monotonic() - begun)
        self.assert_in_time(took)

    def link_is_there(self, peer):
        """The program's end of it, as /proc/net/tcp has it."""
        ends = [self.sdp_port, peer.socket.getsockname()[1]]
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if [int(end.rsplit(":", 1)[1], 16) for end in fields[1:3]] == ends:
                return fields[3] != TIME_WAIT
        return False

    def test_end_behind_data(self):
        took = []
        for peer in self.peers:
            begun = time.monotonic()
            peer.send(wire.DATA, b"x")
            peer.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(peer.await_end(PATIENCE), "the link does not end")
            took.append(time.monotonic() - begun)
        self.assertLess(sorted(took)[1], LIMIT, took)

    def test_abort(self):
        """8.2.2: the link ends at once, and the log says why."""

        def wrong_mseq(peer):
            peer.sent += 7
            peer.send(wire.DATA, b"x")

        def behind_disconn(peer):
            peer.send(wire.DIS_CONN)
            peer.send(wire.ABORT_CONN)

        aborts = 0
        for what, say in (
            ("a reserved MID", lambda peer: peer.send(0x0F)),
            ("a wrong MSeq", wrong_mseq),
            ("AbortConn", lambda peer: peer.send(wire.ABORT_CONN)),
            ("AbortConn behind DisConn", behind_disconn),
        ):
            with self.subTest(what):
                self.start()
                begun, took = [], []
                for peer in self.peers:
                    self.assertTrue(self.link_is_there(peer))
                    begun.append(time.monotonic())
                    say(peer)
                for peer, since in zip(self.peers, begun, strict=True):
                    harness.wait_until(
                        lambda peer=peer: not self.link_is_there(peer), "end of the link", PATIENCE
                    )
                    took.append(time.monotonic() - since)
                aborts += self.TRIES
                harness.wait_until(
                    lambda number=aborts: self.world.sdp_log().count("aborted: ") == number,
                    "the aborts in the log",
                    PATIENCE,
                )
                self.assert_in_time(took)


class Idle(harness.ProgramTest):
    def start(self, program=IDLE, link="local"):
        program = self.world.start(
            ["python3", "-c", program, harness.free_port()],
            stdout=subprocess.PIPE,
            environment={"SDP_LINK": link},
        )
        self.assertEqual(program.popen.stdout.readline(), b"used\n")
        self.assertIsNotNone(helper(program.pid))
        harness.wait_until(lambda: watched(program.pid) >= 2, "watch over both links")
        return program

    def each(self):
        for what, program in ("used", IDLE), ("full", FULL):
            for link in "local", "tcp":
                with self.subTest(what, link=link):
                    yield self.start(program, link)

    def test_no_thread_wakes(self):
        for program in self.each():
            before = sleeps(program.pid)
            # Nothing is to happen: only time can tell.
            with self.assertRaises(subprocess.TimeoutExpired):
                program.wait(5)
            self.assertLessEqual(sleeps(program.pid) - before, 1)  # the way into the last sleep
            program.stop()

    def test_no_system_call(self):
        harness.need("strace")
        for program in self.each():
            self.assert_no_call(program)
            program.stop()

    def assert_no_call(self, program):
        strace = self.world.start(["strace", "-f", "-p", program.pid, "-o", "calls"], preload=False)
        calls = self.world.directory / "calls"
        try:
            harness.wait_until(lambda: "attached" in strace.output() or not strace.running(), "strace")
            if not strace.running():
                raise unittest.SkipTest("strace may not trace: " + strace.output().strip())
            with self.assertRaises(subprocess.TimeoutExpired):
                program.wait(5)
            self.assertTrue(strace.running())
            self.assertNotIn(" = ", calls.read_text())  # a call that returned
        finally:
            strace.stop()


if __name__ == "__main__":
    harness.main()
