"""Two hosts: network namespaces with a wire between them, or, where that is not allowed, two loopback
addresses.

Each has a port mapper, statistics and a library of its own."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

import judge  # noqa: E402
import sdp_world  # noqa: E402
from sdp_world import Process, World, find, wait_until  # noqa: E402

STATISTICS_MIB = 48
KEEPALIVE = {"time": int(judge.KEEPALIVE_IDLE), "intvl": 1, "probes": 4}  # as in client.py
NO_OTHER_LIBRARY = "no other tree in build/ has a libsdp.so that programs can be preloaded with"


def other_library():
    """Of another build tree, or None. A copy is none; one under a sanitizer needs more than LD_PRELOAD."""
    ours = sdp_world.LIBRARY.read_bytes()
    for library in sorted(sdp_world.ROOT.glob("build/*/preload/libsdp.so")):
        loads = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True)
        if loads.returncode == 0 and not loads.stderr and library.read_bytes() != ours:
            return library
    return None


@dataclasses.dataclass(frozen=True)
class Mode:
    """How a program is started."""

    preload: bool = True
    upgraded: bool = False
    clock: int = 0

    def clock_wrapper(self):
        """The program begins in a time namespace. Its monotonic clock and its time since the boot are moved;
        the wall clock is everybody's, and no clock moves under a program that runs."""
        if self.clock == 0:
            return []
        with open("/proc/uptime") as uptime:
            shift = self.clock if self.clock > 0 else -int(float(uptime.read().split()[0]) * 0.8)
        return [
            "unshare",
            "--time",
            "--monotonic",
            str(shift),
            "--boottime",
            str(shift),
            "--fork",
            "--kill-child",
        ]


USUAL, PLAIN = Mode(), Mode(preload=False)


def fields_of(pid):
    """What /proc/PID/stat has behind the name: state, parent, ...; None if the process is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def children_now():
    """{parent: [(start, pid)]} of all that live."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := fields_of(entry)) and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append((int(fields[19]), int(entry)))
    return children


def tree(pid, children=None):
    """The process and all below it that live, parents first, the oldest first."""
    children = children_now() if children is None else children
    found, at = [pid], 0
    while at < len(found):
        found += [child for _, child in sorted(children.get(found[at], []))]
        at += 1
    fields = fields_of(pid)
    return found if fields and fields[0] not in "ZX" else found[1:]


def trees(pids, children=None):
    """Those of several, one after the other."""
    children = children_now() if children is None else children
    return [one for pid in pids for one in tree(pid, children)]


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_tree(pid):
    """All are stopped first, so that none has another child while the others end."""
    stopped = []
    while new := [one for one in tree(pid) if one not in stopped]:
        for one in new:
            send(one, signal.SIGSTOP)
        stopped += new
    for one in reversed(stopped):
        send(one, signal.SIGKILL)


def memory_and_descriptors(pid):
    """(RSS in KiB, number of descriptors), or None."""
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() // 1024, len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, IndexError):
        return None


