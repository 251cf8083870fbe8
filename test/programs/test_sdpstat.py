"""sdpstat on processes that run: why, filters, JSON as the schema has it."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import unittest

import harness
from sdp_world import SDPSTAT

COMPLETION = pathlib.Path(__file__).parents[2] / "packaging/completions/sdpstat"
SCHEMAS = pathlib.Path(__file__).parents[2] / "tools/sdpstat"
SCHEMA = json.loads((SCHEMAS / "sdpstat.schema.json").read_text())
WHY_SCHEMA = json.loads((SCHEMAS / "sdpstat-why.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}


def name_of(process):
    """Of a directory in /proc; "" of a process that has ended meanwhile."""
    try:
        return (process / "comm").read_text().rstrip()
    except OSError:
        return ""


def violations(value, schema, path="$", root=None):
    """What contradicts the schema, as far as ours use JSON Schema; members that it does not name count
    too."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        return (
            []
            if any(not violations(value, one, path, root) for one in schema["anyOf"])
            else [f"{path}: {value!r}"]
        )
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r}"]
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds and not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [f"{path}: {value!r} is not {kinds}"]
    if isinstance(value, int) and value < schema.get("minimum", value):
        return [f"{path}: {value}"]
    out = []
    if isinstance(value, dict) and "properties" in schema:
        out += [f"{path}.{name} is missing" for name in schema["required"] if name not in value]
        for name, member in value.items():
            known = name in schema["properties"]
            out += (
                violations(member, schema["properties"][name], f"{path}.{name}", root)
                if known
                else [f"{path}.{name} is not in the schema"]
            )
    if isinstance(value, list):
        for i, item in enumerate(value):
            out += violations(item, schema["items"], f"{path}[{i}]", root)
    return out


class Vt52:
    """What a terminal of that kind shows. It has few sequences, and ncurses knows them."""

    def __init__(self, fd, rows, columns):
        self.fd, self.pending = fd, b""
        self.row = self.column = 0
        self.cells = {}
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.fd, 65536):
                self.pending += chunk
        while taken := self.take():
            self.pending = self.pending[taken:]

    def take(self):
        """Shows the first character or sequence; its length, or 0 if it is not there yet."""
        text = self.pending
        if not text:
            return 0
        if text[0] != 0x1B:
            self.character(chr(text[0]))
            return 1
        if len(text) < (4 if text[1:2] == b"Y" else 2):
            return 0
        return self.sequence(chr(text[1]), text[2:4])

    def character(self, c):
        if c == "\n":
            self.row = min(self.row + 1, self.rows - 1)
        elif c == "\r":
            self.column = 0
        elif c == "\b":
            self.column = max(self.column - 1, 0)
        elif c == "\t":
            self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
        elif c >= " ":
            self.cells[self.row, self.column] = c
            self.column = min(self.column + 1, self.columns - 1)

    def sequence(self, c, operands):
        if c == "Y":
            self.row, self.column = operands[0] - 32, operands[1] - 32
            return 4
        down, right = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1), "I": (-1, 0)}.get(c, (0, 0))
        self.row, self.column = max(self.row + down, 0), max(self.column + right, 0)
        if c == "H":
            self.row = self.column = 0
        elif c == "J":
            self.erase(lambda row, column: (row, column) >= (self.row, self.column))
        elif c == "K":
            self.erase(lambda row, column: row == self.row and column >= self.column)
        return 2

    def erase(self, is_behind):
        self.cells = {at: c for at, c in self.cells.items() if not is_behind(*at)}

    def lines(self):
        return [
            "".join(self.cells.get((row, column), " ") for column in range(self.columns)).rstrip()
            for row in range(self.rows)
        ]


