"""scripts/bench zcopy: the transfer mechanisms over message sizes (SDP 9), each forced, what the library
does by itself, and plain TCP.

test/programs/transfer moves blocking messages between two processes in three shapes. All curves of a point
are measured in turns, in an order that changes; a value is the median. Beside the rate stands the processor
time of both ends: it is what a busy machine changes least.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess

import bench_chart
import sdp_world

TRANSFER = sdp_world.BUILD / "test" / "programs" / "transfer"
RING = sdp_world.BUILD / "test" / "bench" / "bench_ring"
FORCED = ("bcopy", "read", "write", "transaction")
CURVES = ("tcp", *FORCED, "policy")
SHAPES = {
    "stream": "one side writes, the other reads",
    "turns": "there and back",
    "requests": "64 bytes there, a message back",
}
SIZES = tuple(4**n for n in range(13))  # 1 B to 16 MiB
# Which counter of sdpstat shows that a forced mechanism has carried something.
COUNTER = {"bcopy": "bcopy", "read": "read_zcopy", "write": "write_zcopy", "transaction": "transaction"}


def name_of(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def messages_of(size, shape, curve, total):
    """So many that a run takes a while: limited by bytes for large ones, by round trips for small ones; a
    stream of small messages by forced Read Zcopy is one of round trips too."""
    most = (1_000_000 if shape == "stream" and curve != "read" else 6_000) * total >> 30
    return max(8, min(most, total // size))


def measure(world, shape, size, curve, total, words=()):
    """One run of so many messages that it takes a while; what run() gives."""
    return run(world, shape, size, curve, messages_of(size, shape, curve, total), words)


def run(world, shape, size, curve, messages, words=()):
    """{rate: bytes/s, cpu: seconds per GB, by: {mechanism: bytes}}. The curves "unix" and "ring" are AF_UNIX
    and memory that both ends share."""
    environment = {"SDP_FORCE": curve} if curve in FORCED else {}
    preload = curve == "policy" or curve in FORCED
    program = RING if curve == "ring" else TRANSFER
    process = world.start(
        [program, shape, size, messages, *words, *(["unix"] if curve == "unix" else [])],
        preload,
        environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    line = process.popen.stdout.readline().split()
    if len(line) != 3:
        raise RuntimeError(f"transfer failed:\n{process.output()}\n{world.logs()}")
    by = {}
    if preload:
        for one in world.sdpstat()["processes"]:
            if one["pid"] == process.pid:
                for part in [one["closed"], *one["connections"]]:
                    for direction in ("bytes_in", "bytes_out"):
                        for mechanism, count in part[direction].items():
                            by[mechanism] = by.get(mechanism, 0) + count
        if not sum(by.values()):
            raise RuntimeError(f"it was not SDP:\n{world.logs()}")
    process.popen.stdin.close()
    process.wait()
    process.popen.stdout.close()
    world.processes.remove(process)
    seconds, cpu, moved = float(line[0]), float(line[1]), int(line[2])
    return {"rate": moved / seconds, "cpu": cpu / moved * 1e9, "by": by}


def sweep(world, options, report):
    """[{shape, size, curve: {rate, cpu, by, rates}}]"""
    points = []
    order = random.Random(1)
    for shape in options.shapes:
        for size in options.sizes:
            runs = {curve: [] for curve in CURVES}
            for _ in range(options.runs):
                for curve in order.sample(CURVES, len(CURVES)):
                    runs[curve].append(
                        measure(world, shape, size, curve, options.bytes, ["apart"] if options.apart else [])
                    )
            point = {"shape": shape, "size": size}
            for curve, values in runs.items():
                point[curve] = {
                    "rate": statistics.median(v["rate"] for v in values),
                    "cpu": statistics.median(v["cpu"] for v in values),
                    "rates": [v["rate"] for v in values],
                    "by": values[-1]["by"],
                }
            points.append(point)
            report(point)
    return points


def share(point, curve):
    """How much of a curve's bytes Zcopy or Transactions carried."""
    by = point[curve]["by"]
    everything = sum(by.values())
    return 1 - by.get("bcopy", 0) / everything if everything else 0.0


def used(point, curve):
    """Whether a forced mechanism has carried the data. Forced where it cannot (a Transaction needs an answer
    worth advertising for), it only shows what it costs to wait for it: small writes kept back in the process,
    which are lost if it is killed.
    """
    by = point[curve]["by"]
    return curve == "bcopy" or share(point, curve) > 0.5 and by.get(COUNTER[curve], 0) > 0


