"""scripts/bench limits: what this machine can do between two processes, and what of it the local link does.

Half a round trip over message sizes, and bytes a second over write sizes: TCP, AF_UNIX, the local link, and
rings in shared memory without any socket, whose ends look for ever or sleep on an eventfd. All run in turns.
"""

import argparse
import json
import pathlib
import random
import statistics

import bench_chart
import bench_zcopy
import sdp_world
from bench_zcopy import name_of

# How bench_zcopy.run() names each, and its further arguments.
CURVES = {
    "TCP": ("tcp", ()),
    "AF_UNIX": ("unix", ()),
    "local link": ("policy", ()),
    "sleeping ring": ("ring", ("eventfd",)),
    "bare ring": ("ring", ()),
}
SIZES = {
    "turns": (1, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20),
    "stream": (16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20),
}
WHAT = {
    "turns": ("half a round trip", "us", lambda size, one: size / one["rate"] * 1e6),
    "stream": ("one way", "GB/s", lambda size, one: one["rate"] / 1e9),
}


def messages_for(once, seconds):
    """How many messages take about so long; `once(messages)` gives the seconds that those take."""
    messages, took = 64, 0.0
    while (took := once(messages)) < seconds / 8:
        messages *= 8
    return max(8, round(messages * seconds / took))


def sweep(world, options, report):
    """[{shape, size, curves: {curve: value}, runs: {curve: [values]}}]"""
    points = []
    order = random.Random(1)
    for shape in options.shapes:
        value_of = WHAT[shape][2]
        for size in options.sizes or SIZES[shape]:

            def run(curve, messages, shape=shape, size=size):
                name, words = CURVES[curve]
                return bench_zcopy.run(world, shape, size, name, messages, words)

            def lasts(curve, size=size, both=2 if shape == "turns" else 1):
                return lambda messages: size * messages * both / run(curve, messages)["rate"]

            messages = {curve: messages_for(lasts(curve), options.seconds) for curve in CURVES}
            runs = {curve: [] for curve in CURVES}
            for _ in range(options.runs):
                for curve in order.sample(list(CURVES), len(CURVES)):
                    runs[curve].append(value_of(size, run(curve, messages[curve])))
            curves = {curve: statistics.median(values) for curve, values in runs.items()}
            points.append({"shape": shape, "size": size, "curves": curves, "runs": runs})
            report(points[-1])
    return points


def line(point):
    return f"{name_of(point['size']):>8}" + "".join(f"{point['curves'][curve]:>14.3g}" for curve in CURVES)


def head(shape):
    what, unit, _ = WHAT[shape]
    return f"\n{what}, {unit}\n{'bytes':>8}" + "".join(f"{curve:>14}" for curve in CURVES)


def draw(points, congestion, output):
    panels = []
    for shape, (what, unit, _) in WHAT.items():
        those = [point for point in points if point["shape"] == shape]
        lines = {curve: {point["size"]: point["curves"][curve] for point in those} for curve in CURVES}
        if those:
            panels.append((f"{what}, {unit}", lines))
    title = f"Two processes on one host; TCP with {congestion}"
    bench_chart.logarithmic(output, title, panels, name_of)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench limits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="how often each point is measured (default 5)")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a run lasts (default 0.3)")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="BYTES")
    parser.add_argument("--shapes", nargs="+", choices=SIZES, default=tuple(SIZES))
    parser.add_argument("--chart", type=pathlib.Path, default=sdp_world.BUILD / "limits.svg", metavar="FILE")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all values there")
    parser.add_argument(
        "--drawn-from", type=pathlib.Path, metavar="FILE", help="draw what --json wrote, measure nothing"
    )
    parser.add_argument("--congestion", metavar="NAME", default="cubic", help="of TCP (default cubic)")
    options = parser.parse_args(argv)
    if options.drawn_from:
        kept = json.loads(options.drawn_from.read_text())
        draw(kept["points"], kept["congestion"], options.chart)
        return
    sdp_world.use_congestion(options.congestion)
    points = bench_zcopy.shown(sweep, options, head, line)
    if options.json:
        kept = {"congestion": sdp_world.congestion(), "points": points}
        options.json.write_text(json.dumps(kept, indent=1))
    draw(points, sdp_world.congestion(), options.chart)
    print(f"\nchart: {options.chart}")
