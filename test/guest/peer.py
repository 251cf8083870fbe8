"""One end of a connection for the matrix of RNICs: a plain socket program that knows nothing of SDP.

    accept ADDRESS PORT TALK...     takes a connection for each TALK and holds its end
    connect ADDRESS PORT TALK...    the other end

Each prints "TALK SECONDS" behind each. TALK is one of
    bulk         8 MiB there, its hash back after the half close
    both         2 MiB each way at once, hashes compared
    small        200 writes of 1 to 900 bytes, each echoed
    banner       the accepting end speaks first and closes
    urgent       data, a byte of Out-Of-Band data, data
    half-close   the connecting end closes its direction; 3 MiB come back
    abort        the connecting end resets in the middle
    whole-N      one write of N MiB there, read by reads of all that is left; else as large-N
    large-N      N writes of 1 MiB there, read by N reads of 1 MiB; their hash back; both ends stay until
                 their standard input ends
"""

import hashlib
import random
import socket
import struct
import sys
import threading
import time


def pattern(size, seed):
    return random.Random(seed).randbytes(size)


def receive_all(s):
    digest, size = hashlib.sha256(), 0
    while data := s.recv(1 << 17):
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()


def receive_exactly(s, size):
    pieces = []
    while size > 0:
        piece = s.recv(min(size, 1 << 17))
        assert piece, "the connection ended early"
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def bulk(s, connecting):
    if connecting:
        data = pattern(8 << 20, 1)
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        assert receive_exactly(s, 64).decode() == digest(data), "the hash differs"
        assert s.recv(1) == b""
    else:
        s.sendall(receive_all(s)[1].encode())


def both(s, connecting):
    mine, theirs = pattern(2 << 20, 2 + connecting), pattern(2 << 20, 3 - connecting)
    sender = threading.Thread(target=s.sendall, args=(mine,))
    sender.start()
    assert digest(receive_exactly(s, len(theirs))) == digest(theirs), "the hash differs"
    sender.join()


def small(s, connecting):
    sizes = random.Random(4)
    for i in range(200):
        data = pattern(sizes.randrange(1, 900), i)
        if connecting:
            s.sendall(data)
            assert receive_exactly(s, len(data)) == data, "the echo differs"
        else:
            s.sendall(receive_exactly(s, len(data)))


def banner(s, connecting):
    if connecting:
        assert receive_all(s) == (6, digest(b"hello\n"))
    else:
        s.sendall(b"hello\n")


def urgent(s, connecting):
    if connecting:
        s.sendall(b"before")
        s.send(b"!", socket.MSG_OOB)
        s.sendall(b"after")
        assert receive_exactly(s, 2) == b"ok"
    else:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        assert receive_exactly(s, 12) == b"before!after"
        s.sendall(b"ok")


def half_close(s, connecting):
    data = pattern(3 << 20, 5)
    if connecting:
        s.sendall(b"go")
        s.shutdown(socket.SHUT_WR)
        assert receive_all(s) == (len(data), digest(data)), "the hash differs"
    else:
        assert receive_all(s)[0] == 2
        s.sendall(data)


def abort(s, connecting):
    if connecting:
        s.sendall(pattern(300_000, 6))
        receive_exactly(s, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return
    receive_exactly(s, 300_000)
    s.sendall(b"x")
    try:
        assert s.recv(1) is None, "no reset"
    except ConnectionResetError:
        pass


def large(s, connecting, count):
    hashed = hashlib.sha256()
    block = bytearray(pattern(1 << 20, 7))
    for number in range(count):
        if connecting:
            block[:8] = number.to_bytes(8, "big")
            s.sendall(block)
        else:
            left = memoryview(block)
            while left:
                size = s.recv_into(left)
                assert size, "the connection ended early"
                left = left[size:]
        hashed.update(block)
    if connecting:
        assert receive_exactly(s, 64).decode() == hashed.hexdigest(), "the hash differs"
        print("moved", flush=True)
    else:
        s.sendall(hashed.hexdigest().encode())
    sys.stdin.read()


def whole(s, connecting, count):
    if connecting:
        data = pattern(1 << 20, 7) * count
        s.sendall(data)
        assert receive_exactly(s, 64).decode() == digest(data), "the hash differs"
        print("moved", flush=True)
    else:
        data = bytearray(count << 20)
        left = memoryview(data)
        while left:
            size = s.recv_into(left)
            assert size, "the connection ended early"
            left = left[size:]
        s.sendall(digest(data).encode())
    sys.stdin.read()


def main():
    role, address, port, *talks = sys.argv[1:]
    listener = None
    if role == "accept":
        listener = socket.create_server(
            (address, int(port)), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
    for talk in talks:
        start = time.monotonic()
        if listener is not None:
            s, _ = listener.accept()
        else:
            s = socket.create_connection((address, int(port)), timeout=60)
        with s:
            s.settimeout(None)
            name, _, count = talk.partition("-")
            if count.isdigit():
                {"large": large, "whole": whole}[name](s, role == "connect", int(count))
            else:
                globals()[talk.replace("-", "_")](s, role == "connect")
        print(talk, f"{time.monotonic() - start:.2f}", flush=True)


main()
