"""A peer on a local link that writes what it likes into the memory of its connections, at any time.

    hostile_memory.py PORT SECONDS SEED

Connects to an echo server, and in two threads writes into the memory: controls (each index, and the states of
both ends), headers and payload, random and aimed values; rings its doorbell without end; sends and closes as
well. Prints how many connections it has had. Runs with the library, whose own end it wrecks as well.
"""

import contextlib
import ctypes
import mmap
import os
import random
import socket
import sys
import threading
import time

CONTROL = 256  # bytes of one ring's control, verbs/softiwarp/local/ring.h
HEAD, WINDOW, TAIL, READER, BELL, COOKIE, WRITER = 0, 8, 64, 128, 136, 152, 192
PAGE = 4096
SENDTO = {"x86_64": 44, "aarch64": 206}
RING = 512 << 10

libc = ctypes.CDLL(None)


def memories():
    """The memories of this process's local links, each in a mapping of its own: the library's goes when it
    likes."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:sdp-link"):
                file = os.open(f"/proc/self/fd/{name}", os.O_RDWR)
                try:
                    found.append(mmap.mmap(file, PAGE + 2 * RING))
                finally:
                    os.close(file)
    return found


def write(memory, at, value, size):
    memory[at : at + size] = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def read(memory, at):
    return int.from_bytes(memory[at : at + 8], "little")


def aimed(chance, now):
    """An index that is nearly right, or far from it."""
    return chance.choice(
        [0, 1, now + 1, now - 1, now + 4096, now + RING, 1 << 32, (1 << 64) - 1, RING]
        + [chance.getrandbits(64), chance.getrandbits(20)]
    )


def wreck(memory, chance):
    ring = CONTROL * chance.randrange(2)
    what = chance.randrange(8)
    if what < 2:
        at = ring + (HEAD, TAIL)[what]
        write(memory, at, aimed(chance, read(memory, at)), 8)
    elif what == 2:
        window = chance.choice([0, 1, 3, 512, 1024, 4096, RING, RING * 2, 0xFFFFFFFF])
        write(memory, ring + WINDOW, window, 4)
    elif what == 3:
        write(memory, ring + READER, chance.choice([0, 1, 2, 3, 4, chance.getrandbits(32)]), 4)
    elif what == 4:
        write(memory, ring + WRITER, chance.choice([0, 1, 2, 3, chance.getrandbits(32)]), 4)
    elif what == 5:
        write(memory, ring + BELL, chance.getrandbits(128), 16)
        write(memory, ring + COOKIE, chance.getrandbits(64), 8)
    else:
        # A message: its length, its header, its payload. Small traffic is behind the controls.
        at = (
            1024 + chance.randrange(2048) if chance.random() < 0.5 else PAGE + chance.randrange(2 * RING - 64)
        )
        for i in range(chance.choice([1, 2, 16, 64])):
            write(memory, at + i, chance.getrandbits(8), 1)


def ring_doorbells(fd, chance):
    """On the TCP connection, past the library, which would send these bytes as a message."""
    for _ in range(chance.randrange(50)):
        bells = b"\xff" * chance.choice([1, 1, 64])
        libc.syscall(SENDTO[os.uname().machine], fd, bells, len(bells), socket.MSG_DONTWAIT, None, 0)


def attack(port, until, seed, counts):
    chance = random.Random(seed)
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=0.5) as s:
                s.setblocking(False)
                counts.append(1)
                end = time.monotonic() + chance.choice([0.002, 0.02, 0.2])
                while time.monotonic() < min(end, until):
                    try:
                        s.send(bytes(chance.choice([1, 64, 3000, 100_000])))
                    except BlockingIOError:
                        pass
                    for memory in memories():
                        for _ in range(chance.choice([1, 20])):
                            wreck(memory, chance)
                        memory.close()
                    if chance.random() < 0.2:
                        ring_doorbells(s.fileno(), chance)
                    try:
                        s.recv(100_000)
                    except BlockingIOError:
                        pass
        except OSError:
            pass


def main():
    port, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    until, counts = time.monotonic() + seconds, []
    threads = [threading.Thread(target=attack, args=(port, until, seed + i, counts)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(counts), flush=True)


main()
