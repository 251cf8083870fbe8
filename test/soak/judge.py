"""What is accepted and what is not. Values in, findings out: no clock, no process."""

import bisect
import dataclasses
import re
import signal
import statistics

import plan

BEYOND = 2.0  # seconds that SDP may take beyond TCP
GRACE = 6.0  # seconds after a fault in which an error may still come, by keepalive for one
FROM_AFAR = 5.0  # seconds that TCP's silence in another fault of that kind excuses at most
AT_MOST = 20.0  # seconds that TCP's silence in the same fault excuses at most
CRASHES = frozenset(
    (4, 5, 6, 7, 8, 11, 31)
)  # signals that come of a mistake: ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS
UNTOLD = f"the server has not ended within {BEYOND:.0f} s behind the client"
LEAVES_UNTOLD = ("reset",)  # faults in which one end hears of the connection's end, and the other does not
KEEPALIVE_IDLE = 3.0  # seconds until the other one asks; a reset answers
SLOW_ROUTE = ("loss", "reset", "address-gone")  # TCP's next try comes as late again as the fault has lasted


@dataclasses.dataclass
class Happened:
    """A fault, and when it was, by the run's clock."""

    fault: plan.Fault
    began: float
    over: float

    def overlaps(self, begin, end, behind=1.0):
        return self.began < end and self.over + behind > begin

    def lasted(self):
        return (self.over - self.began) * (2 if self.fault.kind in SLOW_ROUTE else 1)


@dataclasses.dataclass(frozen=True)
class Quiet:
    """A client heard nothing ("silence"), or nothing but errors ("famine"), from `begin` to `end`."""

    begin: float
    end: float
    kind: str

    @property
    def length(self):
        return self.end - self.begin


class Quiets:
    """A stream's, for look-ups: those of one kind follow one another."""

    def __init__(self, quiets):
        self.by_kind = {
            kind: [quiet for quiet in quiets if quiet.kind == kind] for kind in ("silence", "famine")
        }
        self.ends = {kind: [quiet.end for quiet in of_kind] for kind, of_kind in self.by_kind.items()}

    def overlapping(self, kind, begin, end):
        of_kind = self.by_kind[kind]
        for at in range(bisect.bisect_right(self.ends[kind], begin), len(of_kind)):
            if of_kind[at].begin >= end:
                return
            yield of_kind[at]


def concerned(happened, workload, begin, end):
    return [one for one in happened if one.fault.concerns(workload) and one.overlaps(begin, end)]


def allowed(quiet, workload, tcp, happened, usual, late):
    """How long SDP's may be. `tcp`: the twin's; `usual`: seconds from answer to answer; `late`: what the
    machine kept all waiting."""
    here = concerned(happened, workload, quiet.begin, quiet.end)
    kinds = {one.fault.kind for one in here}
    alike = [one for one in happened if one.fault.kind in kinds and one.fault.concerns(workload)]

    def most(spans):
        return max(
            (other.length for begin, end in spans for other in tcp.overlapping(quiet.kind, begin, end)),
            default=0.0,
        )

    beside = most([(quiet.begin - 1, quiet.end + 1), *((one.began, one.over + 1) for one in here)])
    afar = most((one.began, one.over + 1) for one in alike)
    untold = KEEPALIVE_IDLE if kinds.intersection(LEAVES_UNTOLD) else 0.0
    excuse = max(sum(one.lasted() for one in here) + untold, min(AT_MOST, beside), min(FROM_AFAR, afar))
    return BEYOND + 2 * late + 3 * usual + excuse


def hung(sdp, workload, tcp, happened, usual, late_between):
    """[(quiet, allowed)] of those that lasted too long."""
    found, tcp = [], Quiets(tcp)
    for quiet in sdp:
        if quiet.length > BEYOND:
            limit = allowed(quiet, workload, tcp, happened, usual, late_between(quiet.begin, quiet.end))
            if quiet.length > limit:
                found.append((quiet, limit))
    return found


def unexplained(told, workload, happened, grace=GRACE):
    """Errors that no fault explains: [(when, what, since)]. What was under way may be told long after the
    fault."""
    breaking = [one for one in happened if plan.KINDS[one.fault.kind].breaks and one.fault.concerns(workload)]
    leaves_untold = [one for one in breaking if one.fault.kind in LEAVES_UNTOLD]
    return [
        (when, what, since)
        for when, what, since in told
        if not any(
            one.began - 0.2 <= when and since <= one.over + grace
            for one in (leaves_untold if UNTOLD in what else breaking)
        )
    ]


