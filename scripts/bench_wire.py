"""scripts/bench wire: servers and clients in two network namespaces, over a wire of a limited rate.

The clients run in the near namespace, this program's own, and the servers in the far one. Both namespaces end
with this program.
"""

import functools
import subprocess
import sys

import bench_local
import bench_workloads
import namespaces
import sdp_world

NEAR, FAR = "10.78.0.1", "10.78.0.2"
# A namespace may not choose each algorithm, but for a route. Accepted SDP links have the namespace's choice.
END = f"""
set -e
ip link set lo up
ip address add "$1/24" dev wire
ip link set wire up
echo "$2" >{sdp_world.CONGESTION} || echo reno >{sdp_world.CONGESTION}
ip route replace 10.78.0.0/24 dev wire congctl "$2"
"""


def run(*words):
    done = subprocess.run(words, text=True, capture_output=True, timeout=20)
    if "qdisc kind is unknown" in done.stderr:
        needs = "--delay needs sch_netem" if "netem" in words else "--rate needs sch_tbf"
        sys.exit(f"{needs}, which this kernel lacks")
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")


def limit(inside, rate, delay):
    parent = ["root"]
    if delay:
        netem = ["netem", "delay", delay, "limit", "100000"]
        run(*inside, "tc", "qdisc", "add", "dev", "wire", "root", "handle", "1:", *netem)
        parent = ["parent", "1:1"]
    bucket = ["tbf", "rate", rate, "burst", "256kb", "latency", "1ms"]
    run(*inside, "tc", "qdisc", "add", "dev", "wire", *parent, *bucket)


def world_maker(options):
    """Enters the near namespace and joins it to a far one; a function that makes a world over both."""
    for program in "ip", "tc", "nsenter", "unshare":
        if sdp_world.find(program) is None:
            sys.exit(f"{program} is not installed, which makes the wire")
    congestion = options.congestion or "cubic"
    sdp_world.enter_namespace(congestion)
    holder = namespaces.hold_namespace() or sys.exit(1)
    run("ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", str(holder.pid))
    for inside, address in ([], NEAR), (namespaces.inside(holder), FAR):
        run(*inside, "sh", "-c", END, "sh", address, congestion)
        limit(inside, options.rate, options.delay)
    return functools.partial(World, holder)


class Far(namespaces.InNamespace, sdp_world.World):
    address = FAR
    log_level = "error"

    def __init__(self, holder, pm_port):
        self.holder = holder
        super().__init__(with_pmd=False, listen=[FAR])
        self.pm_port = pm_port


class World(sdp_world.World):
    """The world of the clients; `far` is that of the servers."""

    def __init__(self, holder, user=None):
        super().__init__(listen=[NEAR], user=user)
        try:
            self.far = Far(holder, self.pm_port)
            self.far.start_pmd()
        except BaseException:
            self.stop()
            raise

    def logs(self):
        return f"{super().logs()}\n{self.far.logs()}"

    def stop(self):
        try:
            super().stop()
        finally:
            if self.far is not self:
                self.far.stop()


def aiming(workload, times, **more):
    return type(workload.__name__, (workload,), {"rows": bench_local.aiming(workload, tcp=times), **more})


WORKLOADS = {
    "iperf3": aiming(bench_workloads.Iperf3, 0.98),
    "iperf3-8": aiming(bench_workloads.Iperf3Parallel, 0.98),
    "pingpong": aiming(bench_workloads.PingPong, 1.18),
    "redis": aiming(bench_workloads.Redis, 1.0),
    "redis-one": aiming(bench_local.RedisOne, 1.0, sides=("tcp", "sdp")),
}
