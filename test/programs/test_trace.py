"""sdpstat trace on processes that run, on one that died, and what the log keeps of a connection that
broke."""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

import harness
from sdp_world import SDPSTAT


# Large requests, small replies, in blocking calls: what each mechanism of transfer is for.
SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connection, _ = listener.accept()
room = bytearray(300000)
while True:
    n = 0
    while n < len(room):
        got = connection.recv_into(memoryview(room)[n:])
        if got == 0:
            sys.exit(0)
        n += got
    connection.sendall(b"ok")
"""
CLIENT = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
for line in sys.stdin:
    s.sendall(bytes(300000))
    reply = s.recv(200000)
    assert len(reply) in (1, 2), reply
    print("done", flush=True)
"""
# Resets its connection when the server has echoed what it sent.
RESET = """
import socket, struct, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(bytes(77))
assert len(s.recv(77, socket.MSG_WAITALL)) == 77
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()
"""
READ_REQUEST, READ_RESPONSE, WRITE = "0x01", "0x02", "0x00"


class Trace(harness.ProgramTest):
    def sdpstat(self, *arguments, program=SDPSTAT, **options):
        return subprocess.run(
            [program, *map(str, arguments), "--dir", self.world.stats_dir],
            capture_output=True,
            text=True,
            timeout=30,
            **options,
        )

    def rows(self, process):
        """The open connections of a process."""
        return [
            connection
            for one in self.world.sdpstat()["processes"]
            if one["pid"] == process.pid
            for connection in one["connections"]
        ]

    def start_trace(self, *arguments):
        return self.world.start(
            [SDPSTAT, "trace", *arguments, "--dir", self.world.stats_dir],
            preload=False,
            stdout=subprocess.PIPE,
        )

    def server(self, **environment):
        port = harness.free_port()
        server = self.world.peer("echo-server", port, environment=environment)
        self.world.wait_for_listener(port)
        return port, server

    def client(self, port, **options):
        client = self.world.peer(
            "echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        return client

    def echo(self, client, size):
        client.popen.stdin.write(b"%d\n" % size)
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"ok %d\n" % size)

    def test_the_ladder(self):
        port, server = self.server()
        client = self.client(port)
        self.echo(client, 1000)
        last = self.sdpstat("trace", client.pid, "--last")
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertRegex(
            last.stdout.splitlines()[0],
            rf"^fd \d+: 127\.0\.0\.1:\d+ -> 127\.0\.0\.1:{port}  established  soft/tcp  C/C$",
        )
        self.assertRegex(last.stdout, r"\|-- Hello -+>\| .*\(private data\)")
        self.assertRegex(last.stdout, r"\|<-+ HelloAck --\| .*\(private data\)")
        self.assertRegex(last.stdout, r"\|-- Data -+>\| .*payload=1000\n")
        self.assertFalse(list(self.world.stats_dir.glob("*.trace")), "tracing was not asked for")

        trace = self.start_trace(client.pid, "--count", "8")
        # The last messages come at once; then it listens.
        lines = [trace.popen.stdout.readline().decode() for _ in range(6)]
        self.assertRegex(lines[1], r"^seconds since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")
        self.assertEqual(
            "".join(line[10:] for line in lines), "".join(line[10:] for line in last.stdout.splitlines(True))
        )
        self.echo(client, 10)
        self.echo(client, 11)
        rest = trace.popen.stdout.read().decode()
        self.assertEqual(trace.wait(10), 0, trace.output())
        self.assertEqual(
            re.findall(r"([<>]).*payload=(\d+)", rest), [(">", "10"), ("<", "10"), (">", "11"), ("<", "11")]
        )
        self.assertIn("8 messages", trace.output())

        both = self.sdpstat("trace", server.pid, "--last").stdout
        self.assertRegex(both, r" <- 127\.0\.0\.1:\d+  established")

    def test_a_count_that_the_last_messages_fill(self):
        port, _ = self.server()
        client = self.client(port)
        self.echo(client, 1000)
        for arguments in ["--last", "-c", "3"], ["-c", "3"]:
            got = self.sdpstat("trace", client.pid, *arguments)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(len(re.findall(r"(?m)^ *\d+\.\d+ ", got.stdout)), 3, got.stdout)

    def test_one_of_several_connections_until_it_closes(self):
        port, server = self.server()
        first, second = self.client(port), self.client(port)
        self.echo(first, 100)
        self.echo(second, 200)
        row = re.search(r"fd (\d+): [^\n]*\n", self.sdpstat("trace", server.pid, "--last").stdout)
        fd = int(row.group(1))
        trace = self.start_trace(server.pid, fd)
        self.assertIn(f"fd {fd}: ".encode(), trace.popen.stdout.readline())
        for client in first, second:
            self.echo(client, 300)
            client.popen.stdin.close()
            self.assertEqual(client.wait(20), 0)
        text = trace.popen.stdout.read().decode()
        self.assertEqual(trace.wait(10), 0, trace.output())
        self.assertEqual(len(re.findall("payload=300", text)), 2)
        self.assertRegex(text, r"<-+ DisConn --[^\n]*\n(?:[^\n]*\n)*?[^\n]*closed\n$")

    def test_a_capture(self):
        harness.need("tshark")
        port, server = self.server()
        client = self.client(port)
        self.echo(client, 1000)
        target = self.world.directory / "trace.pcap"
        trace = self.start_trace(client.pid, "--pcap", target)
        harness.wait_until(
            lambda: target.exists() and target.stat().st_size > 1000, "the last messages in the capture"
        )
        self.client(port)
        for size in 10, 100_000, 3_000_000:
            self.echo(client, size)
        client.popen.stdin.close()
        self.assertEqual(client.wait(20), 0)
        self.assertEqual(trace.wait(20), 0, trace.output())
        self.assertNotIn("lost", trace.output())
        count = int(re.search(r"(\d+) messages", trace.output()).group(1))
        seen = self.opcodes(target)
        # Sends, plain and with SE, and nothing that is no FPDU but three packets to open, two MPA frames and
        # a FIN; Hello and HelloAck are in these.
        self.assertEqual(sum(n for opcode, n in seen.items() if opcode), count - 2, seen)
        self.assertGreater(seen["0x03"], 100)
        self.assertIn(seen[""], (5, 6))

    def opcodes(self, capture):
        """How many of each, and of packets without; nothing that tshark does not like."""
        fields = [
            "_ws.malformed",
            "_ws.short",
            "_ws.expert.message",
            "tcp.analysis.flags",
            "iwarp_rdma.opcode",
        ]
        # A guess of tshark's, which finds RPC in zeros that stand for payload, is left out.
        rows = subprocess.run(
            [
                "tshark",
                "-r",
                capture,
                "--disable-protocol",
                "rpcordma",
                "-T",
                "fields",
                "-E",
                "separator=|",
                *(w for f in fields for w in ("-e", f)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.splitlines()
        seen = collections.Counter()
        for row in rows:
            malformed, short, expert, analysis, opcode = row.split("|")
            self.assertEqual((malformed, short, analysis), ("", "", ""), row)
            self.assertTrue(expert == "" or expert.startswith("Connection"), row)
            seen[opcode] += 1
        return seen

    def test_every_mechanism_in_the_capture_and_in_the_counters(self):
        harness.need("tshark")
        for mechanism, opcodes in (
            ("bcopy", set()),
            ("read", {READ_REQUEST, READ_RESPONSE}),
            ("write", {WRITE}),
            ("transaction", {WRITE}),
        ):
            with self.subTest(mechanism):
                port = harness.free_port()
                environment = {"SDP_FORCE": mechanism}
                server = self.world.start([sys.executable, "-c", SERVER, port], environment=environment)
                self.world.wait_for_listener(port)
                client = self.world.start(
                    [sys.executable, "-c", CLIENT, port],
                    environment=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                self.assertEqual(client.popen.stdout.readline(), b"connected\n")
                targets = [self.world.directory / f"{mechanism}-{end}.pcap" for end in ("client", "server")]
                traces = [
                    self.start_trace(process.pid, "--pcap", target)
                    for process, target in zip((client, server), targets)
                ]
                for target in targets:
                    harness.wait_until(
                        lambda: target.exists() and target.stat().st_size > 100,
                        "the last messages in the capture",
                    )
                before = [target.stat().st_size for target in targets]
                for _ in range(3):
                    client.popen.stdin.write(b"go\n")
                    client.popen.stdin.flush()
                    self.assertEqual(client.popen.stdout.readline(), b"done\n")
                # What went the direct way, a process tells up to two seconds late.
                rows = []

                def told():
                    rows[:] = self.rows(client)
                    return sum(rows[0]["bytes_out"].values()) == 3 * 300_000

                harness.wait_until(told, f"counts of {mechanism}")
                name = {
                    "bcopy": "bcopy",
                    "read": "read_zcopy",
                    "write": "write_zcopy",
                    "transaction": "write_zcopy",
                }[mechanism]
                # A sender whose peer gets no processor for a while takes its offer back, and copies.
                self.assertGreaterEqual(rows[0]["transfers_out"][name], 1)
                self.assertGreaterEqual(rows[0]["bytes_out"][name], 295_000)
                self.assertEqual(rows[0]["transfers_in"]["transaction"] != 0, mechanism == "transaction")
                self.assertEqual(rows[0]["mode_changes"] != 0, mechanism in ("write", "transaction"))
                self.assertEqual(rows[0]["bcopy_threshold"] == 0, mechanism != "read")
                # A process takes its trace with it: whoever has not opened it until then misses it. How many
                # messages there are is a matter of time: a request that is kept back for its answer may have
                # to leave by itself.
                harness.wait_until(
                    lambda: all(target.stat().st_size > size + 300 for target, size in zip(targets, before)),
                    "what was sent, in the captures",
                )
                client.popen.stdin.close()
                for process in client, server, *traces:
                    self.assertEqual(process.wait(20), 0, process.output())
                seen = self.opcodes(targets[0]) + self.opcodes(targets[1])
                self.assertEqual({READ_REQUEST, READ_RESPONSE, WRITE} & set(seen), opcodes, seen)

    def test_a_process_that_died_and_its_peer(self):
        port, server = self.server(SDP_LOG="info")
        client = self.client(port)
        self.echo(client, 1234)
        os.kill(client.pid, signal.SIGKILL)
        self.assertEqual(client.popen.wait(10), -signal.SIGKILL)
        harness.wait_until(
            lambda: re.search(
                r"aborted: link-lost; closed by the peer without a DisConn\n"
                r"(?:.* s before: .*\n)*.* s before: sent Data .*payload=1234\n",
                self.world.sdp_log(),
            ),
            "the last messages in the log",
        )
        rows = self.sdpstat("-H").stdout.splitlines()
        self.assertFalse([row for row in rows if f"[{client.pid}]" in row], rows)
        ended = self.sdpstat("-H", "--ended").stdout.splitlines()
        self.assertEqual(len(ended), 1)
        self.assertRegex(ended[0], rf"^established .*\[{client.pid}\]:\d+ ended \d+s ago$")
        trace = self.sdpstat("trace", client.pid)
        self.assertEqual(trace.returncode, 0)
        self.assertRegex(trace.stdout, r"<-+ Data --\| .*payload=1234\n$")
        self.assertIn("has ended", trace.stderr)
        self.assertEqual(self.sdpstat("--ended", "-H", "process", server.pid).stdout, "")

    def test_a_reset_is_a_program_s_own_business(self):
        """The last messages are in the log of who asks for info, and not by default."""
        for level in "error", "info":
            with self.subTest(level):
                port, server = self.server(SDP_LOG=level)
                start = len(self.world.sdp_log())
                self.world.run([sys.executable, "-c", RESET, port], environment={"SDP_LOG": "error"})
                harness.wait_until(lambda: not self.rows(server), "end of the connection")
                if level == "error":
                    self.assertNotIn("abort", self.world.sdp_log()[start:])
                else:
                    self.assertRegex(
                        self.world.sdp_log()[start:],
                        r"aborted: link-lost.*\n(?:.* s before: .*\n)*.* s before: sent Data .*payload=77\n",
                    )

    def test_mistakes_are_answered(self):
        port, server = self.server()
        client = self.client(port)
        for arguments, status, text in (
            ([], 2, "process is required"),
            ([2**22 + 1], 2, "there is no process 4194305"),
            ([os.getpid()], 1, "sdpstat why"),
            (["no-such-program"], 2, "no process called no-such-program runs over SDP"),
            (["python3"], 2, "several processes are called python3; name one by its number: "),
            ([client.pid, 77], 1, "descriptor 77 is no SDP connection of this process; these are: 3"),
            ([client.pid, "x"], 2, "x"),
            ([client.pid, "--count", "0"], 2, "--count"),
            ([client.pid, "--pcap", "/nonexistent/file"], 1, "cannot write /nonexistent/file: No such file"),
        ):
            with self.subTest(arguments):
                got = self.sdpstat("trace", *arguments)
                self.assertEqual((got.returncode, got.stdout), (status, ""), got.stderr)
                self.assertIn(text, got.stderr)
        self.assertEqual(server.popen.poll(), None)

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_other_users_see_nothing(self):
        port, server = self.server()
        self.client(port)
        self.world.directory.chmod(0o755)
        self.world.stats_dir.chmod(0o755)
        # The build tree may lie where that user cannot look.
        program = shutil.copy(SDPSTAT, self.world.directory)
        got = self.sdpstat("trace", server.pid, program=program, user=65534, cwd="/")
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("Permission denied", got.stderr)


if __name__ == "__main__":
    harness.main()