def lacked_address(when, how, happened):
    """A server that listens anew for each client ends where its address is gone just then, on TCP as well."""
    return "Cannot assign requested address" in how and any(
        one.fault.kind == "address-gone" and one.began <= when <= one.over + GRACE for one in happened
    )


def tells_of_crash(text):
    """A program's end by a signal of CRASHES, as subprocess and as shells count it."""
    return any(-int(status) in CRASHES or int(status) - 128 in CRASHES for status in STATUS.findall(text))


def lost(sdp, tcp, workload, happened, late=0.0):
    """SDP's unexplained errors, and all crashes, but for those short of memory that TCP had, too.

    An error that came to the twin on TCP at about the same time explains one of SDP's."""
    short = [one for one in happened if one.fault.kind in plan.LITTLE_MEMORY and one.fault.concerns(workload)]

    def in_both(when):
        return any(
            one.began <= min(when, other) and max(when, other) <= one.over + GRACE
            for one in short
            for other, what, _ in tcp
            if tells_of_crash(what)
        )

    found = [(when, what) for when, what, _ in sdp if tells_of_crash(what) and not in_both(when)]
    twins = [when for when, _, _ in unexplained(tcp, workload, happened, GRACE + late)]
    for when, what, _ in unexplained(sdp, workload, happened, GRACE + late):
        if tells_of_crash(what):
            continue
        beside = [other for other in twins if abs(when - other) < 10]
        if beside:
            twins.remove(min(beside, key=lambda other: abs(when - other)))
        else:
            found.append((when, what))
    return sorted(found)


@dataclasses.dataclass(frozen=True)
class Crash:
    """`twin`: "sdp" or "tcp"; None where it is not known."""

    when: float
    program: str
    twin: str | None
    what: str


def killed_by_own_filter(crash, happened):
    """sshd sleeps a few milliseconds behind its seccomp filter, which forbids restart_syscall. Stopped in
    that sleep it is killed by SIGSYS when it goes on, on TCP as well."""
    return (
        crash.program == "sshd"
        and crash.what.endswith(f"died by signal {int(signal.SIGSYS)}")
        and any(
            one.fault.kind in plan.STOPS and one.fault.target == "ssh" and abs(crash.when - one.over) < 1
            for one in happened
        )
    )


def crashed(crashes, happened):
    """Those of SDP, or of which that is not known.

    Short of memory a program may end itself so: then it does so on TCP, too, in the same fault."""
    short = [one for one in happened if one.fault.kind in plan.LITTLE_MEMORY]

    def excused(crash):
        return any(
            one.began <= min(crash.when, other.when) and max(crash.when, other.when) <= one.over + GRACE
            for one in short
            for other in crashes
            if other is not crash and other.program == crash.program and other.twin != "sdp"
        )

    return [
        crash
        for crash in crashes
        if crash.twin != "tcp" and not excused(crash) and not killed_by_own_filter(crash, happened)
    ]


STATUS = re.compile(r"ended with (-?\d+)")
# What programs, their masters, their shells and the C library say of a crash; CheckFailed; sanitizers.
CRASH_LINE = re.compile(
    r"broken invariant|(?:signal:? (?:4|5|6|7|8|11|31)\b)"
    r"|Segmentation fault|Illegal instruction|Bus error|\bAborted\b"
    r"|stack smashing|double free|corrupted (?:size|double|unsorted|top)|(?:free|malloc|realloc)\(\): "
    r"|Assertion .* failed|terminate called|Fatal Python error|Sanitizer: "
)
# What the library says of a peer that broke the protocol, and of bytes and sockets that it lost.
ERROR_LINE = re.compile(
    r"aborted: (?!link-lost|peer-aborted|local|none)\S+"
    r"|is(?: not|n't) understood|last bytes are lost|pretends to be SDP"
)


def crash_lines(text):
    return [line.strip() for line in text.splitlines() if CRASH_LINE.search(line)]


def error_lines(text):
    return [line.strip() for line in text.splitlines() if ERROR_LINE.search(line) or CRASH_LINE.search(line)]


