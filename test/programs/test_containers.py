"""The recipes for containers in docs/deployment.md, with containers that unshare makes: a server in process
numbers and a /run of its own, its port mapper on the host or beside it, and its statistics seen from
outside."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import unittest

import harness
from sdp_world import LIBRARY, PMD, ROOT, SDPSTAT, wait_until

# A host: its own network and /run.
HOST = """
set -e
ip link set lo up
mount -t tmpfs -o mode=755 none /run
mkdir /run/sdp
touch /run/host-is-ready
exec sleep 600
"""
# What a container runtime does with `-v /run/sdp:/run/sdp:ro`.
SHARED_RUN = """
set -e
mount --bind -o ro /run/sdp /mnt
mount -t tmpfs -o mode=755 none /run
mkdir /run/sdp
mount --move /mnt /run/sdp
exec "$@"
"""
# A container with all of its own, and its own port mapper.
OWN_NETWORK = f"""
set -e
mount -t tmpfs -o mode=755 none /run
mkdir /run/sdp
ip link set lo up
until ip link show wire >/dev/null 2>&1; do sleep 0.02; done
ip addr add 10.79.0.2/24 dev wire
ip link set wire up
{PMD} --log-level error &
until [ -S /run/sdp/pmd.sock ]; do sleep 0.02; done
exec "$@"
"""
CONTAINER = [
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "private",
]
PORT = 7171


class Containers(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("namespaces for a host and its containers need root")
        harness.need("ip", "nsenter", "unshare")
        probe = subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True
        )
        if probe.returncode != 0:
            self.skipTest(f"no namespaces here: {probe.stderr.decode()}")
        self.host = self.start(["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", HOST])
        wait_until(lambda: self.on_host_done("test", "-e", "/run/host-is-ready"), "the host")

    def start(self, argv, **options):
        process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, start_new_session=True, **options
        )

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        self.addCleanup(end)
        return process

    def on_host(self, *argv):
        spaces = [
            f"--{kind}=/proc/{self.host.pid}/ns/{name}" for kind, name in (("net", "net"), ("mount", "mnt"))
        ]
        return ["nsenter", *spaces, "--", *map(str, argv)]

    def on_host_done(self, *argv):
        # Until it is a host, its namespaces are ours.
        if os.readlink(f"/proc/{self.host.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return False
        return subprocess.run(self.on_host(*argv), capture_output=True, timeout=20).returncode == 0

    def container(self, setup, *namespaces, host="127.0.0.1"):
        """A container with an echo server; returns what its first process is called outside."""
        server = ["env", f"LD_PRELOAD={LIBRARY}", sys.executable, harness.PEER, "echo-server", PORT, host]
        runtime = self.start(
            self.on_host(CONTAINER[0], *namespaces, *CONTAINER[1:], "sh", "-c", setup, "sh", *server)
        )
        children = pathlib.Path(f"/proc/{runtime.pid}/task/{runtime.pid}/children")
        return int(wait_until(lambda: children.read_text().split(), "the container")[0])

    def recipe(self, container):
        """deployment.md's command, for this container."""
        text = (ROOT / "docs/deployment.md").read_text()
        line = re.search(r"^    (nsenter --target PID .*) sdpstat$", text, re.M)[1]
        return self.on_host(*shlex.split(line.replace("PID", str(container))), SDPSTAT, "-j")

    def seen(self, container):
        got = subprocess.run(self.recipe(container), capture_output=True, text=True, timeout=20)
        if got.returncode != 0:
            return [], []
        processes = json.loads(got.stdout)["processes"]
        return tuple([one for p in processes for one in p[kind]] for kind in ("listeners", "connections"))

    def check(self, container, host):
        """The client on the host speaks SDP with the server, and the host sees the server's side of it."""
        wait_until(
            lambda: [one for one in self.seen(container)[0] if f":{PORT}" in one["local"]], "the listener"
        )
        client = self.start(
            self.on_host(
                "env", f"LD_PRELOAD={LIBRARY}", "SDP_MODE=sdp", sys.executable, "-c", CLIENT, host, PORT
            )
        )
        connections = wait_until(lambda: self.seen(container)[1], "the connection")
        self.assertEqual([one["state"] for one in connections], ["established"])
        self.assertIsNone(client.poll())
        # Nothing of it was taken for a dead process's.
        self.assertEqual(list(pathlib.Path(f"/proc/{container}/root/run/sdp-stats").glob("*.ended")), [])

    def test_the_host_s_network_and_port_mapper(self):
        self.start(self.on_host(PMD, "--log-level", "error"))
        wait_until(lambda: self.on_host_done("test", "-S", "/run/sdp/pmd.sock"), "the port mapper")
        self.check(self.container(SHARED_RUN), "127.0.0.1")

    def test_a_network_of_its_own(self):
        container = self.container(OWN_NETWORK, "--net", host="10.79.0.2")
        for command in (
            f"ip link add cable type veth peer name wire netns {container}",
            "ip addr add 10.79.0.1/24 dev cable",
            "ip link set cable up",
        ):
            subprocess.run(self.on_host(*command.split()), check=True, timeout=20)
        self.check(container, "10.79.0.2")


CLIENT = """
import signal, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(bytes(1000))
assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
signal.pause()
"""

if __name__ == "__main__":
    harness.main()
