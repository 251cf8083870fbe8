"""What the program tests share: a world for each test (scripts/sdp_world.py), and assertions on what SDP carried.

Each test file is a unittest program; ctest runs one after the other. SDP_BUILD_DIR names the build tree (set by ctest).
A file ends with harness.main(), whose exit status 77 says "skipped".
"""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

from sdp_world import CONNECTIONS, World, file_hash, find, free_port, missing, random_file, tcp_listens, wait_until  # noqa: E402,F401

PEER = HERE / "peer.py"
SKIPPED = 77


def need(*programs):
    """Skips the test, with the reason, where a Debian program is not installed."""
    for program in programs:
        if find(program) is None:
            raise unittest.SkipTest(f"{program} is not installed")


class TestWorld(World):
    def peer(self, *arguments, **options):
        """peer.py, a plain Python program (see there)."""
        return self.start([sys.executable, PEER, *arguments], **options)

    def run_peer(self, *arguments, **options):
        return self.run([sys.executable, PEER, *arguments], **options)


class ProgramTest(unittest.TestCase):
    """A test with a world; what the programs said is printed when it fails."""

    with_pmd = True

    def setUp(self):
        self.world = TestWorld(self.with_pmd)
        self.addCleanup(self._end)

    def _end(self):
        if not self._outcome.success:
            print(self.world.logs(), file=sys.stderr)
        self.world.stop()

    def assert_no_tcp(self):
        """Nothing in this world fell back."""
        self.assertEqual(self.world.summary()["fallbacks"], {})

    def assert_sdp_carried(self, at_least_in=0, at_least_out=0, process=None, timeout=5.0):
        """Waits for the counters (a process publishes when it next passes through the library), then checks them."""
        def carried():
            received, sent = self.world.sdp_bytes(process)
            return received >= at_least_in and sent >= at_least_out
        try:
            wait_until(carried, "SDP bytes", timeout)
        except AssertionError:
            self.fail(f"SDP carried {self.world.sdp_bytes(process)} bytes (in, out), "
                      f"wanted at least {(at_least_in, at_least_out)}")


def main():
    if missing():
        sys.exit(f"{missing()[0]} is not built")
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