def broken(lines, happened):
    """[(when, line)] of the library's log that tell of a mistake.

    Without a descriptor or memory, bytes may be lost."""
    kinds = *plan.FEW_DESCRIPTORS, *plan.LITTLE_MEMORY
    short = [one for one in happened if one.fault.kind in kinds]
    return [
        (when, line)
        for when, line in lines
        if "last bytes are lost" not in line
        or not any(one.began <= when <= one.over + GRACE for one in short)
    ]


@dataclasses.dataclass
class Life:
    """A process's memory (KiB) and descriptors from time to time: [(when, memory, descriptors)]."""

    name: str
    twin: str
    samples: list

    def ends(self, which):
        """(highest of the first samples, lowest of the last): what connections come and go does not count."""
        values = [sample[which] for sample in self.samples]
        few = max(1, min(3, len(values) // 2))
        return max(values[:few]), min(values[-few:])

    def growth(self, which):
        first, last = self.ends(which)
        return last - first

    def lasted(self):
        return self.samples[-1][0] - self.samples[0][0]

    def without_beginning(self, seconds):
        begin = self.samples[0][0] + seconds
        return Life(self.name, self.twin, [sample for sample in self.samples if sample[0] >= begin])

    def settled(self):
        """The life without its beginning, in which pools and caches fill."""
        return self.without_beginning(SETTLING)

    def rise(self, which):
        """(growth from the first third's least to the last third's, seconds between these)."""
        third = len(self.samples) // 3
        first, last = (self.samples[:third], self.samples[-third:]) if third else ([], [])
        if not first:
            return 0, 0.0
        seconds = (last[0][0] + last[-1][0] - first[0][0] - first[-1][0]) / 2
        return min(sample[which] for sample in last) - min(sample[which] for sample in first), seconds


MEMORY, DESCRIPTORS = 1, 2
ONCE = {
    MEMORY: 24 * 1024,
    DESCRIPTORS: 12,
}  # beyond what the twin has grown by, in FULL_ALLOWANCE seconds or more
A_MINUTE = {
    MEMORY: 2 * 1024,
    DESCRIPTORS: 2,
}  # of all lives of a name together, which servers' restarts do not hide
WHAT = {MEMORY: "KiB of memory", DESCRIPTORS: "descriptors"}
YOUNG = 4.0  # seconds until a process has what it needs
LONG_ENOUGH = 30.0  # seconds behind these
SETTLING = 10.0
TOGETHER = 120.0  # seconds of settled lives from which on their rate is judged
FULL_ALLOWANCE = 90.0  # seconds of a life; a shorter one may grow by less


def rate(lives, which):
    """(growth a minute, seconds) of all lives together."""
    rises = [life.settled().rise(which) for life in lives]
    seconds = sum(seconds for _, seconds in rises)
    return sum(growth for growth, _ in rises) * 60 / max(seconds, 1.0), seconds


def leaks(lives):
    """[(who, what, growth, allowed)]. A process on TCP is never one; it says what its program takes."""
    found = []
    by_name = {}
    for life in lives:
        if life.lasted() >= LONG_ENOUGH:
            by_name.setdefault(life.name, {"sdp": [], "tcp": []})[life.twin].append(life)
    for name, of_twin in by_name.items():
        for which, what in WHAT.items():
            for life in of_twin["sdp"]:
                limit = ONCE[which] * min(1.0, life.lasted() / FULL_ALLOWANCE)
                limit += max([0, *(2 * other.growth(which) for other in of_twin["tcp"])])
                if life.growth(which) > limit:
                    found.append((f"{name} in {life.lasted():.0f} s", what, life.growth(which), limit))
            growth, seconds = rate(of_twin["sdp"], which)
            limit = A_MINUTE[which] + max(0.0, 2 * rate(of_twin["tcp"], which)[0])
            if seconds >= TOGETHER and growth > limit:
                found.append((f"{name}, all together, in {seconds:.0f} s", f"{what} a minute", growth, limit))
    return found


def costs(happened, streams):
    """{kind: {twin: {silence or famine: [seconds]}}}: what each fault cost those whom it concerned, from its
    beginning on."""
    table = {}
    streams = [(stream, Quiets(quiets)) for stream, quiets in streams]
    for one in happened:
        row = table.setdefault(one.fault.kind, {})
        for stream, quiets in streams:
            if not one.fault.concerns(stream.workload):
                continue
            for kind in ("silence", "famine"):
                # A famine without errors in it is a silence: it is in both.
                found = [
                    quiet.end - max(quiet.begin, one.began)
                    for of_kind in {kind, "silence"}
                    for quiet in quiets.overlapping(of_kind, one.began, one.over)
                ]
                row.setdefault(stream.twin, {}).setdefault(kind, []).append(max(found, default=0.0))
    return table


def middle_and_most(seconds):
    return (statistics.median(seconds), max(seconds)) if seconds else (0.0, 0.0)


def late_between(late, begin, end):
    """Of [(when, seconds)]: what the machine kept all waiting."""
    return sum(seconds for at, seconds in late if begin <= at <= end + 0.5)


def most_late(late):
    """Of any ten seconds."""
    return max((late_between(late, at, at + 10) for at, _ in late), default=0.0)


@dataclasses.dataclass
class Heard:
    """What a stream of a client heard: see record.Stream."""

    workload: str
    twin: str
    number: int
    answers: int
    long: list
    told: list

    def __str__(self):
        return f"{self.workload}/{self.twin} {self.number}"


@dataclasses.dataclass
class Records:
    """All that a run is judged by when it is over. Times are of one clock, on which it began at `start`."""

    start: float
    end: float
    happened: list
    streams: list
    late: list
    dead: list  # (when, workload, twin, server, how it ended)
    lives: list
    crashes: list
    traced: list  # crashes that the kernel told of
    lines: list  # (when, line) of the library's log, as error_lines picks them
    found: list  # (kind, text): what was found while it ran

    def as_json(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value):
        made = cls(**value)
        made.happened = [Happened(**{**one, "fault": plan.Fault(**one["fault"])}) for one in made.happened]
        for name, type_ in ("streams", Heard), ("lives", Life), ("crashes", Crash), ("traced", Crash):
            setattr(made, name, [type_(**one) for one in getattr(made, name)])
        return made


def verdict(records):
    """Yields (kind, text) for all that is not accepted."""
    happened, start = records.happened, records.start
    streams = {(one.workload, one.number, one.twin): one for one in records.streams}
    killed = [crash.when for crash in records.traced if killed_by_own_filter(crash, happened)]
    for stream in records.streams:
        if stream.twin != "sdp":
            continue
        twin = streams[stream.workload, stream.number, "tcp"]
        mine, others = ([Quiet(*long) for long in one.long] for one in (stream, twin))
        usual = (records.end - start) / max(1, twin.answers)
        for quiet, limit in hung(
            mine, stream.workload, others, happened, usual, lambda *span: late_between(records.late, *span)
        ):
            here = [one.fault.number for one in concerned(happened, stream.workload, quiet.begin, quiet.end)]
            yield "hung", (
                f"{stream}: {quiet.kind} of {quiet.length:.1f} s (accepted: {limit:.1f}) "
                f"from {quiet.begin - start:.1f} s on, faults {here}"
            )
        # iperf3's, which serves one client at a time
        told = [one for one in stream.told if "server is busy" not in one[1]]
        if stream.workload == "ssh":
            told = [one for one in told if not any(abs(one[0] - when) < 1 for when in killed)]
        for when, what in lost(told, twin.told, stream.workload, happened, most_late(records.late)):
            why = "a crash" if tells_of_crash(what) else "which no fault explains"
            yield "lost", f"{stream}: {what} at {when - start:.1f} s, {why}"
    for when, workload, twin, server, how in records.dead:
        beside = any(
            other == workload and other_twin == "tcp" and abs(then - when) < 10
            for then, other, other_twin, _, _ in records.dead
        )
        if twin == "sdp" and (tells_of_crash(how) or not (beside or lacked_address(when, how, happened))):
            yield "lost", f"{server} ended by itself at {when - start:.1f} s: {how}"
    for crashes in records.crashes, records.traced:
        for crash in crashed(crashes, happened):
            yield "crashed", f"{crash.what}, at {crash.when - start:.1f} s"
    for when, line in broken(records.lines, happened):
        yield "broken", f"{line}, at {when - start:.1f} s"
    grown = [life.without_beginning(YOUNG) for life in records.lives]
    for who, what, growth, limit in leaks([life for life in grown if life.samples]):
        yield "leaked", f"{who}: {growth:.1f} {what} more (accepted: {limit:.1f})"
