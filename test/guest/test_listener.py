"""Listeners that accept over a kernel RNIC: every way to wait for a connection, many at once, processes that
share the listener, two registrations of one connection, close and backlog. The connecting side is on the
embedded RNIC, which fails if the port mapper named no device."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from kernel_rnic import ADDRESS, ADDRESS6, DEVICE, need_kernel_rnic  # noqa: E402

PATIENT = {"SDP_PM_TIMEOUT_MS": 20000}

# Echoes what each of COUNT connections sends, until its end; how it waits is WAY.
SERVER = """
import os, select, socket, sys, threading, time
address, port, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
count, clients = int(sys.argv[4]), sys.argv[5:]
listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, port))
listener.listen(count)

def serve(s):
    assert s.getsockname()[1] == port and s.getpeername()[0] in clients, (s.getsockname(), s.getpeername())
    s.setblocking(True)
    while data := s.recv(65536):
        s.sendall(data)
    s.close()

def epoll_echo(sockets, sets):
    buffers = {s.fileno(): s for s in sockets}
    done = 0
    while done < len(sockets):
        for ep in sets:
            for fd, events in ep.poll(20):
                s = buffers[fd]
                try:
                    data = s.recv(65536)
                except BlockingIOError:
                    continue
                if data:
                    s.sendall(data)
                else:
                    for other in sets:
                        other.unregister(fd)
                    done += 1

if way == "block":
    for _ in range(count):
        serve(listener.accept()[0])
elif way in ("nonblock", "poll", "select", "level", "edge"):
    listener.setblocking(False)
    poll = select.poll(); poll.register(listener, select.POLLIN)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN | (select.EPOLLET if way == "edge" else 0))
    accepted = 0
    while accepted < count:
        if way == "poll":
            assert poll.poll(60000)
        elif way == "select":
            assert select.select([listener], [], [], 60)[0]
        elif way in ("level", "edge"):
            assert epoll.poll(60)
        while True:
            try:
                s = listener.accept()[0]
            except BlockingIOError:
                if way == "nonblock" and accepted < count:
                    time.sleep(0.01)
                    continue
                break
            accepted += 1
            serve(s)
            if way == "nonblock" and accepted == count:
                break
elif way == "two-sets":
    s = listener.accept()[0]
    again = s.dup()
    sets = [select.epoll(), select.epoll()]
    for ep in sets:
        ep.register(s, select.EPOLLIN)
    sets[0].register(again, select.EPOLLIN | select.EPOLLET)
    got = sets[0].poll(60, 4)
    assert {fd for fd, _ in got} == {s.fileno(), again.fileno()}, got
    assert [fd for fd, _ in sets[1].poll(60, 4)] == [s.fileno()]
    sets[0].unregister(again)
    again.close()
    epoll_echo([s], sets)
    for _ in range(count - 1):
        serve(listener.accept()[0])
elif way == "prefork":
    # The kernel RNIC is the parent's, which takes no connection: its clients come to the children over the
    # embedded one.
    told, tell = os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            def work(s):
                serve(s)
                os.write(tell, b"x")
            while True:
                threading.Thread(target=work, args=(listener.accept()[0],)).start()
        children.append(child)
    for _ in range(count):
        assert os.read(told, 1) == b"x"
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
print("served", flush=True)
"""

CLIENT = """
import socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sockets = [socket.create_connection((address, port), timeout=60) for _ in range(count)]
for i, s in enumerate(sockets):
    s.sendall(b"%d" % i * 100)
