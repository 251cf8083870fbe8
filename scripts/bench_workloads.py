"""The workloads of scripts/bench: how each runs over TCP and over SDP, and what it prints.

A workload starts a server for each side ("tcp", "sdp"; in bench_local.py also "unix" and "ring") and runs a
client against it. Beside each value stands the processor time of both ends for a unit of work.
"""

import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import bench_costs
import bench_zcopy
import sdp_world

NGINX = """
daemon off;
user root;
worker_processes {workers};
error_log stderr error;
pid {directory}/nginx-{port}.pid;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  keepalive_requests 100000000;
  server {{ listen 127.0.0.1:{port}; root {directory}/www; }}
}}
"""

# What a workload measures. `more`: more of it is better. `target`: how many times as fast as TCP SDP is to
# be, or {side: times}. With `kind` "absolute" the target is SDP's value, with "difference" what SDP adds.
Row = collections.namedtuple("Row", "name unit more target kind", defaults=["ratio"])

# `cpu`: the processor time of both ends for a unit of work, whatever that is, in seconds; None: not measured.
Sample = collections.namedtuple("Sample", "value cpu", defaults=[None])


class Bench:
    """A workload: start() makes a server, measure() runs a client once and returns {row name: Sample}."""

    needs = ()
    rows = ()
    sides = ("tcp", "sdp")
    environment = {}  # of the preloaded programs
    user = None  # where root runs the benchmark: who runs the programs

    def __init__(self, world, options):
        self.world = world
        self.host = world.far.address
        self.options = options
        self.places = {}

    def setup(self):
        for side in self.sides:
            place = self.places[side] = self.place(side)
            self.start(place, side)
            if side == "unix":
                sdp_world.wait_until(pathlib.Path(place).is_socket, f"socket {place}:\n{self.world.logs()}")
            else:
                self.world.far.wait_for_listener(place, sdp=side == "sdp")

    def place(self, side):
        return str(self.world.directory / "socket") if side == "unix" else sdp_world.free_port()

    def start(self, place, side):
        raise NotImplementedError

    def measure(self, place, side):
        raise NotImplementedError

    def check(self):
        check_that_it_was_sdp(self.world.far, type(self).__name__)

    def once(self, side):
        return self.measure(self.places[side], side)

    def serve(self, argv, side):
        self.world.far.start(argv, side == "sdp", self.environment if side == "sdp" else None)

    def client(self, argv, side):
        """Runs a client to its end; what it printed, and the processor time of both ends."""
        before = bench_costs.cpu_seconds()
        output = self.world.run(argv, side == "sdp", self.environment if side == "sdp" else None)
        return output.decode(), bench_costs.cpu_seconds() - before


class Iperf3(Bench):
    needs = ("iperf3",)
    rows = (Row("iperf3, 1 stream, 128 KiB writes", "Gbit/s", True, 1.0),)
    extra = ("-l", "128K")

    def start(self, place, side):
        self.serve(["iperf3", "-s", "-B", self.host, "-p", place], side)

    def measure(self, place, side):
        return {self.rows[0].name: self.iperf3(place, side, *self.extra)}

    def iperf3(self, place, side, *words):
        output, cpu = self.client(
            ["iperf3", "-J", "-c", self.host, "-p", place, "-t", self.options.seconds, *words], side
        )
        received = json.loads(output)["end"]["sum_received"]
        return Sample(received["bits_per_second"] / 1e9, cpu / received["bytes"])


class Iperf3Parallel(Iperf3):
    rows = (Row("iperf3 -P 8", "Gbit/s", True, 1.0),)
    extra = ("-P", "8")


class Iperf3Large(Iperf3):
    rows = (Row("iperf3, 1 stream, 1 MiB writes", "Gbit/s", True, 1.0),)
    extra = ("-l", "1M")


class Streams(Iperf3):
    sizes = {"64": "64 B", "1K": "1 KiB", "16K": "16 KiB"}
    rows = tuple(Row(f"iperf3, 1 stream, {size} writes", "Gbit/s", True, 1.0) for size in sizes.values())

    def measure(self, place, side):
        return {row.name: self.iperf3(place, side, "-l", size) for row, size in zip(self.rows, self.sizes)}


class Large(Bench):
    """Blocking 1 MiB messages."""

    size, total = 1 << 20, 1 << 30  # bytes of a message, and for each second of a run
    shapes = {"stream": "one way", "turns": "there and back", "requests": "answers"}
    rows = tuple(Row(f"1 MiB blocking, {what}", "MB/s", True, 1.0) for what in shapes.values())

    def setup(self):
        pass  # each run makes both ends

    def check(self):
        pass  # measure() does

    def once(self, side):
        return {row.name: self.transfer(shape, side) for shape, row in zip(self.shapes, self.rows)}

    def transfer(self, shape, side):
        curve = "policy" if side == "sdp" else side
        one = bench_zcopy.measure(self.world, shape, self.size, curve, self.options.seconds * self.total)
        return Sample(one["rate"] / 1e6, one["cpu"])


