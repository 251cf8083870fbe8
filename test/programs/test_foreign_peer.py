"""What the specifications demand of the link, of time, or whatever the program does: through the whole
library, with a peer that shares nothing with it (foreign_peer.py)."""

import ast
import dataclasses
import errno
import os
import pathlib
import socket
import struct
import subprocess
import time

import foreign_peer
import harness
from foreign_peer import (
    ABORT_CONN,
    CH_RCV_BUF,
    CH_RCV_BUF_ACK,
    DATA,
    DIS_CONN,
    MODE_CHANGE,
    OOB_PEND,
    OOB_PRES,
    RDMA_RD_COMPL,
    RDMA_WR_COMPL,
    RDMA_WRITE,
    READ_REQUEST,
    SEND,
    SEND_SM,
    SINK_AVAIL,
    SINK_AVAIL_CANCEL,
    SINK_CANCEL_ACK,
    SRC_AVAIL,
    SRC_AVAIL_CANCEL,
    SUSP_COMM,
    SUSP_COMM_ACK,
    ForeignPeer,
    Memory,
    mode_change,
)
from test_pm_client import ACCEPT, Mapper

# A program that does what the test tells it, a Python expression a line, and nothing between two lines.
PUPPET = """
import ast, ctypes, errno, fcntl, os, select, signal, socket, struct, sys, threading
def poll(events, milliseconds):
    p = select.poll()
    p.register(s, events)
    return [what for _, what in p.poll(milliseconds)]
def asleep(call):
    # In a thread of its own; its outcome is told by over().
    global told, thread
    told = []
    def body():
        try:
            told.append(call())
        except OSError as error:
            told.append(errno.errorcode[error.errno])
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
def over():
    thread.join(10)
    return told[0] if told else "asleep"
def to_the_end():
    try:
        while s.recv(1):
            pass
    except OSError as error:
        return error.errno
    return 0
def accepted():
    # What the next connection's first read says.
    with l.accept()[0] as connection:
        return connection.recv(1)
def disconnect():
    # connect(AF_UNSPEC), which Python's sockets do not have.
    return ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16)
def tell_of_sigurg():
    # Once, by a line; `urgent` counts them.
    global urgent
    urgent = 0
    def handler(*_):
        global urgent
        urgent += 1
        if urgent == 1:
            os.write(1, repr('SIGURG').encode() + bytes([10]))
    signal.signal(signal.SIGURG, handler)
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
def forbid(call):
    # The process ends if it is made (SECCOMP_RET_KILL_PROCESS).
    libc = ctypes.CDLL(None, use_errno=True)
    program = struct.pack("=" + "HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, call,
                          6, 0, 0, 0x80000000, 6, 0, 0, 0x7fff0000)
    lines = ctypes.create_string_buffer(program)
    filter = struct.pack("=H6xQ", 4, ctypes.addressof(lines))
    return libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, ctypes.c_ulong(2), ctypes.c_char_p(filter), 0, 0)
def child(call):
    # Of a fork; its outcome is the exit status.
    pid = os.fork()
    if pid == 0:
        os._exit(call())
    return pid
for line in sys.stdin:
    try:
        said = eval(line)
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(repr(said), flush=True)
"""

# For the puppet: its next close resets the connection.
NO_LINGER = "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))"

# Longer than a busy machine keeps anybody waiting.
PATIENCE = 20
TIME_WAIT = "06"  # /proc/net/tcp
CONNECT = 42 if os.uname().machine == "x86_64" else 203  # the system call
# The link is to end at once; or, where the peer has to be waited for, two seconds later.
AT_ONCE, IN_TIME = 1.5, 5
# Of a Hello or a HelloAck.
REFUSED = ({"versions": 0x12}, {"max_adverts": 0}, {"ird": 0}, {"ord": 0}, {"buffers": 2}, {"size": 36})


