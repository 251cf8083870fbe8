"""The library in /etc/ld.so.preload: every program loads it, and privileged ones are as if it were not
there."""

import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import unittest

import harness

# What is private to this process: an /etc of its own, in which ld.so.preload names the library.
ENTER = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc
if [ -n "$2" ]; then echo "$2" >/etc/ld.so.preload; fi
shift 2
exec "$@"
"""

# A handler, a listener, a connection in a child of fork.
PROGRAM = textwrap.dedent(
    """
    import os, signal, socket
    signal.signal(signal.SIGUSR1, lambda *_: None)
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        with socket.create_connection(listener.getsockname()) as s:
            s.sendall(b"x")
        os._exit(0)
    connection, _ = listener.accept()
    assert connection.recv(1) == b"x"
    os.wait()
    print("done", os.getuid(), os.geteuid())
    """
)

# Debian's: the user of a setuid copy can read its library.
PYTHON = "/usr/bin/python3"

# The loader's, and how often memory is asked for: a library more makes more of them.
OF_LOADING = {
    "openat",
    "read",
    "pread64",
    "mmap",
    "mprotect",
    "munmap",
    "close",
    "fstat",
    "newfstatat",
    "brk",
}


@unittest.skipUnless(os.geteuid() == 0, "an /etc of its own needs root")
class HostWide(harness.ProgramTest):
    with_pmd = True

    def inside(self, library, *command):
        """Runs the command, with the library in /etc/ld.so.preload, or without if it is empty."""
        place = self.world.directory / "etc"
        place.mkdir(exist_ok=True)
        environment = self.world.environment() | {"PYTHONHOME": "/usr"}
        del environment["LD_PRELOAD"]
        got = subprocess.run(
            ["unshare", "--mount", "sh", "-c", ENTER, "sh", place, library, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if "mount:" in got.stderr or "unshare:" in got.stderr:
            self.skipTest(f"no /etc of its own here: {got.stderr.strip()}")
        return got

    def setuid_python(self):
        program = pathlib.Path(shutil.copy(PYTHON, self.world.directory / "python"))
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        # The build tree may lie where that user cannot look.
        self.world.library = shutil.copy(self.world.library, self.world.directory)
        for place in (self.world.directory, self.world.stats_dir):
            place.chmod(0o777)
        return program

    def traced(self, library, program):
        """(what it printed, [calls in the order of their processes])."""
        log = self.world.directory / "trace"
        got = self.inside(library, "strace", "-f", "-o", log, program, "-S", "-c", PROGRAM)
        if "strace: " in got.stderr:
            self.skipTest(f"no strace here: {got.stderr.strip()}")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(got.stderr, "")
        return got.stdout, log.read_text()

    def test_a_privileged_program_is_left_alone(self):
        harness.need("strace")
        program = self.setuid_python()
        expected, without = self.traced("", program)
        self.assertEqual(expected, "done 0 65534\n")
        printed, trace = self.traced(str(self.world.library), program)
        self.assertEqual(printed, expected)
        self.assertIn(str(self.world.library), trace)  # it is loaded
        for sign in (
            "libsdp.conf",
            "sdp-stats",
            "sdp.log",
            str(self.world.stats_dir),
            "pmd.sock",
            "CLONE_THREAD",
        ):
            self.assertNotIn(sign, trace)
        self.assertEqual(self.calls(trace), self.calls(without))
        self.assertEqual(list(self.world.stats_dir.iterdir()), [])

    def calls(self, trace):
        """How often each system call was made that is not the loader's."""
        counts = {}
        for name in re.findall(r"^\d+ +(\w+)\(", trace, re.MULTILINE):
            if name not in OF_LOADING:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def test_every_other_program_has_it(self):
        got = self.inside(str(self.world.library), PYTHON, "-c", PROGRAM)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertIn("SDP at", self.world.sdp_log())

    def test_a_name_without_a_directory_is_refused_in_privileged_programs(self):
        """So the documents name the whole path."""
        program = self.setuid_python()
        got = self.inside("libsdp.so", program, "-S", "-c", "print(1)")
        self.assertIn("cannot be preloaded", got.stderr)


if __name__ == "__main__":
    harness.main()
