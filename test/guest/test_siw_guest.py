"""scripts/siw-guest, seen from the host: what comes out of a guest, what stays in it, and that nothing is
left of it."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "siw-guest"
TRACE = pathlib.Path("/etc/sdp-siw-guest-test")
BUILT = 200  # seconds; the first guest of a host waits until its kernel module is built

IN_THE_GUEST = (
    """
cat here
echo "two  words" "$(id -u)" "$(uname -n)" "${SDP_OF_THE_HOST-unset}" "$(wc -c </dev/stdin)"
rdma link show siw0/1
ip -o address show dum0
echo other >here
echo other >%s
echo trouble >&2
exit 7
"""
    % TRACE
)


def addresses():
    return subprocess.run(
        [harness.find("ip"), "-br", "address"], capture_output=True, text=True, check=True, timeout=60
    ).stdout


class SiwGuest(unittest.TestCase):
    def setUp(self):
        if os.uname().nodename == "siw-guest":
            raise unittest.SkipTest("this is a guest already")
        check = self.run_script("--check")
        if check.returncode != 0:
            raise unittest.SkipTest(check.stderr.strip())
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="siw-guest-test-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.temporary = self.directory / "temporary"
        self.temporary.mkdir()
        (self.directory / "here").write_text("of the host\n")

    def environment(self, **extra):
        return {**os.environ, "SDP_OF_THE_HOST": "1", **extra}

    def run_script(self, *argv, timeout=200, **extra):
        return subprocess.run(
            [SCRIPT, *argv], capture_output=True, text=True, timeout=timeout, env=self.environment(**extra)
        )

    def in_directory(self, *argv, **extra):
        guest = subprocess.Popen(
            [SCRIPT, *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=self.environment(TMPDIR=str(self.temporary), **extra),
        )
        self.addCleanup(self.end, guest)
        return guest

    def end(self, guest):
        guest.terminate()  # not by SIGKILL, which would leave QEMU behind
        guest.communicate(timeout=60)

    def processes(self, folder):
        """Those that have a file in this folder in their arguments: QEMU, above all, or the compiler."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def assert_nothing_is_left(self):
        harness.wait_until(lambda: self.processes(self.temporary) == [], "end of all processes", 20)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_what_comes_out_and_what_stays(self):
        harness.need("ip")
        before = addresses()
        guest = self.in_directory("--timeout", "150", "bash", "-c", IN_THE_GUEST)
        output, errors = guest.communicate(timeout=BUILT)
        self.assertEqual(guest.returncode, 7, errors)
        lines = output.splitlines()
        self.assertEqual(lines[:2], ["of the host", "two  words 0 siw-guest unset 0"])
        self.assertIn("link siw0/1 state ACTIVE", lines[2])
        for address in "10.77.0.1/24", "10.77.0.2/24", "fd77::1/64", "fd77::2/64":
            self.assertIn(f" {address} ", output)
        self.assertEqual(errors.splitlines()[-1], "trouble")
        self.assertEqual((self.directory / "here").read_text(), "of the host\n")
        self.assertFalse(TRACE.exists())
        self.assertEqual(addresses(), before)
        self.assert_nothing_is_left()

    def test_the_time_is_over(self):
        guest = self.in_directory("--timeout", "3", "sleep", "1000")
        _, errors = guest.communicate(timeout=BUILT)
        self.assertEqual(guest.returncode, 124, errors)
        self.assertIn("stopped after 3 s", errors)
        self.assert_nothing_is_left()

    def test_it_is_ended_from_outside(self):
        # As soon as there is anything, and when the guest runs.
        for there in 1, 5:
            with self.subTest(there):
                guest = self.in_directory("sleep", "1000")
                harness.wait_until(
                    lambda there=there: len(self.processes(self.temporary)) >= there, "a guest", BUILT
                )
                guest.send_signal(signal.SIGTERM)
                guest.communicate(timeout=60)
                self.assertEqual(guest.returncode, 143)
                self.assert_nothing_is_left()

    def test_its_build_is_ended_from_outside(self):
        cache = self.directory / "cache" / "sdp" / "guest"
        driver = "linux-source-6.1/drivers/infiniband/sw/siw"
        # When there is a folder, and when the module is compiled.
        for there in "build.*", f"build.*/{driver}/*.o":
            with self.subTest(there):
                guest = self.in_directory("true", XDG_CACHE_HOME=str(self.directory / "cache"))
                harness.wait_until(lambda there=there: list(cache.glob(there)), "a build", BUILT)
                guest.send_signal(signal.SIGTERM)
                _, errors = guest.communicate(timeout=60)
                self.assertEqual(guest.returncode, 143, errors)
                harness.wait_until(lambda: self.processes(cache) == [], "end of all processes", 20)
                self.assertEqual([entry.name for entry in cache.iterdir()], ["lock"])

    def test_a_package_is_missing(self):
        tools = self.directory / "tools"
        tools.mkdir()
        for folder in "/usr/bin", "/bin", "/usr/sbin", "/sbin":
            for tool in pathlib.Path(folder).iterdir():
                if not tool.name.startswith("qemu-system") and not os.path.lexists(tools / tool.name):
                    (tools / tool.name).symlink_to(tool)
        for argv, status in (["true"], 125), (["--check"], 1):
            with self.subTest(argv):
                refused = self.run_script(*argv, PATH=str(tools))
                self.assertEqual(refused.returncode, status, refused.stderr)
                self.assertIn("siw-guest: this host lacks qemu-system-x86\n", refused.stderr)
                self.assertIn("apt-get install qemu-system-x86\n", refused.stderr)

    def test_usage(self):
        for argv in [], ["--no-such-option", "true"], ["--timeout", "soon", "true"]:
            with self.subTest(argv):
                refused = self.run_script(*argv)
                self.assertEqual(refused.returncode, 125)
                self.assertIn("usage: scripts/siw-guest", refused.stderr)


if __name__ == "__main__":
    harness.main()