class Sdpstat(harness.ProgramTest):
    def sdpstat(self, *arguments):
        return subprocess.run(
            [SDPSTAT, "--dir", self.world.stats_dir, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def table(self, *arguments):
        got = self.sdpstat("-H", *arguments)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout.splitlines()

    def client(self, port, **options):
        """A connected echo-client that waits."""
        client = self.world.peer(
            "echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        return client

    def server(self, **options):
        port = harness.free_port()
        server = self.world.peer("echo-server", port, **options)
        self.world.wait_for_listener(port, sdp=options.get("preload", True))
        return port, server

    def why(self, who):
        got = self.sdpstat("why", "--json", who)
        told = json.loads(got.stdout)
        self.assertEqual(violations(told, WHY_SCHEMA), [])
        return got.returncode, told["processes"]

    def test_why(self):
        port, server = self.server()
        plain_port, plain_server = self.server(preload=False)
        client = self.client(port)
        denied = self.client(plain_port)
        plain = self.client(port, preload=False)

        status, (process,) = self.why(client.pid)
        self.assertEqual((status, process["reason"]), (0, None))
        self.assertEqual([(s["sdp"], s["peer"]) for s in process["sockets"]], [(True, f"127.0.0.1:{port}")])

        status, (process,) = self.why(denied.pid)
        self.assertEqual(status, 1)
        self.assertEqual([s["reason"]["code"] for s in process["sockets"]], ["pm-denied"])
        self.assertEqual(process["sockets"][0]["reason"]["side"], "remote")

        def sockets():
            return sorted(
                (s["state"], s["sdp"], (s["reason"] or {}).get("code"))
                for s in self.why(server.pid)[1][0]["sockets"]
            )

        wanted = [("ESTAB", False, "plain-client"), ("ESTAB", True, None), ("LISTEN", True, None)]
        harness.wait_until(lambda: sockets() == wanted, f"three sockets of the server: {sockets()}")
        (row,) = self.table("-t", "process", server.pid)
        self.assertRegex(row, rf"^tcp .* 127\.0\.0\.1:{port} +127\.0\.0\.1:\d+ .* plain-client ")
        self.assertEqual(len(self.table("-a", "process", server.pid)), 3)
        (told,) = [p for p in json.loads(self.sdpstat("-j").stdout)["processes"] if p["pid"] == server.pid]
        self.assertEqual([f["reason"] for f in told["fallbacks"]], ["plain-client"])

        tcp = self.client(port, environment={"SDP_LINK": "tcp"})
        status, (process,) = self.why(tcp.pid)
        reasons = [(s["sdp"], s["reason"]["code"], s["reason"]["text"]) for s in process["sockets"]]
        self.assertEqual((status, reasons), (0, [(True, "tcp-link", "SDP_LINK=tcp")]))
        noted = [s["reason"] for s in self.why(server.pid)[1][0]["sockets"] if s["sdp"] and s["reason"]]
        self.assertEqual([reason["code"] for reason in noted], ["tcp-link"])
        self.assertRegex(noted[0]["text"], "^the connecting end has offered none")

        for process in plain, plain_server:
            status, (seen,) = self.why(process.pid)
            self.assertEqual((status, seen["reason"]["code"]), (1, "not-preloaded"))

        text = self.sdpstat("why", denied.pid).stdout
        self.assertRegex(text, r"0 of 1 TCP sockets are SDP")
        self.assertIn("pm-denied: the peer's port mapper knows no SDP listener for this port.", text)

    def test_why_of_processes_without_the_library(self):
        port = harness.free_port()
        off = self.world.peer("sink-server", port, environment={"SDP_MODE": "tcp"})
        self.world.wait_for_listener(port, sdp=False)
        self.assertEqual(self.why(off.pid)[1][0]["reason"]["code"], "mode-tcp")
        wrong = self.world.start(["sleep", "60"], environment={"LD_PRELOAD": "/nonexistent/libsdp.so"})
        harness.wait_until(lambda: pathlib.Path(f"/proc/{wrong.pid}/comm").read_text() == "sleep\n", "sleep")
        self.assertEqual(self.why(wrong.pid)[1][0]["reason"]["code"], "preload-ignored")
        idle = self.world.start(["sleep", "60"])
        # It bears its name before the loader has come to the library.
        harness.wait_until(
            lambda: "libsdp.so" in pathlib.Path(f"/proc/{idle.pid}/maps").read_text(),
            "sleep with the library",
        )
        self.assertEqual(self.why(idle.pid)[1][0]["reason"]["code"], "idle")
        self.assertEqual("as root" in self.sdpstat("why", idle.pid).stdout, os.geteuid() != 0)
        self.assertIn(idle.pid, [p["pid"] for p in self.why("sle*")[1]])
        self.assertEqual(self.sdpstat("why", 2**22 + 1).returncode, 2)
        self.assertEqual(self.sdpstat("why", "no-such-program-anywhere").returncode, 2)

    def loaded(self, process):
        """A program bears its name before the loader has come to the library."""
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        harness.wait_until(lambda: "libsdp.so" in maps.read_text(), "program with the library")

    def test_why_of_processes_that_run_no_program(self):
        parent = self.world.start(
            [sys.executable, "-c", "import os, signal\nif os.fork() == 0: os._exit(0)\nsignal.pause()"],
            preload=False,
        )
        children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = harness.wait_until(lambda: children.read_text().strip(), "child")
        harness.wait_until(lambda: self.why(child)[1][0]["reason"]["code"] == "zombie", "zombie")
        offered = subprocess.run(
            ["bash", "-c", 'complete() { :; }; . "$0"; _sdpstat_processes --pid', COMPLETION],
            capture_output=True,
            text=True,
        ).stdout.split()
        self.assertIn(str(parent.pid), offered)
        self.assertNotIn(child, offered)
        kernel_threads = [
            entry.name
            for entry in pathlib.Path("/proc").iterdir()
            if entry.name.isdigit() and name_of(entry) in ("kthreadd", "kworker/0:0")
        ]
        if not kernel_threads:
            self.skipTest("no thread of the kernel is to be seen here")
        self.assertEqual(self.why(kernel_threads[0])[1][0]["reason"]["code"], "kernel-thread")

    def test_why_of_a_process_that_a_rule_leaves_to_tcp_altogether(self):
        rules = self.world.directory / "libsdp.conf"
        rules.write_text("use both server nginx *:*\nuse tcp server * *:*\nuse tcp client * *:*\n")
        port = harness.free_port()
        server = self.world.peer("sink-server", port, environment={"SDP_CONFIG": rules})
        self.world.wait_for_listener(port, sdp=False)
        _, (process,) = self.why(server.pid)
        self.assertEqual(process["reason"]["code"], "rule")
        self.assertEqual(
            process["reason"]["text"], f"{rules}:2: use tcp server * *:*, {rules}:3: use tcp client * *:*"
        )
        self.assertEqual([socket["reason"]["code"] for socket in process["sockets"]], ["rule"])

    def test_why_finds_statistics_in_another_directory(self):
        place = self.world.directory / "elsewhere"
        port = harness.free_port()
        server = self.world.peer("sink-server", port, environment={"SDP_STATS_DIR": place})
        self.world.wait_for_listener(port, sdp=False)
        seen = lambda: [(s["state"], s["sdp"]) for s in self.why(server.pid)[1][0]["sockets"]]
        harness.wait_until(lambda: seen() == [("LISTEN", True)], f"the listener: {seen()}")
        self.assertIn(f"its statistics are in {place}", self.sdpstat("why", server.pid).stdout)

    def test_what_the_library_opens_for_itself_is_not_the_programs(self):
        port, server = self.server()
        client = self.client(port)
        wanted = [("ESTAB", True), ("LISTEN", True)]
        seen = lambda: sorted((s["state"], s["sdp"]) for s in self.why(server.pid)[1][0]["sockets"])
        harness.wait_until(lambda: seen() == wanted, f"two sockets of the server: {seen()}")
        self.assertEqual(len(self.why(client.pid)[1][0]["sockets"]), 1)

    @unittest.skipUnless(os.geteuid() == 0, "only root makes a process a /tmp of its own")
    def test_a_service_with_a_tmp_of_its_own(self):
        """As systemd's PrivateTmp does, with User=: what it publishes lies where only it sees it."""
        own = self.world.directory / "own"
        own.mkdir()
        own.chmod(0o777)
        if (
            subprocess.run(["unshare", "-m", "mount", "--bind", own, "/tmp"], capture_output=True).returncode
            != 0
        ):
            self.skipTest("no right to make a mount namespace")
        shutil.copy(self.world.library, own / "libsdp.so")
        program = (
            "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
            "print('ready', flush=True); time.sleep(100)"
        )
        service = self.world.start(
            [
                "unshare",
                "-m",
                "sh",
                "-c",
                'mount --bind "$1" /tmp && cd / && shift && exec "$@"',
                "sh",
                own,
                "setpriv",
                "--reuid=65534",
                "--clear-groups",
                "env",
                "-u",
                "SDP_STATS_DIR",
                "-u",
                "XDG_RUNTIME_DIR",
                "LD_PRELOAD=/tmp/libsdp.so",
                "/usr/bin/python3",
                "-c",
                program,
            ],
            preload=False,
        )
        harness.wait_until(lambda: "ready" in service.output(), "service: " + service.output())
        environment = {name: value for name, value in os.environ.items() if name != "SDP_STATS_DIR"}

        def seen():
            got = subprocess.run(
                [SDPSTAT, "-j", "--pid", str(service.pid)],
                capture_output=True,
                text=True,
                timeout=30,
                env=environment,
            )
            return [process["pid"] for process in json.loads(got.stdout)["processes"]]

        harness.wait_until(lambda: seen() == [service.pid], f"the service in sdpstat: {seen()}")

    def test_filters_and_columns(self):
        port, server = self.server()
        other_port, _ = self.server()
        client = self.client(port)
        self.client(other_port)
        self.assertEqual(len(self.table("-l")), 2)
        self.assertEqual(len(self.table("-tlnp")), 2)
        harness.wait_until(
            lambda: len(self.table("state", "established")) == 4, "both ends of both connections"
        )
        rows = self.table("state", "established", "and", "sport", "=", f":{port}")
        self.assertEqual(len(rows), 1)
        self.assertIn(f"[{server.pid}]", rows[0])
        self.assertEqual(len(self.table(f"dport = :{port} and process {client.pid}")), 1)
        self.assertEqual(len(self.table("--pid", client.pid)), 1)
        self.assertEqual(self.table("-6"), [])
        self.assertEqual(len(self.table("-4", "-n", "-p")), 6)
        client.popen.stdin.write(b"1000\n")
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"ok 1000\n")
        detail = ""

        def all_told():
            nonlocal detail
            detail = "\n".join(self.table("-i", "-e", "process", client.pid))
            return re.search(r" bcopy:[1-9]\d*/[1-9]\d*\(1000/1000\) ", detail)

        # What went the direct way, a process tells up to two seconds late, even if it sleeps.
        harness.wait_until(all_told, "counts of what was echoed")
        self.assertRegex(
            detail, r"uid:\d+ role:connecting age:\d+s .*rcvbuf:\d+ .*rtt:[\d.]+/[\d.]+ cwnd:\d+ retrans:0"
        )
        wrong = self.sdpstat("sport", "=", "nosuchservice")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn(
            "expected a port, as in sport = :80 or dport = :ssh, but there is 'nosuchservice'", wrong.stderr
        )
        self.assertEqual(self.sdpstat("--no-such-option").returncode, 2)
        with open("/dev/full", "w") as full:
            lost = subprocess.run(
                [str(SDPSTAT), "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
            )
        self.assertEqual(lost.returncode, 1)
        self.assertIn("the output is not complete: No space left on device", lost.stderr)
        for other in "--json", "--summary", "--ended":
            wrong = self.sdpstat("--watch", other)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("leave out --json, --summary, --metrics and --ended", wrong.stderr)
        self.assertRegex(self.sdpstat("--version").stdout, r"^sdpstat \d+\.\d+\.\d+\n$")

    def test_another_users_process(self):
        if os.geteuid() != 0:
            self.skipTest("this is not root")
        as_user = ["setpriv", "--reuid=65533", "--clear-groups"]
        sleep = self.world.start(["sleep", "97"], preload=False)
        sdpstat = shutil.copy(SDPSTAT, self.world.directory / "sdpstat")
        self.world.directory.chmod(0o755)
        got = subprocess.run(
            [*as_user, sdpstat, "trace", "sle[e]p"], capture_output=True, text=True, timeout=60, cwd="/"
        )
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertRegex(got.stderr, r"process \d+, sle\[e\]p, belongs to another user: run")
        self.assertIsNone(sleep.popen.poll())

        # What is missing in its table is only what it may not see.
        empty = self.world.directory / "empty"
        empty.mkdir(mode=0o755)
        reader, terminal = pty.openpty()
        self.addCleanup(os.close, reader)
        got = subprocess.run(
            [*as_user, sdpstat, "--dir", empty], stdout=subprocess.PIPE, stderr=terminal, timeout=60, cwd="/"
        )
        os.close(terminal)
        self.assertRegex(got.stdout, rb"^State .* Process\n$")
        self.assertIn(b"No process of your own runs over SDP.", os.read(reader, 4096))

    def test_a_connect_that_may_not_be_tcp_leaves_a_record(self):
        plain_port, _ = self.server(preload=False)
        client = self.world.start(
            [
                sys.executable,
                "-c",
                (
                    "import socket, time\n"
                    f"print(socket.socket().connect_ex(('127.0.0.1', {plain_port})), flush=True)\n"
                    "time.sleep(60)"
                ),
            ],
            environment={"SDP_MODE": "sdp"},
            stdout=subprocess.PIPE,
        )
        self.assertNotEqual(client.popen.stdout.readline(), b"0\n")
        self.assertEqual([row.split()[0] for row in self.table("-t", "process", client.pid)], ["failed"])
        _, (process,) = self.why(client.pid)
        self.assertEqual(
            [(p["state"], p["reason"]["code"]) for p in process["past"]], [("failed", "pm-denied")]
        )

    def test_json_is_as_its_schema_says(self):
        port, _ = self.server()
        plain_port, _ = self.server(preload=False)
        client = self.client(port)
        self.client(plain_port)
        client.popen.stdin.write(b"1000\n")
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"ok 1000\n")
        everything = json.loads(self.sdpstat("--json").stdout)
        self.assertEqual(violations(everything, SCHEMA), [])
        connections = [c for p in everything["processes"] for c in p["connections"]]
        self.assertEqual(len(connections), 2)
        self.assertIsNotNone(connections[0]["llp"])
        self.assertEqual(len([f for p in everything["processes"] for f in p["fallbacks"]]), 1)

    def test_the_live_screen(self):
        port, _ = self.server()
        self.client(port)
        screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
        watch = self.world.start(
            [SDPSTAT, "--watch", "--interval", "0.1", "--dir", self.world.stats_dir],
            preload=False,
            environment={"TERM": "xterm"},
            stdin=terminal,
            stdout=terminal,
        )
        os.close(terminal)
        os.set_blocking(screen, False)
        seen = bytearray()

        def shows(text):
            def there():
                with contextlib.suppress(BlockingIOError):
                    while chunk := os.read(screen, 65536):
                        seen.extend(chunk)
                return text.encode() in seen

            harness.wait_until(there, f"'{text}' on the screen:\n{bytes(seen)!r}")
            seen.clear()

        shows(f"127.0.0.1:{port}")
        os.write(screen, b"/state nonsense\n")
        shows("expected a state")
        os.write(screen, b"/state tcp\n")
        shows("Nothing matches the filter.")
        os.write(screen, b"h")
        shows("sort by the next")
        os.write(screen, b"q")
        self.assertEqual(watch.wait(10), 0)
        os.close(screen)

    def test_the_live_screen_of_80_columns(self):
        """What matters comes first, the rest by scrolling, and it follows the terminal's size."""
        if subprocess.run(["infocmp", "vt52"], capture_output=True).returncode != 0:
            self.skipTest("terminfo does not know the vt52")
        port, _ = self.server()
        client = self.client(port)
        master, terminal = pty.openpty()
        self.addCleanup(os.close, master)
        os.set_blocking(master, False)
        screen = Vt52(master, 24, 80)
        watch = self.world.start(
            [SDPSTAT, "-w", "--interval", "0.1", "--dir", self.world.stats_dir, "process", str(client.pid)],
            preload=False,
            environment={"TERM": "vt52"},
            stdin=terminal,
            stdout=terminal,
        )
        os.close(terminal)

        def shows(*patterns):
            def there():
                screen.read()
                return all(any(re.search(p, line) for line in screen.lines()) for p in patterns)

            try:
                harness.wait_until(there, f"{patterns} on the screen")
            except AssertionError as error:
                self.fail(f"{error}:\n" + "\n".join(screen.lines()))

        row = rf"^python[\w.]*\[{client.pid}\] "
        shows(r"^Process +Peer +In/s +Out/s +State .*>$", rf"{row} *127\.0\.0\.1:{port} .* established")
        os.write(master, b"\x1bC" * 4)
        shows(r"^Process +Mode +Msg/s ", rf"{row} *./. ")
        os.write(master, b"\x1bD" * 9)
        shows(r"^Process +Peer +In/s ")
        screen.resize(10, 50)
        os.kill(watch.pid, signal.SIGWINCH)
        shows(r"^Process +Peer .*>$", rf"{row} *127\.0\.0\.1:{port}")
        os.write(master, b"q")
        self.assertEqual(watch.wait(10), 0)

    def test_watch_without_a_terminal(self):
        port, _ = self.server()
        self.client(port)
        watch = self.world.start(
            [SDPSTAT, "-w", "--interval", "0.1", "--dir", self.world.stats_dir, f"dport = :{port}"],
            preload=False,
            stdout=subprocess.PIPE,
        )
        lines = [watch.popen.stdout.readline() for _ in range(6)]
        self.assertRegex(lines[0], rb"^Process +Peer +In/s +Out/s +State")
        self.assertIn(f"127.0.0.1:{port}".encode(), lines[1])
        self.assertEqual([lines[2], lines[3]], [b"\n", lines[0]])

    def test_watch_shows_what_was_asked_for(self):
        """One process, one version of IP: as without --watch."""
        port, server = self.server()
        clients = [self.client(port), self.client(port)]
        harness.wait_until(
            lambda: len(self.table("state", "established")) == 4, "both ends of both connections"
        )

        def rows(*arguments):
            watch = self.world.start(
                [SDPSTAT, "-w", "--interval", "0.1", "--dir", self.world.stats_dir, *arguments],
                preload=False,
                stdout=subprocess.PIPE,
            )
            lines = list(iter(watch.popen.stdout.readline, b"\n"))
            self.assertRegex(lines[0], rb"^Process +Peer")
            return [line.decode() for line in lines[1:]]

        self.assertEqual(len(rows()), 5)
        self.assertEqual(len(rows("-4")), 5)
        self.assertEqual(len(rows("-4", "-6")), 5)
        self.assertEqual(rows("-6"), [])
        self.assertEqual(len(rows("--pid", server.pid)), 3)
        for client in clients:
            (row,) = rows("--pid", client.pid)
            self.assertIn(f"[{client.pid}]", row)
        self.assertEqual(rows("--pid", clients[0].pid, "-6"), [])
        (row,) = rows("--pid", clients[0].pid, "-4", f"dport = :{port}")
        self.assertIn(f"127.0.0.1:{port}", row)
        self.assertEqual(rows("--pid", clients[0].pid, f"sport = :{port}"), [])
        (row,) = rows("-l", "--pid", server.pid)
        self.assertIn(f"127.0.0.1:{port}", row)
        self.assertEqual(self.sdpstat("-w", "--pid", "0").returncode, 2)

    def test_a_file_of_another_version_is_named_and_left_alone(self):
        port, server = self.server()
        (file,) = self.world.stats_dir.iterdir()
        with open(file, "r+b") as stats:
            stats.seek(8)
            stats.write((999).to_bytes(4, sys.byteorder))
        got = self.sdpstat("-a")
        self.assertEqual((got.returncode, got.stdout.count("\n")), (0, 1))  # the titles
        self.assertRegex(got.stderr, re.escape(file.name) + ": of another version")
        os.kill(server.pid, 0)


if __name__ == "__main__":
    harness.main()
