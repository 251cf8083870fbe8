"""Servers that fork for each connection: the child talks, the parent has closed its copy and accepts the
next."""

import os
import pathlib
import signal
import subprocess
import sys

import harness

SERVER = """
import socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ForkingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

SERVER_IN_STEPS = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connection, _ = listener.accept()
child = os.fork()
if child == 0:
    listener.close()
    while data := connection.recv(65536):
        connection.sendall(data)
    os._exit(0)
connection.close()
print(child, flush=True)
sys.stdin.read()
"""

SHORT_LIVED = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
for _ in range(int(sys.argv[1])):
    children = []
    for i in range(8):
        child = os.fork()
        if child == 0:
            # With a time-out it is a non-blocking connect, and poll.
            with socket.create_connection(listener.getsockname(), timeout=60 if i % 2 else None) as s:
                s.sendall(b"hello")
                os._exit(s.recv(1) != b"!")
        children.append(child)
    for _ in children:
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(5, socket.MSG_WAITALL) == b"hello"
            accepted.sendall(b"!")
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
"""

# The child ends with a connection whose peer has yet to read, so that this takes a while. `behind`: its
# listener has the higher descriptor.
ENDING = """
import ctypes, fcntl, os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
child = os.fork()
if child == 0:
    if sys.argv[2] == "behind":
        moved = socket.socket(fileno=fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD, 100))
        listener.close()
        listener = moved
    full, idle = (listener.accept()[0] for _ in range(2))
    idle.sendall(b"i")
    full.setblocking(False)
    try:
        while True:
            full.send(b"f" * 65536)
    except BlockingIOError:
        pass
    last = fcntl.fcntl(idle.fileno(), fcntl.F_DUPFD, 200)
    idle.close()
    ctypes.CDLL(None).exit(0)  # Python's own closes all that it knows
print("forked", flush=True)
accepted, _ = listener.accept()
accepted.sendall(accepted.recv(1))
print("echoed", flush=True)
os.waitpid(child, 0)
"""

# Asks for a connection when the child has begun to end, which it sees by the end of the one that is idle.
LATE = """
import select, socket, sys
address = ("127.0.0.1", int(sys.argv[1]))
pair = [socket.create_connection(address, timeout=60) for _ in range(2)]
connections = {s.recv(1): s for s in pair}
assert connections[b"i"].recv(1) == b""
late = socket.socket()
late.setblocking(False)
late.connect_ex(address)
answer = select.poll()
answer.register(late, select.POLLOUT)
print("answered" if answer.poll(1000) else "left alone", flush=True)
try:
    while connections[b"f"].recv(1 << 20):
        pass
except ConnectionResetError:
    pass  # on a slow machine it was too late for the child
assert answer.poll(60000)
late.settimeout(60)
late.sendall(b"x")
assert late.recv(1) == b"x"
"""

CLIENT = """
import hashlib, os, socket, sys, threading
size = int(sys.argv[2])
data = os.urandom(size)
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send)
t.start()
got = hashlib.sha256()
n = 0
while chunk := s.recv(65536):
    got.update(chunk)
    n += len(chunk)
t.join()
assert n == size, (n, size)
assert got.digest() == hashlib.sha256(data).digest()
"""

HEARS = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
connection.sendall(b"x")
print(b"".join(iter(lambda: connection.recv(100), b"")), flush=True)
"""

# Its only thread ends by itself.
SELF_ENDING = """
import ctypes, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connection, _ = server.accept()
server.close()
connection.recv(1)
connection.setblocking(False)
connection.send(b"last")
ctypes.CDLL(None).pthread_exit(None)
"""


