"""A world of its own for programs over SDP: a port mapper, a stats directory, free ports, and an end to all
of it.

Shared by the program tests and the benchmark. SDP_BUILD_DIR names the build tree; without it, build/release.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SDP_BUILD_DIR", ROOT / "build" / "release"))
LIBRARY = BUILD / "preload" / "libsdp.so"
PRELOAD_AHEAD = os.environ.get("SDP_PRELOAD_AHEAD", "")  # a sanitizer's run times, each with a colon
PMD = BUILD / "portmapper" / "sdp-pmd"
SDPSTAT = BUILD / "tools" / "sdpstat"
SDP_RUN = BUILD / "tools" / "sdp-run"
CONNECTIONS = BUILD / "test" / "programs" / "connections"
PLAIN_CALLS = BUILD / "test" / "programs" / "plain_calls"

MECHANISMS = ("bcopy", "read_zcopy", "write_zcopy", "transaction")


CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
CHOSEN = "SDP_WORLD_CONGESTION"
OUTSIDE = "SDP_WORLD_OUTSIDE"  # the network namespace that enter_namespace() has left
# A namespace may not choose each algorithm for all its sockets, but for a route. The library leaves a link
# alone that begins with reno.
WITH_CONGESTION = f"""
ip link set lo up && echo reno >{CONGESTION} && for network in 127.0.0.1 127.0.0.0/8; do
  ip route replace local $network dev lo table local proto kernel scope host src 127.0.0.1 \\
    congctl "${CHOSEN}" || exit
