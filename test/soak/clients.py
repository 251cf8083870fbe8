"""Servers and clients as processes that can be killed, stopped and started in another mode."""

import contextlib
import dataclasses
import signal
import subprocess
import threading
import time

from hosts import USUAL, kill_tree, send, tree, trees
from record import Stream
from sdp_world import wait_until

OP_LIMIT = 60.0  # seconds for a program; far beyond what is accepted
START_LIMIT = (
    120.0  # for a server: the machine may be slow, and how long the clients had to wait is judged apart
)


class Failed(Exception):
    """A program was told of an error."""


class Wrong(Exception):
    """What came is not what was sent."""


class Part:
    """What a pair of server and client is to its processes."""

    def __init__(self, kind, twin, server_host, client_host, recorder):
        self.workload, self.twin = kind, twin
        self.server_host, self.client_host = server_host, client_host
        self.recorder = recorder
        self.more_clients = []

    def __str__(self):
        return f"{self.workload}/{self.twin}"

    def mode(self, wanted):
        """As wanted, without the library for the twin on TCP."""
        return wanted if self.twin == "sdp" else dataclasses.replace(wanted, preload=False, upgraded=False)

    @property
    def clients(self):
        return [self.client, *self.more_clients]

    @property
    def streams(self):
        return [stream for client in self.clients for stream in client.streams]