def processor_time(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Puppet:
    def __init__(self, world, **environment):
        self.process = world.start(
            ["python3", "-c", PUPPET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            environment={"SDP_LOG": "debug", "SDP_PM_TIMEOUT_MS": 10000} | environment,
        )
        self.pid = self.process.pid

    def tell(self, expression):
        self.process.popen.stdin.write(expression.encode() + b"\n")
        self.process.popen.stdin.flush()

    def said(self):
        return ast.literal_eval(self.process.popen.stdout.readline().decode())

    def do(self, expression):
        self.tell(expression)
        return self.said()

    def processor_time(self):
        return processor_time(self.pid)


class ForeignTest(harness.ProgramTest):
    def serve(self, **environment):
        self.port = harness.free_port()
        self.puppet = Puppet(self.world, **environment)
        self.puppet.do(f"(l := socket.create_server(('127.0.0.1', {self.port}))) and None")
        host, port = self.world.wait_for_listener(self.port)["sdp_local"].rsplit(":", 1)
        self.sdp_address = (host, int(port))

    def connect(self):
        """A connection whose program end is `s` of the puppet."""
        peer = ForeignPeer.connect(self.sdp_address)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and poll(select.POLLIN, 0) and None")
        return peer

    def dialled(self):
        """Where programs that connect arrive, with a port mapper that names the SDP port."""
        self.sdp, self.conventional = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        for listener in self.sdp, self.conventional:
            self.addCleanup(listener.close)
            listener.settimeout(PATIENCE)
        self.host = self.conventional.getsockname()

        def answer(request):
            return [dataclasses.replace(request, mt=ACCEPT, pm_time=0, ap_port=self.sdp.getsockname()[1])]

        self.mapper = Mapper("127.0.0.1", harness.free_port(socket.SOCK_DGRAM), answer)
        self.addCleanup(self.mapper.stop)

    def dial(self, **environment):
        """A program that connects, and says self.host then. What it has learned is not the next one's."""
        self.puppet = Puppet(self.world, SDP_PM_PORT=self.mapper.socket.getsockname()[1], **environment)
        self.puppet.tell(f"(s := socket.create_connection({self.host})).getpeername()")

    def accept(self, **fields):
        peer = ForeignPeer.accept(self.sdp, **fields)
        self.addCleanup(peer.close)
        return peer

    def descriptors(self):
        """Of the program, and of its library."""
        return sorted(os.listdir(f"/proc/{self.puppet.pid}/fd"))

    def link_state(self, peer):
        """Of the program's end of the link, as /proc/net/tcp has it; None: there is none."""
        ours, theirs = peer.link.getsockname()[1], self.sdp_address[1]
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            ports = [int(end.rsplit(":", 1)[1], 16) for end in fields[1:3]]
            if ports == [theirs, ours] and fields[3] != TIME_WAIT:
                return fields[3]
        return None

    def await_end_of_link(self, peer):
        harness.wait_until(lambda: self.link_state(peer) is None, "end of the program's link", PATIENCE)

    def assert_reset(self, peer, seconds):
        """The link is gone, though the program has its descriptor still: a peer that sends on is told."""
        self.await_end_of_link(peer)
        self.assertLess(peer.flood(), seconds)

    def assert_over(self, names):
        """What TCP tells of a connection that was reset, and nobody spins on it."""
        self.assertEqual(self.puppet.do("s.getsockname()"), names[0])
        self.assertEqual(self.puppet.do("s.getpeername()"), "ENOTCONN")
        self.assertEqual(self.puppet.do("s.recv(1)"), b"")
        self.assertEqual(self.puppet.do("s.send(b'x', socket.MSG_NOSIGNAL)"), "EPIPE")
        self.assertEqual(self.puppet.do("poll(select.POLLIN, 0) == [select.POLLIN | select.POLLHUP]"), True)
        before = self.puppet.processor_time()
        time.sleep(0.3)  # for as long as the measurement takes
        self.assertLess(self.puppet.processor_time() - before, 0.1)


class SetUp(ForeignTest):
    def test_a_hello_that_is_refused_ends_the_link(self):
        """6.2.1, 8.1.1 (3a), 10: and the link's own answer says so (RFC 5044, 7.1.2)."""
        self.serve()
        for wrong in REFUSED:
            with self.subTest(**wrong):
                peer = ForeignPeer.request(self.sdp_address, private=foreign_peer.hello(**wrong))
                self.addCleanup(peer.close)
                self.assertTrue(peer.flags & foreign_peer.REJECTED)
                self.assertEqual(peer.private, b"")
                self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))
        self.puppet.do("l.setblocking(False)")
        self.assertEqual(self.puppet.do("l.accept()"), "EAGAIN")

    def test_a_helloack_that_is_refused_ends_the_link(self):
        """6.2.2, 8.1.1 (7a), 10: the program's connection is TCP then."""
        self.dialled()
        for wrong in REFUSED:
            with self.subTest(**wrong):
                self.dial()
                peer = self.accept(private=foreign_peer.hello_ack(**wrong))
                with self.conventional.accept()[0]:
                    self.assertEqual(self.puppet.said(), self.host)
                    self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))

    def test_the_reserved_bits_of_a_request_are_not_checked(self):
        self.serve()
        peer = ForeignPeer.connect(self.sdp_address, flags=0x2F)
        self.addCleanup(peer.close)
        peer.say(DATA, b"x")
        self.assertEqual(self.puppet.do("(s := l.accept()[0]).recv(1)"), b"x")

    def test_the_helloack_comes_behind_the_rtr(self):
        self.serve()
        peer = ForeignPeer.request_peer_to_peer(self.sdp_address)
        self.addCleanup(peer.close)
        with self.assertRaises(TimeoutError):
            peer.hear(timeout=0.2)
        peer.ready_to_receive()
        ack = peer.hear()
        self.assertEqual((ack.mid, ack.opcode), (foreign_peer.HELLO_ACK, foreign_peer.SEND_SE))
        self.assertEqual((ack.mseq, ack.ack), (0, 0))

    def test_a_connection_that_was_made_first_is_accepted_first(self):
        """The library's helper has answered it, and gets no processor to see its RTR: another program has the
        one where it may run."""
        self.serve()
        first = ForeignPeer.request_peer_to_peer(self.sdp_address)
        self.addCleanup(first.close)
        for task in pathlib.Path(f"/proc/{self.puppet.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "sdp-helper":
                os.sched_setaffinity(int(task.name), {min(os.sched_getaffinity(0))})
                os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
        hog = subprocess.Popen(["sh", "-c", "while :; do :; done"])
        self.addCleanup(hog.wait)
        self.addCleanup(hog.kill)
        os.sched_setaffinity(hog.pid, {min(os.sched_getaffinity(0))})
        harness.wait_until(lambda: processor_time(hog.pid) > 0.02, "processor for the other program")
        first.ready_to_receive()
        second = ForeignPeer(socket.create_connection(self.sdp_address))
        self.addCleanup(second.close)
        private = foreign_peer.hello()
        second.link.sendall(foreign_peer.REQUEST + struct.pack(">BBH", 0, 1, len(private)) + private)
        ports = [peer.link.getsockname()[1] for peer in (first, second)]
        accepted = self.puppet.do("[l.accept()[1][1], l.accept()[1][1]]")
        self.assertEqual(accepted, ports)

    def test_a_link_that_ends_during_set_up_is_no_connection(self):
        """8.1.2: and nothing of it is kept. Behind a whole Request the Reply may have left, and with it the
        set-up was complete: then the connection is one that was aborted."""
        self.serve()
        self.puppet.do("l.setblocking(False)")
        self.assertEqual(self.puppet.do("accepted()"), "EAGAIN")
        before = self.descriptors()
        private = foreign_peer.hello()
        request = foreign_peer.REQUEST + struct.pack(">BBH", 0, 1, len(private)) + private
        outcomes = set()

        def gone():
            outcomes.add(said := self.puppet.do("accepted()"))
            return said == "EAGAIN" and len(self.descriptors()) <= len(before)

        for how in ("FIN", "reset"):
            for whole, allowed in ((False, {"EAGAIN"}), (True, {"EAGAIN", "ECONNRESET"})):
                with self.subTest(how=how, whole=whole):
                    outcomes.clear()
                    peer = ForeignPeer(socket.create_connection(self.sdp_address))
                    peer.link.sendall(request if whole else request[:-1])
                    peer.reset() if how == "reset" else peer.close()
                    harness.wait_until(gone, "end of the set-up", PATIENCE)
                    self.assertLessEqual(outcomes, allowed)

    def test_the_first_message_may_come_with_the_helloack(self):
        """8.1.1 (1e): in one piece behind the RTR. With the Reply MPA allows none (RFC 5044, 7.1.2)."""
        self.dialled()
        self.dial()
        peer = self.accept(private=b"", words=(foreign_peer.PEER_TO_PEER | 8, foreign_peer.BY_WRITE | 7))
        self.assertEqual(peer.hear().opcode, RDMA_WRITE)
        ack = peer.frame(foreign_peer.hello_ack(), foreign_peer.SEND_SE)
        peer.link.sendall(ack + peer.framed(DATA, b"soon"))
        self.assertEqual(self.puppet.said(), self.host)
        self.assertEqual(self.puppet.do("s.recv(10)"), b"soon")
        self.puppet.do("s.send(b'back')")
        self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"back")
        self.dial()
        early = foreign_peer.BSDH.pack(foreign_peer.BUFFERS, 0, DATA, 20, 0, 0) + b"soon"
        peer = self.accept(behind=foreign_peer.fpdu(foreign_peer.untagged(SEND) + early))
        with self.conventional.accept()[0]:
            self.assertEqual(self.puppet.said(), self.host)
        self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))

    def say_all(self, peer, count):
        """As many messages in one piece as there are receive Private Buffers. They are as long as those, but
        the last two, which have no payload (10.5)."""
        size = peer.receive_size - foreign_peer.BSDH.size
        bodies = [bytes([number]) * size for number in range(count - 2)] + 2 * [b""]
        peer.link.sendall(b"".join(peer.framed(DATA, body) for body in bodies))
        return b"".join(bodies)

    def test_what_bufs_says_is_there_as_soon_as_it_is_said(self):
        """8.1.1 (1c, 4b): all of it can be used, before the program makes a call."""
        self.serve(SDP_PRIVATE_BUFFERS=16)
        peer = ForeignPeer.request(self.sdp_address)
        self.addCleanup(peer.close)
        self.assertEqual(peer.posted, 16)
        peer.receive_size = peer.buffer_size
        sent = self.say_all(peer, 16)
        self.assertEqual(self.puppet.do(f"(s := l.accept()[0]).recv({len(sent)}, socket.MSG_WAITALL)"), sent)
        self.dialled()
        self.dial(SDP_PRIVATE_BUFFERS=16)
        peer = self.accept(private=b"", words=(foreign_peer.PEER_TO_PEER | 8, foreign_peer.BY_WRITE | 7))
        bufs, *_ = foreign_peer.BSDH.unpack_from(peer.private)
        self.assertEqual(bufs, 16)
        self.assertEqual(peer.hear().opcode, RDMA_WRITE)
        (peer.receive_size,) = struct.unpack_from(">I", peer.private, foreign_peer.BSDH.size + 8)
        peer.link.sendall(peer.frame(foreign_peer.hello_ack(), foreign_peer.SEND_SE))
        sent = self.say_all(peer, 15)  # the HelloAck has the first
        self.assertEqual(self.puppet.said(), self.host)
        self.assertEqual(self.puppet.do(f"s.recv({len(sent)}, socket.MSG_WAITALL)"), sent)

    def test_the_hello_goes_in_streaming_mode(self):
        """8.1.1 (2): as private data of the MPA Request. Nothing follows it before the Reply."""
        self.dialled()
        self.dial()
        peer = ForeignPeer(self.sdp.accept()[0])
        self.addCleanup(peer.close)
        key, flags, _, size = struct.unpack(">16sBBH", peer.read(20))
        self.assertEqual(key, foreign_peer.REQUEST)
        private = peer.read(size)[4 if flags & foreign_peer.ENHANCED else 0 :]
        bufs, *fields = foreign_peer.BSDH.unpack_from(private)
        self.assertEqual(fields, [0, foreign_peer.HELLO, 32, 0, 0])
        self.assertGreaterEqual(bufs, 3)
        peer.link.settimeout(0.2)
        with self.assertRaises(TimeoutError):
            peer.read(1)

    def test_without_an_rtr_it_is_no_connection(self):
        self.serve(SDP_HANDSHAKE_TIMEOUT_MS=1000)
        peer = ForeignPeer.request_peer_to_peer(self.sdp_address)
        self.addCleanup(peer.close)
        self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))
        self.puppet.do("l.setblocking(False)")
        self.assertEqual(self.puppet.do("l.accept()"), "EAGAIN")
        self.assertIn("nothing came behind its MPA Request", self.world.sdp_log())

    def test_without_an_rtr_a_connection_that_was_accepted_ends(self):
        """A program that waits in accept has it at once; the time-out is the same."""
        self.serve(SDP_HANDSHAKE_TIMEOUT_MS=1000)
        for sleeps in (False, True):
            with self.subTest(sleeps=sleeps):
                took = []
                for _ in range(3):
                    self.puppet.tell("(s := l.accept()[0]) and None")
                    begun = time.monotonic()
                    peer = ForeignPeer.request_peer_to_peer(self.sdp_address)
                    self.addCleanup(peer.close)
                    self.assertIsNone(self.puppet.said())
                    if sleeps:
                        self.puppet.tell("s.recv(1)")
                    self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))
                    took.append(time.monotonic() - begun)
                    if sleeps:
                        self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assertGreater(min(took), 0.9)
                self.assertLess(sorted(took)[1], 2.0, "but for one, which a busy machine keeps waiting")