done && exec "$@"
"""


def congestion():
    """The congestion control of TCP over loopback."""
    return os.environ.get(CHOSEN) or CONGESTION.read_text().strip()


def use_congestion(name):
    """TCP has this congestion control over loopback from here on, in a network namespace if need be."""
    if congestion() != name:
        enter_namespace(name)


def enter_namespace(name):
    """Begins this program again, with its arguments, in a network namespace of its own, where TCP has this
    congestion control over loopback. Returns if this is that namespace."""
    here = os.readlink("/proc/self/ns/net")
    if os.environ.get(OUTSIDE, here) != here:
        return
    if name not in CONGESTION.with_name("tcp_available_congestion_control").read_text().split():
        sys.exit(f"TCP has no congestion control {name} here")
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    unshare = ["unshare", "--net", *mapped]
    if subprocess.run([*unshare, "true"]).returncode != 0:
        sys.exit("a network namespace needs root, or a kernel that lets users make user namespaces")
    command = [*unshare, "sh", "-c", WITH_CONGESTION, "sh", sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, "PATH": search_path(), CHOSEN: name, OUTSIDE: here})


def search_path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def find(program):
    return shutil.which(program, path=search_path())


def free_port(kind=socket.SOCK_STREAM, count=1):
    """The first of so many in a row that nobody has, at any address. They are none of those which the kernel
    gives to whoever connects, or binds to any port: between this look and the server's bind nobody else comes
    by them."""
    lowest, highest = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    candidates = range(10_000, lowest - count) or range(highest + 1, 65_536 - count)
    for _ in range(100):
        first = random.choice(candidates)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for port in range(first, first + count):
                for family, host in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
                    if family == socket.AF_INET6 and not os.path.exists("/proc/net/if_inet6"):
                        continue
                    probe = probes.enter_context(socket.socket(family, kind))
                    if family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind((host, port))
            return first
    raise AssertionError(f"no {count} free ports in a row")


def wait_until(condition, what, timeout=30.0):
    """The first true value of condition(), polled; an AssertionError that says what did not come after
    `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout} s still no {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def missing():
    """The files of the build that are not there."""
    return [file for file in (LIBRARY, PMD, SDPSTAT, CONNECTIONS, PLAIN_CALLS) if not file.exists()]


def total(by_mechanism):
    return sum(by_mechanism[m] for m in MECHANISMS)


def random_file(path, size, seed=1):
    """Writes `size` bytes that do not compress or repeat within a MiB boundary; returns their SHA-256."""
    digest = hashlib.sha256()
    generator = random.Random(seed)
    block = bytearray(generator.randbytes(1 << 20))
    with open(path, "wb") as out:
        number = 0
        while size > 0:
            block[:8] = number.to_bytes(
                8, "big"
            )  # every block differs: a block out of place changes the hash
            piece = block[: min(size, len(block))]
            out.write(piece)
            digest.update(piece)
            size -= len(piece)
            number += 1
    return digest.hexdigest()


def file_hash(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Process:
    """A program of the test's, in a process group of its own."""

    def __init__(self, popen, log):
        self.popen = popen
        self.pid = popen.pid
        self.log = log

    def output(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, timeout=60):
        return self.popen.wait(timeout)

    def running(self):
        return self.popen.poll() is None

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def stop(self):
        """SIGTERM, then SIGKILL; the whole group, whose leader may be gone already."""
        self.kill(signal.SIGTERM)
        try:
            self.popen.wait(3)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
        self.popen.wait(5)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()


class World:
    """What one test needs; everything in it ends with stop()."""

    log_level = "info"
    address = "127.0.0.1"

    def __init__(self, with_pmd=True, listen=(), user=None):
        """`listen`: addresses the port mapper serves beside the loopback ones. `user`: where this is root,
        who runs the programs."""
        self.far = self  # where the servers are
        self.listen = ["127.0.0.1", "[::1]", *listen]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sdp-programs-"))
        self.stats_dir = self.directory / "stats"
        self.stats_dir.mkdir(mode=0o700)
        self.library = LIBRARY
        self.user = {"user": user, "group": user, "extra_groups": []} if user and os.geteuid() == 0 else {}
        if self.user:
            shutil.chown(self.directory, user, user)
            shutil.chown(self.stats_dir, user, user)
            # The build tree may lie where that user cannot look.
            self.library = shutil.copy(LIBRARY, self.directory)
        self.pm_port = free_port(socket.SOCK_DGRAM)
        self.pmd_socket = self.directory / "pmd.sock"
        self.log_file = self.directory / "sdp.log"
        self.processes = []
        self.pmd = self.start_first_pmd() if with_pmd else None

    def start_first_pmd(self, *options):
        """What is free at one address now may be somebody's at another, or in a moment: then on another
        port."""
        for _ in range(4):
            with contextlib.suppress(AssertionError):
                return self.start_pmd(*options)
            self.pm_port = free_port(socket.SOCK_DGRAM)
        return self.start_pmd(*options)

    def start_pmd(self, *options):
        reading, writing = os.pipe()
        try:
            pmd = self.start(
                [
                    PMD,
                    *(word for host in self.listen for word in ("--listen", f"{host}:{self.pm_port}")),
                    "--socket",
                    self.pmd_socket,
                    "--ready-fd",
                    str(writing),
                    *options,
                ],
                preload=False,
                pass_fds=(writing,),
                user={},
            )
        finally:
            os.close(writing)
        with os.fdopen(reading) as ready:
            if "ready" not in ready.read():
                raise AssertionError("sdp-pmd did not become ready:\n" + pmd.output())
        return pmd

    def environment(self, preload=True, **extra):
        env = {
            k: v
            for k, v in os.environ.items()
            if k == "SDP_LINK" or (not k.startswith("SDP_") and k != "LD_PRELOAD")
        }
        if preload:
            env.update(
                LD_PRELOAD=PRELOAD_AHEAD + str(self.library),
                SDP_PMD_SOCKET=str(self.pmd_socket),
                SDP_PM_PORT=str(self.pm_port),
                SDP_STATS_DIR=str(self.stats_dir),
                SDP_RNIC="soft",
                SDP_LOG=self.log_level,
                SDP_LOG_FILE=str(self.log_file),
            )
        env.update({k: str(v) for k, v in extra.items()})
        return env

    def start(
        self,
        argv,
        preload=True,
        environment=None,
        stdin=subprocess.DEVNULL,
        stdout=None,
        pass_fds=(),
        user=None,
    ):
        """Starts a program; its output goes to a log, unless `stdout` says otherwise."""
        argv = [str(a) for a in argv]
        argv[0] = find(argv[0]) or argv[0]
        log = self.directory / f"{len(self.processes):02}-{pathlib.Path(argv[0]).name}.log"
        with open(log, "wb") as out:
            popen = subprocess.Popen(
                argv,
                env=self.environment(preload, **(environment or {})),
                cwd=self.directory,
                stdin=stdin,
                stdout=out if stdout is None else stdout,
                stderr=out,
                start_new_session=True,
                pass_fds=pass_fds,
                **(self.user if user is None else user),
            )
        process = Process(popen, log)
        self.processes.append(process)
        return process

    def run(self, argv, preload=True, environment=None, timeout=60, data=None, check=True):
        """Runs a program to its end; its standard output as bytes."""
        process = self.start(
            argv,
            preload,
            environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL,
        )
        try:
            output, _ = process.popen.communicate(data, timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{argv} did not end within {timeout} s:\n{process.output()}")
        if check and process.popen.returncode != 0:
            raise AssertionError(
                f"{argv} ended with {process.popen.returncode}:\n{output[-2000:]!r}\n{process.output()}"
            )
        return output

    def wait_for_listener(self, port, timeout=30.0, sdp=True):
        """Until a preloaded process publishes an SDP listener for `port` (sdp=False: until TCP listens); its
        JSON object."""
        if sdp:
            return wait_until(
                lambda: self.listener(port), f"SDP listener on port {port}:\n{self.logs()}", timeout
            )
        return wait_until(
            lambda: self.tcp_listens(port), f"TCP listener on port {port}:\n{self.logs()}", timeout
        )

    def tcp_listens(self, port):
        return tcp_listens(port)

    def listener(self, port):
        for process in self.sdpstat()["processes"]:
            for listener in process["listeners"]:
                if listener["local"].rsplit(":", 1)[1] == str(port) and listener["registered"]:
                    return listener
        return None

    def sdpstat(self):
        output = subprocess.run(
            [SDPSTAT, "--json", "--dir", self.stats_dir], check=True, capture_output=True, timeout=60
        )
        return json.loads(output.stdout)

    def summary(self):
        """Totals of the living processes: what they carried over SDP and why something was TCP."""
        return self.sdpstat()["summary"]

    def sdp_bytes(self, process=None):
        """(in, out) over SDP, closed connections included; of all processes, or of one."""
        everything = self.sdpstat()
        if process is None:
            summary = everything["summary"]
            return total(summary["bytes_in"]), total(summary["bytes_out"])
        received = sent = 0
        for one in everything["processes"]:
            if one["pid"] != process.pid:
                continue
            for part in [one["closed"], *one["connections"]]:
                received += total(part["bytes_in"])
                sent += total(part["bytes_out"])
        return received, sent

    def sdp_log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def logs(self):
        parts = [f"--- {p.log.name}\n{p.output()[-3000:]}" for p in self.processes if p.output()]
        return "\n".join([*parts, f"--- SDP_LOG_FILE\n{self.sdp_log()[-6000:]}"])

    def stop(self):
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def tcp_listens(port, process="self"):
    """In the network namespace of a process."""
    for table in "tcp", "tcp6":
        for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False
