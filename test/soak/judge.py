"""What is accepted and what is not. Values in, findings out: no clock, no process."""

import bisect
import dataclasses
import statistics

import plan

BEYOND = 2.0  # seconds that SDP may take beyond TCP
GRACE = 6.0  # seconds after a fault in which an error may still come, by keepalive for one
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
    spans = [(quiet.begin - 1, quiet.end + 1), *((one.began, one.over + 1) for one in alike)]
    beside = [other.length for begin, end in spans for other in tcp.overlapping(quiet.kind, begin, end)]
    return BEYOND + 2 * late + 3 * usual + max([sum(one.lasted() for one in here), *beside])


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
    return [
        (when, what, since)
        for when, what, since in told
        if not any(one.began - 0.2 <= when and since <= one.over + grace for one in breaking)
    ]


def lost(sdp, tcp, workload, happened, late=0.0):
    """SDP's unexplained errors, without those that came to the twin on TCP at about the same time."""
    twins = [when for when, _, _ in unexplained(tcp, workload, happened, GRACE + late)]
    return [
        (when, what)
        for when, what, _ in unexplained(sdp, workload, happened, GRACE + late)
        if not any(abs(when - other) < 10 for other in twins)
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


MEMORY, DESCRIPTORS = 1, 2
MEMORY_ALLOWED = 24 * 1024  # KiB beyond what the twin has grown by: pools, caches, arenas
DESCRIPTORS_ALLOWED = 12
LONG_ENOUGH = 30.0


def leaks(lives):
    """[(life, what, growth, allowed)]. A process on TCP is never one; it says what its program takes."""
    found = []
    for life in lives:
        if life.twin == "tcp" or life.lasted() < LONG_ENOUGH:
            continue
        twins = [
            other
            for other in lives
            if other.twin == "tcp" and other.name == life.name and other.lasted() >= LONG_ENOUGH
        ]
        for which, what, more in (MEMORY, "KiB of memory", MEMORY_ALLOWED), (
            DESCRIPTORS,
            "descriptors",
            DESCRIPTORS_ALLOWED,
        ):
            limit = more + max([0, *(2 * other.growth(which) for other in twins)])
            if life.growth(which) > limit:
                found.append((life, what, life.growth(which), limit))
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
