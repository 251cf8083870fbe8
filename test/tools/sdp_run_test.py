"""sdp-run from outside: what it passes on, and how it fails. Usage: sdp_run_test.py PATH-OF-SDP-RUN"""

import fcntl
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import unittest

SDP_RUN = pathlib.Path(sys.argv.pop(1))
PMD = SDP_RUN.parent.parent / "portmapper" / "sdp-pmd"
PATIENCE = 30  # seconds, for what must come


FOLDER = tempfile.TemporaryDirectory(prefix="sdp-run-")


def any_library():
    """A library that does no harm when it is preloaded, and passes for libsdp.so: what is tested is the
    environment. Not libc itself unless there is nothing else: ahead of ASan's run time it takes away the
    calls that ASan stands in front of.
    """
    paths = [line.rsplit(" ", 1)[-1].strip() for line in open("/proc/self/maps")]
    for name in ("/libm.so", "/libz.so", "/libdl.so", "/libc.so"):
        for path in paths:
            if name in path:
                copy = pathlib.Path(FOLDER.name, "libsdp.so")
                copy.write_bytes(pathlib.Path(path).read_bytes() + b"libsdp.so\0")
                return str(copy)
    raise RuntimeError("no shared library in this process")


def surroundings(environment):
    # A sdp-run built with ASan would else not start with another library preloaded before ASan's.
    return dict(os.environ, ASAN_OPTIONS="verify_asan_link_order=0", **(environment or {}))


def run(*arguments, environment=None, **options):
    return subprocess.run(
        [SDP_RUN, *arguments],
        env=surroundings(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **options,
    )


def start(*arguments, environment=None, **options):
    return subprocess.Popen(
        [SDP_RUN, *arguments],
        env=surroundings(environment),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )


def line_of(child):
    """A line of its output, or what there is once patience is at its end."""
    readable, _, _ = select.select([child.stdout], [], [], PATIENCE)
    return child.stdout.readline() if readable else "(nothing)"


class SdpRun(unittest.TestCase):
    library = any_library()

    def test_status_and_output_are_the_programs(self):
        got = run("--lib", self.library, "sh", "-c", "echo out; echo err >&2; exit 42")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (42, "out\n", "err\n"))

    def test_options_behind_the_program_are_the_programs(self):
        got = run("--lib", self.library, "echo", "--mode", "x", "-l", "--help")
        self.assertEqual(got.stdout, "--mode x -l --help\n")

    def test_environment(self):
        got = run(
            "--lib",
            self.library,
            "--mode",
            "sdp",
            "--rnic",
            "soft",
            "--log",
            "debug",
            "--log-file",
            "/x/y",
            "--stats-dir",
            "/s",
            "env",
            environment={"LD_PRELOAD": self.library},
        )
        lines = got.stdout.splitlines()
        for wanted in (
            "SDP_MODE=sdp",
            "SDP_RNIC=soft",
            "SDP_LOG=debug",
            "SDP_LOG_FILE=/x/y",
            "SDP_STATS_DIR=/s",
            f"LD_PRELOAD={self.library}:{self.library}",
        ):
            self.assertIn(wanted, lines)

    def test_failures_have_the_statuses_of_env_and_nice(self):
        self.assertEqual(run("--lib", "/no/such.so", "true").returncode, 125)
        self.assertEqual(run("--lib", self.library, "no-such-program-at-all").returncode, 127)
        self.assertEqual(run("--lib", self.library, "/").returncode, 126)
        self.assertNotEqual(run("--mode", "sideways", "true").returncode, 0)
        self.assertNotEqual(run().returncode, 0)

    def test_a_library_path_that_ld_preload_cannot_hold(self):
        with tempfile.TemporaryDirectory(prefix="with space") as directory:
            library = pathlib.Path(directory, "lib.so")
            library.write_bytes(pathlib.Path(self.library).read_bytes())
            got = run("--lib", str(library), "true")
        self.assertEqual(got.returncode, 125)
        self.assertIn("space", got.stderr)

    def test_another_library_is_not_taken_for_libsdp(self):
        for other in "/bin/true", "/etc/passwd", "/tmp":
            got = run("--require", "--lib", other, "true")
            self.assertEqual((got.returncode, "is no libsdp.so" in got.stderr), (125, True), got.stderr)

    def test_require_and_another_mode_contradict(self):
        got = run("--lib", self.library, "--require", "--mode", "tcp", "true")
        self.assertEqual(got.returncode, 125)
        self.assertIn("--require wants SDP alone", got.stderr)
        self.assertEqual(run("--lib", self.library, "--require", "--mode", "sdp", "true").returncode, 0)

    def test_a_directory_as_configuration(self):
        got = run("--lib", self.library, "--explain", "127.0.0.1:9", environment={"SDP_CONFIG": "/tmp"})
        self.assertGreaterEqual(got.returncode, 0, got.stderr)
        self.assertIn("/tmp: Is a directory", got.stdout + got.stderr)

    def test_a_static_program_is_refused_with_the_reason(self):
        with tempfile.TemporaryDirectory() as directory:
            source = pathlib.Path(directory, "x.c")
            source.write_text("int main(void) { return 7; }\n")
            program = pathlib.Path(directory, "x")
            built = subprocess.run(["cc", "-static", "-o", program, source], capture_output=True)
            if built.returncode != 0:
                self.skipTest("no static libc")
            got = run("--lib", self.library, str(program))
            self.assertEqual(got.returncode, 126)
            self.assertIn("statically linked", got.stderr)
            got = run("--lib", self.library, "--anyway", str(program))
            self.assertEqual(got.returncode, 7)
            self.assertIn("plain TCP", got.stderr)

    def test_death_by_signal(self):
        got = run("--lib", self.library, "sh", "-c", "kill -TERM $$")
        self.assertEqual(got.returncode, -signal.SIGTERM)