class Forking(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()

    def echo_through(self, server):
        self.world.wait_for_listener(self.port)
        clients = [
            self.world.start([sys.executable, "-c", CLIENT, self.port, size])
            for size in (0, 1, 100_000, 3_000_000)
        ]
        for client in clients:
            self.assertEqual(client.wait(60), 0, client.output())
        self.assertIsNone(server.popen.poll(), server.output())
        self.assert_no_tcp()

    def test_socketserver(self):
        self.echo_through(self.world.start([sys.executable, "-c", SERVER, self.port]))

    def test_what_the_statistics_show(self):
        parent = self.world.start(
            [sys.executable, "-c", SERVER_IN_STEPS, self.port], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.world.wait_for_listener(self.port)
        client = self.world.peer("echo-client", self.port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        child = int(parent.popen.stdout.readline())

        def rows():
            return {
                p["pid"]: (len(p["listeners"]), [c["peer"] for c in p["connections"]])
                for p in self.world.sdpstat()["processes"]
            }

        # The child has closed the listener, and the parent the connection.
        name = next(p for p in self.world.sdpstat()["processes"] if p["pid"] == client.pid)["connections"][0][
            "local"
        ]
        for size in 1000, 2000:
            client.popen.stdin.write(b"%d\n" % size)
            client.popen.stdin.flush()
            self.assertEqual(client.popen.stdout.readline(), b"ok %d\n" % size)
        harness.wait_until(
            lambda: {pid: row for pid, row in rows().items() if pid != client.pid}
            == {parent.pid: (1, []), child: (0, [name])},
            f"one listener at the parent, one connection at the child: {rows()}",
        )

    def test_children_that_end_with_the_handshakes_of_others(self):
        """Each has the listener, and its helper may have begun to shake hands on it."""
        rounds = 20 if os.environ.get("SDP_PRELOAD_AHEAD") else 100  # sanitizers
        program = self.world.start([sys.executable, "-c", SHORT_LIVED, rounds], stdout=subprocess.PIPE)
        port = int(program.popen.stdout.readline())
        self.assertEqual(program.wait(120), 0, program.output())
        self.assertEqual(self.world.connects(port), (8 * rounds, {}))

    def test_a_child_that_ends_takes_no_more_connections(self):
        """They would go with it, if they are not through with their handshakes; its parent may have them."""
        for place in "before", "behind":
            with self.subTest(place):
                port = harness.free_port()
                parent = self.world.start([sys.executable, "-c", ENDING, port, place], stdout=subprocess.PIPE)
                self.assertEqual(parent.popen.stdout.readline(), b"forked\n")
                self.world.wait_for_listener(port)
                harness.wait_until(lambda: self.sleeps(parent.pid), "parent that sleeps in accept")
                os.kill(parent.pid, signal.SIGSTOP)
                os.waitpid(parent.pid, os.WUNTRACED)
                client = self.world.start(
                    [sys.executable, "-c", LATE, port],
                    environment={"SDP_HANDSHAKE_TIMEOUT_MS": 120000},
                    stdout=subprocess.PIPE,
                )
                self.assertEqual(client.popen.stdout.readline(), b"left alone\n", client.output())
                os.kill(parent.pid, signal.SIGCONT)
                self.assertEqual(client.wait(60), 0, client.output())
                self.assertEqual(parent.popen.stdout.readline(), b"echoed\n", parent.output())
                self.assertEqual(parent.wait(20), 0, parent.output())
                self.assertEqual(self.world.connects(port), (3, {}))

    def test_a_thread_that_ends_by_itself_and_was_the_last(self):
        """But for the library's."""
        server = self.world.start([sys.executable, "-c", SELF_ENDING, self.port])
        self.world.wait_for_listener(self.port)
        client = self.world.start([sys.executable, "-c", HEARS, self.port], stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"b'last'\n", client.output())
        self.assertEqual(server.wait(20), 0, server.output())
        self.assertEqual(client.wait(20), 0, client.output())

    def sleeps(self, pid):
        """All of the process's threads do."""
        threads = pathlib.Path(f"/proc/{pid}/task")
        return all(
            (thread / "stat").read_text().rsplit(")", 1)[1].split()[0] == "S" for thread in threads.iterdir()
        )

    def test_socat(self):
        harness.need("socat")
        self.echo_through(
            # By default it leaves half a second behind the client's end, in which cat may not have begun.
            self.world.start(
                ["socat", "-t", "30", f"TCP-LISTEN:{self.port},bind=127.0.0.1,reuseaddr,fork", "EXEC:cat"]
            )
        )


if __name__ == "__main__":
    harness.main()
