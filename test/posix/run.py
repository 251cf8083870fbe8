#!/usr/bin/env python3
"""Runs posix_tests, each case in a process of its own, on the kernel's TCP or under the preload.

    run.py tcp --tests PATH [--jobs N] [--only TEXT] [--verbose]
    run.py sdp --tests PATH --preload LIBSDP[:...] --pmd SDP_PMD --sdpstat SDPSTAT [...]

A case that hangs is named, with the stacks of its threads where there is a debugger. Under the preload a private sdp-pmd serves, and it is
checked that SDP carried the data: no connection fell back to TCP (except in the cases that are about that), and sdpstat shows the bytes.

Cases tagged [.namespace] want devices and addresses of their own: they run in a user and network namespace, where there can be one.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

FINDING = re.compile(r"(ERROR|WARNING): (Address|Leak|Thread)Sanitizer.*|.*: runtime error: .*")
# What a case says that cannot be where it runs (test/support/skipped.h), as a whole or in part.
SKIPPED = re.compile(r"^skipped( in part)?: (.*)$", re.MULTILINE)
# Leaks are looked for where processes are whole: a case leaves by _exit, or execs Debian's programs. Threads in the child of a process that
# has threads are what some cases are about.
SANITIZER_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "die_after_fork=0:atexit_sleep_ms=100", "UBSAN_OPTIONS": "print_stacktrace=1"}
# Cases in which a connection rightly is no SDP connection.
TAGS_WITH_TCP = ("[refused]", "[mixed]", "[plain]")
# Cases that make none. In all others that are not about TCP one at least has to be SDP's: a library that takes itself out of the way says of none
# that it is TCP.
TAG_WITHOUT = "[unconnected]"
# Cases in which one has to be, though others are TCP.
TAG_OF_SDP = "[carried]"
# Cases of what the library alone has: they cannot be on plain TCP, and have to be under the preload.
TAG_OF_THE_LIBRARY = "[native]"
# Cases that want devices and addresses of their own.
TAG_OF_A_NAMESPACE = "[namespace]"

# What is known to differ under the preload, with the reason. A case that passes all the same is reported, so that its row goes.
KNOWN_DIFFERENCES = {
    "terminated: all that a sender got rid of before its peer read anything arrives":
        "the peer begins to read when the process is gone, which waits for it for 5 s: what the kernel has not taken by then is in the process's memory",
}

# What a sanitizer's run time does to a case is no finding about the library. By a part of the run time's name.
SKIPPED_UNDER = {
    "libubsan": {
        "descriptors: EMFILE in accept and socket leaves the rest alone":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
        "surroundings: twenty descriptors are enough for who needs ten":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
        "ending: close delivers everything when no descriptor is left":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
        "unwakeable: a poll sees that less is enough":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
        "unwakeable: a receive with a time-out sees that another thread has shut the socket down":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
        "unwakeable: a sender with a time-out sees that another thread has shut the socket down":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
        "unwakeable: an epoll wait sees what another thread's call has changed":
            "UBSan asks whether memory can be read by means of a pipe, and takes it for wild where no descriptor is left",
    },
    "libasan": {
        "surroundings: a process without memory to be had connects, accepts, forks and ends by itself":
            "a sanitizer's run time takes addresses for itself as it goes, and ends the process where there are none",
        "threads: one with a small stack sends and receives":
            "the frames of ASan's code are larger",
        "threads: sleeping calls are cancellation points and leave no lock behind":
            "ASan does not learn that a cancelled thread has left its frames, and takes what comes to lie there for an overflow",
        "threads: a cancellation that is pending ends a call before it has had an effect":
            "ASan does not learn that a cancelled thread has left its frames, and takes what comes to lie there for an overflow",
        "threads: a reader that is cancelled in its sleep leaves the link to the next":
            "ASan does not learn that a cancelled thread has left its frames, and takes what comes to lie there for an overflow",
        "bulk: a thread that is cancelled in a receive":
            "ASan does not learn that a cancelled thread has left its frames, and takes what comes to lie there for an overflow",
        "closed sleeper: with its thread the connection goes":
            "ASan does not learn that a cancelled thread has left its frames, and takes what comes to lie there for an overflow",
        "memory: names, options and waits that are nowhere":
            "ASan's own interceptors look at what they are given, and end the process for it",
        "memory: every option that is nowhere, or goes there":
            "ASan's own interceptors look at what they are given, and end the process for it",
        "memory: control messages that are nowhere":
            "ASan's own interceptors look at what they are given, and end the process for it",
        "poll, select, epoll_wait: memory that is not there, or not to be written to":
            "ASan's own interceptors look at what they are given, and end the process for it",
        "threads: a connect is a cancellation point, and goes on":
            "ASan does not learn that a cancelled thread has left its frames, and takes what comes to lie there for an overflow",
        "handlers: one that looks at, polls and waits for the socket that it interrupts":
            "a look may need room to receive into, and ASan's allocator, interrupted by the handler, has its lock taken",
        "lent: forks at any moment of regular turns lose nothing":
            "other threads allocate all the time, and ASan's allocator does not let go of its locks for a fork",
    },
    "libtsan": {
        "surroundings: a process without memory to be had connects, accepts, forks and ends by itself":
            "a sanitizer's run time takes addresses for itself as it goes, and ends the process where there are none",
        "threads: one with a small stack sends and receives":
            "the frames of TSan's code are larger",
        "rights: as many connections in a message as there may be":
            "TSan's search for deadlocks knows 64 locks that a thread has at once, and a hand-over takes that of each connection",
        "terminated: asleep in a receive":
            "TSan holds a handler back until recv returns, and then shows it the place where recv slept",
        "terminated: asleep in a receive, and woken by the peer's reading":
            "TSan holds a handler back until recv returns",
        "terminated: on a stack that has no room for a handler, beside one that has":
            "TSan's own code has no room there",
        "default signals: the first process of a PID namespace in the memory of another is ended by none":
            "TSan keeps a signal for later in memory that the two share, and runs its handler in the other",
        "terminated: a child leaves its parent the connection":
            "in a child of a process that has threads TSan switches its interceptors off, and runs no handler",
        "owner: SIGURG in a blocked receive":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "signals: SA_RESTART goes on":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "signals: a handler may send on the socket that the thread receives from":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "threads: a connect is a cancellation point, and goes on":
            "TSan does not learn that a cancelled thread has left its interceptors, and misses the locks it takes from there on",
        "bulk: a handler that jumps out of a receive whose buffer is then another's":
            "TSan holds a handler back until recv returns, and the jump is to end that recv",
        "process: clone's errors are the kernel's":
            "TSan's clone gives the kernel a function of its own, whatever the program's is",
        "shell: system writes to the connection, and the program goes on with it":
            "TSan flushes stdout once more when a program that has closed it exits: a stream of our making is freed memory by then",
        "shell: system reads from the connection what the program has left":
            "TSan flushes stdout once more when a program that has closed it exits: a stream of our making is freed memory by then",
        "shell: popen in both directions":
            "TSan flushes stdout once more when a program that has closed it exits: a stream of our making is freed memory by then",
        "bulk: closed under a sleeping receive":
            "TSan reports such a close, whatever becomes of it",
        "threads: a descriptor closed under a blocked receive leaves no wreck":
            "TSan reports such a close, whatever becomes of it",
        "fork: the parent closes under its own sleeping receive, and the child goes on":
            "TSan reports such a close, whatever becomes of it",
        "traps: close in one thread while another sleeps in each kind of call":
            "TSan reports such a close, whatever becomes of it",
        "fork: a connection that is closed under a sleeping receive, and open in a child, costs no processor time":
            "TSan reports such a close, whatever becomes of it, and has a thread of its own that wakes",
        "connect: a server that is killed in the middle of a non-blocking connect resets it":
            "TSan knows of no order between the helper's connect to AF_UNSPEC and the program's call, which the kernel puts in one",
        "signals: siginterrupt decides what signal does, whichever comes first":
            "TSan holds a handler back until read returns, and restarting is that read does not return",
        "handlers: one that makes connections in the middle of malloc":
            "TSan reports memory that is had in a handler, its own included",
        "handlers: one that sends on the socket whose sends it interrupts":
            "a send may allocate room for its copy, which TSan reports in a handler",
        "handlers: one that jumps out of a receive":
            "TSan holds a handler back until recv returns, and the jump is to end that recv",
        "handlers: one that jumps out of a receive, which goes on from a deeper place":
            "TSan holds a handler back until recv returns, and the jump is to end that recv",
        "closed sleeper: who receives goes on until something comes, then the connection ends":
            "TSan reports such a close, whatever becomes of it",
        "closed sleeper: of several the last one ends it":
            "TSan reports such a close, whatever becomes of it",
        "closed sleeper: the peer's end ends it, too":
            "TSan reports such a close, whatever becomes of it",
        "closed sleeper: with its thread the connection goes":
            "TSan reports such a close, whatever becomes of it",
        "memory: every option that is nowhere, or goes there":
            "TSan's own interceptors look at what they are given, and end the process for it",
        "shut sleeper: SHUT_RD ends a blocked receive":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "shut sleeper: of a MSG_WAITALL receive what came is told":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "shut sleeper: at any moment, again and again":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "shut sleeper: no signal of the program's is used up, and none is seen to be handled":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "shut sleeper: a program that is execed gets the connection at once":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "stalled: SHUT_RDWR of a socket with unsent bytes ends a sleeping receive at once":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "terminated: of the last one who has a connection, behind one that has used it, the peer reads the end":
            "in a child of a process that has threads TSan switches its interceptors off, and runs no handler",
        "terminated: of the last one who has a connection, with bytes unread, the peer is reset":
            "in a child of a process that has threads TSan switches its interceptors off, and runs no handler",
        "memory: names, options and waits that are nowhere":
            "TSan's own interceptors look at what they are given, and end the process for it",
        "poll, select, epoll_wait: memory that is not there, or not to be written to":
            "TSan's own interceptors look at what they are given, and end the process for it",
        "fork: in a handler that interrupts a receive, which goes on in both":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "fork: a handler that jumps within itself over a sleep from before the fork leaves that its data":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "handlers: one that jumps within itself and then makes calls, over a receive":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "handlers: one that forks and jumps within itself, over a receive that goes on in both":
            "TSan holds a handler back until recv returns, and SA_RESTART is that recv does not return",
        "handlers: one that jumps within itself, and then out of a receive":
            "TSan holds a handler back until recv returns, and the jump is to end that recv",
        "descriptors: close_range that unshares, in a process alone":
            "TSan has a thread of its own: no process is alone",
        "descriptors: unshare of descriptors, in a process alone":
            "TSan has a thread of its own: no process is alone",
        "descriptors: a process with one thread may enter a user namespace with its connections":
            "TSan has a thread of its own: no process is alone",
        "fork: in a handler that interrupts a receive, which goes on in neither":
            "a fork needs room for what both processes are to have, which TSan reports in a handler",
        "handlers: one that jumps out of a large receive and a large send":
            "TSan holds a handler back until recv returns, and the jump is to end that recv",
        "handlers: one that looks at, polls and waits for the socket that it interrupts":
            "a look may need room to receive into, which TSan reports in a handler",
    },
}

for _library in ("libasan", "libubsan", "libtsan"):
    SKIPPED_UNDER.setdefault(_library, {}).update({
        f"confinement: {_case}": "a sanitizer's run time makes calls that the filter knows nothing of"
        for _case in ("a child behind a seccomp filter talks and its parent goes on", "a child behind a seccomp filter talks on a blocking socket",
                      "a child behind a seccomp filter may leave by exit", "a child whose seccomp filter is set by a system call of its own",
                      "a process behind a seccomp filter makes connections", "a filter that knows just the calls that a program makes",
                      "a process behind a seccomp filter has a connection for itself", "a child behind a seccomp filter waits by epoll, and registers there",
                      "who ignores SIGPIPE has EPIPE behind a filter that forbids to raise it",
                      "a child that may write no files is not ended for what there is to tell")})


def names(tests, *spec):
    out = subprocess.run([tests, "--list-test-names-only", *spec], stdout=subprocess.PIPE, text=True)
    return [line for line in out.stdout.splitlines() if line]


def quoted(name):
    """As Catch reads a name on the command line."""
    return re.sub(r"([,\[\]\\])", r"\\\1", name)


def stacks(pid):
    if shutil.which("gdb") is None:
        return ""
    shown = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 14"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, timeout=60)
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
        hosts = [options.address] if options.address else ["0.0.0.0", "[::]"] if options.in_namespace else ["127.0.0.1", "127.0.0.2", "[::1]"]
        # A port that is free now somebody may take before the daemon does, or have at one of the other addresses.
        if not any(self.starts(options, hosts, port) for port in free_ports()):
            sys.exit("sdp-pmd did not start")
        port = self.port
        preload = ":".join(os.path.abspath(path) for path in options.preload.split(":"))
        self.environment = {"LD_PRELOAD": preload, "SDP_PM_PORT": str(port),
                            "SDP_PMD_SOCKET": self.socket_path, "SDP_STATS_DIR": self.stats, "SDP_LOG": "debug",
                            # Lower than by default: what Zcopy can do wrong has to show with little data.
                            "SDP_BCOPY_THRESHOLD": "131072",
                            # A port mapper that a busy machine keeps waiting is not a silent one.
                            "SDP_PM_TIMEOUT_MS": "5000"}
        if options.address:
            self.environment["SDP_TEST_ADDRESS"] = options.address

    def starts(self, options, hosts, port):
        self.port = port
        ready, tell = os.pipe()
        listen = [f"--listen={host}:{port}" for host in hosts]
        self.process = subprocess.Popen([options.pmd, *listen, "--socket", self.socket_path, "--log-level", "error",
                                         "--ready-fd", str(tell)], pass_fds=(tell,))
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
        if self.name.startswith("timed:"):  # whether a threshold is set decides whether the clock may choose
            env.pop("SDP_BCOPY_THRESHOLD", None)
        start = time.monotonic()
        process = subprocess.Popen([options.tests, quoted(self.name)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
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
        self.skipped = next((why for part, why in reasons if not part), None)
        self.skipped_parts = [why for part, why in reasons if part]
        if self.problem is None and self.skipped and not self.may_be_skipped:
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
        """One that is known to differ. By chance it may pass; it does not differ if it passes again and again."""
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
            print(f"{'FAIL' if not self.passed() else 'skip' if self.skipped else 'ok  '} {self.seconds:6.2f} s  {self.name}"
                  + ("" if self.passed() else f": {self.problem}"), flush=True)
        if not self.passed():
            print("\n".join("    " + line for line in self.output.splitlines()[:80]))
            print("\n".join("    " + line for line in self.log.splitlines()[-12:]), flush=True)


def check_sdpstat(options, environment):
    """While a process holds connections, sdpstat shows them and what went over them. A problem, or None."""
    process = subprocess.Popen([options.tests, "[.hold]"], env=dict(os.environ, **SANITIZER_OPTIONS, **environment), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        while line and not line.startswith("holding "):
            line = process.stdout.readline()
        if not line:
            return "the program that holds connections failed"
        listener = line.split()[1]
        shown = subprocess.run([options.sdpstat, "--json"], env=dict(os.environ, SDP_STATS_DIR=environment["SDP_STATS_DIR"]),
                               stdout=subprocess.PIPE, text=True, timeout=60)
        mine = [p for p in json.loads(shown.stdout)["processes"] if p["pid"] == process.pid]
        if len(mine) != 1:
            return f"sdpstat shows {len(mine)} such processes"
        if [one["local"] for one in mine[0]["listeners"]] != [listener]:
            return f"sdpstat shows listeners {mine[0]['listeners']}, not {listener}"
        connections = mine[0]["connections"]
        sizes = sorted((sum(c["bytes_in"].values()), sum(c["bytes_out"].values())) for c in connections)
        if sizes != [(0, 6), (0, 3000000), (6, 0), (3000000, 0)]:
            return f"sdpstat shows bytes in and out {sizes}"
        if any(listener not in (c["local"], c["peer"]) for c in connections):
            return "sdpstat shows other addresses than the conventional ones"
        return None
    finally:
        process.stdin.close()
        process.wait(60)


NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "--"]


def run_in_namespace(options):
    """The cases that want a network of their own, by another process of this program. (passed, {case: why it was not run})"""
    tags = (options.tag or "") + TAG_OF_A_NAMESPACE
    wanted = [name for name in names(options.tests, tags) if options.only in name]
    if options.in_namespace or not wanted:
        return True, {}
    reason = why_no_namespace(options)
    if reason:
        return True, dict.fromkeys(wanted, reason)
    return subprocess.run([*NAMESPACE, sys.executable, "-B", __file__, *sys.argv[1:], "--tag", tags, "--in-namespace"]).returncode == 0, {}


def why_no_namespace(options):
    """A reason, or None."""
    if options.address:
        return f"a network of one's own has no {options.address}"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not installed"
    possible = subprocess.run([*NAMESPACE, sys.executable, "-B", __file__, "probe"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if possible.returncode != 0:
        return f"no network of one's own can be had here: {possible.stdout.strip()}"
    return None


def make_network():
    """In a new namespace: loopback, and two devices with the same link-local address beside one of their own."""
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
        shown = subprocess.run(["ip", "-6", "-o", "address", "show", "scope", "link"], stdout=subprocess.PIPE, text=True, check=True).stdout
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
    everywhere = set(names(options.tests)) - with_tcp - set(names(options.tests, TAG_WITHOUT)) | set(names(options.tests, TAG_OF_SDP))
    carried = everywhere if options.mode == "sdp" else set()
    skipped = {}
    linked = (options.preload or "") + subprocess.run(["ldd", options.tests], stdout=subprocess.PIPE, text=True).stdout
    elsewhere = set() if options.in_namespace else set(names(options.tests, TAG_OF_A_NAMESPACE))
    asked = [name for name in names(options.tests, *filter(None, [options.tag])) if options.only in name and name not in elsewhere]
    for runtime, known in SKIPPED_UNDER.items():
        if runtime in linked:
            skipped.update({name: why for name, why in known.items() if name in asked})
    cases = [Case(name, name in with_tcp, name not in native, name in carried) for name in asked if name not in skipped]
    problems = []
    with tempfile.TemporaryDirectory(prefix="sdp-posix-") as directory:
        os.chmod(directory, 0o755)  # cases become other users
        daemon = Daemon(options, directory) if options.mode == "sdp" else None
        environment = daemon.environment if daemon else {}
        try:
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                running = [pool.submit(case.run_known if options.mode == "sdp" and case.name in KNOWN_DIFFERENCES else case.run,
                                       options, environment, directory, i) for i, case in enumerate(cases)]
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
    print(f"{len(cases) - len(failed) - len(left_out)} of {len(cases) + len(skipped)} cases passed, {count} skipped{connections}")
    for case in failed:
        print(f"FAIL {case.name}: {case.problem}")
    return 1 if failed or problems else 0


if __name__ == "__main__":
    sys.exit(main())
