"""scripts/bench local: two programs on one host over the local link, against TCP, AF_UNIX and bare rings.

The workloads that scripts/bench has, and those that are about one host; TARGETS has what each is to reach.
"""

import os
import pathlib
import re
import subprocess

import bench_workloads
import bench_zcopy
import sdp_world
from bench_workloads import Bench, Row, Sample

BENCH = sdp_world.BUILD / "test" / "bench"
LOAD = BENCH / "bench_load"
MPI_SOURCE = sdp_world.ROOT / "test" / "bench" / "mpi_turns.c"
NO_LOOKING = {"SDP_POLL_US": "0"}  # a call that has to wait sleeps at once
# For processes that tell nothing of fall-backs, because they end before they are asked: there are none.
NO_FALL_BACK = {"SDP_MODE": "sdp"}

HAPROXY = """
global
  nbthread 1
  maxconn 400
defaults
  mode http
  timeout connect 5s
  timeout client 20s
  timeout server 20s
listen relay
  bind 127.0.0.1:{port}
  server one 127.0.0.1:{behind}
"""


def faster(name, unit, **targets):
    return Row(name, unit, True, targets)


def shorter(name, unit, **targets):
    return Row(name, unit, False, targets)


def aiming(workload, **targets):
    """The rows of a workload with other targets: how many times as fast as each side SDP is to be."""
    return tuple(row._replace(target=targets) for row in workload.rows)


class PingPong(bench_workloads.PingPong):
    sides = ("tcp", "ring", "sdp")
    ring = ()
    rows = aiming(bench_workloads.PingPong, tcp=40)

    def setup(self):
        self.places["ring"] = None
        for side in ("tcp", "sdp"):
            self.places[side] = self.place(side)
            self.start(self.places[side], side)
            self.world.wait_for_listener(self.places[side], sdp=side == "sdp")

    def measure(self, place, side):
        if side != "ring":
            return super().measure(place, side)
        turns = (20_000 if self.ring else 2_000_000) * self.options.seconds
        return {self.rows[0].name: Sample(*half_round_trip(self.world, "ring", 64, turns, self.ring))}


class PingPongAsleep(PingPong):
    """Nobody looks: each turn is a sleep and a wake-up, at each end."""

    environment = NO_LOOKING
    ring = ("eventfd",)
    rows = (shorter("sockperf ping-pong, each turn a sleep", "us", ring=0.91),)


class Throughput(bench_workloads.Sockperf):
    rows = (faster("sockperf throughput, 64 B one way", "k/s", tcp=5),)

    def measure(self, place, side):
        output, cpu = self.sockperf("throughput", place, side)
        rate = float(re.search(r"Message Rate is (\d+)", output)[1])
        return {self.rows[0].name: Sample(rate / 1000, cpu)}


class Iperf3(bench_workloads.Iperf3):
    rows = aiming(bench_workloads.Iperf3, tcp=4)


class Iperf3Parallel(bench_workloads.Iperf3Parallel):
    rows = aiming(bench_workloads.Iperf3Parallel, tcp=3)


class Large(bench_workloads.Large):
    sides = ("tcp", "unix", "sdp")
    rows = aiming(bench_workloads.Large, tcp=4)
    total = 4 << 30


class Redis(bench_workloads.Redis):
    sides = ("tcp", "unix", "sdp")
    rows = aiming(bench_workloads.Redis, tcp=10, unix=7)


class RedisOne(Redis):
    clients, first_rate = 1, 15_000
    rows = tuple(faster(f"redis {command}, one client", "k/s", tcp=25) for command in ("SET", "GET"))


class Load(Bench):
    """Our own client, test/bench/load.cc, which knows AF_UNIX."""

    sides = ("tcp", "unix", "sdp")

    def load(self, what, place, side, connections, *words):
        output, cpu = self.client([LOAD, what, place, connections, self.options.seconds, *words], side)
        answers, seconds = output.split()
        return {self.rows[0].name: Sample(int(answers) / float(seconds) / 1000, cpu / int(answers))}


class Memcached(Load):
    needs = ("memcached",)
    rows = (faster("memcached get of 100 B, 50 clients", "k/s", tcp=3),)

    def start(self, place, side):
        where = ["-s", place] if side == "unix" else ["-l", "127.0.0.1", "-p", place, "-U", "0"]
        self.serve(["memcached", "-u", "root", "-t", "2", *where], side)

    def setup(self):
        super().setup()
        store = "set key 0 0 100\\r\\n" + 100 * "x" + "\\r\\n"
        for side, place in self.places.items():
            self.client([LOAD, "requests", place, 1, 1, store, "STORED\\r\\n"], side)

    def measure(self, place, side):
        return self.load("requests", place, side, 50, "get key\\r\\n", "END\\r\\n")


class Pairs(Load):
    rows = (faster("8 pairs of threads, 64 B turns", "k/s", tcp=1.5),)

    def start(self, place, side):
        self.serve([LOAD, "echo", place], side)

    def measure(self, place, side):
        return self.load("turns", place, side, 8)


class Nginx(bench_workloads.Nginx):
    rows = aiming(bench_workloads.Nginx, tcp=1.7)


