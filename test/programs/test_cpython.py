"""CPython's own tests of what uses sockets, twice: on the kernel's TCP, and under the preload. A case that
fails under the preload has to fail on TCP, too. How many connections SDP carried, and why others were TCP, is
printed.

    SDP_CPYTHON="test_ssl test_epoll" test_cpython.py      these modules alone
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import sysconfig
import time
import unittest

import harness

PYTHON = "/usr/bin/python3"  # Debian's, whose tests these are
CASES = harness.HERE / "cpython_cases.py"
MODULE_SECONDS = 120
AT_ONCE = 3  # modules, which mostly wait; each of them runs both ways at once
REPEATS = 2

_CONNECTIONS = ["Connection", "Listener", "TestPoll", "TestWait", "RemoteManager"]

# Module: the words for cpython_cases.py. Of test_asyncio all but what is Windows's alone. The longest first.
MODULES = {
    "test_socket": ["-VSOCK"],  # another address family, whose port numbers are the whole host's
    "test_multiprocessing_spawn": _CONNECTIONS,
    "test_asyncio.test_tasks": [],
    "test_asyncio.test_subprocess": [],
    "test_imaplib": [],
    "test_xmlrpc": [],
    "test_ssl": [],
    "test_multiprocessing_fork": _CONNECTIONS,
    "test_selectors": [],
    "test_poll": [],
    "test_asyncio.test_ssl": [],
    "test_asyncio.test_events": [],
    "test_asyncio.test_sslproto": [],
    "test_asyncio.test_sock_lowlevel": [],
    "test_asyncio.test_base_events": [],
    "test_asyncio.test_sendfile": [],
    "test_asyncio.test_streams": [],
    "test_asyncio.test_server": [],
    "test_asyncio.test_buffered_proto": [],
    "test_asyncio.test_unix_events": [],
    "test_asyncio.test_selector_events": [],
    "test_asyncio.test_locks": [],
    "test_asyncio.test_queues": [],
    "test_asyncio.test_futures": [],
    "test_asyncio.test_futures2": [],
    "test_asyncio.test_taskgroups": [],
    "test_asyncio.test_timeouts": [],
    "test_asyncio.test_runners": [],
    "test_asyncio.test_protocols": [],
    "test_asyncio.test_transports": [],
    "test_asyncio.test_threads": [],
    "test_asyncio.test_waitfor": [],
    "test_asyncio.test_pep492": [],
    "test_asyncio.test_context": [],
    "test_asyncio.test_proactor_events": [],
    "test_ftplib": [],
    "test_poplib": [],
    "test_httplib": [],
    "test_httpservers": [],
    "test_smtplib": [],
    "test_socketserver": [],
    "test_asyncore": [],
    "test_asynchat": [],
    "test_telnetlib": [],
    "test_select": [],
    "test_epoll": [],
}

# Reasons for TCP that say nothing about the library: nobody listened there for SDP, as where a test connects
# to a closed port.
NOBODY_THERE = {"pm-denied", "pm-cached"}


def bad(outcome):
    return outcome in ("failed", "hung")


class Run:
    """One module, once."""

    def __init__(self, world, module, words, preload, attempt=0):
        self.name = f"{module}-{'sdp' if preload else 'tcp'}-{attempt}"
        self.results = world.directory / f"{self.name}.results"
        self.log = world.directory / f"{self.name}.sdp-log"
        directory = world.directory / self.name  # where it leaves its files
        directory.mkdir()
        begin = time.monotonic()
        self.process = world.start(
            [PYTHON, "-B", CASES, self.results, "test." + module, *words],
            preload=preload,
            stdin=subprocess.PIPE,
            environment={"SDP_LOG_FILE": self.log, "TMPDIR": directory} if preload else {"TMPDIR": directory},
        )
        self.plain_clients = 0
        try:
            harness.wait_until(lambda: self.ended() or not self.process.running(), "end", MODULE_SECONDS)
            if preload and self.ended():
                self.plain_clients = sum(
                    p["closed"]["fallbacks"].get("plain-client", 0)
                    for p in world.sdpstat()["processes"]
                    if p["pid"] == self.process.pid
                )
        except AssertionError:
            pass
        self.process.stop()
        self.seconds = time.monotonic() - begin

    def lines(self):
        return self.results.read_text().splitlines() if self.results.exists() else []

    def ended(self):
        return self.lines()[-1:] == ["end"]

    def outcomes(self):
        """Case: ok, skipped, failed, or, where it never came to its end, hung."""
        outcomes = {}
        for line in self.lines():
            if line != "end":
                outcome, name = line.split(" ", 1)
                outcomes[name] = "hung" if outcome == "begin" else outcome
        return outcomes

    def connects(self):
        """(connects that became SDP, Counter of the reasons of those that became TCP), of all processes of
        this run."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return len(re.findall(": SDP at ", text)), collections.Counter(
            re.findall(r": TCP, because (\S+)", text)
        )