def judge(point):
    """The policy against the best of the forced mechanisms that carried the data, and against TCP: ratios of
    rates, and of processor time."""
    forced = [curve for curve in FORCED if used(point, curve)]
    best = max(point[curve]["rate"] for curve in forced)
    least = min(point[curve]["cpu"] for curve in forced)
    policy, tcp = point["policy"], point["tcp"]
    return {
        "of_best": policy["rate"] / best,
        "of_tcp": policy["rate"] / tcp["rate"],
        "cpu_of_least": policy["cpu"] / least if least else 1.0,
        "cpu_of_tcp": policy["cpu"] / tcp["cpu"] if tcp["cpu"] else 1.0,
    }


def head(shape):
    columns = "".join(f"{curve:>12}" for curve in CURVES)
    return (
        f"\n{shape}: {SHAPES[shape]}; MB/s (-: the mechanism carried little or nothing), "
        f"and what Zcopy carried\n"
        f"{'message':>8}{columns}   policy: of best  of TCP   CPU: of TCP   s/GB  Zcopy"
    )


def line(point):
    rates = "".join(
        f"{point[curve]['rate'] / 1e6:>{12 if used(point, curve) else 10}.2f}"
        f"{'' if used(point, curve) else ' -'}"
        if curve in FORCED
        else f"{point[curve]['rate'] / 1e6:>12.2f}"
        for curve in CURVES
    )
    j = judge(point)
    return (
        f"{name_of(point['size']):>8}{rates}{j['of_best']:>18.2f}{j['of_tcp']:>8.2f}{j['cpu_of_tcp']:>14.2f}"
        f"{point['policy']['cpu']:>7.2f}{share(point, 'policy'):>7.0%}"
    )


def draw(points, shapes, output):
    """For each shape the rates, and the processor time of both ends together, as multiples of TCP's. Points
    of forced mechanisms that carried nothing are left out."""
    panels = []
    for shape in shapes:
        for what, heading in ("rate", "bytes a second"), ("cpu", "processor time a byte, both ends"):
            lines = {curve: {} for curve in CURVES if curve != "tcp"}
            for point in (point for point in points if point["shape"] == shape):
                for curve, line in lines.items():
                    if curve == "policy" or used(point, curve):
                        line[point["size"]] = point[curve][what] / (point["tcp"][what] or 1e-9)
            shown = {curve: line for curve, line in lines.items() if line}
            panels.append((f"{shape} ({SHAPES[shape]}): {heading}", shown))
    bench_chart.curves(
        output, f"Blocking calls by message size; TCP ({sdp_world.congestion()}) is 1", panels, name_of
    )


def shown(sweep, options, head, line):
    """The points of a sweep, each printed as it comes, beneath the head of its shape."""
    heads = []

    def report(point):
        if point["shape"] not in heads:
            heads.append(point["shape"])
            print(head(point["shape"]))
        print(line(point), flush=True)

    world = sdp_world.World()
    world.log_level = "error"
    try:
        return sweep(world, options, report)
    finally:
        world.stop()


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench zcopy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=5, help="how often each curve of a point is measured (default 5)"
    )
    parser.add_argument("--bytes", type=int, default=1 << 30, help="most bytes of a run (default 1 GiB)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=tuple(SHAPES))
    parser.add_argument(
        "--apart",
        action="store_true",
        help="keep each end on a processor of its own: where the scheduler puts them changes more than the "
        "mechanism",
    )
    parser.add_argument(
        "--chart",
        type=pathlib.Path,
        default=sdp_world.BUILD / "zcopy.svg",
        help="where the chart goes (default %(default)s)",
    )
    parser.add_argument("--json", type=pathlib.Path, help="write all values there")
    parser.add_argument("--congestion", metavar="NAME", help="the congestion control of TCP")
    options = parser.parse_args(argv)
    if options.congestion:
        sdp_world.use_congestion(options.congestion)
    points = shown(sweep, options, head, line)
    for curve in FORCED:
        if len(options.sizes) > 3 and not any(p[curve]["by"].get(COUNTER[curve]) for p in points):
            print(f"{curve}: forced, and has carried nothing")
    if options.json:
        options.json.write_text(json.dumps(points, indent=1))
    draw(points, options.shapes, options.chart)
    print(f"\nchart: {options.chart}")
