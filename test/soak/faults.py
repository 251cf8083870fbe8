"""What each kind of fault does, to both twins of a workload alike, and how it is undone."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import threading
import time

import plan
from hosts import USUAL, Mode, send, tree
from sdp_world import wait_until


def in_parallel(functions):
    """Each in a thread; the first exception is raised when all are back."""
    wrong = []

    def call(function):
        try:
            function()
        except BaseException as error:  # told to the caller
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def picked(many, pick):
    return many[int(pick * len(many))] if many else None


def has_socket(pid):
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    return True
    return False


def may_end_server(kind):
    """Others have to leave the server alive."""
    return plan.KINDS[kind].restarts or kind in ("few-descriptors", "little-memory")


class Faults:
    def __init__(self, host_of, pairs, findings):
        self.host_of, self.pairs, self.findings = host_of, pairs, findings
        # What is undone late delays the next fault of that workload or host.
        targets = [*(pair.workload for pair in pairs), *(f"host {name}" for name in host_of)]
        self.turns = {target: threading.Lock() for target in targets}
        self.breaking = []  # faults under way that break connections
        self.fewer_break = threading.Condition()

    @contextlib.contextmanager
    def noted(self, fault):
        """While it lasts others can see that connections break."""
        if not plan.KINDS[fault.kind].breaks:
            yield
            return
        with self.fewer_break:
            self.breaking.append(fault)
        try:
            yield
        finally:
            with self.fewer_break:
                self.breaking.remove(fault)
                self.fewer_break.notify_all()

    def await_calm(self, workload):
        """Returns once no fault breaks connections of the workload, after half a minute at the latest."""
        with self.fewer_break:
            self.fewer_break.wait_for(
                lambda: not any(fault.concerns(workload) for fault in self.breaking), timeout=30
            )

    def run(self, fault, wait):
        """Does it, waits, undoes it: (when it began, when it was over).

        `wait`: sleeps so many seconds, less when the run is broken off."""
        with self.turns.get(fault.target, contextlib.nullcontext()), self.noted(fault):
            began = time.monotonic()
            self.do_and_undo(fault, wait)
            return began, time.monotonic()

    def do_and_undo(self, fault, wait):
        begin = getattr(self, fault.kind.replace("-", "_"))
        pairs = [pair for pair in self.pairs if pair.workload == fault.target]
        with contextlib.ExitStack() as undoing:
            if pairs:
                undone = []

                def one(pair):
                    undone.append(begin(fault, pair))

                touched = [server for pair in pairs for server in pair.servers] * may_end_server(fault.kind)
                for server in touched:
                    server.touched += 1
                try:
                    in_parallel([lambda pair=pair: one(pair) for pair in pairs])
                    wait(fault.seconds)
                    in_parallel([undo for undo in undone if undo])
                finally:
                    for server in touched:
                        server.touched -= 1
            else:
                undoing.callback(begin(fault) or (lambda: None))
                wait(fault.seconds)

    # A server or a client of a workload.

    def server_of(self, fault, pair):
        return picked(pair.servers, fault.pick)

    def server_killed(self, fault, pair):
        server = self.server_of(fault, pair)
        server.kill()
        return server.start

    def worker_of(self, fault, pair):
        """A process below the server; waits a moment for one."""
        deadline = time.monotonic() + 2
        while True:
            workers = [pid for server in pair.servers for pid in server.workers()]
            if workers or time.monotonic() > deadline:
                return picked(workers, fault.pick)
            time.sleep(0.01)

    def worker_killed(self, fault, pair):
        worker = self.worker_of(fault, pair)
        if worker:
            send(worker, signal.SIGKILL)

    def client_killed(self, fault, pair):
        for client in pair.clients:
            client.kill(fault.pick)
        return lambda: [client.start() for client in pair.clients]

    def stop(self, pids):
        for pid in pids:
            send(pid, signal.SIGSTOP)

        def go_on():
            for pid in pids:
                send(pid, signal.SIGCONT)

        return go_on

    def server_stopped(self, fault, pair):
        return self.stop(self.server_of(fault, pair).processes())

    def worker_stopped(self, fault, pair):
        worker = self.worker_of(fault, pair)
        return self.stop([worker] if worker else [])

    def client_stopped(self, fault, pair):
        return self.stop(pair.client.processes())

    def limited(self, pids, what, limit_of):
        """A soft limit for each, for a while."""
        before = {}

        def limit(pid, limits):
            with contextlib.suppress(OSError):
                resource.prlimit(pid, what, limits)

        for pid in pids:
            with contextlib.suppress(OSError, ValueError):
                soft, hard = resource.prlimit(pid, what)
                resource.prlimit(pid, what, (limit_of(pid), hard))
                before[pid] = soft, hard

        def restore():
            for pid, limits in before.items():
                limit(pid, limits)
                # Its children have inherited the limit. Some may be gone by now.
                for child in tree(pid):
                    limit(child, limits)
            self.revive(
                [server for pair in self.pairs for server in pair.servers if server.process.pid in before]
            )

        return restore

    def limited_client(self, pair, what, limit_of):
        """Of a client that runs programs those that run now; waits a moment for one.

        One that has no socket yet may be its wrapper, or be loading its libraries, and could not begin."""
        begun = []
        with contextlib.suppress(AssertionError):
            begun = wait_until(
                lambda: [pid for pid in pair.client.processes() if has_socket(pid)],
                "program with a socket",
                1.5,
            )
        restore = self.limited(begun, what, limit_of)

        def restore_all():
            restore()
            if not pair.client.running():
                pair.client.start()

        return restore_all

    def revive(self, servers):
        """Starts servers again that did not survive."""
        for server in servers:
            time.sleep(0.1)
            if not server.running():
                server.start()

    def lowest_free_and_some(self, fault, pid):
        taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        return next(number for number in range(1 << 20) if number not in taken) + fault.amount

    def size_and_some(self, fault, pid):
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize() + (fault.amount << 20)

    def few_descriptors(self, fault, pair):
        return self.limited(
            self.server_of(fault, pair).processes(),
            resource.RLIMIT_NOFILE,
            lambda pid: self.lowest_free_and_some(fault, pid),
        )

    def little_memory(self, fault, pair):
        return self.limited(
            self.server_of(fault, pair).processes(),
            resource.RLIMIT_AS,
            lambda pid: self.size_and_some(fault, pid),
        )

    def client_few_descriptors(self, fault, pair):
        return self.limited_client(
            pair, resource.RLIMIT_NOFILE, lambda pid: self.lowest_free_and_some(fault, pid)
        )

    def client_little_memory(self, fault, pair):
        return self.limited_client(pair, resource.RLIMIT_AS, lambda pid: self.size_and_some(fault, pid))

    def in_mode(self, part, mode):
        part.restart(mode)
        return part.restart

    def server_plain(self, fault, pair):
        return self.in_mode(self.server_of(fault, pair), Mode(preload=False))

    def server_upgraded(self, fault, pair):
        return self.in_mode(self.server_of(fault, pair), Mode(upgraded=True))

    def server_clock(self, fault, pair):
        return self.in_mode(self.server_of(fault, pair), Mode(clock=fault.amount))

    def client_plain(self, fault, pair):
        return self.in_mode(pair.client, Mode(preload=False))

    def client_upgraded(self, fault, pair):
        return self.in_mode(pair.client, Mode(upgraded=True))

    def client_clock(self, fault, pair):
        return self.in_mode(pair.client, Mode(clock=fault.amount))

    def forks(self, fault, pair):
        """Shells whose children have their connections, and the programs which these start."""
        block = random.Random(fault.number).randbytes(2500).hex()
        script = (
            f"exec 3<>/dev/tcp/{pair.address}/{pair.port} || exit 1; "
            f"printf '\\0\\0\\x13\\x88%s' {block} >&3; "
            "cat </dev/null; (head -c 2500 <&3; head -c 2500 <&3) | (cat) | cat"
        )
        wanted = block.encode()

        def start(count):
            return [
                pair.client_host.start(["bash", "-c", script], mode=pair.mode(USUAL), stdout=subprocess.PIPE)
                for _ in range(count)
            ]

        def end(shell):
            """What it said of an error: another fault may be at work."""
            try:
                output, _ = shell.popen.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                shell.kill()
                return "it has not ended within 60 s"
            if output == wanted:
                return ""
            said = shell.output()[-300:]
            # An error may cost the end. Other bytes are wrong, whatever was said beside them.
            if pair.twin == "sdp" and (not said or output != wanted[: len(output)]):
                self.findings.add(
                    "wrong",
                    f"{pair}: a shell's children have read something else from its connection: {said}",
                )
            return said or f"{len(output)} bytes came"

        def check(shells, again=3):
            said = [text for shell in shells if (text := end(shell))]
            for shell in shells:
                pair.client_host.forget(shell)
            if said and again:
                self.await_calm(pair.workload)
                check(start(len(said)), again - 1)
            elif said and pair.twin == "sdp":
                self.findings.add(
                    "lost",
                    f"{pair}: a shell whose children read from its connection failed four times: {said[0]}",
                )

        shells = start(6)
        return lambda: check(shells)

    # A host or a link.

    def host(self, fault):
        return self.host_of[fault.target.split()[-1]]

    def pmd_ended(self, fault):
        host = self.host(fault)
        host.pmd.stop()
        return host.start_pmd

    def pmd_killed(self, fault):
        host = self.host(fault)
        host.pmd.kill()
        host.pmd.wait(10)
        return host.start_pmd

    def pmd_stopped(self, fault):
        return self.stop([self.host(fault).pmd.pid])

    def address_gone(self, fault):
        host = self.host(fault)
        host.net("ip", "addr", "del", f"{host.address}/24", "dev", host.device)
        return lambda: host.net("ip", "addr", "add", f"{host.address}/24", "dev", host.device)

    def filtered(self, fault, rule):
        """The rule for what comes in, on the wire at both ends, or inside of one host."""
        on_wire = [(host, host.device) for host in self.host_of.values()]
        places = on_wire if fault.target == "link" else [(self.host(fault), "lo")]
        table = f"soak{fault.number}"
        for host, device in places:
            chain = f"chain input {{ type filter hook input priority 0 ; iifname \"{device}\" {rule} ; }}"
            host.net("nft", "-f", "-", data=f"table inet {table} {{ {chain} ; }}\n")

        def restore():
            for host, _ in places:
                host.net("nft", "delete", "table", "inet", table)

        return restore

    def loss(self, fault):
        return self.filtered(fault, f"numgen random mod 100 < {fault.amount} drop")

    def reset(self, fault):
        return self.filtered(
            fault, "meta l4proto tcp tcp flags & (syn | fin | rst) == 0 reject with tcp reset"
        )

    def statistics_full(self, fault):
        filler = self.host(fault).stats_dir / "filler"
        with open(filler, "wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        return filler.unlink
