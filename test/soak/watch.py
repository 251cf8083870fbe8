"""Looks at all processes from time to time: memory and descriptors, deaths, and what sdpstat and the log say
of who is TCP."""

import collections
import pathlib
import re
import threading
import time

import judge
from hosts import children_now, memory_and_descriptors, trees

PERIOD = 2.0
WRAPPERS = "nsenter", "unshare", "setpriv", "env"  # what Host.start begins with


class Watch:
    def __init__(self, hosts, pairs, findings):
        self.hosts, self.pairs, self.findings = hosts, pairs, findings
        self.lock = threading.Lock()
        self.lives = {}  # (pid, start): Life
        self.read = {host: 0 for host in hosts}  # of their logs
        self.fallbacks = []  # (when, port, reason)
        self.lines = []  # (when, line): errors in the log
        self.seen = {}  # (pid, port): (accepted over SDP, over TCP)
        self.closed = {}  # (host, pid): connections over SDP that are over
        self.accepted = collections.defaultdict(lambda: [0, 0])  # port: the sums of those
        self.open = {}  # port: connections over SDP now, at the server
        self.links = {}  # (host, pid, start, opened): (first seen, port, "local" or "tcp", why it is TCP)
        self.dead = []  # (when, server)

    def run(self, stopping, broken):
        while not stopping.wait(PERIOD):
            try:
                self.look()
            except Exception as error:  # sdpstat, above all, may fail: that is a finding
                broken(f"the watch: {type(error).__name__}: {error}")

    def look(self):
        self.sample_processes()
        self.sample_all_statistics()
        for host in self.hosts:
            self.read_log(host)
        for pair in self.pairs:
            for server in pair.servers:
                self.look_after(pair, server)

    def sample_all_statistics(self):
        for host in self.hosts:
            self.sample_statistics(host)

    def look_after(self, pair, server):
        process = server.process
        if server.touched or process is None or process.running():
            return
        time.sleep(0.2)
        if server.touched or server.process is not process:
            return
        self.dead.append(
            (
                time.monotonic(),
                server,
                f"ended with {process.popen.returncode}: {' '.join(process.output()[-300:].split())}",
            )
        )
        server.start()

    def sample_processes(self):
        now = time.monotonic()
        rows = [(f"sdp-pmd on host {host.name}", "sdp", [host.pmd.pid]) for host in self.hosts]
        for pair in self.pairs:
            clients = "client" if pair.servers else "ends"
            for name, parts in ("server", pair.servers), (clients, pair.clients):
                rows += [(f"{pair.workload} {name}", pair.twin, part.roots()) for part in parts]
        children = children_now()
        for name, twin, roots in rows:
            for pid in trees(roots, children):
                found = memory_and_descriptors(pid)
                try:
                    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
                except OSError:
                    continue
                if found is None or not found[1]:
                    continue
                program = text[text.index("(") + 1 : text.rindex(")")]
                if program not in WRAPPERS:
                    self.take_process(
                        (pid, text.rpartition(")")[2].split()[19]), f"{name}: {program}", twin, (now, *found)
                    )

    def take_process(self, key, name, twin, sample):
        """Where it executes another program its life begins anew."""
        if key not in self.lives or self.lives[key].name != name:
            self.lives[key] = judge.Life(name, twin, [])
        self.lives[key].samples.append(sample)

    def sample_statistics(self, host):
        said = host.sdpstat()
        with self.lock:
            self.take_statistics(host, said)

    def take_statistics(self, host, said):
        opened = collections.Counter()
        for process in said["processes"]:
            self.closed[host.name, process["pid"]] = process["closed"]["connections_closed"]
            for listener in process["listeners"]:
                port = int(listener["local"].rsplit(":", 1)[1])
                key = host.name, process["pid"], process["start_time"], port
                before = self.seen.get(key, (0, 0))
                self.seen[key] = listener["accepted_sdp"], listener["accepted_tcp"]
                for which in 0, 1:
                    self.accepted[port][which] += max(0, self.seen[key][which] - before[which])
            for connection in process["connections"]:
                if connection["state"] not in ("tcp", "none", "failed"):
                    port = int(connection["local"].rsplit(":", 1)[1])
                    opened[port] += 1
                    if connection["role"] == "accepting" and connection["link"]:
                        key = host.name, process["pid"], process["start_time"], connection["opened_at_ns"]
                        link = connection["link"], connection["reason_text"]
                        since = self.links[key][0] if key in self.links else time.monotonic()
                        self.links[key] = since, port, *link
        for port in {*opened, *(port for at, port in self.open if at == host.name)}:
            self.open[host.name, port] = opened[port]

    def read_log(self, host):
        with open(host.log_file, "rb") as file:
            file.seek(self.read[host])
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self.read[host] += len(whole)
        text = whole.decode(errors="replace")
        self.lines += [(time.monotonic(), line) for line in judge.error_lines(text)]
        for port, reason in re.findall(r"connect to \S+:(\d+): TCP, because (\S+)", text):
            self.fallbacks.append((time.monotonic(), int(port), reason.rstrip(":,")))

    def links_of(self, pair, since=float("-inf")):
        """[(link, why it is TCP)] of its servers' connections over SDP that were first seen behind `since`.

        Who comes and goes between two looks is not seen."""
        ports = {server.port for server in pair.servers} or {pair.port}
        with self.lock:
            return [
                (link, why) for when, port, link, why in self.links.values() if port in ports and when > since
            ]

    def of_pair(self, pair):
        """(accepted over SDP, over TCP, open over SDP, closed over SDP) at its servers, for its ports."""
        ports = {server.port for server in pair.servers} or {pair.port}
        with self.lock:
            return (
                *(sum(self.accepted[port][which] for port in ports) for which in (0, 1)),
                sum(count for (_, port), count in self.open.items() if port in ports),
                sum(
                    self.closed.get((server.host.name, pid), 0)
                    for server in pair.servers
                    for pid in server.processes()
                ),
            )