for i, s in enumerate(sockets):
    wanted, got = b"%d" % i * 100, b""
    while len(got) < len(wanted):
        piece = s.recv(1000)
        assert piece
        got += piece
    assert got == wanted
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""
print("echoed", flush=True)
"""


class Listener(unittest.TestCase):
    def setUp(self):
        need_kernel_rnic()
        self.world = harness.TestWorld(listen=[ADDRESS, *([f"[{ADDRESS6}]"] if ADDRESS6 else [])])
        self.addCleanup(self.world.stop)

    def tearDown(self):
        harness.tell_if_failed(self)

    def serve(
        self, way, count, bound=ADDRESS, rnic="verbs", client_rnic="soft", targets=(ADDRESS,), named=None
    ):
        """`count` connections to each target, from the same address; `named`: what the server calls these."""
        port = harness.free_port()
        server = self.world.start(
            [sys.executable, "-c", SERVER, bound, port, way, count * len(targets), *(named or targets)],
            environment={"SDP_RNIC": rnic, **PATIENT},
        )
        for target in targets:
            registered = re.compile(rf"SDP on \[?{re.escape(target)}\]?:\d+ over {DEVICE}")
            harness.wait_until(
                lambda registered=registered: registered.search(self.world.sdp_log()),
                f"a listener at {target} over {DEVICE}",
                60,
            )
        self.world.wait_for_listener(port, 60)
        ends = [("accepting", server)]
        for target in targets:
            ends.insert(
                0,
                (
                    f"to {target}",
                    self.world.start(
                        [sys.executable, "-c", CLIENT, target, port, count],
                        environment={"SDP_RNIC": client_rnic, **PATIENT},
                    ),
                ),
            )
        for end, process in ends:
            self.assertEqual(
                process.wait(90), 0, f"{end}:\n{process.output()}\n{self.world.sdp_log()[-3000:]}"
            )
        self.assertNotIn("TCP, because", self.world.sdp_log())

    def test_sdpstat_shows_both_rnics(self):
        port = harness.free_port()
        self.world.start(
            [sys.executable, harness.PEER, "echo-server", port, ADDRESS],
            environment={"SDP_RNIC": "auto", **PATIENT},
        )
        program = (
            "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
            "s.sendall(b'x'); "
            "assert s.recv(1) == b'x'; print('echoed')"
        )

        def rows():
            return {row["rnic"]: row for p in self.world.sdpstat()["processes"] for row in p["listeners"]}

        harness.wait_until(lambda: set(rows()) == {"soft", DEVICE}, "a row for each RNIC", 60)
        self.assertEqual({row["local"] for row in rows().values()}, {f"{ADDRESS}:{port}"})
        self.assertEqual(len({row["fd"] for row in rows().values()}), 1)
        self.assertNotEqual(rows()["soft"]["sdp_local"], rows()[DEVICE]["sdp_local"])
        self.assertEqual(self.world.summary()["listeners"], 1)
        self.assertEqual(
            self.world.run([sys.executable, "-c", program, ADDRESS, port], environment=PATIENT), b"echoed\n"
        )
        harness.wait_until(
            lambda: rows()[DEVICE]["accepted_sdp"] == 1, "a connection accepted over the device", 30
        )
        self.assertEqual(rows()["soft"]["accepted_sdp"], 0)

    def test_blocking(self):
        self.serve("block", 3)

    def test_nonblocking(self):
        self.serve("nonblock", 3)

    def test_poll(self):
        self.serve("poll", 3)

    def test_select(self):
        self.serve("select", 3)

    def test_epoll_level(self):
        self.serve("level", 3)

    def test_epoll_edge(self):
        self.serve("edge", 3)

    def test_one_connection_in_two_sets_and_twice_in_one(self):
        self.serve("two-sets", 1)

    def test_processes_that_share_a_listener(self):
        self.serve("prefork", 4)

    def test_a_wildcard_listener(self):
        self.serve("block", 3, bound="0.0.0.0", rnic="auto", client_rnic="verbs")

    def test_a_wildcard_listener_of_both_versions(self):
        if not ADDRESS6:
            raise unittest.SkipTest("the device has no IPv6 address")
        self.serve(
            "block",
            2,
            bound="::",
            rnic="auto",
            client_rnic="verbs",
            targets=(ADDRESS, ADDRESS6),
            named=(f"::ffff:{ADDRESS}", ADDRESS6),
        )


if __name__ == "__main__":
    harness.main()