@unittest.skipUnless(PMD.exists(), "sdp-pmd is not built")
class SdpRunWithPmd(unittest.TestCase):
    library = any_library()

    @classmethod
    def setUpClass(cls):
        # The port is the host's: of several runs of these tests one at a time has it.
        cls.turn = open(f"/tmp/sdp-run-test-{os.geteuid()}.lock", "w")
        fcntl.flock(cls.turn, fcntl.LOCK_EX)

    @classmethod
    def tearDownClass(cls):
        cls.turn.close()

    def setUp(self):
        # A socket that nobody serves, so that the machine's own port mapper does not matter.
        self.environment = {"SDP_PMD_SOCKET": "/nonexistent/pmd.sock"}
        probe = run("--lib", self.library, "--pmd", "true", environment=self.environment)
        if "UDP port 3935" in probe.stderr:
            self.skipTest("another port mapper runs on this machine")

    def test_the_port_mapper_lives_as_long_as_the_program(self):
        got = run(
            "--lib",
            self.library,
            "--pmd",
            "sh",
            "-c",
            "test -S $SDP_PMD_SOCKET && echo $SDP_PMD_SOCKET; exit 3",
            environment=self.environment,
        )
        self.assertEqual(got.returncode, 3, got.stderr)
        socket = pathlib.Path(got.stdout.strip())
        self.assertEqual(socket.name, "pmd.sock")
        self.assertFalse(socket.parent.exists())

    def test_death_by_signal_passes_through(self):
        got = run("--lib", self.library, "--pmd", "sh", "-c", "kill -SEGV $$", environment=self.environment)
        self.assertEqual(got.returncode, -signal.SIGSEGV)

    def test_signals_are_passed_on(self):
        # No shell: bash that is about to block in its read runs no trap before that read returns, which may
        # be never.
        program = (
            "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); "
            "print('ready', flush=True); "
            "signal.sigwait({signal.SIGTERM}); print('got', flush=True); sys.exit(9)"
        )
        with start(
            "--lib", self.library, "--pmd", sys.executable, "-c", program, environment=self.environment
        ) as child:
            try:
                self.assertEqual(line_of(child), "ready\n")
                child.terminate()
                self.assertEqual(line_of(child), "got\n")
                self.assertEqual(child.wait(timeout=PATIENCE), 9)
            finally:
                child.kill()

    def test_the_whole_group_can_be_stopped_and_continued(self):
        # As a shell does it: a group in the same session, since an orphaned one ignores SIGTSTP.
        program = "import sys; print('ready', flush=True); sys.stdin.readline(); print('got', flush=True)"
        with start(
            "--lib",
            self.library,
            "--pmd",
            sys.executable,
            "-c",
            program,
            environment=self.environment,
            process_group=0,
        ) as child:
            try:
                self.assertEqual(line_of(child), "ready\n")
                os.killpg(child.pid, signal.SIGTSTP)
                _, status = os.waitpid(child.pid, os.WUNTRACED)
                self.assertTrue(os.WIFSTOPPED(status))
                os.killpg(child.pid, signal.SIGCONT)
                child.stdin.write("go on\n")
                child.stdin.flush()
                self.assertEqual(line_of(child), "got\n")
                self.assertEqual(child.wait(timeout=PATIENCE), 0)
            finally:
                child.kill()


if __name__ == "__main__":
    unittest.main()
