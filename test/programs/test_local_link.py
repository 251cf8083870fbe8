"""The local link where things go wrong: a peer that writes what it likes into the memory, ends that are
killed or stopped, one processor, and ten thousand connections."""

import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import harness  # which puts scripts/ on the path
import bench_costs

HOSTILE = harness.HERE / "hostile_memory.py"
LOCAL = {"SDP_LINK": "local", "SDP_MODE": "sdp"}
QUIET = LOCAL | {"SDP_LOG": "error"}
# The calls by which connections come and go.
STEPS = (
    "socket connect bind accept4 getsockname sendto recvfrom sendmsg recvmsg memfd_create ftruncate shutdown"
).split()
MOST_OF_A_CALL = 100
# How long the attack on the memory goes on.
SECONDS = float(os.environ.get("SDP_TEST_SECONDS", 5))
# Descriptors that the library makes for a whole process, or a thread, once it needs them: bells, the socket
# that rings, an epoll set of the helper's, the log.
MADE_WHEN_NEEDED = 8

# Sends a pattern without end. The receiver checks it.
SENDER = """
import socket, sys
pattern = bytes(range(251)) * 8000
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    at = 0
    while True:
        for size in 1, 64, 777, 5000, 70_001, 400_003:
            s.sendall(pattern[at : at + size])
            at = (at + size) % 251
"""
# Prints "begun" once it has so many bytes, and at the end whether all that came was right.
RECEIVER = """
import socket, sys
pattern = bytes(range(251)) * 8000
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    connection, _ = listener.accept()
got = 0
try:
    while data := connection.recv(1_000_000):
        if data != pattern[got % 251 : got % 251 + len(data)]:
            print("wrong", got)
            break
        before, got = got, got + len(data)
        if before < int(sys.argv[2]) <= got:
            print("begun", flush=True)
    print("end")
except ConnectionResetError:
    print("reset")
"""


