"""What programs ask a port mapper, and what follows from its answers (section 7 of the draft): the port
mapper is the test's."""

import ctypes
import dataclasses
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import harness

REQ, ACCEPT, ACK, DENY = range(4)
FORMAT = struct.Struct(">BBHHHQ16s16s")  # figure 17

# Begins to connect, without blocking; looks once how that is, when it is told to; and makes no more calls.
LOOKER = """
import errno, select, socket, sys
host, port = sys.stdin.readline().split()
s = socket.socket()
s.setblocking(False)
assert s.connect_ex((host, int(port))) == errno.EINPROGRESS
print("connecting", flush=True)
poll = select.poll()
poll.register(s, select.POLLOUT)
sys.stdin.readline()
assert poll.poll(0) == []
print("looked", flush=True)
sys.stdin.readline()
"""

# For each line, "HOST PORT": a connection, one byte to and fro.
CLIENT = """
import os, socket, struct, sys
for line in sys.stdin:
    host, port = line.split()
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        if within := int(os.environ.get("CONNECT_WITHIN_S", 0)):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", within, 0))
        else:
            s.settimeout(60)
        s.connect((host, int(port)))
        s.sendall(b"x")
        assert s.recv(1) == b"x"
    print("ok", flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Message:
    ver: int
    mt: int
    ipv: int
    pm_time: int
    reserved: int
    ap_port: int
    cp_port: int
    handle: int
    cp: bytes
    ap: bytes

    @classmethod
    def parse(cls, datagram):
        first, *others = FORMAT.unpack(datagram)
        return cls(first >> 6, first >> 4 & 3, first & 15, *others)

    def pack(self):
        return FORMAT.pack(self.ver << 6 | self.mt << 4 | self.ipv, *dataclasses.astuple(self)[3:])


def receive(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the connection ended early"
        data += piece
    return data


def thread_state(pid, thread):
    return pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()[0]


def address(host):
    """As in a message: 128 bits."""
    return (
        socket.inet_pton(socket.AF_INET6, host)
        if ":" in host
        else socket.inet_pton(socket.AF_INET, host) + bytes(12)
    )


class Mapper:
    """Hears on `host` and answers each PMReq by `answer`, which gives a list of messages."""

    def __init__(self, host, port, answer):
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, port))
        self.answer = answer
        self.heard = []  # (Message, source, when)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            datagram, source = self.socket.recvfrom(100)
            if datagram == b"end":
                return
            message = Message.parse(datagram)
            self.heard.append((message, source, time.monotonic()))
            if message.mt == REQ:
                for reply in self.answer(message):
                    self.socket.sendto(reply.pack(), source)

    def of_type(self, mt):
        return [heard for heard in self.heard if heard[0].mt == mt]

    def questions(self):
        """The first PMReq of each transaction: a slow machine makes clients ask again."""
        first = {}
        for heard in self.of_type(REQ):
            first.setdefault(heard[0].handle, heard)
        return list(first.values())

    def stop(self):
        name = self.socket.getsockname()
        self.socket.sendto(b"end", name)
        self.thread.join()
        self.socket.close()


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


class Stopped:
    """A thread of a child process, which does not run meanwhile. The others do."""

    def __init__(self, thread):
        self.thread = thread

    def ptrace(self, request):
        libc = ctypes.CDLL(None, use_errno=True)
        if (
            libc.ptrace(
                ctypes.c_long(request), ctypes.c_long(self.thread), ctypes.c_void_p(), ctypes.c_void_p()
            )
            != 0
        ):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def __enter__(self):
        try:
            self.ptrace(PTRACE_SEIZE)
        except PermissionError as e:
            raise unittest.SkipTest(f"ptrace: {e.strerror}")
        self.ptrace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, WALL)

    def __exit__(self, *_):
        self.ptrace(PTRACE_DETACH)


class PmClient(harness.ProgramTest):
    def mapper(self, answer, host="127.0.0.1"):
        """A port mapper that clients ask; the world's own is where servers register."""
        self.port = harness.free_port(socket.SOCK_DGRAM)
        mapper = Mapper(host, self.port, answer)
        self.addCleanup(mapper.stop)
        return mapper

    def client(self, **environment):
        environment = {
            "SDP_PM_PORT": self.port,
            "SDP_PM_TIMEOUT_MS": 10000,
        } | environment  # the test may be slow
        return self.world.start(
            [sys.executable, "-c", CLIENT],
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def connect(self, client, port, host="127.0.0.1"):
        client.popen.stdin.write(f"{host} {port}\n".encode())
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"ok\n", client.output())

    def sdp_server(self):
        """(conventional port, its SDP port)"""
        port = harness.free_port()
        self.world.peer("echo-server", port)
        return port, int(self.world.wait_for_listener(port)["sdp_local"].rsplit(":", 1)[1])

    def plain_server(self, host="127.0.0.1"):
        port = harness.free_port()
        self.world.peer("echo-server", port, host, preload=False)
        self.world.wait_for_listener(port, sdp=False)
        return port

    def listener(self, host):
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.settimeout(20)
        self.addCleanup(listener.close)
        return listener

    def test_the_question_names_what_will_connect(self):
        """7.4: CpIPAddr and CpPort are those of the connection to the SDP address; the PMAck has the
        PMAccept's fields, and goes where that came from. 7.5.1: a reset there is as good as a PMDeny."""
        for host in "127.0.0.1", "::1":
            with self.subTest(host):
                port = self.plain_server(host)
                sdp = self.listener(host)
                sdp_port = sdp.getsockname()[1]
                mapper = self.mapper(
                    lambda request: [
                        dataclasses.replace(request, mt=ACCEPT, pm_time=7, reserved=0xFFFF, ap_port=sdp_port)
                    ],
                    host,
                )
                client = self.client()
                client.popen.stdin.write(f"{host} {port}\n".encode())
                client.popen.stdin.flush()
                connection, name = sdp.accept()
                sdp.close()
                request, source, _ = mapper.of_type(REQ)[0]
                self.assertEqual(
                    request,
                    Message(
                        ver=0,
                        mt=REQ,
                        ipv=6 if ":" in host else 4,
                        pm_time=0,
                        reserved=0,
                        ap_port=port,
                        cp_port=name[1],
                        handle=request.handle,
                        cp=address(name[0]),
                        ap=address(host),
                    ),
                )
                ack, ack_source, _ = harness.wait_until(lambda: mapper.of_type(ACK), "PMAck")[0]
                self.assertEqual(ack, dataclasses.replace(request, mt=ACK, ap_port=sdp_port))
                self.assertEqual(ack_source, source)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
                self.assertEqual(client.popen.stdout.readline(), b"ok\n", client.output())
                self.assertEqual(self.world.connects(port)[0], 0)

    def answers(self, answer):
        """A listener whose connections read the Request, say this and end; those it has had."""
        sdp = socket.create_server(("127.0.0.1", 0))
        had = []

        def serve():
            while True:
                try:
                    connection, name = sdp.accept()
                except OSError:
                    return
                with connection:
                    had.append(name)
                    # All of it: what is unread makes a reset of the end.
                    request = receive(connection, 20)
                    receive(connection, int.from_bytes(request[18:20], "big"))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(sdp.close)
        self.addCleanup(thread.join)
        self.addCleanup(sdp.shutdown, socket.SHUT_RDWR)  # ends accept; the last cleanup is the first
        return sdp.getsockname()[1], had

    def test_who_answers_a_request_by_no_reply_is_not_asked_again(self):
        """7.5.1: he does not speak MPA, and says so each time. Who ends without a word may have ended for
        good, with others there to answer."""
        key, revision_2 = b"MPA ID Rep Frame", b"\x00\x02"
        for answer, asked, failure in (
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", 1, "no MPA Reply: wrong key"),
            (b"?", 1, "no MPA Reply: wrong key"),
            (key + revision_2 + b"\x02\x01", 1, "MPA frame with more than 512 bytes of private data"),
            (key + b"\x00\x01\x00\x00", 1, "MPA Reply has revision 1, ours is 2"),
            (b"", 5, "closed by the peer before any MPA frame"),
            (key, 5, "closed by the peer during MPA start-up"),
        ):
            with self.subTest(answer):
                port = self.plain_server()
                sdp_port, had = self.answers(answer)
                mapper = self.mapper(
                    lambda request: [dataclasses.replace(request, mt=ACCEPT, pm_time=0, ap_port=sdp_port)]
                )
                self.connect(self.client(SDP_HANDSHAKE_TIMEOUT_MS=60000), port)
                self.assertEqual(len(had), asked)
                self.assertEqual(len(mapper.questions()), 1)
                self.assertEqual(self.world.connects(port), (0, {"mpa-failed": 1}))
                self.assertIn(
                    f"connect to 127.0.0.1:{port}: TCP, because mpa-failed ({failure})", self.world.sdp_log()
                )

    def test_a_connect_that_a_look_begins_again_goes_on_by_itself(self):
        """The helper thread sleeps for what the program's own look has seen before it, and what it sleeps for
        now is something else."""
        sdp = self.listener("127.0.0.1")
        sdp.listen(0)
        self.mapper(
            lambda request: [dataclasses.replace(request, mt=ACCEPT, pm_time=0, ap_port=sdp.getsockname()[1])]
        )
        client = self.world.start(
            [sys.executable, "-c", LOOKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            environment={
                "SDP_PM_PORT": self.port,
                "SDP_PM_TIMEOUT_MS": 10000,
                "SDP_HANDSHAKE_TIMEOUT_MS": 600000,
            },
        )
        client.popen.stdin.write(f"127.0.0.1 {harness.free_port()}\n".encode())
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"connecting\n", client.output())
        first, _ = sdp.accept()
        receive(first, 20)  # the Request, by the helper
        helper = self.helper_of(client)
        harness.wait_until(lambda: thread_state(client.pid, helper) == "S", "helper that sleeps")
        # There is room for nobody else, so that the look does not see the next link either.
        with socket.create_connection(sdp.getsockname()):
            with Stopped(helper):
                first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                first.close()
                client.popen.stdin.write(b"look\n")
                client.popen.stdin.flush()
                self.assertEqual(client.popen.stdout.readline(), b"looked\n", client.output())
            sdp.accept()[0].close()
        second, _ = sdp.accept()
        with second:
            second.settimeout(20)
            self.assertEqual(receive(second, 16), b"MPA ID Req Frame")

    def helper_of(self, client):
        found = [
            int(task.name)
            for task in pathlib.Path(f"/proc/{client.pid}/task").iterdir()
            if (task / "comm").read_text() == "sdp-helper\n"
        ]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_a_denial_is_not_acknowledged(self):
        """7.4: and ApPort and PmTime of it are not looked at."""
        port = self.plain_server()
        mapper = self.mapper(lambda request: [dataclasses.replace(request, mt=DENY, ap_port=1, pm_time=255)])
        client = self.client()
        self.connect(client, port)
        self.connect(client, port)
        client.popen.stdin.close()
        self.assertEqual(client.wait(20), 0)
        self.assertNotEqual(mapper.questions(), [])
        self.assertEqual(mapper.of_type(ACK), [])
        self.assertEqual(self.world.connects(port)[0], 0)

    def test_silence_is_asked_again_and_then_the_conventional_address_is_taken(self):
        """7.5.1: the same five values each time, up to a maximum."""
        port = self.plain_server()
        mapper = self.mapper(lambda request: [])
        self.connect(self.client(), port)
        requests = [message for message, _, _ in mapper.of_type(REQ)]
        self.assertGreaterEqual(len(requests), 2)
        self.assertLessEqual(len(requests), 4)
        self.assertEqual(len(set(requests)), 1)
        self.assertEqual(self.world.connects(port), (0, {"pm-timeout": 1}))

    def test_a_silence_that_a_hurried_program_ends_is_not_remembered(self):
        port, sdp_port = self.sdp_server()
        answers = threading.Event()

        def answer(request):
            return [dataclasses.replace(request, mt=ACCEPT, ap_port=sdp_port)] if answers.is_set() else []

        self.mapper(answer)
        client = self.client(CONNECT_WITHIN_S=2)
        self.connect(client, port)
        self.assertEqual(self.world.connects(port), (0, {"pm-timeout": 1}))
        answers.set()
        # A slow machine may keep an answer waiting for longer than this program does.
        harness.wait_until(lambda: self.connect(client, port) or self.world.connects(port)[0], "SDP")
        self.assertNotIn("pm-cached", self.world.connects(port)[1])

    def test_silences_that_hurried_programs_end_add_up(self):
        port, _ = self.sdp_server()
        mapper = self.mapper(lambda request: [])
        client = self.client(CONNECT_WITHIN_S=1, SDP_PM_TIMEOUT_MS=1200)
        for asked in (1, 2, 3, 3):
            self.connect(client, port)
            self.assertEqual(len({message.handle for message, _, _ in mapper.of_type(REQ)}), asked)

    def test_the_first_reply_counts_and_a_second_is_discarded(self):
        """7.5, 7.5.1: whatever they say; and but one PMAck is sent."""
        port, sdp_port = self.sdp_server()
        for first, second, outcome in (
            ({"mt": ACCEPT, "ap_port": sdp_port}, {"mt": DENY}, "SDP"),
            ({"mt": ACCEPT, "ap_port": sdp_port}, {"mt": ACCEPT, "ap_port": harness.free_port()}, "SDP"),
            ({"mt": DENY}, {"mt": ACCEPT, "ap_port": sdp_port}, "TCP"),
        ):
            with self.subTest(first=first, second=second):
                mapper = self.replies(first, second)
                before = self.world.connects(port)[0]
                self.connect(self.client(), port)
                self.assertEqual(self.world.connects(port)[0] - before, outcome == "SDP")
                if outcome == "SDP":
                    harness.wait_until(lambda: mapper.of_type(ACK), "PMAck")
                acks = {message.ap_port for message, _, _ in mapper.of_type(ACK)}
                self.assertEqual(acks, {sdp_port} if outcome == "SDP" else set())

    def replies(self, *replies):
        """A port mapper that says all of them to each question, with its fields but for these."""
        return self.mapper(lambda request: [dataclasses.replace(request, **reply) for reply in replies])

    def test_a_reply_that_belongs_to_no_question_is_discarded(self):
        """7.5.1: of another handle, another port or another host; what belongs to it counts behind them."""
        port, sdp_port = self.sdp_server()
        nobody = harness.free_port()
        others = ({"handle": 1}, {"cp_port": 1}, {"cp": address("127.0.0.2")})
        for right, wrong, outcome in (
            ({"mt": ACCEPT, "ap_port": sdp_port}, {"mt": DENY}, "SDP"),
            ({"mt": ACCEPT, "ap_port": sdp_port}, {"mt": ACCEPT, "ap_port": nobody}, "SDP"),
            ({"mt": DENY}, {"mt": ACCEPT, "ap_port": sdp_port}, "TCP"),
        ):
            with self.subTest(right=right, wrong=wrong):
                mapper = self.replies(*(wrong | fields for fields in others), right)
                before = self.world.connects(port)[0]
                self.connect(self.client(), port)
                self.assertEqual(self.world.connects(port)[0] - before, outcome == "SDP")
                self.assertLessEqual({message.ap_port for message, _, _ in mapper.of_type(ACK)}, {sdp_port})

    def test_a_reply_behind_the_limit_is_discarded(self):
        """7.5.1: the client has no state of it any more, and learns nothing from it."""
        port, sdp_port = self.sdp_server()
        over = threading.Event()

        def late(request):
            over.wait()
            return [dataclasses.replace(request, mt=ACCEPT, ap_port=sdp_port, pm_time=255)]

        self.port = harness.free_port(socket.SOCK_DGRAM)
        mapper = Mapper("127.0.0.1", self.port, late)
        try:
            client = self.client(SDP_PM_TIMEOUT_MS=200)
            self.connect(client, port)
        finally:
            over.set()
            mapper.stop()  # which answers all that came first
        self.connect(client, port)
        self.assertEqual(self.world.connects(port)[0], 0)
        self.assertEqual(mapper.of_type(ACK), [])

    def test_an_answer_is_kept_as_long_as_it_says(self):
        """7.3.1.4"""
        port, sdp_port = self.sdp_server()
        for pm_time in 0, 1, 255:
            with self.subTest(pm_time):
                mapper = self.mapper(
                    lambda request: [
                        dataclasses.replace(request, mt=ACCEPT, pm_time=pm_time, ap_port=sdp_port)
                    ]
                )
                client = self.client(SDP_MODE="sdp")
                if pm_time == 1:

                    def asked_again():
                        self.connect(client, port)
                        return len(mapper.questions()) > 1

                    harness.wait_until(asked_again, "second question", 30)
                    first, second = (when for _, _, when in mapper.questions()[:2])
                    self.assertGreaterEqual(second - first, 0.25)
                    continue
                for _ in range(10):
                    self.connect(client, port)
                self.assertEqual(len(mapper.questions()), 10 if pm_time == 0 else 1)

    def test_association_handles(self):
        """7.5.1: unique, and the first one is random."""
        port, sdp_port = self.sdp_server()
        mapper = self.mapper(
            lambda request: [dataclasses.replace(request, mt=ACCEPT, pm_time=0, ap_port=sdp_port)]
        )
        for _ in range(3):
            client = self.client(SDP_MODE="sdp")
            for _ in range(5):
                self.connect(client, port)
        handles = [message.handle for message, _, _ in mapper.questions()]
        self.assertEqual(len(handles), 15)
        # Not counted up, and not the time: they differ where a counter or a clock would agree.
        self.assertEqual(len({handle >> 32 for handle in handles[::5]}), 3)


if __name__ == "__main__":
    harness.main()
