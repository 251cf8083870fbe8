"""The table at the end, and the lines meanwhile."""

import collections
import sys
import threading
import time

import judge

EACH = 3  # lives of a program that have a line of their own


class Screen:
    """One line that moves, on a terminal; in a pipe a line every half minute. What is found is said at
    once."""

    EVERY = 30.0

    def __init__(self, out=sys.stdout):
        self.out = out
        self.moves = out.isatty()
        self.lock = threading.Lock()
        self.said = float("-inf")

    def show(self, text):
        with self.lock:
            if self.moves:
                self.out.write(f"\r\033[K{text}")
            elif time.monotonic() - self.said >= self.EVERY:
                self.said = time.monotonic()
                self.out.write(text + "\n")
            self.out.flush()

    def say(self, text=""):
        with self.lock:
            self.out.write(("\r\033[K" if self.moves else "") + text + "\n")
            self.out.flush()


def seconds(value):
    return f"{value:6.2f}" if value >= 0.005 else "     -"


def size(count):
    for unit in ("B", "KB", "MB"):
        if count < 10_000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} GB"


def workload_lines(pairs, watch):
    yield (
        f"{'workload':<11}{'hosts':<7}{'answers: SDP':>12}{'TCP':>8}{'errors: SDP':>13}{'TCP':>5}"
        f"{'checked: SDP':>14}{'TCP':>9}{'unchecked: SDP':>16}{'TCP':>9}"
        f"{'accepted by SDP':>17}{'TCP':>5}{'fell back':>11}{'link: local':>13}{'TCP':>6}"
    )
    by_kind = collections.defaultdict(dict)
    for pair in pairs:
        by_kind[pair.workload][pair.twin] = pair
    for kind, twins in by_kind.items():

        def total(twin, what):
            return sum(getattr(stream, what) for stream in twins[twin].streams)

        sdp = twins["sdp"]
        ports = {sdp.port, *(server.port for server in sdp.servers)}
        accepted = watch.of_pair(sdp)
        links = collections.Counter(link for link, _ in watch.links_of(sdp))
        yield (
            f"{kind:<11}{'two' if sdp.server_host is not sdp.client_host else 'one':<7}"
            f"{total('sdp', 'answers'):>12}{total('tcp', 'answers'):>8}"
            f"{total('sdp', 'errors'):>13}{total('tcp', 'errors'):>5}"
            f"{size(total('sdp', 'checked')):>14}{size(total('tcp', 'checked')):>9}"
            f"{size(total('sdp', 'unchecked')):>16}{size(total('tcp', 'unchecked')):>9}"
            f"{max(accepted[0], accepted[3]):>17}{accepted[1]:>5}"
            f"{sum(port in ports for _, port, _ in watch.fallbacks):>11}"
            f"{links['local']:>13}{links['tcp']:>6}"
        )
    yield "checked: compared with what had to come; unchecked: counted only"
    yield (
        "accepted by: how the servers over SDP took their connections; "
        "link: what carried those over SDP that were seen open, by a look every 2 s"
    )


def fault_lines(happened, pairs):
    streams = [
        (stream, [judge.Quiet(*long) for long in stream.long]) for pair in pairs for stream in pair.streams
    ]
    table = judge.costs(happened, streams)
    counts = collections.Counter(one.fault.kind for one in happened)
    yield (
        f"{'':<24}{'':>6}{'until told, or going on: SDP':>30}{'TCP':>14}"
        f"{'until an answer: SDP':>24}{'TCP':>14}"
    )
    yield (
        f"{'fault':<24}{'times':>6}{'median':>23}{'most':>7}{'median':>7}{'most':>7}"
        f"{'median':>17}{'most':>7}{'median':>7}{'most':>7}   seconds"
    )
    for kind, row in sorted(table.items()):
        figures = [
            seconds(value)
            for what in ("silence", "famine")
            for twin in ("sdp", "tcp")
            for value in judge.middle_and_most(row.get(twin, {}).get(what, []))
        ]
        yield (
            f"{kind:<24}{counts[kind]:>6}{figures[0]:>23}{figures[1]:>7}{figures[2]:>7}{figures[3]:>7}"
            f"{figures[4]:>17}{figures[5]:>7}{figures[6]:>7}{figures[7]:>7}"
        )


PROCESS_HEAD = (
    f"{'process':<38}{'over':>5}{'lives':>7}{'from':>7}{'lasted':>8}{'MiB: first':>12}{'last':>7}{'most':>7}"
    f"{'descriptors: first':>20}{'last':>6}{'most':>6}"
)


def process_line(lives, start):
    """Of several lives the longest, and the highest of each figure."""
    began = f"{lives[0].samples[0][0] - start:.0f}" if len(lives) == 1 else "-"
    line = (
        f"{lives[0].name:<38}{lives[0].twin:>5}{len(lives):>7}{began:>7}"
        f"{max(life.lasted() for life in lives):>8.0f}"
    )
    for which, unit, width, digits in (judge.MEMORY, 1024, (12, 7, 7), 1), (
        judge.DESCRIPTORS,
        1,
        (20, 6, 6),
        0,
    ):
        first, last = (max(life.samples[at][which] for life in lives) for at in (0, -1))
        most = max(sample[which] for life in lives for sample in life.samples)
        for value, columns in zip((first, last, most), width):
            line += f"{value / unit:>{columns}.{digits}f}"
    return line


def in_order(lives):
    return sorted(lives, key=lambda life: (life.name, life.twin, life.samples[0][0]))


def process_lines(lives, start):
    """A line for each life of half a minute, of EACH at most of a program; its others share one."""
    yield PROCESS_HEAD
    by_program = collections.defaultdict(list)
    for life in in_order(lives):
        by_program[life.name, life.twin].append(life)
    for of_program in by_program.values():
        longest_first = sorted(of_program, key=judge.Life.lasted, reverse=True)
        apart = [life for life in longest_first[:EACH] if life.lasted() >= judge.LONG_ENOUGH]
        for life in in_order(apart):
            yield process_line([life], start)
        if others := longest_first[len(apart) :]:
            yield process_line(others, start)
    yield (
        "lives: processes in a line, of which it has the longest time and the highest figures; "
        "from, lasted: seconds; first, last: by a look every 2 s"
    )


def life_lines(lives, start):
    yield PROCESS_HEAD
    for life in in_order(lives):
        yield process_line([life], start)
