"""What the program tests share: a world for each test (scripts/sdp_world.py), and assertions on what SDP
carried.

Each test file is a unittest program; ctest runs one after the other. SDP_BUILD_DIR names the build tree (set
by ctest). A file ends with harness.main(), whose exit status 77 says "skipped".
"""

import collections
import dataclasses
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))

from sdp_world import (
    CONNECTIONS,
    SDP_RUN,
    SDPSTAT,
    World,
    file_hash,
    find,
    free_port,
    missing,
    random_file,
    tcp_listens,
    wait_until,
)  # noqa: E402,F401

PEER = HERE / "peer.py"
SKIPPED = 77


def need(*programs):
    """Skips the test, with the reason, where a Debian program is not installed."""
    for program in programs:
        if find(program) is None:
            raise unittest.SkipTest(f"{program} is not installed")


@dataclasses.dataclass(frozen=True)
class Ends:
    """Which ends of a connection are preloaded."""

    server: bool
    client: bool

    def __str__(self):
        return (
            "both ends"
            if self.server and self.client
            else "the server alone"
            if self.server
            else "the client alone"
        )

    @property
    def sdp(self):
        return self.server and self.client


BOTH_AND_EACH_ALONE = (Ends(True, True), Ends(True, False), Ends(False, True))


class TestWorld(World):
    def peer(self, *arguments, **options):
        """peer.py, a plain Python program (see there)."""
        return self.start([sys.executable, PEER, *arguments], **options)

    def environment(self, preload=True, **extra):
        # The machine may be slow: a port mapper that answers late is not to make TCP of a connection.
        return super().environment(
            preload, **(({"SDP_LOG": "debug", "SDP_PM_TIMEOUT_MS": 10000} if preload else {}) | extra)
        )

    def connects(self, port):
        """(connects to the port that became SDP, Counter of the reasons of those that became TCP), of
        processes living and ended."""
        outcomes = re.findall(rf"connect to \S+:{port}: (?:(SDP) at|TCP, because (\S+))", self.sdp_log())
        reasons = collections.Counter(reason for sdp, reason in outcomes if not sdp)
        return len(outcomes) - reasons.total(), reasons

    def accepted(self, port):
        """(connections over SDP, over TCP) that the port's listeners have accepted, in the processes that
        live."""
        listeners = [
            listener
            for process in self.sdpstat()["processes"]
            for listener in process["listeners"]
            if listener["local"].rsplit(":", 1)[1] == str(port)
        ]
        return sum(listener["accepted_sdp"] for listener in listeners), sum(
            listener["accepted_tcp"] for listener in listeners
        )

    def run_peer(self, *arguments, **options):
        return self.run([sys.executable, PEER, *arguments], **options)


def tell_if_failed(test, world=None):
    """What the programs of its world said, where the test has failed by now. (While it is torn down,
    unittest's own "success" is of that.)"""
    result = test._outcome.result
    if any(getattr(case, "test_case", case) is test for case, _ in result.failures + result.errors):
        print((world or test.world).logs(), file=sys.stderr)


class ProgramTest(unittest.TestCase):
    """A test with a world; what the programs said is printed when it fails."""

    with_pmd = True
    user = None  # where root runs the test: who runs the programs

    def setUp(self):
        self.world = TestWorld(self.with_pmd, user=self.user)
        self.addCleanup(self._end)

    def _end(self):
        tell_if_failed(self)
        self.world.stop()

    def assert_carried(self, port, ends, at_least=1):
        """The port's clients came over SDP where both ends can, and over TCP, and only so, where one
        cannot."""
        over_sdp, over_tcp = self.world.connects(port)
        if ends.sdp:
            self.assertGreaterEqual(over_sdp, at_least, over_tcp)
            self.assertEqual(over_tcp, {})
            self.assertEqual(self.world.accepted(port)[1], 0)
        elif ends.client:
            # The port mapper's "no" is remembered by each process.
            self.assertGreaterEqual(over_tcp["pm-denied"] + over_tcp["pm-cached"], at_least, over_tcp)
            self.assertEqual(over_sdp, 0)
        elif ends.server:
            wait_until(
                lambda: self.world.accepted(port)[1] >= at_least, f"{at_least} clients that came by TCP"
            )
            self.assertEqual(self.world.accepted(port)[0], 0)

    def assert_takes_less(self, limits, measure):
        """Each of the times that `measure()` gives is below its limit once: they say what a program costs
        only where nobody else keeps it waiting."""
        for _ in range(5):
            took = measure()
            if all(seconds < limit for seconds, limit in zip(took, limits, strict=True)):
                return
        self.fail(f"it took {took} s, wanted less than {limits}")

    def assert_no_tcp(self):
        """Nothing in this world fell back."""
        self.assertEqual(self.world.summary()["fallbacks"], {})

    def assert_sdp_carried(self, at_least_in=0, at_least_out=0, process=None, timeout=30.0):
        """Waits for the counters (a process publishes when it next passes through the library), then checks
        them."""

        def carried():
            received, sent = self.world.sdp_bytes(process)
            return received >= at_least_in and sent >= at_least_out

        try:
            wait_until(carried, "SDP bytes", timeout)
        except AssertionError:
            self.fail(
                f"SDP carried {self.world.sdp_bytes(process)} bytes (in, out), "
                f"wanted at least {(at_least_in, at_least_out)}"
            )


def main():
    if missing():
        sys.exit(f"{missing()[0]} is not built")
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)


# Talks to an echo server over one connection for each way of waiting that its arguments name.
WAITING_CLIENT = """
import select, socket, sys
idle, keep = socket.socketpair()
def recv(s):
    s.setblocking(True)
    return lambda: True
def poll(s):
    p = select.poll()
    p.register(s, select.POLLIN); p.register(idle, select.POLLIN)
    return lambda: p.poll(60000)
def select_(s):
    return lambda: select.select([s, idle], [], [], 60)[0]
def epoll(s):
    p = select.epoll()
    p.register(s, select.EPOLLIN); p.register(idle, select.EPOLLIN)
    return lambda: p.poll(60)
ways = {"recv": recv, "poll": poll, "select": select_, "epoll": epoll}
talks = []
for name in sys.argv[3:]:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.setblocking(False)
    talks.append((s, ways[name](s)))
while True:
    for s, wait in talks:
        s.send(b"x")
        assert wait()
        assert s.recv(9) == b"x"
"""


def check_that_waits_look_first(test, address, port, ways, environment):
    """Over the echo server there each of the WAITING_CLIENT's waits looks before it sleeps, as the statistics
    count it; with SDP_POLL_US=0 none does."""
    for microseconds, wanted in (10000, "polled"), (0, "slept"):
        with test.subTest(microseconds=microseconds):
            client = test.world.start(
                [sys.executable, "-c", WAITING_CLIENT, address, port, *ways],
                environment={**environment, "SDP_POLL_US": microseconds},
            )

            def waits():
                return [
                    c["waits"]
                    for p in test.world.sdpstat()["processes"]
                    if p["pid"] == client.pid
                    for c in p["connections"]
                ]

            def all_have(found):
                return len(found) == len(ways) and all(w[wanted] > 3 for w in found)

            wait_until(lambda: all_have(waits()), f"waits that {wanted}", 60)
            if microseconds == 0:
                test.assertEqual([w["polled"] for w in waits()], [0] * len(ways))
            client.kill()