def shared_memory(pid):
    """KiB of it that the process has in use."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^RssShmem:\s+(\d+) kB", status, re.M)[1])


def processor_time(*pids):
    """Seconds, of all of them."""
    return sum(bench_costs.processor_times(pathlib.Path(f"/proc/{pid}/stat").read_text())[1] for pid in pids)


def at_rest(*pids):
    """A condition for wait_until: for a second these processes have used less than a tenth of a processor."""
    looks = [(time.monotonic(), processor_time(*pids))]

    def condition():
        looks.append((time.monotonic(), processor_time(*pids)))
        while looks[-1][0] - looks[1][0] >= 1:
            looks.pop(0)
        (began, had), (now, has) = looks[0], looks[-1]
        return now - began >= 1 and has - had < 0.1 * (now - began)

    return condition


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def memories(pid):
    return pathlib.Path(f"/proc/{pid}/maps").read_text().count("memfd:sdp-link")


class LocalLink(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()

    def serve(self, *under, **options):
        return self.world.start(
            [*under, harness.CONNECTIONS, "serve", self.port], environment=QUIET, **options
        )

    def connect(self):
        self.assertGreater(
            float(self.world.run([harness.CONNECTIONS, "rate", self.port, 0.001], environment=QUIET)), 0
        )

    def test_hostile_memory(self):
        """Nobody else is harmed: the server lives, its other connections go on, and it is not kept busy once
        the attack is over."""
        server = self.world.peer("echo-server", self.port, environment=LOCAL)
        self.world.wait_for_listener(self.port)
        client = self.world.peer(
            "echo-client", self.port, environment=LOCAL, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        had = descriptors(server.pid)
        seed = int(os.environ.get("SDP_TEST_SEED", time.time()))
        print("seed", seed)
        made = 0
        for turn in range(4):
            # Each has another seed. The attacker's own end is wrecked as well, and must live.
            attacker = self.world.start(
                [sys.executable, HOSTILE, self.port, SECONDS / 4, seed + 10 * turn],
                environment=QUIET,
                stdout=subprocess.PIPE,
            )
            for size in 1, 1000, 300_000, 7:
                client.popen.stdin.write(b"%d\n" % size)
                client.popen.stdin.flush()
                self.assertEqual(client.popen.stdout.readline(), b"ok %d\n" % size)
            self.assertEqual(attacker.wait(60 + SECONDS), 0, attacker.output())
            made += int(attacker.popen.stdout.readline())
            self.assertTrue(server.running(), server.output())
        print(f"{made} connections of the attacker's")
        self.assertGreater(made, 20)
        self.world.run_peer("connect", self.port, 5, environment=LOCAL)
        harness.wait_until(
            lambda: descriptors(server.pid) <= had + MADE_WHEN_NEEDED, "end of the attacker's connections"
        )
        harness.wait_until(at_rest(server.pid), "server without work")

    def each_step(self, run):
        """Calls run(strace) with a command in front that kills a program at one of its steps, for each."""
        harness.need("strace")
        log = self.world.directory / "steps"
        strace = ["strace", "-f", "-qq", "-o", log, "-e", f"trace={','.join(STEPS)}", "-e"]
        steps = 0
        for call in STEPS:
            for number in range(1, MOST_OF_A_CALL):
                run([*strace, f"inject={call}:signal=KILL:when={number}"])
                if "killed by SIGKILL" not in log.read_text():
                    break
                steps += 1
            else:
                self.fail(f"no end of {call}")
        print(steps, "steps")
        self.assertGreater(steps, 20)

    def test_a_client_killed_at_each_step(self):
        server = self.serve()
        self.world.wait_for_listener(self.port)
        self.connect()
        had = descriptors(server.pid)

        def run(strace):
            self.world.run(
                [*strace, harness.CONNECTIONS, "rate", self.port, 0.001], environment=QUIET, check=False
            )
            self.connect()

        self.each_step(run)
        harness.wait_until(
            lambda: memories(server.pid) == 0 and descriptors(server.pid) <= had + MADE_WHEN_NEEDED,
            "end of what the killed had",
        )

    def test_a_server_killed_at_each_step(self):
        """Its client hears of it at once, whether the connection was there or not."""

        def run(strace):
            server = self.serve(*strace, stdout=subprocess.PIPE)
            if server.popen.stdout.readline() == b"ready\n":
                for _ in range(2):
                    client = self.world.start(
                        [harness.CONNECTIONS, "rate", self.port, 0.001],
                        environment=QUIET | {"SDP_MODE": "both"},
                    )
                    client.wait(10)
            server.stop()

        self.each_step(run)

    def test_a_sender_killed_in_the_middle(self):
        """What its peer reads is what was sent, up to some byte, and then a reset."""
        for _ in range(20):
            port = harness.free_port()
            receiver = self.world.start(
                [sys.executable, "-c", RECEIVER, port, random.randint(1, 5_000_000)],
                environment=QUIET,
                stdout=subprocess.PIPE,
            )
            self.world.wait_for_listener(port)
            sender = self.world.start([sys.executable, "-c", SENDER, port], environment=QUIET)
            self.assertEqual(receiver.popen.stdout.readline(), b"begun\n", receiver.output())
            sender.kill(signal.SIGKILL)
            self.assertEqual(receiver.wait(), 0, receiver.output())
            self.assertEqual(receiver.popen.stdout.read(), b"reset\n")

    def test_a_sender_that_is_stopped(self):
        """Its peer waits without keeping a processor busy, and nothing is lost."""
        sink = self.world.peer("sink-server", self.port, environment=LOCAL, stdout=subprocess.PIPE)
        self.world.wait_for_listener(self.port)
        sender = self.world.peer("send", self.port, 500_000_000, environment=LOCAL)
        harness.wait_until(lambda: shared_memory(sink.pid) > 0 or not sender.running(), "bytes on their way")
        sender.kill(signal.SIGSTOP)
        harness.wait_until(at_rest(sink.pid), "receiver that waits")
        sender.kill(signal.SIGCONT)
        self.assertEqual(sender.wait(), 0, sender.output())

    def test_a_receiver_that_is_stopped(self):
        """A sender waits without keeping a processor busy, and nothing is lost."""
        sink = self.world.peer("sink-server", self.port, environment=LOCAL, stdout=subprocess.PIPE)
        self.world.wait_for_listener(self.port)
        sink.kill(signal.SIGSTOP)
        sender = self.world.peer("send", self.port, 50_000_000, environment=LOCAL)
        harness.wait_until(at_rest(sender.pid), "sender that waits")
        self.assertTrue(sender.running(), sender.output())
        sink.kill(signal.SIGCONT)
        self.assertEqual(sender.wait(), 0, sender.output())

    def test_one_processor(self):
        processor = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        self.serve(*processor)
        self.world.wait_for_listener(self.port)
        rate = float(
            self.world.run(
                [*processor, harness.CONNECTIONS, "rate", self.port, 1], environment=QUIET, timeout=60
            )
        )
        self.assertGreater(rate, 100)

    def test_ten_thousand_idle(self):
        """All are SDP's, and cost no processor time. Where descriptors are few some have a TCP link."""
        wanted = 10_000
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        count = min(wanted, allowed * 2 // 3)
        if count < wanted:
            print(f"skipped in part: {count} connections, as a process may have {allowed} descriptors here")
        environment = {"SDP_MODE": "sdp", "SDP_LINK": "auto", "SDP_LOG": "error"}
        server = self.world.start([harness.CONNECTIONS, "serve", self.port], environment=environment)
        self.world.wait_for_listener(self.port)
        had = bench_costs.proportional_set(server.pid)
        client = self.world.start(
            [harness.CONNECTIONS, "idle", self.port, count],
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(client.popen.stdout.readline(), b"ready\n", client.output())
        self.assertEqual(self.world.summary()["connections_open"], 2 * count)
        each = (bench_costs.proportional_set(server.pid) - had) / count
        print(f"{each:.1f} KiB of the server's memory for each")
        self.assertLess(each, 10)
        harness.wait_until(at_rest(server.pid, client.pid), "processes without work")
        client.popen.stdin.close()
        self.assertEqual(client.wait(), 0)
        self.connect()


if __name__ == "__main__":
    harness.main()