class NginxOne(bench_workloads.Nginx):
    workers = 1
    rows = tuple(
        faster(f"nginx {name} files, one worker", "k/s", tcp=2.3) for name in bench_workloads.Wrk.files
    )


class Haproxy(bench_workloads.Wrk):
    """What a proxy costs that stands beside a server: wrk, haproxy and nginx, all on one host."""

    needs = ("haproxy", "nginx", "wrk")
    files = {"1 KiB": 1 << 10}
    rows = (faster("haproxy before nginx, 1 KiB files", "k/s", tcp=2),)

    def start(self, place, side):
        behind = sdp_world.free_port()
        self.nginx(behind, side, 1)
        self.world.wait_for_listener(behind, sdp=side == "sdp")
        configuration = self.world.directory / f"haproxy-{place}.conf"
        configuration.write_text(HAPROXY.format(port=place, behind=behind))
        self.serve(["haproxy", "-db", "-f", configuration], side)


class Pgbench(Bench):
    needs = ("pgbench", "pg_isready")
    sides = ("tcp", "unix", "sdp")
    rows = (faster("pgbench -S, 8 clients", "k/s", tcp=1.4),)
    environment = NO_FALL_BACK
    user = "postgres"  # the server refuses to be root's

    def setup(self):
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parts[-2]))
        for side in self.sides:
            data = self.world.directory / side
            self.world.run(
                [found[-1] / "initdb", "--no-sync", "--auth=trust", "-U", "tester", "-D", data], False
            )
            port = self.places[side] = sdp_world.free_port()
            sockets = ["-c", f"unix_socket_directories={self.world.directory if side == 'unix' else ''}"]
            host = ["-c", f"listen_addresses={'' if side == 'unix' else '127.0.0.1'}"]
            self.serve([found[-1] / "postgres", "-D", data, "-F", "-p", port, *host, *sockets], side)
            if side == "unix":
                socket = self.world.directory / f".s.PGSQL.{port}"
                sdp_world.wait_until(socket.is_socket, f"socket {socket}:\n{self.world.logs()}")
            else:
                self.world.wait_for_listener(port, sdp=side == "sdp")
            sdp_world.wait_until(lambda side=side: self.ready(side), "answer of the server")

            self.pgbench(side, "-i", "-q")

    def ready(self, side):
        answer = self.world.run(["pg_isready", *self.where(side)], side == "sdp", check=False)
        return b"accepting" in answer

    def check(self):
        pass

    def where(self, side):
        host = self.world.directory if side == "unix" else "127.0.0.1"
        return ["-h", host, "-p", self.places[side], "-U", "tester"]

    def pgbench(self, side, *arguments):
        return self.client(["pgbench", *self.where(side), *arguments, "postgres"], side)

    def measure(self, place, side):
        output, cpu = self.pgbench(side, "-n", "-S", "-c", "8", "-j", "2", "-T", self.options.seconds)
        rate = float(re.search(r"tps = ([\d.]+)", output)[1])
        done = int(re.search(r"actually processed: (\d+)", output)[1])
        return {self.rows[0].name: Sample(rate / 1000, cpu / done)}


class Mpi(Bench):
    needs = ("mpicc", "mpirun")
    sizes = (1, 4 << 20)
    environment = NO_FALL_BACK
    rows = (
        shorter("openmpi over TCP, 1 B, half round trip", "us", tcp=10),
        shorter("openmpi over TCP, 4 MiB, half round trip", "us", tcp=3),
    )
    command = ["mpirun", "-np", "2", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]

    def setup(self):
        self.program = self.world.directory / "mpi_turns"
        subprocess.run([sdp_world.find("mpicc"), "-O2", "-o", self.program, MPI_SOURCE], check=True)
        if os.geteuid() == 0:
            self.command = [*self.command, "--allow-run-as-root"]

    def check(self):
        pass

    def once(self, side):
        out = {}
        for size, row in zip(self.sizes, self.rows):
            output, cpu = self.client([*self.command, self.program, size, self.options.seconds], side)
            turns, seconds = output.split()
            out[row.name] = Sample(float(seconds) / int(turns) / 2 * 1e6, cpu / int(turns))
        return out


class Connect(bench_workloads.ConnectRate):
    sides = ("tcp", "unix", "sdp")
    rows = aiming(bench_workloads.ConnectRate, tcp=0.6)


class Memory(bench_workloads.Memory):
    rows = aiming(bench_workloads.Memory, tcp=16)


def half_round_trip(world, curve, size, turns, words=()):
    """(us, processor seconds of both ends for a turn)"""
    one = bench_zcopy.run(world, "turns", size, curve, turns, words)
    return size / one["rate"] * 1e6, one["cpu"] * size * 2 / 1e9


WORKLOADS = {
    "pingpong": PingPong,
    "pingpong-asleep": PingPongAsleep,
    "throughput": Throughput,
    "iperf3": Iperf3,
    "iperf3-8": Iperf3Parallel,
    "large": Large,
    "redis": Redis,
    "redis-one": RedisOne,
    "memcached": Memcached,
    "nginx": Nginx,
    "nginx-one": NginxOne,
    "haproxy": Haproxy,
    "pgbench": Pgbench,
    "mpi": Mpi,
    "pairs": Pairs,
    "connect": Connect,
    "memory": Memory,
}
