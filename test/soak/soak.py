"""One run: two hosts, the workloads in twins, the plan's faults one after the other, and the judgement."""

import json
import signal
import threading
import time

import clients
import crashes
import faults
import hosts
import judge
import plan
import report
import sdp_world
import watch
import workloads
from record import Findings
from sdp_world import wait_until

RECORDS = "records.json"
CALM_CHECK = 6.0  # the last seconds, in which all is SDP that can be


class Recorder:
    def __init__(self, findings):
        self.findings = findings

    def wrong(self, stream, text):
        if stream.twin == "sdp":
            self.findings.add("wrong", f"{stream}: {text}")


class Soak:
    def __init__(self, options, directory, namespaces):
        self.options, self.directory = options, directory
        self.screen = report.Screen()
        self.findings = Findings(self.screen.say)
        self.trouble = []  # of the soak's own
        self.plan = plan.make_plan(options.seed, options.minutes)
        self.lacks = hosts.abilities(namespaces)
        self.namespaces = namespaces
        self.stopping = threading.Event()
        self.lateness = hosts.Lateness()
        self.happened = []
        self.pairs = []
        self.threads = []

    def broken(self, text):
        self.trouble.append(text)
        self.screen.say(f"TROUBLE: {text}")

    def set_up(self):
        if self.namespaces:
            ends = hosts.make_namespaces()
        else:
            ends = [(None, "127.0.0.2", "lo"), (None, "127.0.0.3", "lo")]
        self.hosts = {
            name: hosts.Host(name, address, self.options.other_library or sdp_world.LIBRARY, holder, device)
            for name, (holder, address, device) in zip(plan.HOSTS, ends)
        }
        recorder = Recorder(self.findings)
        made = {}

        def make(kind, twin):
            here = plan.HOSTS[list(workloads.KINDS).index(kind) % 2] if kind != "witness" else "a"
            other = (
                next(name for name in plan.HOSTS if name != here)
                if kind == "witness" or kind in self.plan.across
                else here
            )
            pair = (workloads.Witness if kind == "witness" else workloads.KINDS[kind])(
                twin, self.hosts[here], self.hosts[other], recorder
            )
            for server in pair.servers:
                server.start()
            made[kind, twin] = pair

        wanted = [(kind, twin) for kind in (*workloads.KINDS, "witness") for twin in ("sdp", "tcp")]
        faults.in_parallel([lambda kind=kind, twin=twin: make(kind, twin) for kind, twin in wanted])
        self.pairs = [made[key] for key in wanted]
        for pair in self.pairs:
            if pair.twin == "sdp":
                for server in pair.servers:
                    server.host.wait_for_listener(server.port)
        self.watch = watch.Watch(list(self.hosts.values()), self.pairs, self.findings)
        for pair in self.pairs:
            for client in pair.clients:
                client.start()

    def in_background(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        self.threads.append(thread)

    def run_plan(self):
        start = time.monotonic()
        self.start = start
        working = faults.Faults(self.hosts, self.pairs, self.findings)
        running = []

        def one(fault):
            began = time.monotonic()
            try:
                self.happened.append(judge.Happened(fault, *working.run(fault, self.stopping.wait)))
            except Exception as error:
                self.findings.add(
                    "lost", f"behind fault {fault.number}, {fault}: {type(error).__name__}: {error}"
                )
                self.happened.append(judge.Happened(fault, began, time.monotonic()))

        for fault in self.plan.faults:
            reason = self.lacks.get(plan.KINDS[fault.kind].needs)
            while (left := start + fault.at - time.monotonic()) > 0 and not self.stopping.is_set():
                self.stopping.wait(min(left, 0.5))
                self.progress(None)
            if self.stopping.is_set():
                break
            if reason:
                continue
            running = [thread for thread in running if thread.is_alive()]
            self.progress(fault)
            thread = threading.Thread(target=one, args=(fault,), daemon=True)
            thread.start()
            running.append(thread)
        for thread in running:
            thread.join(2 * clients.START_LIMIT)

    def progress(self, fault):
        passed = time.monotonic() - self.start
        if fault:
            self.current = fault
        answers = {
            twin: sum(stream.answers for pair in self.pairs if pair.twin == twin for stream in pair.streams)
            for twin in ("sdp", "tcp")
        }
        current = getattr(self, "current", None)
        self.screen.show(
            f"{passed // 60:.0f}:{passed % 60:04.1f} of "
            f"{self.plan.seconds // 60:.0f}:{self.plan.seconds % 60:02.0f}  "
            f"answers {answers['sdp']} over SDP, {answers['tcp']} over TCP  found {len(self.findings.all)}  "
            + (f"fault {current.number + 1} of {len(self.plan.faults)}: {current}" if current else "")
        )

    def calm(self):
        """Nothing is done any more: all has to be SDP again."""
        end = max(self.start + self.plan.seconds, time.monotonic() + CALM_CHECK + 2)
        begin = end - CALM_CHECK
        before = None
        while time.monotonic() < end and not self.stopping.is_set():
            if before is None and time.monotonic() >= begin:
                self.watch.sample_all_statistics()
                before = {pair: self.watch.of_pair(pair) for pair in self.pairs}
                answers = {pair: sum(stream.answers for stream in pair.streams) for pair in self.pairs}
            self.stopping.wait(0.5)
            self.progress(None)
        if self.stopping.is_set():
            return
        self.watch.sample_all_statistics()  # the watch's last look may be older than these seconds
        late = self.lateness.between(begin, end)
        for pair in self.pairs:
            if pair.twin != "sdp":
                continue
            sdp, tcp, _, closed = (now - then for now, then in zip(self.watch.of_pair(pair), before[pair]))
            ports = {pair.port, *(server.port for server in pair.servers)}
            fell = [reason for when, port, reason in self.watch.fallbacks if when > begin and port in ports]
            if tcp == 0:  # refused, between one server and the next
                fell = [reason for reason in fell if reason != "pm-denied"]
            if late > 1.0:
                fell = [reason for reason in fell if not reason.startswith("pm-")]
                tcp = 0
            if tcp or fell:
                self.findings.add(
                    "fallback",
                    f"{pair}: {tcp} connections were TCP in the last {CALM_CHECK:.0f} s, "
                    f"without a fault; {fell[:5]}",
                )
                continue
            # More answers than streams: one of them, at least, came by a connection that was made meanwhile.
            answered = sum(stream.answers for stream in pair.streams) - answers[pair] > len(pair.streams)
            if answered and pair.servers and not (sdp or closed or self.watch.of_pair(pair)[2]):
                self.findings.add(
                    "fallback", f"{pair}: no connection over SDP in the last {CALM_CHECK:.0f} s"
                )
            if pair.server_host is pair.client_host:
                self.judge_links(pair, begin, late)
        for stream, twin in self.twins():
            silent, of_twin = (time.monotonic() - one.last_answer for one in (stream, twin))
            if silent > 8 + 2 * late + of_twin:
                self.findings.add(
                    "hung", f"{stream}: no answer for the last {silent:.1f} s (TCP: {of_twin:.1f} s)"
                )

    def judge_links(self, pair, begin, late):
        """Within a host all has to be in memory again, and something was at all."""
        links = self.watch.links_of(pair)
        others = [f"{link}: {why}" for link, why in self.watch.links_of(pair, begin) if link != "local"]
        if others and late <= 1.0:
            self.findings.add(
                "fallback",
                f"{pair}: {len(others)} connections within the host had no local link in the last "
                f"{CALM_CHECK:.0f} s, without a fault; {others[:3]}",
            )
        elif links and all(link != "local" for link, _ in links):
            self.findings.add(
                "fallback", f"{pair}: none of {len(links)} connections within the host had a local link"
            )

    def end_clients(self):
        """Then the servers' connections have to go."""
        faults.in_parallel([client.stop for pair in self.pairs for client in pair.clients])

        def left():
            self.watch.sample_all_statistics()
            return {
                str(pair): self.watch.of_pair(pair)[2]
                for pair in self.pairs
                if pair.twin == "sdp" and self.watch.of_pair(pair)[2]
            }

        try:
            wait_until(lambda: not left(), "end of the servers' connections", 25)
        except AssertionError:
            rows = {
                str(pair): sum(
                    port == pair.port and state != "0A" for port, state in pair.server_host.tcp_rows()
                )
                for pair in self.pairs
                if pair.twin == "tcp"
            }
            for pair, count in left().items():
                twins = rows.get(pair.replace("/sdp", "/tcp"), 0)
                if count > twins:
                    self.findings.add(
                        "leaked",
                        f"{pair}: {count} connections of the server are left 25 s after its clients ended "
                        f"(TCP: {twins})",
                    )

    def twins(self):
        """[(stream over SDP, its twin over TCP)]."""
        streams = {
            (stream.workload, stream.number, stream.twin): stream
            for pair in self.pairs
            for stream in pair.streams
        }
        return [
            (stream, streams[workload, number, "tcp"])
            for (workload, number, twin), stream in streams.items()
            if twin == "sdp"
        ]

    def records(self):
        for host in self.hosts.values():
            self.watch.read_log(host)
            for process in host.processes:
                host.examine(process)
        return judge.Records(
            start=self.start,
            end=time.monotonic(),
            happened=self.happened,
            streams=[
                judge.Heard(one.workload, one.twin, one.number, one.answers, one.long, one.told)
                for pair in self.pairs
                for one in pair.streams
            ],
            late=self.lateness.late,
            dead=[
                (when, server.pair.workload, server.pair.twin, str(server), how)
                for when, server, how in self.watch.dead
            ],
            lives=list(self.watch.lives.values()),
            crashes=[crash for host in self.hosts.values() for crash in host.crashes],
            traced=self.crashes.all(),
            lines=self.watch.lines,
            found=list(self.findings.all),
        )

    def judge(self):
        records = self.records()
        (self.directory / RECORDS).write_text(json.dumps(records.as_json()))
        for kind, text in judge.verdict(records):
            self.findings.add(kind, text)

    def write_logs(self):
        with open(self.directory / "plan", "w") as file:
            file.writelines(line + "\n" for line in self.plan.lines())
        with open(self.directory / "events", "w") as file:
            rows = [(one.began, f"fault {one.fault.number} begins: {one.fault}") for one in self.happened]
            rows += [(one.over, f"fault {one.fault.number} is over") for one in self.happened]
            for pair in self.pairs:
                for stream in pair.streams:
                    rows += [(when, f"{stream} told: {what}") for when, what, _ in stream.told]
                    rows += [
                        (begin, f"{stream} {kind} of {end - begin:.2f} s")
                        for begin, end, kind in stream.long
                        if end - begin > 1
                    ]
            rows += [
                (when, f"fell back: port {port}, {reason}") for when, port, reason in self.watch.fallbacks
            ]
            rows += [(when, f"{server}: {how}") for when, server, how in self.watch.dead]
            rows += [(when, f"the machine was {late:.2f} s late") for when, late in self.lateness.late]
            file.writelines(f"{when - self.start:9.2f} {text}\n" for when, text in sorted(rows))
            file.writelines(
                f"port {server.port}: {server}\n" for pair in self.pairs for server in pair.servers
            )

    def write_report(self):
        say = self.screen.say
        say()
        for lines in (
            report.workload_lines(self.pairs, self.watch),
            report.fault_lines(self.happened, self.pairs),
            report.process_lines(self.watch.lives.values(), self.start),
        ):
            for line in lines:
                say(line)
            say()
        with open(self.directory / "processes", "w") as file:
            lines = report.life_lines(self.watch.lives.values(), self.start)
            file.writelines(line + "\n" for line in lines)
        for need, reason in sorted(self.lacks.items()):
            kinds = [kind.name for kind in plan.KINDS.values() if kind.needs == need]
            say(f"skipped in part: {', '.join(kinds)}: {reason}")
        if self.options.other_library:
            say(f"upgrades were to {self.options.other_library}")
        else:
            say(f"skipped in part: server-upgraded, client-upgraded: to a copy: {hosts.NO_OTHER_LIBRARY}")
        if self.crashes.reason:
            say(f"skipped in part: crashes of processes that their server replaces: {self.crashes.reason}")
        late = sum(seconds for _, seconds in self.lateness.late)
        say(f"{len(self.happened)} faults; the machine kept this program waiting for {late:.1f} s in all")

    def run(self):
        """The exit status."""
        self.screen.say(
            f"seed {self.plan.seed}, {self.options.minutes:g} minutes, {len(self.plan.faults)} faults; "
            f"logs in {self.directory}"
        )
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGINT, lambda *_: self.stopping.set())
        self.crashes = crashes.Crashes(self.namespaces)
        try:
            return self.run_traced()
        finally:
            self.crashes.end()

    def run_traced(self):
        self.in_background(self.lateness.run, self.stopping)
        self.set_up()
        self.in_background(self.watch.run, self.stopping, self.broken)
        self.run_plan()
        self.calm()
        broken_off = self.stopping.is_set()
        if not broken_off:
            self.end_clients()
        self.stopping.set()
        self.judge()
        self.write_logs()
        self.write_report()
        for host in self.hosts.values():
            host.stop()
        if broken_off:
            self.screen.say("broken off")
            return 130
        if self.findings.all or self.trouble:
            self.screen.say(
                f"FAILED: found {len(self.findings.all)}, with seed {self.plan.seed}; "
                f"logs in {self.directory}"
            )
            for kind, text in self.findings.all:
                self.screen.say(f"  {kind}: {text}")
            return 1
        self.screen.say("nothing wrong, lost, hung, leaked, broken or crashed")
        return 0


def judge_anew(directory):
    """Of a run whose records were kept; the exit status."""
    records = judge.Records.from_json(json.loads((directory / RECORDS).read_text()))
    found = [*records.found, *judge.verdict(records)]
    for kind, text in found:
        print(f"{kind}: {text}")
    print(f"found {len(found)}")
    return 1 if found else 0