class Host(World):
    """`holder`: a process in the host's network namespace, or None."""

    def __init__(self, name, address, other_library, holder=None, device=None):
        self.name, self.address, self.holder, self.device = name, address, holder, device
        self.numbers = itertools.count()
        self.crashes = []
        self.fallback_ports = itertools.count(20_000 + 1000 * (ord(name) - ord("a")))
        super().__init__(with_pmd=False)
        self.listen = [address]
        self.pm_port = 3935
        self.directory.chmod(0o755)
        self.stats_dir.chmod(0o755)
        if holder is not None:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={STATISTICS_MIB}m,mode=755", "soak", self.stats_dir],
                check=True,
            )
        self.stats_dirs = {}
        for user in ("root", "postgres", "clock"):
            self.stats_dirs[user] = self.stats_dir / user
            self.stats_dirs[user].mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.stats_dirs["postgres"], "postgres", "postgres")
        self.log_file.touch()
        self.log_file.chmod(0o666)
        # Programs of another user's must reach them; and the build may be replaced while this runs.
        self.library = pathlib.Path(shutil.copy(sdp_world.LIBRARY, self.directory / "libsdp.so"))
        self.upgraded = self.directory / "other" / "libsdp.so"
        self.upgraded.parent.mkdir()
        shutil.copy(other_library, self.upgraded)
        self.start_pmd()

    def inside(self):
        return [] if self.holder is None else ["nsenter", f"--net=/proc/{self.holder}/ns/net", "--"]

    def net(self, *words, data=None):
        subprocess.run(
            [*self.inside(), *words], check=True, input=data, text=True, capture_output=True, timeout=20
        )

    def start_pmd(self):
        self.pmd = super().start_pmd()
        return self.pmd

    def settings(self, mode, user):
        """Words for env(1).

        In a time namespace /proc shows other start times, and the library tells by these which files are of
        dead processes. So such a process has a statistics directory of its own."""
        if not mode.preload:
            return []
        environment = {
            "LD_PRELOAD": f"{sdp_world.PRELOAD_AHEAD}{self.upgraded if mode.upgraded else self.library}",
            "SDP_STATS_DIR": self.stats_dirs["clock" if mode.clock and not user else user or "root"],
            "SDP_PMD_SOCKET": self.pmd_socket,
            "SDP_PM_PORT": self.pm_port,
            "SDP_PM_NEGATIVE_S": 1,
            "SDP_PM_TIMEOUT_MS": 1500,
            # Loss and a busy machine are no firewall: a port taken for silent would be TCP for a minute.
            "SDP_CONNECT_BUDGET_MS": 10000,
            "SDP_RNIC": "soft",
            "SDP_LOG": "info",
            "SDP_LOG_FILE": self.log_file,
        }
        return ["env", *(f"{name}={value}" for name, value in environment.items())]

    def start(
        self,
        argv,
        preload=True,
        mode=None,
        stdin=subprocess.DEVNULL,
        stdout=None,
        pass_fds=(),
        user=None,
        directory=None,
        kept=True,
    ):
        """As World's. Its wrappers run without the library, and exec. `kept`: its log is, and it ends with
        the host."""
        mode = mode or (USUAL if preload else PLAIN)
        user = user if isinstance(user, str) and os.geteuid() == 0 else None
        argv = [str(word) for word in argv]
        argv[0] = find(argv[0]) or argv[0]
        log = self.directory / f"{next(self.numbers):05}-{pathlib.Path(argv[0]).name}.log"
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []
        with open(log, "wb") as out:
            popen = subprocess.Popen(
                [
                    *self.inside(),
                    *mode.clock_wrapper(),
                    *become,
                    *(str(word) for word in self.settings(mode, user)),
                    *argv,
                ],
                env=self.environment(preload=False),
                cwd=directory or self.directory,
                stdin=stdin,
                stdout=out if stdout is None else stdout,
                stderr=out,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        process = Process(popen, log)
        process.twin = "sdp" if mode.preload or argv[0] == str(sdp_world.PMD) else "tcp"
        process.program = pathlib.Path(argv[0]).name
        process.lines_read = 0
        if kept:
            self.processes.append(process)
        return process

    def examine(self, process):
        """What its end and its log tell of a crash."""
        by = -(process.popen.poll() or 0)
        lines = judge.crash_lines(process.output())
        what = [f"signal {by}"] if by in judge.CRASHES else []
        what += lines[process.lines_read :]
        process.lines_read = len(lines)
        for one in what:
            text = f"{process.program} on host {self.name}, over {process.twin.upper()}: {one}"
            self.crashes.append(judge.Crash(time.monotonic(), process.program, process.twin, text))

    def forget(self, process):
        """One that has ended, of which there are many."""
        self.examine(process)
        with contextlib.suppress(ValueError):
            self.processes.remove(process)
        with contextlib.suppress(OSError):
            process.log.unlink()

    def sdpstat(self):
        """One object for the directories of both users."""
        both = {"processes": [], "ended": []}
        for directory in (self.stats_dirs["root"], self.stats_dirs["postgres"]):
            output = subprocess.run(
                [sdp_world.SDPSTAT, "--json", "--dir", directory], check=True, capture_output=True, timeout=60
            )
            one = json.loads(output.stdout)
            both["processes"] += one["processes"]
            both["ended"] += one["ended"]
        return both

    def tcp_rows(self):
        """(local port, state) of each row of the host's TCP table."""
        rows = []
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                lines = (
                    pathlib.Path(f"/proc/{self.holder or 'self'}/net/{table}").read_text().splitlines()[1:]
                )
                rows += [
                    (int(fields[1].rsplit(":", 1)[1], 16), fields[3]) for fields in map(str.split, lines)
                ]
        return rows

    def tcp_listens(self, port):
        return (port, "0A") in self.tcp_rows()

    def free_port(self):
        return next(self.fallback_ports) if self.holder is not None else sdp_world.free_port()

    def stop(self):
        for process in self.processes:
            kill_tree(process.pid)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(5)


def make_namespaces():
    """Two holders, and a wire between their namespaces: ((pid, address, device), ...)."""
    ours = os.readlink("/proc/self/ns/net")

    def holder():
        popen = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(lambda: os.readlink(f"/proc/{popen.pid}/ns/net") != ours, "network namespace", 10)
        return popen.pid

    ends = [(holder(), f"10.77.0.{number}", f"soak{number}") for number in (1, 2)]
    subprocess.run(["ip", "link", "add", "soak1", "type", "veth", "peer", "name", "soak2"], check=True)
    for pid, address, device in ends:
        subprocess.run(["ip", "link", "set", device, "netns", str(pid)], check=True)
        for words in (
            ["ip", "addr", "add", f"{address}/24", "dev", device],
            ["ip", "link", "set", device, "up"],
            ["ip", "link", "set", "lo", "up"],
            # Behind a loss bbr may take half a minute for what others do in four seconds. A namespace may
            # always have reno, and cubic only where the host allows it.
            ["sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"],
            # A reset by a filter comes to its sender alone. Who only waits hears of it by keepalive.
            [
                "sysctl",
                "-qw",
                *(f"net.ipv4.tcp_keepalive_{name}={value}" for name, value in KEEPALIVE.items()),
            ],
        ):
            subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "--", *words], check=True)
    return ends


