"""Where the other side, or the port mapper, does not speak SDP: plain TCP, at once, and sdpstat says why."""

import pathlib
import re
import socket
import subprocess
import sys
import textwrap
import time

import harness
from sdp_world import SDPSTAT


class OneSidePreloaded(harness.ProgramTest):
    def test_client_only(self):
        port = harness.free_port()
        self.world.peer("sink-server", port, preload=False)
        self.world.wait_for_listener(port, sdp=False)
        self.world.run_peer("send", port, 20 << 20)

        client = self.world.peer("echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        self.assertEqual(self.world.sdp_bytes(client), (0, 0))
        process = self.world.sdpstat()["processes"][0]
        self.assertEqual(process["closed"]["fallbacks"], {"pm-denied": 1})
        self.assertEqual(process["fallbacks"][0]["peer"], f"127.0.0.1:{port}")

    def test_server_only(self):
        port = harness.free_port()
        info = {"SDP_LOG": "info"}
        server = self.world.peer("sink-server", port, environment=info)
        self.world.wait_for_listener(port)
        self.world.run_peer("send", port, 20 << 20, preload=False)
        self.assertEqual(self.world.sdp_bytes(server), (0, 0))
        # And an SDP client at the same listener, and a plain one again.
        self.world.run_peer("send", port, 5 << 20, environment=info)
        self.assert_sdp_carried(at_least_in=5 << 20, process=server)
        self.world.run_peer("send", port, 1 << 20, preload=False)
        listener = self.world.listener(port)
        self.assertEqual((listener["accepted_sdp"], listener["accepted_tcp"]), (1, 2))
        # With SDP_LOG=info the log has a line for the one connection over SDP, at each end.
        for pattern in (
            rf"connect to 127\.0\.0\.1:{port}: SDP at ",
            rf"accept on 127\.0\.0\.1:{port}: SDP from ",
        ):
            self.assertEqual(len(re.findall(pattern, self.world.sdp_log())), 1, self.world.sdp_log())

    def test_a_plain_client_among_many(self):
        server = self.world.start(
            [
                sys.executable,
                "-c",
                textwrap.dedent(
                    """
            import socket
            listener = socket.create_server(("127.0.0.1", 0), backlog=100)
            print(listener.getsockname()[1], flush=True)
            input()
            order = []
            while len(order) < 61:
                connection, _ = listener.accept()
                order.append(connection.recv(1).decode())
            print("".join(order), flush=True)
            """
                ),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        port = int(server.popen.stdout.readline())
        self.world.wait_for_listener(port)
        clients = self.world.start(
            [
                sys.executable,
                "-c",
                textwrap.dedent(
                    f"""
            import socket, sys
            connections = [socket.create_connection(("127.0.0.1", {port})) for _ in range(60)]
            for connection in connections:
                connection.send(b"s")
            print("there", flush=True)
            sys.stdin.read()
            """
                ),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(clients.popen.stdout.readline(), b"there\n")
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.send(b"p")
            server.popen.stdin.write(b"\n")
            server.popen.stdin.flush()
            order = server.popen.stdout.readline().decode().strip()
        # All were there when the first was accepted, and SDP's cost less to accept; but the other one is not
        # left to the end.
        self.assertEqual(sorted(order), ["p"] + 60 * ["s"])
        self.assertLess(order.index("p"), 20, order)
        clients.popen.stdin.close()
        self.assertEqual(clients.wait(10), 0)

    def test_mode_tcp(self):
        port = harness.free_port()
        self.world.peer("sink-server", port, environment={"SDP_MODE": "tcp"})
        self.world.wait_for_listener(port, sdp=False)
        self.world.run_peer("send", port, 1 << 20, environment={"SDP_MODE": "tcp"})
        self.assertEqual(self.world.sdp_bytes(), (0, 0))

    def test_mode_sdp_does_not_fall_back(self):
        port = harness.free_port()
        self.world.peer("sink-server", port, preload=False)
        self.world.wait_for_listener(port, sdp=False)
        client = self.world.peer("send", port, 1000, environment={"SDP_MODE": "sdp"})
        self.assertNotEqual(client.wait(20), 0)
        self.assertRegex(client.output(), "ConnectionRefusedError|TimeoutError|OSError")


class WithoutPortMapper(harness.ProgramTest):
    with_pmd = False

    def test_both_sides_preloaded_use_tcp(self):
        port = harness.free_port()
        server = self.world.peer("sink-server", port)
        self.world.wait_for_listener(port, sdp=False)
        self.world.run_peer("send", port, 20 << 20)
        self.assertEqual(self.world.sdp_bytes(server), (0, 0))

    def test_a_listener_older_than_the_port_mapper_is_registered_late(self):
        port = harness.free_port()
        server = self.world.peer("sink-server", port)
        self.world.wait_for_listener(port, sdp=False)
        self.world.run_peer("send", port, 1 << 20)
        self.assertEqual(self.world.sdp_bytes(server), (0, 0))
        threads = pathlib.Path(f"/proc/{server.pid}/task")
        harness.wait_until(
            lambda: len(list(threads.iterdir())) == 1, "end of the thread that served the client"
        )
        self.assertIn("not-registered", self.world.summary()["fallbacks"])
        self.assertIsNone(self.world.listener(port))
        self.assertIn("0 of 1 TCP sockets are SDP", self.why(server))
        self.assertIn("no sdp-pmd", self.why(server))

        self.world.start_pmd()

        # Whoever comes next is TCP's, and reminds the server to look for a daemon.
        def is_sdp():
            self.world.run_peer("send", port, 1 << 20)
            return self.world.sdp_bytes(server)[0] >= 1 << 20

        harness.wait_until(is_sdp, "connection over SDP")
        self.assertIsNotNone(self.world.listener(port))
        self.assertEqual(self.why(server).splitlines()[0].split(": ")[1], "1 of 1 TCP sockets are SDP")
        self.assertNotIn("not-registered", self.why(server))

    def why(self, process):
        return subprocess.run(
            [SDPSTAT, "why", "--dir", self.world.stats_dir, str(process.pid)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        ).stdout

    def test_connecting_costs_next_to_nothing(self):
        port = harness.free_port()
        self.world.peer("echo-server", port)
        self.world.wait_for_listener(port, sdp=False)

        def first_and_median():
            seconds = [float(s) for s in self.world.run_peer("connect", port, 50).split()]
            return seconds[0], sorted(seconds)[len(seconds) // 2]

        # Nobody listens on the port mapper's port: the answer (ICMP unreachable) comes in a round trip, and
        # is remembered.
        self.assert_takes_less((0.25, 0.02), first_and_median)

    def test_a_silent_port_mapper_costs_the_first_connect_300_ms(self):
        port = harness.free_port()
        self.world.peer("echo-server", port)
        self.world.wait_for_listener(port, sdp=False)
        silent = self.world.start(
            [
                sys.executable,
                "-c",
                "import socket, sys, time\n"
                "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                f"s.bind(('127.0.0.1', {self.world.pm_port}))\n"
                "print('bound', flush=True)\ntime.sleep(100)",
            ],
            preload=False,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(silent.popen.stdout.readline(), b"bound\n")
        default = ["env", "-u", "SDP_PM_TIMEOUT_MS"]

        def first_and_longest_of_the_others():
            seconds = [
                float(s)
                for s in self.world.run([*default, sys.executable, harness.PEER, "connect", port, 20]).split()
            ]
            return seconds[0], max(seconds[1:])

        self.assert_takes_less((0.6, 0.1), first_and_longest_of_the_others)


class PortMapperThatGoes(harness.ProgramTest):
    def test_a_listener_says_so_and_where_it_is_registered_again(self):
        port = harness.free_port()
        server = self.world.peer("sink-server", port)
        before = self.world.wait_for_listener(port)
        self.assertEqual(before["port_mapper"], str(self.world.pmd_socket))
        self.assertIn(f"registered at {self.world.pmd_socket} since", self.sdpstat("why", str(server.pid)))

        self.world.pmd.stop()
        # Nobody connects, and the program makes no call.
        row = harness.wait_until(
            lambda: self.row(port) if self.row(port)["state"] == "unregistered" else None, "loss of it"
        )
        self.assertFalse(row["registered"])
        self.assertEqual((row["registered_at_ns"], row["port_mapper"]), (None, None))
        self.assertEqual(row["reason"], "not-registered")
        self.assertRegex(self.sdpstat("-l"), rf"(?m)^unregistered +0 +\d+ +\S+:{port} ")
        self.assertIn("0 of 1 TCP sockets are SDP", self.sdpstat("why", str(server.pid)))
        self.assertIn("1 of 1 not registered, such as python3[", self.sdpstat("doctor"))
        self.assertEqual(self.world.summary()["listeners_unregistered"], 1)

        self.world.pmd = self.world.start_pmd()
        after = self.world.wait_for_listener(port)
        self.assertGreater(after["registered_at_ns"], before["registered_at_ns"])
        self.world.run_peer("send", port, 1 << 20)
        self.assertEqual(self.world.sdp_bytes(server)[0], 1 << 20)

    def row(self, port):
        (row,) = [r for p in self.world.sdpstat()["processes"] for r in p["listeners"]]
        self.assertEqual(row["local"].rsplit(":", 1)[1], str(port))
        return row

    def sdpstat(self, *arguments):
        return subprocess.run(
            [SDPSTAT, *arguments],
            env=self.world.environment(preload=False) | {"SDP_STATS_DIR": self.world.stats_dir},
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        ).stdout


class AccessRightsAndLeftovers(harness.ProgramTest):
    def test_a_directory_for_stats_that_cannot_be_used_costs_only_the_stats(self):
        port = harness.free_port()
        environment = {"SDP_STATS_DIR": "/proc/no-such-place"}
        self.world.peer("sink-server", port, environment=environment)
        self.world.wait_for_listener(port, sdp=False)
        start = time.monotonic()
        self.world.run_peer("send", port, 1 << 20, environment=environment)
        self.assertLess(time.monotonic() - start, 30)

    def test_stats_files_go_with_their_processes(self):
        port = harness.free_port()
        server = self.world.peer("sink-server", port)
        self.world.wait_for_listener(port)
        self.world.run_peer("send", port, 1000)
        self.assertEqual(len(list(self.world.stats_dir.iterdir())), 1)
        server.kill()
        server.wait()
        self.assertEqual(self.world.sdpstat()["processes"], [])
        # What the dead process published is kept for who asks later, apart.
        self.assertEqual([file.suffix for file in self.world.stats_dir.iterdir()], [".ended"])


if __name__ == "__main__":
    harness.main()
