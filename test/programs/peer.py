"""Plain socket programs: they know nothing of SDP. Each prints lines on standard output and takes commands on
standard input.

    echo-server PORT [HOST]         echoes what each connection sends; one thread a connection
    select-server PORT              echoes in one thread, with select and a blocking accept
    epoll-server PORT               the same with epoll
    sink-server PORT                reads each connection to its end, prints "SIZE SHA256", answers the hash
                                    and closes
    send PORT SIZE                  sends SIZE pseudo-random bytes, half-closes, checks the hash in the answer
    echo-client PORT                connects, prints "connected"; for each number N on stdin sends N bytes and
                                    checks the echo, prints "ok N"; when the connection ends or breaks prints
                                    "eof" or "reset" and ends
    wait-for-end PORT               connects, sends a byte, prints "connected" once it is back, then reads
                                    until the end: "eof SECONDS" or "reset SECONDS", since the last line on
                                    stdin
    fetch URL COUNT SHA256          urllib, COUNT times one after the other, each body checked
    connect PORT COUNT              COUNT times connect, one byte to and fro, close; prints the seconds of
                                    each
    redis-check PORT COUNT          reads keys key:0 to key:COUNT-1, checks their values
    memcached PORT COUNT            sets and gets COUNT values, some of them large, and checks them
"""

import hashlib
import random
import select
import selectors
import socket
import sys
import threading
import time
import urllib.request


def say(*words):
    print(*words, flush=True)


def connect(port, host="127.0.0.1"):
    s = socket.create_connection((host, int(port)), timeout=20)
    s.settimeout(None)
    return s


def listen(port, host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, int(port)))
    s.listen(128)
    return s


def serve(listener, handle):
    while True:
        s, _ = listener.accept()
        threading.Thread(target=handle, args=(s,), daemon=True).start()


def receive_exactly(s, size):
    pieces = []
    while size > 0:
        piece = s.recv(min(size, 1 << 20))
        if not piece:
            raise EOFError("the connection ended early")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def echo_server(port, host="127.0.0.1"):
    def handle(s):
        with s:
            try:
                while data := s.recv(1 << 16):
                    s.sendall(data)
            except ConnectionError:
                pass

    serve(listen(port, host), handle)


def sink_server(port):
    def handle(s):
        digest, size = hashlib.sha256(), 0
        with s:
            while data := s.recv(1 << 18):
                digest.update(data)
                size += len(data)
            say(size, digest.hexdigest())
            s.sendall(digest.hexdigest().encode())

    serve(listen(port), handle)


def send(port, size):
    generator, digest, left = random.Random(int(size)), hashlib.sha256(), int(size)
    with connect(port) as s:
        while left > 0:
            piece = generator.randbytes(min(left, 300_000))
            s.sendall(piece)
            digest.update(piece)
            left -= len(piece)
        s.shutdown(socket.SHUT_WR)
        answer = receive_exactly(s, 64).decode()
        assert s.recv(1) == b"", "more than the answer"
    assert answer == digest.hexdigest(), "the hash differs"
    say("ok", size)


def echo_client(port):
    s = connect(port)
    say("connected")
    generator = random.Random(7)
    for line in sys.stdin:
        data = generator.randbytes(int(line))
        sender = threading.Thread(target=s.sendall, args=(data,))
        sender.start()
        echoed = receive_exactly(s, len(data))
        sender.join()
        assert echoed == data, "the echo differs"
        say("ok", len(data))


def wait_for_end(port):
    s = connect(port)
    s.sendall(b"x")
    receive_exactly(s, 1)
    say("connected")
    sys.stdin.readline()
    start = time.monotonic()
    readable, _, _ = select.select([s], [], [], 20)
    try:
        how = "still open" if not readable else "data" if s.recv(1) else "eof"
    except ConnectionResetError:
        how = "reset"
    say(how, f"{time.monotonic() - start:.3f}")


def fetch(url, count, wanted):
    for _ in range(int(count)):
        with urllib.request.urlopen(url, timeout=30) as answer:
            body = answer.read()
        assert hashlib.sha256(body).hexdigest() == wanted, "the body differs"
    say("ok", count)


def connect_and_close(port, count):
    for _ in range(int(count)):
        start = time.monotonic()
        with connect(port) as s:
            s.sendall(b"x")
            receive_exactly(s, 1)
        say(f"{time.monotonic() - start:.4f}")


def redis_check(port, count):
    with connect(port) as s, s.makefile("rb") as answers:
        count, batch = int(count), 1000
        for first in range(0, count, batch):
            keys = [f"key:{i}" for i in range(first, min(count, first + batch))]
            words = ["MGET", *keys]
            s.sendall(
                f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words)
            )
            assert answers.readline() == f"*{len(keys)}\r\n".encode()
            for i in range(first, first + len(keys)):
                size = int(answers.readline()[1:])
                value = answers.read(size + 2)[:-2]
                assert value == f"value:{i}:{i * 7919}".encode(), (i, value)
    say("ok", count)


def memcached(port, count):
    count = int(count)
    generator = random.Random(3)
    values = {
        f"key{i}": generator.randbytes(500_000 if i % 1000 == 0 else generator.randrange(1, 2000))
        for i in range(count)
    }
    with connect(port) as s, s.makefile("rb") as answers:
        for key, value in values.items():
            s.sendall(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
            assert answers.readline() == b"STORED\r\n"
        for key, value in values.items():
            s.sendall(f"get {key}\r\n".encode())
            assert answers.readline() == f"VALUE {key} 0 {len(value)}\r\n".encode()
            assert answers.read(len(value)) == value
            assert answers.readline() == b"\r\n" and answers.readline() == b"END\r\n"
    say("ok", sum(map(len, values.values())))


def one_thread_server(port, selector):
    listener = socket.create_server(("127.0.0.1", int(port)))
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for ready in [key.fileobj for key, _ in selector.select()]:
            if ready is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif data := ready.recv(65536):
                ready.sendall(data)
            else:
                selector.unregister(ready)
                ready.close()


def select_server(port):
    one_thread_server(port, selectors.SelectSelector())


def epoll_server(port):
    one_thread_server(port, selectors.EpollSelector())


def main():
    run = {
        "echo-server": echo_server,
        "select-server": select_server,
        "epoll-server": epoll_server,
        "sink-server": sink_server,
        "send": send,
        "echo-client": echo_client,
        "wait-for-end": wait_for_end,
        "fetch": fetch,
        "connect": connect_and_close,
        "redis-check": redis_check,
        "memcached": memcached,
    }[sys.argv[1]]
    try:
        run(*sys.argv[2:])
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
