"""What a preloaded library cannot see works as before, over TCP, and sdp-run and sdpstat say so: static
programs, Go's, setuid ones, and system calls past the C library. (io_uring has test_io_uring.py.)"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import unittest

import harness
from sdp_world import SDPSTAT
from test_explain import SDP_RUN, Tools

# connect(2) and all before it by syscall(): x86-64's numbers.
RAW_CLIENT = """
import ctypes, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(ctypes.c_long(41), socket.AF_INET, socket.SOCK_STREAM, 0)
address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", int(sys.argv[1]))
address += socket.inet_aton("127.0.0.1") + bytes(8)
assert libc.syscall(ctypes.c_long(42), fd, address, len(address)) == 0
for line in sys.stdin.buffer:
    assert libc.syscall(ctypes.c_long(1), fd, line, ctypes.c_size_t(len(line))) == len(line)
    back = ctypes.create_string_buffer(len(line))
    assert libc.syscall(ctypes.c_long(0), fd, back, ctypes.c_size_t(len(line))) == len(line)
    sys.stdout.buffer.write(back.raw)
    sys.stdout.buffer.flush()
"""


class Unseen(Tools):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()

    def assert_refused(self, command, words):
        refused = self.tool(SDP_RUN, *command)
        self.assertEqual(refused.returncode, 126, refused.stderr)
        self.assertIn(words, refused.stderr)

    def assert_why(self, process, code):
        """It has come by TCP, to a server with the library."""
        harness.wait_until(
            lambda: self.world.accepted(self.port)[1] >= 1, f"client that came by TCP:\n{self.world.logs()}"
        )
        self.assertEqual(self.world.accepted(self.port)[0], 0)
        self.assertIn(code, self.tool(SDPSTAT, "why", process.pid).stdout)

    def echo(self, command, code):
        """Of a program that passes its standard input on and prints what comes back."""
        self.world.peer("echo-server", self.port)
        self.world.wait_for_listener(self.port)
        client = self.world.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for line in b"one\n", b"two\n":
            client.popen.stdin.write(line)
            client.popen.stdin.flush()
            self.assertEqual(client.popen.stdout.readline(), line)
        self.assert_why(client, code)

    def test_a_static_program(self):
        harness.need("busybox")
        command = ["busybox", "nc", "127.0.0.1", self.port]
        self.assert_refused(command, "is statically linked")
        self.echo(command, "static-binary")

    @unittest.skipUnless(os.geteuid() == 0, "only root makes a program another user's")
    def test_a_setuid_program(self):
        harness.need("nc")
        program = shutil.copy(harness.find("nc"), self.world.directory / "nc")
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        command = [program, "127.0.0.1", self.port]
        self.assert_refused(command, "is setuid")
        self.echo(command, "privileged")

    @unittest.skipUnless(
        platform.machine() == "x86_64", "the numbers of the system calls are another machine's"
    )
    def test_system_calls_past_the_c_library(self):
        self.echo([sys.executable, "-c", RAW_CLIENT, self.port], "system calls past the C library")

    def test_a_go_program(self):
        harness.need("hey")
        self.world.start(
            [
                sys.executable,
                "-m",
                "http.server",
                "--bind",
                "127.0.0.1",
                "--directory",
                self.world.stats_dir,
                self.port,
            ]
        )
        self.world.wait_for_listener(self.port)
        command = ["hey", "-z", "60s", "-c", "2", "-q", "20", f"http://127.0.0.1:{self.port}/"]
        self.assert_refused(command, "is a Go program")
        client = self.world.start(command)
        self.assert_why(client, "go-binary")
        client.kill(signal.SIGINT)  # it says what it has seen
        client.wait(20)
        self.assertRegex(client.output(), r"\[200\]\s+[1-9]\d* responses")


if __name__ == "__main__":
    harness.main()
