"""io_uring: no ring for a process that may have SDP sockets, whichever way it asks; sdpstat names processes
that have one."""

import errno
import subprocess
import sys

import harness
from sdp_world import SDPSTAT

# Prints "open" or the name of the error for each way to make a ring that this machine has, then waits for its
# input to end.
PROGRAM = """
import ctypes, errno, os, sys
kept = []
def say(result):
    print("open" if result >= 0 else errno.errorcode[-result], flush=True)
libc = ctypes.CDLL(None, use_errno=True)
kept.append(ctypes.create_string_buffer(256))
fd = libc.syscall(ctypes.c_long(425), ctypes.c_uint(8), kept[-1])
say(fd if fd >= 0 else -ctypes.get_errno())
try:
    # By its name, as a program that is linked with it.
    ctypes.CDLL("liburing.so.2", mode=ctypes.RTLD_GLOBAL)
except OSError:
    print("no liburing", flush=True)
else:
    kept.append(ctypes.create_string_buffer(1024))
    say(libc.io_uring_queue_init(8, kept[-1], 0))
sys.stdin.read()
"""


class Rings(harness.ProgramTest):
    def program(self, preload=True, **environment):
        process = self.world.start(
            [sys.executable, "-c", PROGRAM],
            preload=preload,
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        lines = [process.popen.stdout.readline().decode().strip() for _ in range(2)]
        return process, lines

    def plain(self):
        process, lines = self.program(preload=False)
        process.popen.stdin.close()
        process.popen.wait(10)
        return lines

    def tool(self, *arguments):
        env = self.world.environment(
            preload=False,
            SDP_PMD_SOCKET=self.world.pmd_socket,
            SDP_PM_PORT=self.world.pm_port,
            SDP_STATS_DIR=self.world.stats_dir,
            SDP_CONFIG="/dev/null",
        )
        return subprocess.run(
            [str(a) for a in (SDPSTAT, *arguments)], env=env, capture_output=True, text=True, timeout=60
        ).stdout

    def test_denied(self):
        process, lines = self.program()
        wanted = errno.errorcode[errno.ENOSYS]
        self.assertEqual(
            [line for line in lines if line != "no liburing"], [wanted] * (2 - lines.count("no liburing"))
        )
        self.assertIn("SDP_IO_URING=allow", self.world.sdp_log())
        self.assertNotIn("io_uring", self.tool("why", str(process.popen.pid)))
        process.popen.stdin.close()

    def test_allowed_and_named(self):
        plain = self.plain()
        process, lines = self.program(SDP_IO_URING="allow")
        self.assertEqual(lines, plain)
        if "open" not in plain:
            self.skipTest(f"this machine lets nobody have a ring: {plain[0]}")
        self.assertRegex(
            self.tool("why", str(process.popen.pid)), r"has an io_uring: .*must not be used on an SDP socket"
        )
        self.assertRegex(
            self.tool("doctor", sys.executable), rf"note +\S+ +process {process.popen.pid} has an io_uring"
        )
        process.popen.stdin.close()

    def test_no_matter_of_ours(self):
        _, lines = self.program(SDP_MODE="tcp")
        self.assertEqual(lines, self.plain())


if __name__ == "__main__":
    harness.main()