class GracefulClose(ForeignTest):
    """8.2.1"""

    def test_a_close_sends_all_data_then_disconn_and_waits_for_the_peers(self):
        self.serve()
        for close in ("s.close()", "s.shutdown(socket.SHUT_WR)"):
            with self.subTest(close):
                peer = self.connect()
                self.puppet.do(f"[s.send(b'%d' % i) for i in range(9)] and {close}")
                data = b""
                while (message := peer.hear()).mid == DATA:
                    data += message.payload
                self.assertEqual(data, b"012345678")
                self.assertEqual(message.mid, DIS_CONN)
                self.assertEqual(message.opcode, foreign_peer.SEND, "no Solicited Event (14.2)")
                with self.assertRaises(TimeoutError, msg="nothing follows, and the link stays"):
                    peer.hear(timeout=0.2)
                if close.startswith("s.shutdown"):
                    peer.say(DATA, b"back")
                    self.assertEqual(self.puppet.do("s.recv(10)"), b"back")
                    self.puppet.tell("s.recv(10)")
                peer.say(DIS_CONN)
                if close.startswith("s.shutdown"):
                    self.assertEqual(self.puppet.said(), b"")
                self.assertEqual(peer.end(PATIENCE), "FIN")

    def test_behind_the_peers_disconn_sending_goes_on_and_a_close_answers_it(self):
        self.serve()
        peer = self.connect()
        peer.say(DIS_CONN)
        self.assertEqual(self.puppet.do("s.recv(1)"), b"")
        self.assertEqual(self.puppet.do("s.send(b'more')"), 4)
        self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"more")
        self.puppet.do("s.close()")
        self.assertEqual(peer.hear_until(lambda message: message.mid != DATA).mid, DIS_CONN)
        self.assertEqual(peer.end(PATIENCE), "FIN")

    def test_data_behind_the_close_is_refused(self):
        """8.2.1; R2, where the peer has closed before: all that the program wrote ahead of it is sent."""
        self.serve()
        for closed in False, True:
            with self.subTest(peer_has_closed=closed):
                peer = self.connect()
                if closed:
                    peer.say(DIS_CONN)
                    self.assertEqual(self.puppet.do("s.recv(1)"), b"")
                self.puppet.do("[s.send(b'%d' % i) for i in range(9)] and s.shutdown(socket.SHUT_WR)")
                self.assertEqual(self.puppet.do("s.send(b'x', socket.MSG_NOSIGNAL)"), "EPIPE")
                data = b""
                while (message := peer.hear()).mid == DATA:
                    data += message.payload
                self.assertEqual((data, message.mid), (b"012345678", DIS_CONN))
                with self.assertRaises(foreign_peer.Ended if closed else TimeoutError):
                    self.fail(f"{peer.hear(timeout=PATIENCE if closed else 0.2)} came behind DisConn")

    def test_a_sink_avail_of_the_programs_ends_with_the_peers_disconn(self):
        """8.2.1 (R1): nothing is written there any more, and the program's other half goes on."""
        self.serve(SDP_FORCE="write")
        peer = self.connect()
        peer.say(MODE_CHANGE, mode_change(foreign_peer.PIPE_MODE))
        self.puppet.tell("s.recv(100_000)")
        room = Memory.advertised(peer.hear_until(lambda message: message.mid == SINK_AVAIL))
        peer.say(DIS_CONN)
        self.assertEqual(self.puppet.said(), b"")
        self.puppet.do("s.send(b'more')")
        self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"more")
        peer.tagged(RDMA_WRITE, room.stag, room.offset, b"late")
        terminate = peer.hear_until(lambda message: message.opcode == foreign_peer.TERMINATE)
        self.assertEqual(terminate.payload[:2].hex(), "1100")

    def test_a_peer_that_sends_to_a_closed_connection_is_told_and_reset(self):
        self.serve()
        peer = self.connect()
        self.puppet.do("s.close()")
        self.assertEqual(peer.hear().mid, DIS_CONN)
        peer.say(DATA, b"for nobody")
        self.assertEqual(peer.hear_until(lambda message: message.mid != DATA).mid, ABORT_CONN)
        self.assertLess(peer.flood(), AT_ONCE)

    def lose(self, end):
        """A connection whose program ends it with unsent data, and whose peer resets it then."""
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(buffers=3), bufs=3)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and s.setblocking(False)")
        self.puppet.do("[s.send(b'a') for _ in range(9)] and None")
        self.puppet.do(end)
        self.assertEqual(peer.hear().payload, b"a")
        self.assertIsNotNone(self.link_state(peer))
        peer.reset()
        if end != "s.close()":
            self.assertEqual(self.puppet.do("poll(select.POLLIN, 10000) and s.recv(1)"), "ECONNRESET")
            self.puppet.do("s.close()")

    def test_a_link_that_is_reset_before_all_was_sent_is_a_reset_and_gives_all_back(self):
        """8.2.1 (L1, L5)"""
        self.serve()
        self.lose("s.shutdown(socket.SHUT_WR)")
        # With what is kept for the next one, and perhaps with what a thread of the library is about to close:
        # fewer than ten connections would leave, with one descriptor each.
        before = len(self.descriptors())
        for end in ("s.close()", "s.shutdown(socket.SHUT_WR)"):
            with self.subTest(end):
                for _ in range(10):
                    self.lose(end)
                harness.wait_until(lambda: len(self.descriptors()) <= before, "its descriptors", PATIENCE)

    def test_what_was_received_outlives_the_link(self):
        self.serve()
        for how in ("DisConn", "a reset", "no DisConn", "a violation"):
            with self.subTest(how):
                peer = self.connect()
                peer.say(DATA, b"the last")
                self.assertEqual(self.puppet.do("s.recv(8, socket.MSG_PEEK)"), b"the last")
                if how == "DisConn":
                    peer.say(DIS_CONN)
                if how == "a violation":
                    peer.say(0x0F)
                peer.reset() if how == "a reset" else peer.close()
                self.assertEqual(self.puppet.do("poll(select.POLLRDHUP, 10000) and s.recv(100)"), b"the last")
                self.assertEqual(self.puppet.do("s.recv(100)"), b"" if how == "DisConn" else "ECONNRESET")