class Sockperf(Bench):
    needs = ("sockperf",)

    def start(self, place, side):
        self.serve(["sockperf", "server", "--tcp", "-i", self.host, "-p", place], side)

    def sockperf(self, mode, place, side, *words):
        """What it printed, and the processor time a message."""
        usual = ["--tcp", "-i", self.host, "-p", place, "-m", "64", "-t", self.options.seconds]
        output, cpu = self.client(["sockperf", mode, *usual, *words], side)
        return output, cpu / messages_sent(output)


class PingPong(Sockperf):
    rows = (Row("sockperf ping-pong, 64 B, half round trip", "us", False, 4.0),)

    def measure(self, place, side):
        # More turns a second than can be: sockperf has no room for others.
        output, cpu = self.sockperf("ping-pong", place, side, "--mps=2000000")
        return {self.rows[0].name: Sample(float(re.search(r"Latency is ([\d.]+) usec", output)[1]), cpu)}


class Redis(Bench):
    needs = ("redis-server", "redis-benchmark")
    clients, first_rate = 50, 50_000  # in the first run, so many requests for each second
    rows = (Row("redis SET, 50 clients", "k/s", True, 1.2), Row("redis GET, 50 clients", "k/s", True, 1.2))

    def setup(self):
        self.rates = {}  # requests a second of the last run
        super().setup()

    def start(self, place, side):
        where = (
            ["--port", "0", "--unixsocket", place]
            if side == "unix"
            else ["--port", place, "--bind", self.host, "--protected-mode", "no"]
        )
        self.serve(["redis-server", *where, "--save", "", "--appendonly", "no"], side)

    def measure(self, place, side):
        where = ["-h", self.host, "-s" if side == "unix" else "-p", place, "-c", self.clients]
        out = {}
        for row in self.rows:
            command = row.name.split()[1].strip(",")
            requests = int(self.rates.get((side, command), self.first_rate) * self.options.seconds)
            output, cpu = self.client(
                ["redis-benchmark", *where, "-n", requests, "-t", command.lower(), "--csv"], side
            )
            rate = float(re.search(rf'^"{command}","([\d.]+)"', output, re.M)[1])
            self.rates[side, command] = rate
            out[row.name] = Sample(rate / 1000, cpu / requests)
        return out


class Wrk(Bench):
    """An HTTP server with files to fetch."""

    needs = ("nginx", "wrk")
    files = {"1 KiB": 1 << 10, "1 MiB": 1 << 20}

    def setup(self):
        www = self.world.directory / "www"
        www.mkdir(exist_ok=True)
        for name, size in self.files.items():
            sdp_world.random_file(www / name.replace(" ", ""), size)
        super().setup()

    def nginx(self, port, side, workers):
        configuration = self.world.directory / f"nginx-{port}.conf"
        configuration.write_text(NGINX.format(directory=self.world.directory, port=port, workers=workers))
        self.serve(["nginx", "-c", configuration, "-p", self.world.directory], side)

    def measure(self, place, side):
        out = {}
        for name, row in zip(self.files, self.rows):
            url = f"http://127.0.0.1:{place}/{name.replace(' ', '')}"
            output, cpu = self.client(
                ["wrk", "-t", "2", "-c", "50", "-d", f"{self.options.seconds}s", url], side
            )
            if "Socket errors" in output or "Non-2xx" in output:
                raise RuntimeError(f"wrk saw errors:\n{output}")
            rate = float(re.search(r"Requests/sec:\s*([\d.]+)", output)[1])
            out[row.name] = Sample(rate / 1000, cpu / int(re.search(r"(\d+) requests in", output)[1]))
        return out


class Nginx(Wrk):
    workers = 2
    rows = (
        Row("nginx 1 KiB files, wrk, keep-alive", "k/s", True, 0.95),
        Row("nginx 1 MiB files, wrk, keep-alive", "k/s", True, 1.0),
    )

    def start(self, place, side):
        self.nginx(place, side, self.workers)