def abilities(namespaces):
    """What this machine allows of what faults need; a dictionary of the reasons why not."""
    lacks = {}
    if not namespaces:
        lacks["namespaces"] = "no network namespaces here"
        lacks["nft"] = "no network namespaces here"
    else:
        rules = (
            "table inet soak { chain input { type filter hook input priority 0 ; "
            "numgen random mod 100 < 5 drop ; } ; }\n"
        )
        if find("nft") is None:
            lacks["nft"] = "nft is not installed"
        elif (
            check := subprocess.run(
                ["unshare", "--net", "nft", "-f", "-"], input=rules, text=True, capture_output=True
            )
        ).returncode != 0:
            lacks["nft"] = f"nft: {check.stderr.strip().splitlines()[0]}"
    check = subprocess.run(
        ["unshare", "--time", "--monotonic", "10", "--fork", "true"], capture_output=True, text=True
    )
    if check.returncode != 0:
        lacks["time"] = f"no time namespaces here: {check.stderr.strip()}"
    return lacks


class Lateness:
    """How late this process was to run: what the machine kept everything waiting."""

    def __init__(self):
        self.late = []  # (when, seconds)

    def run(self, stopping):
        before = time.monotonic()
        while not stopping.wait(0.05):
            now = time.monotonic()
            if now - before > 0.15:
                self.late.append((now, now - before - 0.05))
            before = now

    def between(self, begin, end):
        return judge.late_between(self.late, begin, end)
