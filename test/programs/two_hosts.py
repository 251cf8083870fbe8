"""Two hosts in network namespaces with a wire between them, each with a port mapper, for tests of what lies
between hosts: firewalls, loss, ports. Needs root and nft."""

import os
import unittest

import harness
import namespaces

PM_PORT = 3935


class Host(namespaces.InNamespace, harness.TestWorld):
    """A world in a network namespace of its own."""

    def __init__(self, number, holder):
        self.holder = holder
        self.address = f"10.78.0.{number}"
        super().__init__(with_pmd=False)
        self.listen = [self.address]
        self.pm_port = PM_PORT

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
        holder = namespaces.hold_namespace()
        if holder is None:
            self.skipTest("no network namespaces here")
        self.addCleanup(holder.communicate)
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