class CPython(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(
            sysconfig.get_path("stdlib", vars={"base": "/usr", "installed_base": "/usr"})
            + "/test/test_socket.py"
        ):
            self.skipTest("libpython3-testsuite is not installed")
        self.world = harness.TestWorld()
        self.addCleanup(self.world.stop)

    def run_module(self, module):
        """Its findings."""
        words = MODULES[module]
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            preloaded = both.submit(Run, self.world, module, words, True)
            plain = Run(self.world, module, words, False)
            preloaded = preloaded.result()
        on_tcp, on_sdp = plain.outcomes(), preloaded.outcomes()
        over_sdp, over_tcp = preloaded.connects()
        count = collections.Counter(on_sdp.values())
        said = [
            f"{module}: {count['ok']} passed, {count['skipped']} skipped, "
            f"{sum(map(bad, on_sdp.values()))} failed; connects: "
            f"{over_sdp} SDP{''.join(f', {n} TCP ({reason})' for reason, n in over_tcp.items())}"
            f"{f'; {preloaded.plain_clients} clients came by TCP' if preloaded.plain_clients else ''}; "
            f"{preloaded.seconds:.0f} s"
        ]
        findings = []
        if plain.ended() and not preloaded.ended():
            findings.append(f"{module} did not come to its end:\n{preloaded.process.output()[-3000:]}")
        for name in (name for name, outcome in on_sdp.items() if bad(outcome) and not bad(on_tcp.get(name))):
            if name.startswith("test.") and self.passes_alone(module, name):
                said.append(f"   passed when it was repeated alone: {name}")
            else:
                findings.append(f"{name} {on_sdp[name]} under the preload, {on_tcp.get(name)} on TCP")
        # Nor has passed what found a reason to skip itself, or was not there.
        for name in (
            name
            for name, outcome in on_tcp.items()
            if outcome == "ok" and on_sdp.get(name, "missing") in ("skipped", "missing")
        ):
            if preloaded.ended() and not self.passes_alone(module, name):
                findings.append(f"{name} {on_sdp.get(name, 'missing')} under the preload, ok on TCP")
        print("\n".join(said), flush=True)
        if findings:
            print(preloaded.process.output()[-8000:], file=sys.stderr)
        return findings, over_sdp, over_tcp, preloaded.plain_clients

    def passes_alone(self, module, name):
        """These tests count on time here and there, and are many at once."""
        attempts = (
            Run(self.world, module, [name], True, attempt).outcomes().get(name)
            for attempt in range(1, REPEATS + 1)
        )
        return any(outcome == "ok" for outcome in attempts)

    def test_what_fails_under_the_preload_fails_on_tcp(self):
        modules = [
            module for module in MODULES if module in os.environ.get("SDP_CPYTHON", " ".join(MODULES)).split()
        ]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(self.run_module, modules))
        over_sdp = sum(result[1] for result in results)
        over_tcp = sum((result[2] for result in results), collections.Counter())
        plain_clients = sum(result[3] for result in results)
        print(
            f"in all: {over_sdp} connects became SDP; TCP: {dict(over_tcp)}; "
            f"{plain_clients} accepted over TCP"
        )
        self.assertEqual([finding for result in results for finding in result[0]], [])
        # Falling back is no way to pass. Some cases end both ends in the middle of the start-up.
        self.assertLessEqual(
            sum(n for reason, n in over_tcp.items() if reason not in NOBODY_THERE), max(over_sdp // 50, 10)
        )
        # A target that was denied is not asked again for a moment. A case may have a new server there.
        self.assertLessEqual(plain_clients, over_tcp["pm-cached"])
        if modules == list(MODULES):
            self.assertGreater(over_sdp, 1000)


if __name__ == "__main__":
    harness.main()