class Memory(Bench):
    """Both ends together, the processes' own memory and what the kernel holds for TCP; less what one
    connection needs."""

    rows = (Row("1,000 idle connections, memory of each", "KiB", False, 14, "absolute"),)
    count = 1000

    def setup(self):
        pass

    def check(self):
        pass  # done while the processes live

    def once(self, side):
        # A server of its own for each run: memory that a process has had once it does not give back.
        port = sdp_world.free_port()
        server = self.world.start([sdp_world.CONNECTIONS, "serve", port], side == "sdp")
        self.world.wait_for_listener(port, sdp=side == "sdp")
        few = self.hold(server, port, side, 1)
        many = self.hold(server, port, side, 1 + self.count)
        if side == "sdp":
            check_that_it_was_sdp(self.world, "memory")
        server.stop()
        return {self.rows[0].name: Sample((many - few) / self.count)}

    def hold(self, server, port, side, count):
        client = self.world.start(
            [sdp_world.CONNECTIONS, "idle", port, count],
            side == "sdp",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if client.popen.stdout.readline() != b"ready\n":
            raise RuntimeError(f"connections idle failed:\n{client.output()}\n{self.world.logs()}")
        used = (
            bench_costs.proportional_set(server.pid)
            + bench_costs.proportional_set(client.pid)
            + bench_costs.kernel_tcp_memory()
        )
        client.popen.stdin.close()
        client.wait()
        time.sleep(0.2)  # for the server to see the ends; what it still holds would only count against it
        client.popen.stdout.close()
        return used


class ConnectRate(Bench):
    rows = (Row("connect, one byte to and fro, close", "/s", True, 0.75),)

    def start(self, place, side):
        self.serve([sdp_world.CONNECTIONS, "serve", place], side)

    def measure(self, place, side):
        output, cpu = self.client([sdp_world.CONNECTIONS, "rate", place, self.options.seconds], side)
        return {self.rows[0].name: Sample(float(output), cpu / (float(output) * self.options.seconds))}


class Shim(Bench):
    """What the library costs a program that uses no TCP: each interposed call looks first."""

    rows = (
        Row("read of an empty pipe, no socket", "ns", False, 40, "difference"),
        Row("close(-1), no socket", "ns", False, 40, "difference"),
    )

    def setup(self):
        pass

    def check(self):
        pass

    def once(self, side):
        times = self.world.run([sdp_world.PLAIN_CALLS, "time"], side == "sdp").split()
        return {row.name: Sample(float(time)) for row, time in zip(self.rows, times)}


WORKLOADS = {
    "iperf3": Iperf3,
    "iperf3-8": Iperf3Parallel,
    "iperf3-large": Iperf3Large,
    "streams": Streams,
    "large": Large,
    "pingpong": PingPong,
    "redis": Redis,
    "nginx": Nginx,
    "memory": Memory,
    "connect": ConnectRate,
    "shim": Shim,
}


def messages_sent(output):
    """How many messages a sockperf client says that it has sent."""
    return int(re.search(r"(?:\[Total Run\].*SentMessages=|Total of )(\d+)", output)[1])


def check_that_it_was_sdp(world, name):
    summary = world.summary()
    moved = sum(sdp_world.total(summary[k]) for k in ("bytes_in", "bytes_out"))
    if moved == 0 or summary["fallbacks"]:
        raise RuntimeError(f"{name}: not all of it was SDP: {moved} bytes, fall-backs {summary['fallbacks']}")


def run_workload(workload, options):
    """[(row, {side: [Sample]})]"""
    samples = {row.name: {side: [] for side in workload.sides} for row in workload.rows}
    world = options.world(user=workload.user)
    world.log_level = "error"  # the log of every connection would be part of what is measured
    try:
        bench = workload(world, options)
        bench.setup()
        for turn in range(options.runs):
            # Who goes first changes, so that drift of the machine favours nobody.
            for side in workload.sides if turn % 2 == 0 else reversed(workload.sides):
                for name, sample in bench.once(side).items():
                    samples[name][side].append(sample)
        bench.check()
    except Exception:
        print(world.logs(), file=sys.stderr)
        raise
    finally:
        world.stop()
    return [(row, samples[row.name]) for row in workload.rows]


def result(row, samples, beside="tcp"):
    """SDP beside another side, judged where the row has a target for that."""
    target = (row.target if isinstance(row.target, dict) else {"tcp": row.target}).get(beside)
    value = {side: statistics.median(s.value for s in samples[side]) for side in ("sdp", beside)}
    cpu = {side: statistics.median(s.cpu or 0 for s in samples[side]) for side in ("sdp", beside)}
    faster, slower = ("sdp", beside) if row.more else (beside, "sdp")
    times = value[faster] / value[slower] if value[slower] > 0 else None
    more = value["sdp"] - value[beside]
    measured = {"ratio": times, "absolute": value["sdp"], "difference": more}[row.kind]
    met = target is None or (measured >= target if row.kind == "ratio" else measured <= target)
    return {
        "workload": row.name,
        "unit": row.unit,
        "beside": beside,
        "other": value[beside],
        "sdp": value["sdp"],
        "times": times,
        "target": target,
        "target_is": row.kind,
        "met": met,
        "cpu": cpu["sdp"] / cpu[beside] if cpu[beside] else None,
        "other_runs": samples[beside],
        "sdp_runs": samples["sdp"],
        "congestion": sdp_world.congestion(),
    }
