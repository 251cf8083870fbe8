"""What is done to the workloads, and when: a value made of a seed, so that a seed names a run."""

import dataclasses
import random

WORKLOADS = ("redis", "nginx", "postgres", "iperf3", "ssh", "rsync", "netcat", "echo", "memcached", "haproxy")
HOSTS = ("a", "b")
CALM = 12.0  # seconds without faults at the end, in which everything has to work again
LEAD = 4.0  # seconds without faults at the beginning
SERVERS = tuple(name for name in WORKLOADS if name != "netcat")  # netcat's server lives for one transfer
WITH_WORKERS = ("nginx", "postgres", "ssh", "rsync", "echo", "haproxy")
WITH_ACCEPTING_WORKERS = ("nginx", "echo")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of fault. `of`: the workloads it may hit, or "host" or "link". `breaks`: programs may be told of
    an error."""

    name: str
    of: tuple | str
    seconds: tuple
    breaks: bool = False
    restarts: bool = False  # ends a server, and starts it again
    needs: str = ""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("server-killed", SERVERS, (0.1, 1.5), breaks=True, restarts=True),
        Kind("worker-killed", WITH_WORKERS, (0.1, 0.5), breaks=True),
        Kind("client-killed", WORKLOADS, (0.1, 1.0), breaks=True),
        Kind("server-stopped", SERVERS, (0.3, 3.0)),
        Kind("worker-stopped", WITH_WORKERS, (0.3, 3.0)),
        Kind("client-stopped", WORKLOADS, (0.3, 3.0)),
        Kind("pmd-ended", "host", (0.5, 3.0)),
        Kind("pmd-killed", "host", (0.2, 3.0)),
        Kind("pmd-stopped", "host", (0.5, 3.0)),
        Kind("address-gone", "host", (0.3, 2.5), breaks=True, needs="namespaces"),
        Kind("loss", "link", (1.0, 4.0), needs="nft"),
        Kind("reset", "link", (0.1, 0.4), breaks=True, needs="nft"),
        Kind("few-descriptors", SERVERS, (0.5, 2.0), breaks=True),
        Kind("little-memory", SERVERS, (0.5, 2.0), breaks=True),
        Kind("client-few-descriptors", WORKLOADS, (0.5, 2.0), breaks=True),
        Kind("client-little-memory", WORKLOADS, (0.5, 2.0), breaks=True),
        Kind("server-plain", SERVERS, (2.0, 4.0), breaks=True, restarts=True),
        Kind("client-plain", WORKLOADS, (2.0, 4.0), breaks=True),
        Kind("server-upgraded", SERVERS, (2.0, 4.0), breaks=True, restarts=True),
        Kind("client-upgraded", WORKLOADS, (2.0, 4.0), breaks=True),
        Kind("server-clock", SERVERS, (2.0, 4.0), breaks=True, restarts=True, needs="time"),
        Kind("client-clock", WORKLOADS, (2.0, 4.0), breaks=True, needs="time"),
        Kind("statistics-full", "host", (1.0, 4.0), needs="namespaces"),
        Kind("forks", ("echo",), (0.5, 1.0)),
    )
}
# May come while another one lasts: those that start nothing which would last differently because of the
# first.
BESIDE = ("server-stopped", "worker-stopped", "client-stopped", "client-killed", "loss", "forks")
STOPS = "server-stopped", "worker-stopped"
FEW_DESCRIPTORS = "few-descriptors", "client-few-descriptors"
LITTLE_MEMORY = "little-memory", "client-little-memory"
CLOCKS = (30, 86_400, 400 * 86_400, -1)  # seconds forward; -1: back, by most of what the clock shows


@dataclasses.dataclass(frozen=True)
class Fault:
    """`at`, `seconds`: from the plan's beginning. `amount`: per cent, descriptors, MiB or seconds. `pick`:
    which of several, from 0 to 1."""

    number: int
    at: float
    seconds: float
    kind: str
    target: str
    amount: int
    pick: float

    @property
    def end(self):
        return self.at + self.seconds

    def concerns(self, workload):
        return self.target not in WORKLOADS or self.target == workload

    def __str__(self):
        amount = {
            "loss": f" {self.amount} %",
            **dict.fromkeys(LITTLE_MEMORY, f" {self.amount} MiB more"),
            **dict.fromkeys(FEW_DESCRIPTORS, f" {self.amount} more"),
        }
        if self.kind.endswith("-clock"):
            amount[self.kind] = " back" if self.amount < 0 else f" {self.amount} s ahead"
        return f"{self.kind}{amount.get(self.kind, '')} ({self.target}, {self.seconds:.1f} s)"


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float
    faults: tuple
    across: frozenset  # workloads whose ends are on two hosts; the others' are on one

    def lines(self):
        yield f"seed {self.seed}, {self.seconds:.0f} s, across: {', '.join(sorted(self.across))}"
        for fault in self.faults:
            yield f"{fault.at:8.2f}  {fault.number:4}  {fault}"


def amount_of(kind, draw):
    if kind == "loss":
        return draw.randint(1, 30)
    if kind in LITTLE_MEMORY:
        return draw.choice((0, 1, 4, 16))
    if kind in FEW_DESCRIPTORS:
        return draw.randint(0, 3)
    if kind.endswith("-clock"):
        return draw.choice(CLOCKS)
    return 0


def make_plan(seed, minutes):
    """Each kind comes once in every round, in an order of its own; with some of them comes a second one,
    elsewhere."""
    draw = random.Random(seed)
    seconds = minutes * 60.0
    across = frozenset(draw.sample(WORKLOADS, 6))
    faults, at, bag, targets = [], LEAD, [], {}

    def target_of(kind, beside=None):
        if kind.of == "host":
            return f"host {draw.choice(HOSTS)}"
        if kind.of == "link":
            return draw.choice(("link", *(f"inside {host}" for host in HOSTS)))
        left = targets.setdefault(kind.name, [])  # each workload once a round, too
        if not left:
            left.extend(draw.sample(kind.of, len(kind.of)))
        if left[-1] == beside and len(left) > 1:
            left[-1], left[0] = left[0], left[-1]
        return left.pop()

    def add(kind, at, beside=None):
        lasts = draw.uniform(*kind.seconds)
        faults.append(
            Fault(
                len(faults),
                round(at, 3),
                round(lasts, 3),
                kind.name,
                target_of(kind, beside),
                amount_of(kind.name, draw),
                round(draw.random(), 6),
            )
        )
        return faults[-1]

    while True:
        if not bag:
            bag = draw.sample(list(KINDS), len(KINDS))
        kind = KINDS[bag[-1]]
        if at + kind.seconds[1] + CALM > seconds:
            return Plan(seed, seconds, tuple(faults), across)
        bag.pop()
        first = add(kind, at)
        end = first.end
        if draw.random() < 0.3:
            other = KINDS[draw.choice(BESIDE)]
            if (
                other.of != kind.of
                and other.name != kind.name
                and not (isinstance(kind.of, tuple) and other.of == ("echo",))
            ):
                second = add(other, at + draw.uniform(0, first.seconds), first.target)
                if second.target == first.target:
                    faults.pop()
                else:
                    end = max(end, second.end)
        at = end + draw.uniform(1.2, 2.6)
