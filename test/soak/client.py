"""Clients that check each answer, and the echo server. They know nothing of SDP.

    client.py KIND HOST PORT THREADS [NAME=SHA256...]    KIND: redis, memcached, http, echo
    client.py echo-server HOST PORT

A client prints a line for each answer: "ok STREAM CHECKED UNCHECKED" (bytes), "error STREAM WHAT" (then it
connects anew), "wrong STREAM WHAT"."""

import asyncio
import hashlib
import http.client
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

PAUSE = 0.03
SESSION = 60  # answers, then a new connection
AGAIN = 0.1


class Wrong(Exception):
    pass


def say(*words):
    # One write: lines of several threads do not mix.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Connection:
    def __init__(self, host, port, blocking):
        self.socket = socket.create_connection((host, port), timeout=60)
        if blocking:
            self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        self.answers = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.answers.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("the connection ended")
        return line[:-2]

    def exactly(self, size):
        data = self.answers.read(size)
        if len(data) != size:
            raise EOFError(f"the connection ended after {len(data)} of {size} bytes")
        return data

    def close(self):
        self.answers.close()
        self.socket.close()


class Store:
    """What redis and memcached have in common: what was confirmed must come back, as long as the server is
    the same one."""

    emptying = threading.Lock()
    emptied = False

    def __init__(self, stream, draw):
        self.stream, self.draw = stream, draw
        self.server = None
        self.session = 0
        self.values = {}  # key: (seed, size), once it is confirmed

    def open(self, connection):
        with Store.emptying:  # of what an earlier client has left
            if not Store.emptied:
                self.empty(connection)
                Store.emptied = True
        server = self.identity(connection)
        if server != self.server:
            self.server, self.values = server, {}
        self.session += 1

    def value(self, seed, size):
        return random.Random(seed).randbytes(size)

    def step(self, connection):
        # A value on its way over a broken connection may come later than the next connection's: those have
        # keys of their own.
        key = f"{os.getpid()}:{self.stream}:{self.session}:{self.draw.randrange(50)}".encode()
        seed, size = self.draw.getrandbits(32), self.draw.choice((10, 300, 5000, 60_000, 300_000))
        self.values.pop(key, None)
        self.set(connection, key, self.value(seed, size))
        self.values[key] = seed, size
        asked = self.draw.choice(list(self.values))
        found = self.get(connection, asked)
        if found is None:
            raise Wrong(f"{asked.decode()} was confirmed, and is not there")
        if found != self.value(*self.values[asked]):
            raise Wrong(f"{asked.decode()} has another value")
        if len(self.values) > 100:
            oldest = next(iter(self.values))
            del self.values[oldest]  # the answer may be lost, and who knows then whether it is there
            self.delete(connection, oldest)
        return len(found), size  # what was set counts as checked when it comes back


class Redis(Store):
    def command(self, connection, *words):
        connection.send(
            b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])
        )
        return connection.line()

    def bulk(self, connection, line):
        if line == b"$-1":
            return None
        if line[:1] != b"$":
            raise Wrong(f"redis says {line[:80]}")
        data = connection.exactly(int(line[1:]) + 2)
        if data[-2:] != b"\r\n":
            raise Wrong("the answer's end is not where it was said to be")
        return data[:-2]

    def empty(self, connection):
        if self.command(connection, b"FLUSHALL") != b"+OK":
            raise Wrong("redis does not forget")

    def delete(self, connection, key):
        if self.command(connection, b"DEL", key) != b":1":
            raise Wrong(f"{key.decode()} was confirmed, and cannot be deleted")

    def identity(self, connection):
        info = self.bulk(connection, self.command(connection, b"INFO", b"server"))
        return next(line for line in info.splitlines() if line.startswith(b"run_id:"))

    def set(self, connection, key, data):
        answer = self.command(connection, b"SET", key, data)
        if answer != b"+OK":
            raise Wrong(f"redis says {answer[:80]}")

    def get(self, connection, key):
        return self.bulk(connection, self.command(connection, b"GET", key))