class Server:
    def __init__(self, pair, host, argv, port, user=None, directory=None, settle=None):
        self.pair, self.host, self.argv, self.port = pair, host, argv, port
        self.user, self.directory, self.settle = user, directory, settle
        self.process = None
        self.touched = 0  # faults at work that may end it

    def __str__(self):
        return f"{self.pair} server on host {self.host.name}"

    def start(self, wanted=USUAL):
        mode = self.pair.mode(wanted)
        if self.process is not None:
            self.kill()
            self.host.forget(self.process)
        # The port of one that has just been killed may not be free at once.
        for _ in range(20):
            self.process = self.host.start(self.argv, mode=mode, user=self.user, directory=self.directory)
            wait_until(
                lambda: self.host.tcp_listens(self.port) or not self.running(),
                f"listener of {self}",
                START_LIMIT,
            )
            if self.running():
                break
            time.sleep(0.3)
        else:
            raise AssertionError(f"{self} does not start:\n{self.process.output()[-1500:]}")
        if self.settle:
            self.settle(Run(self.pair, None))

    def running(self):
        return self.process.running()

    def roots(self):
        return [self.process.pid] if self.process else []

    def processes(self):
        return tree(self.process.pid)

    def workers(self):
        return self.processes()[1:]

    def kill(self):
        kill_tree(self.process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.popen.wait(10)

    def end(self):
        """As its administrator would; at last by SIGKILL."""
        below = self.workers()
        send(self.process.pid, signal.SIGINT if self.user else signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.popen.wait(8)
        kill_tree(self.process.pid)
        for pid in below:
            if pid in tree(pid):
                kill_tree(pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.popen.wait(5)

    def restart(self, wanted=USUAL):
        self.end()
        self.start(wanted)


class SocketClient:
    """A process of client.py, one after the other; its threads' answers are streams."""

    def __init__(self, pair, argv, threads):
        self.pair, self.argv = pair, argv
        self.streams = [Stream(pair.workload, pair.twin, number) for number in range(threads)]
        self.process = None

    def start(self, wanted=USUAL):
        self.process = self.pair.client_host.start(
            self.argv, mode=self.pair.mode(wanted), stdout=subprocess.PIPE
        )
        for stream in self.streams:
            if stream.last is None:
                stream.begin()
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.popen.stdout:
            what, number, text = line.decode(errors="replace").rstrip("\n").split(" ", 2)
            stream = self.streams[int(number)]
            if what == "ok":
                stream.answered(*map(int, text.split()))
                continue
            stream.failed(text)
            if what == "wrong":
                self.pair.recorder.wrong(stream, text)

    def running(self):
        return self.process.running()

    def roots(self):
        return [self.process.pid] if self.process else []

    def processes(self):
        return tree(self.process.pid)

    def kill(self, pick):
        kill_tree(self.process.pid)
        self.process.popen.wait(10)

    def restart(self, wanted=USUAL):
        self.stop(ending=False)
        self.start(wanted)

    def stop(self, ending=True):
        kill_tree(self.process.pid)
        self.process.popen.wait(10)
        self.pair.client_host.forget(self.process)
        if ending:
            for stream in self.streams:
                stream.end()


class Run:
    """Runs one program after the other for a client; each may be killed and stopped meanwhile."""

    def __init__(self, pair, client):
        self.pair, self.client = pair, client

    def __call__(self, *argv, data=None, check=True, preload=True, timeout=OP_LIMIT):
        with self.beside(self.pair.client_host, *argv, pipes=True, preload=preload, data=data) as process:
            try:
                output, _ = process.popen.communicate(data, timeout)
            except subprocess.TimeoutExpired:
                raise Failed(f"{argv[0]} has not ended within {timeout:.0f} s") from None
            except BrokenPipeError:
                output = b""
            status = process.popen.returncode
            if status < 0 or (check and status != 0):
                raise Failed(f"{argv[0]} ended with {status}: {' '.join(process.output()[-300:].split())}")
            return output

    @contextlib.contextmanager
    def beside(self, host, *argv, output=None, pipes=False, preload=True, data=None):
        wanted = self.client.mode if self.client else USUAL
        mode = self.pair.mode(wanted if preload else dataclasses.replace(wanted, preload=False))
        with open(output, "wb") if output else contextlib.nullcontext(
            subprocess.PIPE if pipes else None
        ) as out:
            process = host.start(
                argv,
                mode=mode,
                stdout=out,
                stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL,
                kept=False,
            )
        if self.client:
            self.client.current.append(process)
        try:
            yield process
        finally:
            if self.client:
                self.client.current.remove(process)
            if process.running():
                kill_tree(process.pid)
                process.popen.wait(10)
            for stream in (process.popen.stdin, process.popen.stdout):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
            host.forget(process)


class ProgramClient:
    """Runs programs, each to its end: one operation after the other, in a thread.

    `operate` returns the bytes that it has checked, and the bytes that it has only counted."""

    def __init__(self, pair, operate, pause, number=0):
        self.pair, self.operate, self.pause = pair, operate, pause
        self.streams = [Stream(pair.workload, pair.twin, number)]
        self.mode = USUAL
        self.current = []
        self.stopping = threading.Event()
        self.thread = None

    def start(self, wanted=USUAL):
        self.mode = wanted
        if self.thread is None:
            self.streams[0].begin()
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()

    def work(self):
        run, stream = Run(self.pair, self), self.streams[0]
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                stream.answered(*self.operate(run))
            except (Failed, AssertionError) as error:
                stream.failed(str(error))
            except (Wrong, OSError, ValueError) as error:
                stream.failed(str(error))
                self.pair.recorder.wrong(stream, f"{type(error).__name__}: {error}")
            self.stopping.wait(max(self.pause, min(2.0, 0.7 * (time.monotonic() - began))))

    def running(self):
        return True

    def roots(self):
        return [process.pid for process in list(self.current)]

    def processes(self):
        """Of the programs that run now; waits a moment for one."""
        deadline = time.monotonic() + 1.5
        while not self.current and time.monotonic() < deadline:
            time.sleep(0.01)
        return trees(self.roots())

    def kill(self, pick):
        """One of the programs; of netcat's two that is either end."""
        self.processes()
        current = list(self.current)
        if current:
            kill_tree(current[int(pick * len(current))].pid)

    def restart(self, wanted=USUAL):
        """The next program is in that mode."""
        self.start(wanted)

    def stop(self, ending=True):
        self.stopping.set()
        if self.thread:
            self.thread.join(OP_LIMIT + 10)
        self.streams[0].end()
