"""Two hosts in network namespaces with a wire between them, each with a port mapper, for tests of what lies
between hosts: firewalls, loss, ports. Needs root and nft."""

import contextlib
import os
import subprocess
import unittest

import harness
from sdp_world import wait_until

PM_PORT = 3935


class Host(harness.TestWorld):
    """A world in a network namespace of its own."""

    def __init__(self, number, holder):
        self.holder = holder
        self.address = f"10.78.0.{number}"
        super().__init__(with_pmd=False)
        self.listen = [self.address]
        self.pm_port = PM_PORT

    def inside(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]

    def start(self, argv, preload=True, environment=None, **options):
        """As World's. The wrappers run without the library."""
        variables = self.environment(preload, **(environment or {}))
        settings = [f"{n}={v}" for n, v in variables.items() if n.startswith("SDP_") or n == "LD_PRELOAD"]
        argv = [str(word) for word in argv]
        return super().start(
            [*self.inside(), "env", *settings, harness.find(argv[0]) or argv[0], *argv[1:]],
            preload=False,
            **options,
        )

    def net(self, *words, data=None):
        done = subprocess.run(
            [*self.inside(), *words], input=data, text=True, capture_output=True, timeout=20
        )
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stderr}")

    def start_pmd(self, *options):
        self.pmd = super().start_pmd(*options)
        return self.pmd

    def filter(self, *rules):
        """Replaces the rules for what comes in."""
        chain = " ; ".join(["type filter hook input priority 0", *rules])
        self.net("nft", "-f", "-", data=f"flush ruleset\ntable inet t {{ chain c {{ {chain} ; }} ; }}\n")


class TwoHostsTest(unittest.TestCase):
    """`server` and `client` are the hosts. Both have a port mapper."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        harness.need("nft", "ip", "nsenter", "unshare")
        self.hosts = [Host(number, self.hold_namespace()) for number in (1, 2)]
        self.server, self.client = self.hosts
        self.addCleanup(self.end)
        self.join()
        try:
            self.server.filter("accept")
        except AssertionError as error:
            self.skipTest(f"no packet filter here: {error}")
        for host in self.hosts:
            host.start_pmd()

    def hold_namespace(self):
        ours = os.readlink("/proc/self/ns/net")
        holder = subprocess.Popen(["unshare", "--net", "sleep", "600"], stdin=subprocess.DEVNULL)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)

        def there():
            with contextlib.suppress(OSError):
                return os.readlink(f"/proc/{holder.pid}/ns/net") != ours

        wait_until(lambda: holder.poll() is not None or there(), "network namespace", 10)
        if holder.poll() is not None:
            self.skipTest("no network namespaces here")
        return holder

    def join(self):
        first, second = self.hosts
        first.net("ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire",
                  "netns", str(second.holder.pid))  # fmt: skip
        for host in self.hosts:
            host.net("ip", "addr", "add", f"{host.address}/24", "dev", "wire")
            host.net("ip", "link", "set", "wire", "up")
            host.net("ip", "link", "set", "lo", "up")

    def end(self):
        for host in self.hosts:
            harness.tell_if_failed(self, host)
            host.stop()
