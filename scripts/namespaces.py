"""Hosts as network namespaces: a process that keeps one, and worlds whose programs run in it."""

import subprocess

import sdp_world


def hold_namespace():
    """A process in a network namespace of its own, which ends with this program or with communicate(). None
    where there may be no namespace."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo there; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    if holder.stdout.readline():
        return holder
    holder.communicate()
    return None


def inside(holder):
    """What a command begins with that runs in the network namespace of `holder`."""
    return ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]


class InNamespace:
    """A world whose programs run in the network namespace of `holder`."""

    holder = None

    def inside(self):
        return inside(self.holder)

    def start(self, argv, preload=True, environment=None, **options):
        """As World's. The wrappers run without the library."""
        variables = self.environment(preload, **(environment or {}))
        settings = [f"{n}={v}" for n, v in variables.items() if n.startswith("SDP_") or n == "LD_PRELOAD"]
        argv = [str(word) for word in argv]
        return super().start(
            [*self.inside(), "env", *settings, sdp_world.find(argv[0]) or argv[0], *argv[1:]],
            preload=False,
            **options,
        )

    def net(self, *words, data=None):
        done = subprocess.run(
            [*self.inside(), *words], input=data, text=True, capture_output=True, timeout=20
        )
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stderr}")

    def tcp_listens(self, port):
        return sdp_world.tcp_listens(port, self.holder.pid)
