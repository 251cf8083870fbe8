"""The table at the end, and the lines meanwhile."""

import collections
import sys
import threading
import time

import judge


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


def local_links(pair, watch):
    """Of the connections within a host that were seen."""
    if pair.server_host is not pair.client_host:
        return "-"
    links = [link for link, _ in watch.links_of(pair)]
    return f"{links.count('local')} of {len(links)}"


def workload_lines(pairs, watch):
    yield (
        f"{'workload':<11}{'hosts':<7}{'answers: SDP':>13}{'TCP':>9}{'errors: SDP':>13}{'TCP':>6}"
        f"{'checked: SDP':>14}{'TCP':>9}{'accepted by SDP':>17}{'TCP':>6}{'fell back':>11}"
        f"{'local links':>13}"
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
        yield (
            f"{kind:<11}{'two' if sdp.server_host is not sdp.client_host else 'one':<7}"
            f"{total('sdp', 'answers'):>13}{total('tcp', 'answers'):>9}"
            f"{total('sdp', 'errors'):>13}{total('tcp', 'errors'):>6}"
            f"{size(total('sdp', 'bytes')):>14}{size(total('tcp', 'bytes')):>9}"
            f"{max(accepted[0], accepted[3]):>17}{accepted[1]:>6}"
            f"{sum(port in ports for _, port, _ in watch.fallbacks):>11}"
            f"{local_links(sdp, watch):>13}"
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


def process_lines(lives):
    """All that were looked at; the memory at the beginning and the end, and the descriptors."""
    yield (
        f"{'process':<40}{'over':>5}{'lived':>9}{'MiB first':>11}{'last':>7}"
        f"{'descriptors first':>19}{'last':>6}"
    )
    for life in sorted(lives, key=lambda life: (life.name, life.twin, life.samples[0][0])):
        memory, descriptors = life.ends(judge.MEMORY), life.ends(judge.DESCRIPTORS)
        yield (
            f"{life.name:<40}{life.twin:>5}{life.lasted():>7.0f} s"
            f"{memory[0] / 1024:>11.1f}{memory[1] / 1024:>7.1f}"
            f"{descriptors[0]:>19}{descriptors[1]:>6}"
        )
