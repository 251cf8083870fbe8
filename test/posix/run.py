#!/usr/bin/env python3
"""Runs posix_tests, each case in a process of its own, on the kernel's TCP or under the preload.

    run.py tcp --tests PATH [--jobs N] [--only TEXT] [--verbose]
    run.py sdp --tests PATH --preload LIBSDP[:...] --pmd SDP_PMD --sdpstat SDPSTAT [...]

A case that hangs is named, with the stacks of its threads where there is a debugger. Under the preload a
private sdp-pmd serves, and it is checked that SDP carried the data: no connection fell back to TCP (except in
the cases that are about that), and sdpstat shows the bytes.

Cases tagged [.namespace] want devices and addresses of their own: they run in a user and network namespace,
where there can be one.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

import sdp_world  # noqa: E402

FINDING = re.compile(r"(ERROR|WARNING): (Address|Leak|Thread)Sanitizer.*|.*: runtime error: .*")
# What a case says that cannot be where it runs, as a whole or in part (test/support/skipped.h),
# or under a sanitizer (sanitizers.h).
SKIPPED = re.compile(r"^skipped( in part| under a sanitizer)?: (.*)$", re.MULTILINE)
# Leaks are looked for where processes are whole: a case leaves by _exit, or execs Debian's programs. Threads
# in the child of a process that has threads are what some cases are about. A handler may use sockets, because
# libsdp.so has memory of its own (preload/heap.h). TSan puts its own operator new in that one's place, and
# would report each use in a handler.
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "die_after_fork=0:atexit_sleep_ms=100:report_signal_unsafe=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# Cases in which a connection rightly is no SDP connection.
TAGS_WITH_TCP = ("[refused]", "[mixed]", "[plain]")
# Cases that make none. In all others that are not about TCP one at least has to be SDP's: a library that
# takes itself out of the way says of none that it is TCP.
TAG_WITHOUT = "[unconnected]"
# Cases in which one has to be, though others are TCP.
TAG_OF_SDP = "[carried]"
# Cases of what the library alone has: they cannot be on plain TCP, and have to be under the preload.
TAG_OF_THE_LIBRARY = "[native]"
# Cases that want devices and addresses of their own.
TAG_OF_A_NAMESPACE = "[namespace]"

# What is known to differ under the preload, with the reason. A case that passes all the same is reported, so
# that its row goes.
KNOWN_DIFFERENCES: dict[str, str] = {}


def names(tests, *spec):
    out = subprocess.run([tests, "--list-test-names-only", *spec], stdout=subprocess.PIPE, text=True)
    return [line for line in out.stdout.splitlines() if line]


def quoted(name):
    """As Catch reads a name on the command line."""
    return re.sub(r"([,\[\]\\])", r"\\\1", name)


def stacks(pid):
    if shutil.which("gdb") is None:
        return ""
    shown = subprocess.run(
        ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 14"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
    )
    return "\n".join(line for line in shown.stdout.splitlines() if line.startswith(("#", "Thread")))


def free_ports():
    """A few UDP ports that nobody has at 127.0.0.1, one after the other."""
    for _ in range(5):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        yield port


class Daemon:
    """A private sdp-pmd on loopback addresses, and the environment that leads to it."""

    def __init__(self, options, directory):
        self.socket_path = os.path.join(directory, "pmd.sock")
        self.stats = os.path.join(directory, "stats")
        hosts = (
            [options.address]
            if options.address
            else ["0.0.0.0", "[::]"]
            if options.in_namespace
            else ["127.0.0.1", "127.0.0.2", "[::1]"]
        )
        # A port that is free now somebody may take before the daemon does, or have at one of the other
        # addresses.
        if not any(self.starts(options, hosts, port) for port in free_ports()):
            sys.exit("sdp-pmd did not start")
        port = self.port
        preload = ":".join(os.path.abspath(path) for path in options.preload.split(":"))
        self.environment = {
            "LD_PRELOAD": preload,
            "SDP_PM_PORT": str(port),
            "SDP_PMD_SOCKET": self.socket_path,
            "SDP_STATS_DIR": self.stats,
            "SDP_LOG": "debug",
            # Lower than by default: what Zcopy can do wrong has to show with little data.
            "SDP_BCOPY_THRESHOLD": "131072",
            # A port mapper that a busy machine keeps waiting is not a silent one.
            "SDP_PM_TIMEOUT_MS": "5000",
        }
        if "libtsan" in preload:
            # Nor is a peer whose helper thread shares two processors with sixty slow threads.
            self.environment["SDP_HANDSHAKE_TIMEOUT_MS"] = "60000"
        if options.address:
            self.environment["SDP_TEST_ADDRESS"] = options.address

    def starts(self, options, hosts, port):
        self.port = port
        ready, tell = os.pipe()
        listen = [f"--listen={host}:{port}" for host in hosts]
        self.process = subprocess.Popen(
            [
                options.pmd,
                *listen,
                "--socket",
                self.socket_path,
                "--log-level",
                "error",
                "--ready-fd",
                str(tell),
            ],
            pass_fds=(tell,),
        )
        os.close(tell)
        with os.fdopen(ready, "rb") as said:
            is_ready = said.read(1) != b""
        if not is_ready:
            self.process.wait()
        return is_ready

    def stop(self):
        self.process.terminate()
        self.process.wait(10)


class Case:
    def __init__(self, name, may_use_tcp, may_be_skipped, must_use_sdp):
        self.name = name
        self.must_use_sdp = must_use_sdp
        self.may_use_tcp = may_use_tcp
        self.may_be_skipped = may_be_skipped
        self.problem = None
        self.skipped = None  # why
        self.skipped_parts = []
        self.known = None
        self.output = ""
        self.log = ""
        self.seconds = 0.0
        self.sdp_connections = 0

    def run(self, options, environment, directory, number):
        log_path = os.path.join(directory, f"log.{number}")
        env = dict(os.environ, **SANITIZER_OPTIONS, **environment)
        if "LD_PRELOAD" in env:
            env["SDP_LOG_FILE"] = log_path
        if self.name.startswith("transaction:"):  # that is never chosen
            env["SDP_FORCE"] = "transaction"
        start = time.monotonic()
        process = subprocess.Popen(
            [options.tests, quoted(self.name)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=options.seconds)
            if process.returncode != 0:
                self.problem = f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            self.problem = f"hangs ({options.seconds} s)"
            where = stacks(process.pid)
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            out += where.encode()
        finally:
            # What a failed case left behind, children included, goes with it.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.seconds = time.monotonic() - start
        self.output = out.decode(errors="replace")
        # A child's finding does not always reach the case's exit status.
        finding = FINDING.search(self.output)
        if self.problem is None and finding:
            self.problem = finding.group(0)
        reasons = sorted(set(SKIPPED.findall(self.output)))
        self.skipped = next((why for how, why in reasons if how != " in part"), None)
        self.skipped_parts = [why for how, why in reasons if how == " in part"]
        if self.problem is None and ("", self.skipped) in reasons and not self.may_be_skipped:
            self.problem = f"was skipped: {self.skipped}"
        if os.path.exists(log_path):
            with open(log_path, errors="replace") as file:
                self.log = file.read()
            self.sdp_connections = len(re.findall(r"connect to .*: SDP at ", self.log))
            fallbacks = [line for line in self.log.splitlines() if "TCP, because" in line]
            if self.problem is None and fallbacks and not self.may_use_tcp:
                self.problem = f"TCP carried data: {fallbacks[0]}"
        # A peer that the test plays says nothing of the connections that it makes.
        by_sdp = self.sdp_connections != 0 or re.search(r"accept on .*: SDP from ", self.log)
        if self.problem is None and self.must_use_sdp and not self.skipped and not by_sdp:
            self.problem = "no connection was made over SDP"
        if self.problem is None and options.expect_log and not re.search(options.expect_log, self.log):
            self.problem = f"its log has nothing of {options.expect_log}"
        return self

    def run_known(self, options, environment, directory, number):
        """One that is known to differ. By chance it may pass; it does not differ if it passes again and
        again."""
        for _ in range(3):
            self.problem = None
            self.run(options, environment, directory, number)
            if self.problem:
                self.known = KNOWN_DIFFERENCES[self.name]
                return self
        self.problem = "is listed as a known difference, and passes"
        return self

    def passed(self):
        return self.problem is None or self.known is not None

    def report(self, verbose):
        if verbose or not self.passed():
            print(
                f"{'FAIL' if not self.passed() else 'skip' if self.skipped else 'ok  '} "
                f"{self.seconds:6.2f} s  {self.name}" + ("" if self.passed() else f": {self.problem}"),
                flush=True,
            )
        if not self.passed():
            print("\n".join("    " + line for line in self.output.splitlines()[:80]))
            print("\n".join("    " + line for line in self.log.splitlines()[-12:]), flush=True)


def check_sdpstat(options, environment):
    """While a process holds connections, sdpstat shows them and what went over them. A problem, or None."""
    process = subprocess.Popen(
        [options.tests, "[.hold]"],
        env=dict(os.environ, **SANITIZER_OPTIONS, **environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        while line and not line.startswith("holding "):
            line = process.stdout.readline()
        if not line:
            return "the program that holds connections failed"
        listener = line.split()[1]
        mine = []

        def all_told():
            shown = subprocess.run(
                [options.sdpstat, "--json"],
                env=dict(os.environ, SDP_STATS_DIR=environment["SDP_STATS_DIR"]),
                stdout=subprocess.PIPE,
                text=True,
                timeout=60,
            )
            mine[:] = [p for p in json.loads(shown.stdout)["processes"] if p["pid"] == process.pid]
            sizes = sorted(
                (sum(c["bytes_in"].values()), sum(c["bytes_out"].values()))
                for one in mine
                for c in one["connections"]
            )
            return len(mine) == 1 and sizes == [(0, 6), (0, 3000000), (6, 0), (3000000, 0)]

        try:
            # What went the direct way, a process tells up to two seconds late.
            sdp_world.wait_until(all_told, "right numbers of bytes")
        except AssertionError:
            return f"sdpstat shows {mine}"
        if [one["local"] for one in mine[0]["listeners"]] != [listener]:
            return f"sdpstat shows listeners {mine[0]['listeners']}, not {listener}"
        if any(listener not in (c["local"], c["peer"]) for c in mine[0]["connections"]):
            return "sdpstat shows other addresses than the conventional ones"
        return None
    finally:
        process.stdin.close()
        process.wait(60)


NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "--"]


def run_in_namespace(options):
    """The cases that want a network of their own, by another process of this program. (passed, {case: why it
    was not run})"""
    tags = (options.tag or "") + TAG_OF_A_NAMESPACE
    wanted = [name for name in names(options.tests, tags) if options.only in name]
    if options.in_namespace or not wanted:
        return True, {}
    reason = why_no_namespace(options)
    if reason:
        return True, dict.fromkeys(wanted, reason)
    return (
        subprocess.run(
            [*NAMESPACE, sys.executable, "-B", __file__, *sys.argv[1:], "--tag", tags, "--in-namespace"]
        ).returncode
        == 0,
        {},
    )


def why_no_namespace(options):
    """A reason, or None."""
    if options.address:
        return f"a network of one's own has no {options.address}"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not installed"
    possible = subprocess.run(
        [*NAMESPACE, sys.executable, "-B", __file__, "probe"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if possible.returncode != 0:
        return f"no network of one's own can be had here: {possible.stdout.strip()}"
    return None


def make_network():
    """In a new namespace: loopback, and two devices with the same link-local address beside one of their
    own."""

    def ip(*arguments):
        done = subprocess.run(["ip", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"ip {' '.join(arguments)}: {done.stdout.strip()}")

    ip("link", "set", "lo", "up")
    ip("link", "add", "link0", "type", "veth", "peer", "name", "link1")
    for device in ("link0", "link1"):
        ip("link", "set", device, "up")
        ip("address", "add", "fe80::1/64", "dev", device, "nodad")
    deadline = time.monotonic() + 30
    while True:
        shown = subprocess.run(
            ["ip", "-6", "-o", "address", "show", "scope", "link"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        if shown.count("fe80::") >= 4 and "tentative" not in shown:
            return
        if time.monotonic() > deadline:
            sys.exit(f"no link-local addresses: {shown}")
        time.sleep(0.02)


def main():
    if sys.argv[1:] == ["probe"]:
        return make_network()
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("tcp", "sdp"))
    for name in ("--tests", "--preload", "--pmd", "--sdpstat"):
        parser.add_argument(name)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--tag", help="cases with this tag alone, as [rnic]")
    parser.add_argument("--address", help="in place of the loopback addresses: that of an RDMA device")
    parser.add_argument("--expect-log", help="a regular expression for the log of each case")
    parser.add_argument("--seconds", type=int, default=90, help="for a case; more than its own patience")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_namespace:
        make_network()

    with_tcp = {name for tag in TAGS_WITH_TCP for name in names(options.tests, tag)}
    native = set(names(options.tests, TAG_OF_THE_LIBRARY)) if options.mode == "sdp" else set()
    everywhere = set(names(options.tests)) - with_tcp - set(names(options.tests, TAG_WITHOUT)) | set(
        names(options.tests, TAG_OF_SDP)
    )
    carried = everywhere if options.mode == "sdp" else set()
    skipped = {}
    elsewhere = set() if options.in_namespace else set(names(options.tests, TAG_OF_A_NAMESPACE))
    asked = [
        name
        for name in names(options.tests, *filter(None, [options.tag]))
        if options.only in name and name not in elsewhere
    ]
    cases = [Case(name, name in with_tcp, name not in native, name in carried) for name in asked]
    problems = []
    with tempfile.TemporaryDirectory(prefix="sdp-posix-") as directory:
        os.chmod(directory, 0o755)  # cases become other users
        daemon = Daemon(options, directory) if options.mode == "sdp" else None
        environment = daemon.environment if daemon else {}
        try:
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                running = [
                    pool.submit(
                        case.run_known
                        if options.mode == "sdp" and case.name in KNOWN_DIFFERENCES
                        else case.run,
                        options,
                        environment,
                        directory,
                        i,
                    )
                    for i, case in enumerate(cases)
                ]
                for future in running:
                    future.result().report(options.verbose)
            if daemon and not options.only and not options.tag:
                problem = check_sdpstat(options, environment)
                if problem:
                    problems.append(problem)
                if sum(case.sdp_connections for case in cases) < 1000:
                    problems.append("hardly a connection was made over SDP")
            if daemon and daemon.process.poll() is not None:
                problems.append("sdp-pmd died")
        finally:
            if daemon:
                daemon.stop()
    in_namespace_passed, without_namespace = run_in_namespace(options)
    skipped.update(without_namespace)
    if not in_namespace_passed:
        problems.append("cases in a namespace failed, see above")
    failed = [case for case in cases if not case.passed()]
    left_out = [case for case in cases if case.passed() and case.skipped]
    for problem in problems:
        print(f"FAIL {problem}")
    for case in cases:
        if case.known:
            print(f"known difference: {case.name}: {case.known}")
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}")
    for case in left_out:
        print(f"skipped: {case.name}: {case.skipped}")
    for case in cases:
        for why in case.skipped_parts:
            print(f"skipped in part: {case.name}: {why}")
    connections = f", {sum(case.sdp_connections for case in cases)} connections over SDP" if daemon else ""
    count = len(skipped) + len(left_out)
    print(
        f"{len(cases) - len(failed) - len(left_out)} of {len(cases) + len(skipped)} cases passed, "
        f"{count} skipped{connections}"
    )
    for case in failed:
        print(f"FAIL {case.name}: {case.problem}")
    return 1 if failed or problems else 0


if __name__ == "__main__":
    sys.exit(main())
