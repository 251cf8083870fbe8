"""Servers that fork for each connection: the child talks, the parent has closed its copy and accepts the next."""

import os
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


class Forking(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()

    def echo_through(self, server):
        self.world.wait_for_listener(self.port)
        clients = [self.world.start([sys.executable, "-c", CLIENT, self.port, size])
                   for size in (0, 1, 100_000, 3_000_000)]
        for client in clients:
            self.assertEqual(client.wait(60), 0, client.output())
        self.assertIsNone(server.popen.poll(), server.output())
        self.assert_no_tcp()

    def test_socketserver(self):
        self.echo_through(self.world.start([sys.executable, "-c", SERVER, self.port]))

    def test_what_the_statistics_show(self):
        parent = self.world.start([sys.executable, "-c", SERVER_IN_STEPS, self.port], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.world.wait_for_listener(self.port)
        client = self.world.peer("echo-client", self.port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        child = int(parent.popen.stdout.readline())

        def rows():
            return {p["pid"]: (len(p["listeners"]), [c["peer"] for c in p["connections"]]) for p in self.world.sdpstat()["processes"]}
        # The child has closed the listener, and the parent the connection.
        name = next(p for p in self.world.sdpstat()["processes"] if p["pid"] == client.pid)["connections"][0]["local"]
        for size in 1000, 2000:
            client.popen.stdin.write(b"%d\n" % size)
            client.popen.stdin.flush()
            self.assertEqual(client.popen.stdout.readline(), b"ok %d\n" % size)
        harness.wait_until(lambda: {pid: row for pid, row in rows().items() if pid != client.pid} == {parent.pid: (1, []), child: (0, [name])},
                           f"one listener at the parent, one connection at the child: {rows()}")

    def test_children_that_end_with_the_handshakes_of_others(self):
        """Each has the listener, and its helper may have begun to shake hands on it."""
        rounds = 20 if os.environ.get("SDP_PRELOAD_AHEAD") else 100  # sanitizers
        program = self.world.start([sys.executable, "-c", SHORT_LIVED, rounds], stdout=subprocess.PIPE)
        port = int(program.popen.stdout.readline())
        self.assertEqual(program.wait(120), 0, program.output())
        self.assertEqual(self.world.connects(port), (8 * rounds, {}))

    def test_socat(self):
        harness.need("socat")
        self.echo_through(self.world.start(["socat", f"TCP-LISTEN:{self.port},bind=127.0.0.1,reuseaddr,fork", "EXEC:cat"]))


if __name__ == "__main__":
    harness.main()