class Memcached(Store):
    def empty(self, connection):
        connection.send(b"flush_all\r\n")
        if connection.line() != b"OK":
            raise Wrong("memcached does not forget")

    def delete(self, connection, key):
        connection.send(b"delete %b\r\n" % key)
        if connection.line() != b"DELETED":
            raise Wrong(f"{key.decode()} was confirmed, and cannot be deleted")

    def identity(self, connection):
        connection.send(b"stats\r\n")
        lines = iter(connection.line, b"END")
        return [line for line in lines if line.startswith(b"STAT pid ")]

    def set(self, connection, key, data):
        connection.send(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(data), data))
        answer = connection.line()
        if answer != b"STORED":
            # Short of memory it says so, and goes on.
            raise (OSError if answer.startswith(b"SERVER_ERROR") else Wrong)(f"memcached says {answer[:80]}")

    def get(self, connection, key):
        connection.send(b"get %b\r\n" % key)
        answer = connection.line()
        if answer == b"END":
            return None
        if not answer.startswith(b"VALUE "):
            raise (OSError if answer.startswith(b"SERVER_ERROR") else Wrong)(f"memcached says {answer[:80]}")
        data = connection.exactly(int(answer.split()[3]))
        if connection.exactly(7) != b"\r\nEND\r\n":
            raise Wrong("the answer's end is not where it was said to be")
        return data


class Echo:
    def __init__(self, stream, draw):
        self.draw = draw

    def open(self, connection):
        pass

    def step(self, connection):
        data = self.draw.randbytes(self.draw.choice((1, 64, 3000, 70_000, 600_000)))
        connection.send(struct.pack("!I", len(data)) + data)
        if connection.exactly(len(data)) != data:
            raise Wrong("the echo differs")
        return 2 * len(data), 0


class Http:
    """Each body has the hash that its file has; of what is not there, 404."""

    def __init__(self, stream, draw, hashes):
        self.draw, self.hashes = draw, hashes

    def open(self, connection):
        self.http = http.client.HTTPConnection("soak")
        self.http.sock = connection.socket

    def step(self, connection):
        name = self.draw.choice(sorted(self.hashes))
        self.http.request("GET", f"/{name}")
        with self.http.getresponse() as answer:
            body = answer.read()
            if answer.status in (500, 502, 503, 504):
                raise OSError(f"status {answer.status}")
            if answer.status != 200:
                raise Wrong(f"status {answer.status}")
        if hashlib.sha256(body).hexdigest() != self.hashes[name]:
            raise Wrong(f"{name} differs")
        if self.http.sock is None:
            raise OSError("the server has closed the connection behind its answer")
        return len(body), 0


def converse(make, host, port, stream):
    draw = random.Random(stream)
    talker = make(stream, draw)
    while True:
        connection = None
        try:
            connection = Connection(host, port, blocking=stream % 2 == 0)
            talker.open(connection)
            for _ in range(SESSION):
                say("ok", stream, *talker.step(connection))
                time.sleep(PAUSE)
        except (OSError, EOFError, MemoryError, http.client.HTTPException) as error:
            say("error", stream, type(error).__name__, str(error) or repr(error))
            time.sleep(AGAIN)
        except (Wrong, ValueError, StopIteration) as error:
            say("wrong", stream, type(error).__name__, str(error))
            time.sleep(AGAIN)
        finally:
            if connection:
                connection.close()


def end_with_thread(what):
    """A thread that ends, short of memory, takes the process with it, which is started again."""
    try:
        sys.__excepthook__(what.exc_type, what.exc_value, what.exc_traceback)
    finally:
        os._exit(3)


async def echo(reader, writer):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 4):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, value)
    try:
        while True:
            (size,) = struct.unpack("!I", await reader.readexactly(4))
            writer.write(await reader.readexactly(size))
            await writer.drain()
    except (OSError, EOFError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


def echo_server(host, port):
    """Processes made before the first client comes share the listener, as Apache's do. One that dies is
    replaced."""
    listener = socket.create_server((host, port), backlog=128)

    def work():
        async def serve():
            server = await asyncio.start_server(echo, sock=listener, limit=1 << 20)
            await server.serve_forever()

        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(serve())
            finally:
                os._exit(1)

    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    for _ in range(2):
        work()
    while True:
        pid, status = os.wait()
        if os.WIFSIGNALED(status):
            print(f"worker {pid} exited on signal {os.WTERMSIG(status)}", file=sys.stderr, flush=True)
        time.sleep(0.05)
        work()


def main():
    kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if kind == "echo-server":
        echo_server(host, port)
    hashes = dict(word.split("=") for word in sys.argv[5:])
    make = {
        "redis": Redis,
        "memcached": Memcached,
        "echo": Echo,
        "http": lambda stream, draw: Http(stream, draw, hashes),
    }[kind]
    threading.excepthook = end_with_thread
    for stream in range(int(sys.argv[4])):
        threading.Thread(target=converse, args=(make, host, port, stream), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
