"""Waits look before they sleep; while both ends of a local link are busy, they seldom enter the kernel.

The kernel counts the system calls of both ends, from the start of the programs to their end; divided by the
messages they are few. What is left is the set-up, and what pauses of the machine cost.
"""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

import harness
import kernel_entries
from sdp_world import BUILD

TRANSFER = BUILD / "test" / "programs" / "transfer"
URGENT = ["chrt", "--rr", "1"]
# A program that begins with this stops itself before it becomes what it is to be.
STOPPED = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
LOCAL = {"SDP_LINK": "local", "SDP_MODE": "sdp", "SDP_LOG": "error"}


class Looks(harness.ProgramTest):
    def test_waits_for_a_tcp_link_look_before_they_sleep(self):
        port = harness.free_port()
        self.world.start([sys.executable, harness.PEER, "echo-server", port])
        self.world.wait_for_listener(port)
        environment = {"SDP_LINK": "tcp", "SDP_MODE": "sdp", "SDP_LOG": "error"}
        harness.check_that_waits_look_first(self, "127.0.0.1", port, ["recv", "poll", "select"], environment)


class Busy(harness.ProgramTest):
    def setUp(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("both ends are busy at once only on two processors")
        if subprocess.run([*URGENT, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no real-time priority may be had, and others would make an end sleep")
        super().setUp()

    def start(self, argv, link="local", only=None, **options):
        """A program and the counter of its system calls, or of one of them. It runs ahead of all others of
        the machine: they would make an end sleep."""
        process = self.world.start(
            [*URGENT, *STOPPED, *argv], environment={**LOCAL, "SDP_LINK": link}, **options
        )
        stat = pathlib.Path(f"/proc/{process.pid}/stat")
        harness.wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "stopped program")
        try:
            counter = kernel_entries.KernelEntries(process.pid, only=only)
        except kernel_entries.Unavailable as error:
            self.skipTest(str(error))
        self.addCleanup(counter.close)
        process.kill(signal.SIGCONT)
        return process, counter

    def transfer(self, shape, size, messages, *words, **how):
        argv = [TRANSFER, shape, size, messages, "apart", *words]
        process, counter = self.start(argv, **how, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(len(process.popen.stdout.readline().split()), 3, process.output())
        process.popen.stdin.close()
        self.assertEqual(process.wait(), 0, process.output())
        process.popen.stdout.close()
        self.assertGreater(counter.count(), 0)
        return counter.count() / messages

    def assert_few(self, limit, measure):
        """One of several tries is below the limit: whether both ends are busy the machine decides, too."""
        tries = []
        for _ in range(3):
            tries.append(measure())
            if tries[-1] < limit:
                return
        self.fail(f"system calls a message: {tries}, wanted less than {limit}")

    def test_turns(self):
        self.assert_few(0.1, lambda: self.transfer("turns", 64, 200_000))

    def test_turns_with_a_poll_before_each_call(self):
        for beside in ("polled", "polled-beside"):
            with self.subTest(beside):
                self.assert_few(0.1, lambda: self.transfer("turns", 64, 200_000, beside))

    def test_a_stream_of_small_messages(self):
        self.assert_few(0.05, lambda: self.transfer("stream", 64, 1_000_000))

    def test_a_stream_of_large_messages(self):
        """Some of the doorbells that say that the ring has room are rung although the writer is awake."""
        self.assert_few(2, lambda: self.transfer("stream", 64 << 10, 50_000))

    def test_small_writes_share_messages_over_a_tcp_link(self):
        """Each would cost the sender a call. How often the receiver looks depends on the machine's pace."""
        only = kernel_entries.SENDMSG
        self.assert_few(0.05, lambda: self.transfer("stream", 1000, 300_000, link="tcp", only=only))

    def test_redis(self):
        """Of a server that also looks at its listener and its clock now and then."""
        harness.need("redis-server", "redis-benchmark")
        port, requests = harness.free_port(), 200_000
        where = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        _, server = self.start(["redis-server", *where])
        self.world.wait_for_listener(port)

        def load():
            before = server.count()
            benchmark = ["redis-benchmark", "-p", port, "-c", 50, "-n", requests, "-t", "get", "--csv"]
            process, client = self.start(benchmark)
            self.assertEqual(process.wait(), 0, process.output())
            return (server.count() - before + client.count()) / requests

        self.assert_few(1, load)


if __name__ == "__main__":
    harness.main()