class FlowControl(ForeignTest):
    """10: what the program wants to send waits for Private Buffers, whatever it calls."""

    def test_no_credit_no_message(self):
        self.serve()
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(buffers=3), bufs=3)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and s.setblocking(False)")
        sent = bytes(range(200))
        self.assertEqual(self.puppet.do("sum(s.send(bytes([i])) for i in range(200))"), 200)
        received, messages = b"", 0
        while len(received) < len(sent):
            message = peer.hear()
            received += message.payload
            messages += 1
            # Three buffers: one for payload, one for what has none, one for credit.
            with self.assertRaises(TimeoutError):
                while peer.hear(timeout=0.1).payload == b"":
                    pass
            peer.say(DATA, bufs=3)
            self.puppet.do("poll(select.POLLIN, 0)")
        self.assertEqual(received, sent)
        self.assertLess(messages, 10, "what waited leaves together")

    def test_no_message_is_longer_than_the_peers_private_buffers(self):
        self.serve()
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(size=256))
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and None")
        self.puppet.tell("s.sendall(bytes(20000))")
        received = 0
        while received < 20000:
            message = peer.hear()
            self.assertLessEqual(16 + len(message.payload), 256)
            received += len(message.payload)
            peer.say(DATA)
        self.assertEqual(self.puppet.said(), None)

    def test_who_never_sends_gives_credit_by_data_without_payload(self):
        """10.4"""
        self.serve()
        peer = self.connect()
        size = 3 * peer.credit
        self.puppet.tell(f"s.recv({size}, socket.MSG_WAITALL)")
        sent, updates = 0, 0
        while sent < size:
            while peer.credit > 2 and sent < size:
                peer.say(DATA, bytes([sent % 256]))
                sent += 1
            if sent < size:
                update = peer.hear()
                self.assertEqual((update.mid, update.payload), (DATA, b""))
                updates += 1
        self.assertEqual(self.puppet.said(), bytes(i % 256 for i in range(size)))
        self.assertGreater(updates, 0)

    def test_at_one_credit_nothing_but_an_update_comes(self):
        """10.5: and it does come."""
        self.serve()
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(buffers=3), bufs=3)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and None")
        self.puppet.do("asleep(lambda: to_the_end())")
        left = 3  # of the program's credit
        for told in range(6):
            with self.subTest(told=told, left=left):
                while peer.credit > 2:
                    peer.say(DATA, b".", bufs=left)
                while peer.credit > 1:
                    peer.say(DATA, bufs=left)
                if left == 0:
                    with self.assertRaises(TimeoutError, msg="a message without credit"):
                        peer.hear(timeout=0.2)
                    left = 1
                    peer.say(DATA, bufs=left)
                if left == 1:
                    self.puppet.do("s.send(b'payload', socket.MSG_DONTWAIT)")
                update = peer.hear()
                left -= 1
                self.assertEqual((update.mid, update.payload), (DATA, b""))
                self.assertGreater(peer.credit, 1, "nothing was given")
        self.assertEqual(left, 0)

    def test_smaller_private_buffers_are_confirmed_at_once(self):
        """10.6: as they are, or smaller, though not smaller than was asked for."""
        self.serve()
        peer = self.connect()
        before = peer.buffer_size
        asked = before // 2
        peer.say(CH_RCV_BUF, struct.pack(">I", asked))
        ack = peer.hear_until(lambda message: message.mid == CH_RCV_BUF_ACK)
        self.assertIn(ack.number, range(asked, before + 1))
        body = bytes(i % 251 for i in range(ack.number - 16))
        peer.say(DATA, body)
        self.assertEqual(self.puppet.do(f"s.recv({len(body)}, socket.MSG_WAITALL)"), body)

    def test_larger_private_buffers_are_confirmed_behind_the_last_of_the_old(self):
        """10.6, 10.6.2"""
        self.serve(SDP_PRIVATE_BUFFER_SIZE=4096, SDP_PRIVATE_BUFFERS=8)
        peer = self.connect()
        self.assertEqual((peer.buffer_size, peer.posted), (4096, 8))
        used = peer.mseq + 1
        peer.say(CH_RCV_BUF, struct.pack(">I", 8192))
        total, ack = 0, None
        while ack is None:
            peer.say(DATA, b"x" * 4080)
            total += 4080
            self.assertEqual(len(self.puppet.do("s.recv(4080, socket.MSG_WAITALL)")), 4080)
            self.puppet.do("s.send(b'.')")
            while (message := peer.hear()).payload != b".":
                ack = message if message.mid == CH_RCV_BUF_ACK else ack
            self.assertLess(total, 100 * 4080, "no answer")
        self.assertGreaterEqual(used + 1 + total // 4080, 8, "the old ones were not used up")
        self.assertGreater(ack.number, 4096)
        body = bytes(i % 251 for i in range(ack.number - 16))
        peer.say(DATA, body)
        self.assertEqual(self.puppet.do(f"s.recv({len(body)}, socket.MSG_WAITALL)"), body)

    def until_it_asks(self, peer):
        """ChRcvBuf, for which a stream of the program's asks, and how much came before."""
        self.puppet.tell("s.sendall(bytes(2_000_000))")
        received = 0
        while (message := peer.hear()).mid != CH_RCV_BUF:
            received += len(message.payload)
            peer.say(DATA)
        self.assertGreater(message.number, 4096)
        return message, received

    def test_of_two_changes_that_cross_the_connecting_peers_waits(self):
        """10.6.1: the accepting peer, which the program is, disregards it."""
        self.serve(SDP_FORCE="bcopy")
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(size=4096))
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and None")
        asked, received = self.until_it_asks(peer)
        smaller = struct.pack(">I", peer.buffer_size // 2)
        peer.say(CH_RCV_BUF, smaller, ack=asked.mseq - 1)
        crossed = peer.mseq
        peer.say(CH_RCV_BUF_ACK, struct.pack(">I", 8192))
        answers, again, longest = [], None, 0
        while received < 2_000_000:
            message = peer.hear()
            self.assertNotEqual(message.mid, CH_RCV_BUF)
            received += len(message.payload)
            longest = max(longest, len(message.payload))
            answers += [message] if message.mid == CH_RCV_BUF_ACK else []
            if again is None and message.ack > crossed and received > 1_000_000:
                self.assertEqual(answers, [])
                again = peer.mseq
                peer.say(CH_RCV_BUF, smaller)
            peer.say(DATA)
        self.assertEqual((self.puppet.said(), longest), (None, 8192 - 16))
        if not answers:
            answers = [peer.hear_until(lambda message: message.mid == CH_RCV_BUF_ACK)]
        self.assertGreater(answers[0].ack, again)

    def test_of_two_changes_that_cross_the_accepting_peers_is_answered(self):
        """10.6.1: by the connecting peer, which the program is, and its own may come again."""
        self.dialled()
        self.dial(SDP_FORCE="bcopy")
        peer = self.accept(private=foreign_peer.hello_ack(size=4096))
        self.assertEqual(self.puppet.said(), self.host)
        asked, received = self.until_it_asks(peer)
        size = struct.unpack_from(">I", peer.private, foreign_peer.BSDH.size + 8)[0]
        peer.say(CH_RCV_BUF, struct.pack(">I", size // 2), ack=asked.mseq - 1)
        answers = []
        while received < 2_000_000:
            message = peer.hear()
            received += len(message.payload)
            answers += [message] if message.mid == CH_RCV_BUF_ACK else []
            if message.mid == CH_RCV_BUF:
                self.assertEqual(len(answers), 1, "it comes behind the answer")
                self.assertEqual(message.number, asked.number)
                peer.say(CH_RCV_BUF_ACK, struct.pack(">I", 4096))
            self.assertLessEqual(16 + len(message.payload), 4096)
            peer.say(DATA)
        self.assertEqual(self.puppet.said(), None)
        self.assertEqual(len(answers), 1)
        self.assertIn(answers[0].number, range(size // 2, size + 1))


class Suspension(ForeignTest):
    """13.1.1 (3, 4, 8): of a connection whose peer moves."""

    def test_the_next_connection_begins_anew(self):
        """13.1.1 (5, 6, 7a): by the Hello's fields, with the size of before, and no memory of the old one is
        touched."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        peer = self.connect()
        old = Memory.of(os.urandom(200_000), 0x1234)
        peer.say(SRC_AVAIL, old.header() + old.data[:100])
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        listener.settimeout(PATIENCE)
        peer.say(SUSP_COMM, struct.pack(">IHH", 0, listener.getsockname()[1], 1))
        while (message := peer.hear()).mid != SUSP_COMM_ACK:
            self.assertEqual((message.mid, message.payload), (DATA, b""))
        again = ForeignPeer.accept(listener)
        self.addCleanup(again.close)
        bufs, *fields = foreign_peer.BSDH.unpack_from(again.private)
        self.assertEqual(fields, [0, foreign_peer.HELLO, 32, 0, 0])
        self.assertGreaterEqual(bufs, 3)
        adverts, reserved, versions, _, size, ird, ord = struct.unpack_from(">HBBIIHH", again.private, 16)
        self.assertEqual((reserved, versions, size), (0, 0x11, peer.buffer_size))
        self.assertGreaterEqual(min(adverts, ird, ord), 1)
        self.puppet.tell("s.recv(200_000, socket.MSG_WAITALL)")
        self.assertEqual(again.hear().mseq, 0)
        new = Memory.of(old.data[100:], 0x5678)
        again.say(SRC_AVAIL, new.header() + new.data[:50])
        left = new.size - 50
        while left > 0:
            message = again.hear_until(lambda message: message.mid != DATA)
            if message.opcode == READ_REQUEST:
                again.answer(message, new)  # which is not of the old STag
            else:
                self.assertEqual(message.mid, RDMA_RD_COMPL)
                left -= message.number
        self.assertEqual(left, 0)
        self.assertEqual(self.puppet.said(), old.data)

    def test_the_answer_waits_for_what_is_in_process_and_is_the_last_message(self):
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        peer = self.connect()
        memory = Memory.of(os.urandom(200_000), 0x1234)
        self.puppet.tell("s.recv(200_007, socket.MSG_WAITALL)")
        peer.say(SRC_AVAIL, memory.header() + memory.data[:100])
        read = peer.hear_until(lambda message: message.opcode == READ_REQUEST)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        listener.settimeout(PATIENCE)
        peer.say(SUSP_COMM, struct.pack(">IHH", 0, listener.getsockname()[1], 1))
        with self.assertRaises(TimeoutError, msg="an answer while the RDMA Read is in process"):
            peer.hear_until(lambda message: message.mid == SUSP_COMM_ACK, timeout=0.2)
        peer.answer(read, memory)
        said = []
        while not said or said[-1].mid != SUSP_COMM_ACK:
            message = peer.hear()
            if message.opcode == READ_REQUEST:
                peer.answer(message, memory)
            else:
                said.append(message)
        told = sum(message.number for message in said if message.mid == RDMA_RD_COMPL)
        self.assertEqual(told, 199_900)
        with self.assertRaisesRegex(foreign_peer.Ended, "FIN|reset"):
            self.fail(f"{peer.hear()} came behind the SuspCommAck")
        again = ForeignPeer.accept(listener)
        self.addCleanup(again.close)
        self.assertEqual(foreign_peer.BSDH.unpack_from(again.private)[2], foreign_peer.HELLO)
        again.hear()  # before the initiator's first FPDU the responder sends none
        again.say(DATA, b"resumed")
        self.assertEqual(self.puppet.said(), memory.data + b"resumed")
        self.puppet.do("s.send(b'back')")
        self.assertEqual(again.hear_until(lambda message: message.payload).payload, b"back")


class DataSink(ForeignTest):
    """9.2, 9.5: how a program's library takes what the peer advertises."""

    def advertise(self, peer, size, stag, ahead):
        memory = Memory.of(os.urandom(size), stag)
        peer.say(SRC_AVAIL, memory.header() + memory.data[:ahead])
        return memory

    def test_a_suitable_buffer_is_filled_by_rdma_read(self):
        """9.2 (2b): what came with the SrcAvail is not counted."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        peer = self.connect()
        self.puppet.tell("s.recv(200_000, socket.MSG_WAITALL)")
        memory = self.advertise(peer, 200_000, 0x1234, ahead=100)
        fetched = told = 0
        while told < 199_900:
            message = peer.hear()
            if message.opcode == READ_REQUEST:
                with self.assertRaises(TimeoutError, msg="RdmaRdCompl ahead of the RDMA Read's end"):
                    peer.hear_until(lambda message: message.mid == RDMA_RD_COMPL, timeout=0.1)
                peer.answer(message, memory)
                fetched += message.read[0]
            elif message.mid == RDMA_RD_COMPL:
                told += message.number
                self.assertLessEqual(told, fetched)
                self.assertIn(message.opcode, (foreign_peer.SEND_SE, foreign_peer.SEND_SE_INVALIDATE))
                if message.opcode == foreign_peer.SEND_SE_INVALIDATE:
                    self.assertEqual((message.invalidated, told), (memory.stag, 199_900))
        self.assertEqual(told, 199_900)
        self.assertEqual(self.puppet.said(), memory.data)

    def test_an_unsuitable_buffer_is_filled_by_data(self):
        """9.2 (2a): the reader does not block, or has little room."""
        self.serve()
        for wait in ("poll(select.POLLIN, 10000) and s.recv(10, socket.MSG_DONTWAIT)", "s.recv(10)"):
            with self.subTest(wait):
                peer = self.connect()
                memory = self.advertise(peer, 20_000, 0x1234, ahead=10)
                self.assertEqual(self.puppet.do(wait), memory.data[:10])
                self.puppet.tell(wait)
                answer = peer.hear_until(lambda message: message.mid != DATA)
                self.assertEqual((answer.mid, answer.opcode), (SEND_SM, foreign_peer.SEND_SE))
                peer.say(DATA, memory.data[10:15_000])
                peer.say(DATA, memory.data[15_000:])
                self.assertEqual(self.puppet.said(), memory.data[10:20])
                self.assertEqual(self.puppet.do("s.recv(19_980, socket.MSG_WAITALL)"), memory.data[20:])

    def test_in_pipelined_mode_advertisements_are_answered_in_order(self):
        """9.5.2.1, 11.3: each by RDMA Read or by SendSm."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        peer = self.connect()
        peer.say(MODE_CHANGE, mode_change(foreign_peer.PIPE_MODE))
        memories = [self.advertise(peer, 100_000, 0x100 + i, ahead=0) for i in range(4)]
        self.puppet.tell("poll(select.POLLIN, 10000) == [select.POLLIN]")
        self.assertEqual(peer.hear_until(lambda message: message.mid != DATA).mid, SEND_SM)
        for start in range(0, 100_000, 10_000):
            peer.say(DATA, memories[0].data[start : start + 10_000])
        self.assertEqual(self.puppet.said(), True)
        self.puppet.tell("s.recv(400_000, socket.MSG_WAITALL)")
        for memory in memories[1:]:
            left = memory.size
            while left > 0:
                message = peer.hear_until(lambda message: message.mid != DATA)
                if message.opcode == READ_REQUEST:
                    # Ahead of the oldest one's end the next one may be read, and not be told of.
                    stag = message.read[1]
                    peer.answer(message, next(one for one in memories if one.stag == stag))
                elif message.mid == RDMA_RD_COMPL:
                    left -= message.number
                    if message.opcode == foreign_peer.SEND_SE_INVALIDATE:
                        self.assertEqual((message.invalidated, left), (memory.stag, 0))
                else:
                    self.assertEqual(message.mid, SEND_SM)
                    for start in range(memory.size - left, memory.size, 10_000):
                        peer.say(DATA, memory.data[start : start + 10_000])
                    left = 0
            self.assertEqual(left, 0)
        self.assertEqual(self.puppet.said(), b"".join(memory.data for memory in memories))

    def test_a_sink_avail_of_the_programs_is_filled_by_rdma_write(self):
        """9.3: with as much as there is."""
        self.serve(SDP_FORCE="write")
        peer = self.connect()
        peer.say(MODE_CHANGE, mode_change(foreign_peer.PIPE_MODE))
        for size in (200_000, 70_001):
            self.puppet.tell("s.recv(200_000)")
            said = peer.hear_until(lambda message: message.mid == SINK_AVAIL)
            room = Memory.advertised(said)
            self.assertEqual((room.size, said.payload[16:]), (200_000, bytes(4)), "NonDiscards, no payload")
            data = os.urandom(size)
            peer.tagged(RDMA_WRITE, room.stag, room.offset, data)
            peer.say(RDMA_WR_COMPL, struct.pack(">I", size), opcode=foreign_peer.SEND_SE)
            self.assertEqual(self.puppet.said(), data)

    def test_what_is_unprocessed_is_cancelled_with_one_sendsm(self):
        """9.5.4: and where nothing is, the SrcAvailCancel is ignored."""
        self.serve()
        peer = self.connect()
        memory = self.advertise(peer, 200_000, 0x1234, ahead=100)
        peer.say(SRC_AVAIL_CANCEL)
        answer = peer.hear_until(lambda message: message.mid != DATA)
        self.assertEqual((answer.mid, answer.ack), (SEND_SM, peer.mseq))
        peer.say(SRC_AVAIL_CANCEL)
        peer.say(DATA, b"after")
        self.assertEqual(self.puppet.do("s.recv(105, socket.MSG_WAITALL)"), memory.data[:100] + b"after")
        self.puppet.do("s.send(b'.')")
        while (message := peer.hear()).payload != b".":
            self.assertEqual((message.mid, message.payload), (DATA, b""))
        self.assertEqual(message.ack, peer.mseq)

    def test_a_cancel_is_not_acknowledged_while_reads_are_in_process(self):
        """9.5.4: the reads end, are told, and what they have left is cancelled with one SendSm."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        for size in (200_000, 400_000):
            with self.subTest(size):
                peer = self.connect()
                self.puppet.do("asleep(lambda: s.recv(200_000, socket.MSG_WAITALL))")
                memory = self.advertise(peer, size, 0x1234, ahead=100)
                reads = [peer.hear_until(lambda message: message.opcode == READ_REQUEST)]
                peer.say(SRC_AVAIL_CANCEL)
                cancel = peer.mseq
                self.puppet.do("s.send(b'1')")
                while (message := peer.hear()).payload != b"1":
                    self.assertNotIn(message.mid, (SEND_SM, RDMA_RD_COMPL))
                    self.assertLess(message.ack, cancel)
                    reads += [message] if message.opcode == READ_REQUEST else []
                self.assertLess(message.ack, cancel)
                for read in reads:
                    peer.answer(read, memory)
                fetched = 100 + sum(read.read[0] for read in reads)
                answers = [peer.hear_until(lambda message: message.mid != DATA)]
                after = bytes(200_000 - fetched) + b"after"
                for start in range(0, len(after), 10_000):
                    peer.say(DATA, after[start : start + 10_000])
                self.assertEqual(self.puppet.do("over()"), (memory.data[:fetched] + after)[:200_000])
                self.assertEqual(self.puppet.do("s.recv(10)"), b"after")
                self.puppet.do("s.send(b'2')")
                while (message := peer.hear()).payload != b"2":
                    answers += [message] if message.mid != DATA else []
                self.assertEqual(message.ack, peer.mseq)
                self.assertNotIn(READ_REQUEST, [answer.opcode for answer in answers])
                told = sum(answer.number for answer in answers if answer.mid == RDMA_RD_COMPL)
                self.assertEqual(100 + told, fetched)
                left = [SEND_SM] if fetched < size else []
                self.assertEqual([answer.mid for answer in answers if answer.mid != RDMA_RD_COMPL], left)


class DataSource(ForeignTest):
    """9.2, 9.5: how a program's library advertises, and what it makes of the answers."""

    DATA = bytes(i % 251 for i in range(300_000))

    def write(self):
        """Of a SrcAvail in Combined Mode: its memory, and how much came with it."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        peer = self.connect()
        self.puppet.tell("s.sendall(bytes(i % 251 for i in range(300_000)))")
        said = peer.hear_until(lambda message: message.mid == SRC_AVAIL)
        memory = Memory.advertised(said)
        ahead = said.payload[16:]
        self.assertGreater(len(ahead), 0)
        self.assertEqual(ahead, self.DATA[: len(ahead)])
        self.assertEqual(memory.size, 300_000)
        return peer, memory, len(ahead)

    def assert_rest(self, peer, received):
        """Comes by Data, and no SrcAvail stands before it."""
        while received < 300_000:
            message = peer.hear()
            self.assertEqual(message.mid, DATA)
            self.assertEqual(message.payload, self.DATA[received : received + len(message.payload)])
            received += len(message.payload)
            peer.say(DATA)
        self.assertEqual(received, 300_000)

    def test_behind_sendsm_the_rest_comes_by_data(self):
        """9.5.2.1"""
        peer, _, ahead = self.write()
        peer.say(SEND_SM, opcode=foreign_peer.SEND_SE)
        self.assert_rest(peer, ahead)
        self.assertEqual(self.puppet.said(), None)

    def test_what_is_advertised_can_be_read_in_parts(self):
        """9.2 (3): an RdmaRdCompl for each, and SendSm for what is left."""
        peer, memory, ahead = self.write()
        for size in (1, 99_999):
            self.assertEqual(peer.fetch(memory, ahead, size), self.DATA[ahead : ahead + size])
            peer.say(RDMA_RD_COMPL, struct.pack(">I", size), opcode=foreign_peer.SEND_SE)
            ahead += size
        peer.say(SEND_SM, opcode=foreign_peer.SEND_SE)
        self.assert_rest(peer, ahead)
        self.assertEqual(self.puppet.said(), None)

    def test_a_sink_avail_that_nothing_was_written_to_is_given_back(self):
        """9.5.5: with one SinkCancelAck; where there is none, the SinkAvailCancel is ignored."""
        self.serve(SDP_FORCE="write")
        peer = ForeignPeer.connect(self.sdp_address)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and s.send(b'0') and None")
        change = peer.hear_until(lambda message: message.mid == MODE_CHANGE)
        self.assertEqual(change.number, foreign_peer.PIPE_MODE << 1)
        room = Memory(0x1234, 0x7FFFFFF01, 100_000)
        peer.hear_until(lambda message: message.payload == b"0")
        for cancelled in (1, 2):
            for _ in range(cancelled):
                peer.say(SINK_AVAIL, room.header() + struct.pack(">I", 2 * cancelled - 1))
            peer.say(SINK_AVAIL_CANCEL)
            answer = peer.hear_until(lambda message: message.mid != DATA)
            self.assertEqual((answer.mid, answer.ack), (SINK_CANCEL_ACK, peer.mseq))
            peer.say(SINK_AVAIL_CANCEL)
            self.puppet.do("s.send(b'.', socket.MSG_DONTWAIT)")
            while (message := peer.hear()).payload != b".":
                self.assertEqual((message.mid, message.payload), (DATA, b""))
            self.puppet.do("s.send(b',', socket.MSG_DONTWAIT)")
            self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b",")

    def test_a_sink_avail_is_filled_by_rdma_write(self):
        """9.3; and by 9.5.1 one that crossed with Data is stale."""
        self.serve(SDP_FORCE="write")
        peer = self.connect()
        self.puppet.do("s.send(b'0') and None")
        peer.hear_until(lambda message: message.payload == b"0")
        stale, room = Memory(0x666, 0, 100_000), Memory(0x1234, 0x7FFFFFF01, 100_000)
        peer.say(SINK_AVAIL, stale.header() + struct.pack(">I", 0))
        peer.say(SINK_AVAIL, room.header() + struct.pack(">I", 0))
        peer.say(DATA, b"1")
        self.assertEqual(self.puppet.do("s.recv(1)"), b"1", "what was said before is seen")
        self.puppet.tell("s.sendall(bytes(i % 251 for i in range(100_000)))")
        data = b""
        while (message := peer.hear_until(lambda message: message.mid != DATA)).opcode == RDMA_WRITE:
            stag, offset, piece = message.written
            self.assertEqual((stag, offset), (room.stag, room.offset + len(data)))
            data += piece
        self.assertEqual((message.mid, message.number), (RDMA_WR_COMPL, 100_000))
        self.assertIn(
            (message.opcode, message.invalidated),
            ((foreign_peer.SEND_SE, 0), (foreign_peer.SEND_SE_INVALIDATE, room.stag)),
        )
        self.assertEqual(data, self.DATA[:100_000])
        self.assertEqual(self.puppet.said(), None)

    def test_out_of_pipelined_mode_what_was_advertised_is_advertised_again(self):
        """12.4: a SinkAvail that meets the ModeChange is ignored; the SrcAvail that it had discarded comes
        anew, with payload."""
        peer, memory, ahead = self.write()
        self.assertEqual(peer.fetch(memory, ahead, 1000), self.DATA[ahead : ahead + 1000])
        told = struct.pack(">I", 1000)
        peer.say(RDMA_RD_COMPL, told, opcode=foreign_peer.SEND_SE, flags=foreign_peer.REQ_PIPE)
        change = peer.hear_until(lambda message: message.mid != DATA)
        self.assertEqual((change.mid, change.number), (MODE_CHANGE, foreign_peer.PIPE_MODE << 1))
        self.assertEqual(peer.fetch(memory, ahead + 1000, 1000), self.DATA[ahead + 1000 : ahead + 2000])
        left = 300_000 - ahead - 2000
        room = Memory(0x1234, 0x7FFFFFF01, 100_000)
        # One message with payload has discarded nothing: the SrcAvail.
        peer.link.sendall(
            peer.framed(RDMA_RD_COMPL, told, foreign_peer.SEND_SE)
            + peer.framed(SINK_AVAIL, room.header() + struct.pack(">I", 1))
        )
        change = peer.hear_until(lambda message: message.mid != DATA)
        self.assertEqual((change.mid, change.number), (MODE_CHANGE, foreign_peer.COMB_MODE << 1))
        said = peer.hear_until(lambda message: message.mid != DATA)
        self.assertEqual(said.mid, SRC_AVAIL)
        memory, payload = Memory.advertised(said), said.payload[16:]
        self.assertEqual((memory.size, payload), (left, self.DATA[-left:][: len(payload)]))
        self.assertGreater(len(payload), 0)
        left -= len(payload)
        self.assertEqual(peer.fetch(memory, len(payload), left), self.DATA[-left:])
        peer.say(RDMA_RD_COMPL, struct.pack(">I", left), opcode=foreign_peer.SEND_SE)
        self.assertEqual(self.puppet.said(), None)

    def test_out_of_pipelined_mode_the_writes_are_told_of_before(self):
        """12.4: the peer asks for it while it is written to."""
        self.serve(SDP_FORCE="write")
        peer = self.connect()
        self.puppet.do("s.send(b'0') and None")
        peer.hear_until(lambda message: message.payload == b"0")
        peer.say(MODE_CHANGE, mode_change(foreign_peer.PIPE_MODE))
        self.puppet.do("asleep(lambda: s.recv(100_000))")
        lent = Memory.advertised(peer.hear_until(lambda message: message.mid == SINK_AVAIL))
        room = Memory(0x1234, 0x7FFFFFF01, 1_000_000)
        peer.say(SINK_AVAIL, room.header() + struct.pack(">I", 1))
        self.puppet.tell("s.sendall(bytes(1_000_000))")
        written = len(peer.hear_until(lambda message: message.opcode == RDMA_WRITE).written[2])
        peer.tagged(RDMA_WRITE, lent.stag, lent.offset, b"!" * 100_000)
        peer.say(RDMA_WR_COMPL, struct.pack(">I", 100_000), opcode=foreign_peer.SEND_SE)
        while (message := peer.hear_until(lambda message: message.mid != DATA)).opcode == RDMA_WRITE:
            written += len(message.written[2])
        self.assertEqual((message.mid, message.number, written), (RDMA_WR_COMPL, 1_000_000, 1_000_000))
        change = peer.hear_until(lambda message: message.mid != DATA)
        self.assertEqual((change.mid, change.number), (MODE_CHANGE, foreign_peer.COMB_MODE << 1))
        self.assertEqual(self.puppet.said(), None)
        self.assertEqual(self.puppet.do("over()"), b"!" * 100_000)


class Urgent(ForeignTest):
    """9.5.3"""

    def test_an_announcement_is_told_without_a_call(self):
        self.serve()
        peer = self.connect()
        self.puppet.do("tell_of_sigurg()")
        peer.say(DATA, flags=OOB_PEND)
        self.assertEqual(self.puppet.said(), "SIGURG")
        self.assertEqual(self.puppet.do("s.recv(1, socket.MSG_OOB)"), "EAGAIN")
        peer.say(DATA, b"ab!", flags=OOB_PRES)
        self.assertEqual(self.puppet.do("poll(select.POLLIN, 10000) and s.recv(10)"), b"ab")
        self.assertEqual(self.puppet.do("s.recv(1, socket.MSG_OOB)"), b"!")
        self.assertEqual(self.puppet.do("urgent"), 1)

    def test_the_byte_is_its_messages_last_and_announced_not_too_early(self):
        self.serve(SDP_FORCE="bcopy")
        peer = self.connect()
        self.puppet.tell("s.send(bytes(200_000) + b'!', socket.MSG_OOB)")
        received, announced = 0, []
        while received < 200_001:
            message = peer.hear()
            announced += [received] if message.flags & OOB_PEND else []
            received += len(message.payload)
            self.assertEqual(message.flags & OOB_PRES != 0, received == 200_001)
            peer.say(DATA)
        self.assertEqual(message.payload[-1:], b"!")
        self.assertEqual(len(announced), 1)
        self.assertLessEqual(200_000 - announced[0], 65535)
        self.assertEqual(self.puppet.said(), 200_001)
        self.puppet.do("s.send(b'tail')")
        tail = peer.hear_until(lambda message: message.payload)
        self.assertEqual((tail.payload, tail.flags & (OOB_PEND | OOB_PRES)), (b"tail", 0))

    def test_a_byte_that_has_to_wait_is_announced_at_once(self):
        self.serve()
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(buffers=3), bufs=3)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and s.setblocking(False)")
        self.assertEqual(self.puppet.do("s.send(b'a')"), 1)
        self.assertEqual(peer.hear().payload, b"a")
        self.assertEqual(self.puppet.do("s.send(b'b!', socket.MSG_OOB)"), 2)
        self.assertEqual(self.puppet.do("s.send(b'c')"), 1)
        pending = peer.hear_until(lambda message: message.flags)
        self.assertEqual((pending.mid, pending.flags, pending.payload), (DATA, OOB_PEND, b""))
        peer.say(DATA, bufs=3)
        present = peer.hear_until(lambda message: message.payload)
        self.assertEqual((present.payload, present.flags), (b"b!", OOB_PRES))
        peer.say(DATA, bufs=3)
        tail = peer.hear_until(lambda message: message.payload)
        self.assertEqual((tail.payload, tail.flags & (OOB_PEND | OOB_PRES)), (b"c", 0))


class AbortiveClose(ForeignTest):
    """8.2.2: an abort ends the link, though the program has its descriptor still."""

    def violations(self):
        """What the peer says, in one piece: SDP itself sees that it is wrong."""
        return {
            "a reserved MID": lambda peer: peer.framed(0x0F),
            "a repeated MSeq": lambda peer: peer.framed(DATA, b"x", mseq=peer.mseq),
            "a gap of MSeq": lambda peer: peer.framed(DATA, b"x", mseq=7),
            "a Len that is too small": lambda peer: peer.framed(DATA, b"xyz", length=17),
            "a Len that is too large": lambda peer: peer.framed(DATA, b"xyz", length=100),
            "an MSeqAck of what was not sent": lambda peer: peer.framed(DATA, b"x", ack=1000),
            "AbortConn": lambda peer: peer.framed(ABORT_CONN),
            "AbortConn behind DisConn": lambda peer: peer.framed(DIS_CONN) + peer.framed(ABORT_CONN),
            "Data behind DisConn": lambda peer: peer.framed(DIS_CONN) + peer.framed(DATA, b"x"),
            "a SrcAvail without payload in Combined Mode": lambda peer: peer.framed(
                SRC_AVAIL, Memory(0x1234, 0, 100_000).header()
            ),
            "a SinkAvail in Combined Mode": lambda peer: peer.framed(
                SINK_AVAIL, Memory(0x1234, 0, 100_000).header() + bytes(4)
            ),
            "a ModeChange to the mode that holds": lambda peer: peer.framed(
                MODE_CHANGE, mode_change(foreign_peer.COMB_MODE)
            ),
            "a ModeChange by the slave": lambda peer: peer.framed(
                MODE_CHANGE, mode_change(foreign_peer.PIPE_MODE, send_half=True)
            ),
            "an RdmaRdCompl of nothing": lambda peer: peer.framed(RDMA_RD_COMPL, bytes([0, 0, 0, 1])),
            "an RdmaWrCompl of nothing": lambda peer: peer.framed(RDMA_WR_COMPL, bytes([0, 0, 0, 1])),
            "Data behind SuspComm": lambda peer: peer.framed(SUSP_COMM, struct.pack(">IHH", 0, 9, 1))
            + peer.framed(DATA, b"x"),
            "ChRcvBuf before the answer to the last": lambda peer: b"".join(
                peer.framed(CH_RCV_BUF, struct.pack(">I", 1 << 19)) for _ in range(2)
            ),
        }

    def test_the_link_ends_with_the_connection(self):
        self.serve()
        for what, say in self.violations().items():
            with self.subTest(what):
                peer = self.connect()
                names = self.puppet.do("(s.getsockname(), s.getpeername())")
                self.puppet.tell("poll(select.POLLERR, 10000) and s.getsockopt(1, socket.SO_ERROR)")
                peer.link.sendall(say(peer))
                self.assertIn(self.puppet.said(), (errno.ECONNRESET, errno.EPIPE), "the latter behind an end")
                self.assert_reset(peer, AT_ONCE)
                self.assert_over(names)
                self.assertEqual(self.puppet.do("s.close()"), None)

    def test_a_thread_asleep_in_a_read_is_told_and_the_link_ends(self):
        self.serve()
        for what, say in self.violations().items():
            with self.subTest(what):
                peer = self.connect()
                self.puppet.do("asleep(lambda: s.recv(1))")
                peer.link.sendall(say(peer))
                self.assertIn(self.puppet.do("over()"), ("ECONNRESET", b""))
                self.assert_reset(peer, AT_ONCE)
                self.puppet.do("s.close()")

    def test_an_abort_of_the_programs_resets_the_link_without_a_message(self):
        self.serve()
        for what, abort in (("SO_LINGER", f"{NO_LINGER} or s.close()"), ("AF_UNSPEC", "disconnect()")):
            for sent in ("nothing", "more than there is credit for"):
                with self.subTest(what, sent=sent):
                    peer = ForeignPeer.connect(
                        self.sdp_address, private=foreign_peer.hello(buffers=3), bufs=3
                    )
                    self.addCleanup(peer.close)
                    self.puppet.do("(s := l.accept()[0]) and s.setblocking(False)")
                    if sent != "nothing":
                        self.puppet.do("[s.send(b'a') for _ in range(9)]")
                        self.assertEqual([peer.hear().payload for _ in range(2)], [b"a", b""])
                    self.assertIn(self.puppet.do(abort), (None, 0))
                    self.assert_ends_without_a_message(peer)
                    self.await_end_of_link(peer)
        peer = self.connect()
        peer.say(DATA, b"unread")
        self.assertEqual(self.puppet.do("poll(select.POLLIN, 10000) and s.close()"), None)
        self.assert_ends_without_a_message(peer)

    def test_an_abort_of_the_programs_behind_the_peers_disconn_resets_the_link(self):
        """8.2.1 (R2): as without it."""
        self.serve()
        for what, abort in (("SO_LINGER", f"{NO_LINGER} or s.close()"), ("AF_UNSPEC", "disconnect()")):
            with self.subTest(what):
                peer = self.connect()
                peer.say(DIS_CONN)
                self.assertEqual(self.puppet.do("s.recv(1)"), b"")
                self.assertIn(self.puppet.do(abort), (None, 0))
                self.assert_ends_without_a_message(peer)
                self.await_end_of_link(peer)

    def assert_ends_without_a_message(self, peer):
        with self.assertRaisesRegex(foreign_peer.Ended, "reset"):
            self.fail(f"{peer.hear()} came")

    def test_an_abort_of_the_programs_behind_its_disconn_is_said(self):
        self.serve()
        peer = self.connect()
        self.puppet.do("s.shutdown(socket.SHUT_WR)")
        self.assertEqual(peer.hear().mid, DIS_CONN)
        self.assertEqual(self.puppet.do(f"{NO_LINGER} or s.close()"), None)
        self.assertEqual(peer.hear().mid, ABORT_CONN)
        self.assertEqual(peer.end(PATIENCE), "FIN")

    def test_unsent_data_is_discarded(self):
        self.serve()
        peer = ForeignPeer.connect(self.sdp_address, private=foreign_peer.hello(buffers=3), bufs=3)
        self.addCleanup(peer.close)
        self.puppet.do("(s := l.accept()[0]) and s.setblocking(False)")
        self.puppet.do("[s.send(b'a') for _ in range(9)] and None")
        self.assertEqual(peer.hear().payload, b"a")
        peer.say(0x0F)
        self.assertEqual(self.puppet.do("s.recv(1)"), "ECONNRESET")
        with self.assertRaisesRegex(foreign_peer.Ended, "reset"):
            self.fail(f"{peer.hear_until(lambda message: message.payload)} came")

    def test_behind_a_filter_without_connect_the_link_ends_with_the_descriptor(self):
        self.serve()
        peer = self.connect()
        self.assertEqual(self.puppet.do(f"forbid({CONNECT})"), 0)
        self.puppet.tell("s.recv(1)")
        peer.say(0x0F)
        self.assertEqual(self.puppet.said(), "ECONNRESET")
        self.assertIsNotNone(self.link_state(peer))
        self.assertEqual(self.puppet.do("s.close()"), None)
        self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))

    def test_a_truncated_fpdu_ends_the_link(self):
        self.serve()
        peer = self.connect()
        names = self.puppet.do("(s.getsockname(), s.getpeername())")
        self.puppet.tell("s.recv(1)")
        peer.link.sendall(peer.frame(peer.message(DATA, b"x" * 100))[:50])
        peer.link.shutdown(1)
        self.assertEqual(self.puppet.said(), "ECONNRESET")
        self.assertEqual(peer.end(PATIENCE), "reset")
        self.assert_over(names)

    def test_a_peer_that_goes_without_disconn(self):
        self.serve()
        peer = self.connect()
        self.puppet.tell("s.recv(1)")
        peer.link.shutdown(1)
        self.assertEqual(self.puppet.said(), "ECONNRESET")
        self.assertEqual(peer.end(PATIENCE), "reset")

    def test_behind_disconn_comes_abortconn_and_an_orderly_end_of_the_link(self):
        self.serve()
        for what in ("the peer ends its side", "the peer sends on", "the peer does nothing"):
            with self.subTest(what):
                peer = self.connect()
                self.puppet.do("s.shutdown(socket.SHUT_WR)")
                self.assertEqual(peer.hear().mid, DIS_CONN)
                self.puppet.tell("s.recv(1)")
                peer.say(0x0F)
                start = time.monotonic()
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                abort = peer.hear()
                self.assertEqual((abort.mid, abort.opcode), (ABORT_CONN, foreign_peer.SEND_SE))
                self.assertEqual(peer.end(PATIENCE), "FIN")
                if what == "the peer ends its side":
                    peer.link.shutdown(1)
                elif what == "the peer sends on":
                    self.assertLess(peer.flood(), AT_ONCE)
                self.await_end_of_link(peer)
                self.assertLess(time.monotonic() - start, IN_TIME)
                self.puppet.do("s.close()")

    def test_behind_terminate_the_link_ends(self):
        self.serve()
        queue_7 = bytes.fromhex("4143 00000000 00000007 00000001 00000000")
        for what in ("the peer ends its side", "the peer sends on", "the peer does nothing"):
            with self.subTest(what):
                peer = self.connect()
                self.puppet.tell("s.recv(1)")
                peer.link.sendall(foreign_peer.fpdu(queue_7 + bytes(16)))
                start = time.monotonic()
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assertEqual(peer.hear().opcode, foreign_peer.TERMINATE)
                self.assertEqual(peer.end(PATIENCE), "FIN")
                if what == "the peer ends its side":
                    peer.link.shutdown(1)
                elif what == "the peer sends on":
                    self.assertLess(peer.flood(), AT_ONCE)
                self.await_end_of_link(peer)
                self.assertLess(time.monotonic() - start, IN_TIME)
                self.puppet.do("s.close()")

    def test_a_terminate_of_the_peers_ends_the_link(self):
        self.serve()
        peer = self.connect()
        self.puppet.tell("s.recv(1)")
        # Untagged, queue 2, MSN 1: RDMAP's own, local catastrophic.
        header = foreign_peer.untagged(foreign_peer.TERMINATE, queue=2)
        peer.link.sendall(foreign_peer.fpdu(header + bytes(4)))
        self.assertEqual(self.puppet.said(), "ECONNRESET")
        self.assertEqual(peer.end(PATIENCE), "FIN")
        self.assertLess(peer.flood(), AT_ONCE)
        self.await_end_of_link(peer)

    def test_of_processes_that_hold_the_connection_one_sees_why_and_all_are_told(self):
        self.serve()
        for parent in ("poll(select.POLLIN, 10000) != []", "None"):
            with self.subTest(parent=parent):
                peer = self.connect()
                child = self.puppet.do("child(to_the_end)")
                peer.say(DATA, b"a")
                nothing_left = lambda: self.puppet.do("poll(select.POLLIN, 0)") == []
                harness.wait_until(nothing_left, "child that reads", PATIENCE)
                self.puppet.tell(parent)
                peer.say(0x0F)
                self.assertIn(self.puppet.said(), (True, None))
                status = self.puppet.do(f"os.waitstatus_to_exitcode(os.waitpid({child}, 0)[1])")
                told = {errno.errorcode.get(status, ""), self.puppet.do("s.recv(1)")}
                self.assert_reset(peer, AT_ONCE)
                self.assertEqual(self.puppet.do("s.recv(1)"), b"")
                self.assertIn("ECONNRESET", told)
                self.puppet.do("s.close()")


if __name__ == "__main__":
    harness.main()
