"""libsdp.conf: rules decide, the environment stands above them, running processes follow a changed file."""

import subprocess

import harness


class Rules(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.path = self.world.directory / "libsdp.conf"
        self.environment = {"SDP_CONFIG": self.path}

    def write(self, text):
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    def serve(self, **environment):
        port = harness.free_port()
        server = self.world.peer("sink-server", port, environment={**self.environment, **environment})
        self.world.wait_for_listener(port, sdp=False)
        return port, server

    def only_fallback(self, pid):
        (process,) = [p for p in self.world.sdpstat()["processes"] if p["pid"] == pid]
        self.assertEqual(len(process["fallbacks"]), 1)
        return process["fallbacks"][0]

    def test_a_server_that_a_rule_leaves_to_tcp(self):
        port = harness.free_port()
        self.write(f"# none for this port\nuse tcp server python* *:{port}\n")
        server = self.world.peer("sink-server", port, environment=self.environment)
        self.world.wait_for_listener(port, sdp=False)
        harness.wait_until(
            lambda: [p for p in self.world.sdpstat()["processes"] if p["fallbacks"]], "stats of the server"
        )
        why = self.only_fallback(server.pid)
        self.assertEqual(why["reason"], "rule")
        self.assertEqual(why["reason_text"], f"libsdp.conf:2: use tcp server python* *:{port}")
        self.world.run_peer("send", port, 1000, environment={"LIBSDP_CONFIG_FILE": "/dev/null"})
        self.assertEqual(self.world.sdp_bytes(server), (0, 0))

    def test_a_client_that_a_rule_leaves_to_tcp_and_the_environment_above_it(self):
        self.write("use tcp connect * 127.0.0.0/8:*\n")
        port, server = self.serve(SDP_CONFIG="/dev/null")
        self.world.wait_for_listener(port)
        self.world.run_peer("send", port, 1 << 20, environment=self.environment)
        self.assertEqual(self.world.sdp_bytes(server), (0, 0))
        self.world.run_peer("send", port, 1 << 20, environment={**self.environment, "SDP_MODE": "both"})
        self.assert_sdp_carried(at_least_in=1 << 20, process=server)

    def test_sdp_alone_turns_tcp_away(self):
        self.write("use sdp server * *:*\nuse sdp client * *:*\n")
        port, server = self.serve()
        self.world.wait_for_listener(port)
        plain = self.world.peer("send", port, 8 << 20, preload=False)
        self.assertNotEqual(plain.wait(20), 0)
        self.world.run_peer("send", port, 1 << 20, environment=self.environment)
        self.assert_sdp_carried(at_least_in=1 << 20, process=server)
        other, _ = self.serve(SDP_CONFIG="/dev/null", SDP_MODE="tcp")
        client = self.world.peer("send", other, 1000, environment=self.environment)
        self.assertNotEqual(client.wait(20), 0)
        self.assertRegex(client.output(), "ConnectionRefusedError")
        self.assertIn("libsdp.conf:2: use sdp client * *:* allows no TCP", self.world.sdp_log())

    def test_a_listener_that_must_be_sdp_and_cannot_be(self):
        self.write("use sdp server * *:*\n")
        server = self.world.peer(
            "sink-server",
            harness.free_port(),
            environment={**self.environment, "SDP_PMD_SOCKET": "/nonexistent/pmd.sock"},
        )
        self.assertNotEqual(server.wait(20), 0)
        self.assertIn("OSError", server.output())

    def test_mistakes_are_reported_and_stop_nothing(self):
        self.write(
            "use both server * *:*\nuse udp server * *:*\nset private-buffers 7\nset private-bufers 9\n"
            "use tcp server * *:80\n"
        )
        port, server = self.serve()
        self.world.wait_for_listener(port)
        self.world.run_peer("send", port, 1 << 20, environment=self.environment)
        self.assert_sdp_carried(at_least_in=1 << 20, process=server)
        log = self.world.sdp_log()
        self.assertIn(f"{self.path}:2:5: expected tcp, sdp or both, but there is 'udp': line ignored", log)
        self.assertIn(
            f"{self.path}:4:20: there is no setting 'private-bufers', perhaps private-buffers: ignored", log
        )
        self.assertIn(f"{self.path}:5:1: never matches: line 1", log)

    def test_mistakes_are_not_on_every_programs_standard_error(self):
        """A mistake in a file for all programs is said by sdp-run, and in the log of who wants one."""
        self.write("use udp server * *:*\n")
        quiet = {"SDP_LOG": "", "SDP_LOG_FILE": "", "SDP_MODUS": "tcp"}
        mistake = f"{self.path}:1:5: expected tcp, sdp or both, but there is 'udp': line ignored"
        variable = "there is no variable SDP_MODUS, perhaps SDP_MODE: ignored"
        port, _ = self.serve(SDP_CONFIG="/dev/null")
        self.world.wait_for_listener(port)

        def said(command=(), **more):
            client = self.world.start(
                [*command, harness.sys.executable, harness.PEER, "send", port, 1000],
                preload=not command,
                environment={**self.environment, **quiet, **more},
            )
            self.assertEqual(client.wait(30), 0, client.output())
            return client.output()

        self.assertEqual(said(), "ok 1000\n")
        told = said(SDP_LOG="info")
        self.assertEqual((told.count(mistake), told.count(variable)), (1, 1), told)
        log = self.world.directory / "other.log"
        self.assertEqual(said(SDP_LOG_FILE=log), "ok 1000\n")
        self.assertEqual((log.read_text().count(mistake), log.read_text().count(variable)), (1, 1))
        told = said([harness.SDP_RUN])
        self.assertEqual((told.count(mistake), told.count(variable)), (1, 1), told)
        self.assertIn("sdp-run: ", told)

    def test_a_running_process_follows_the_file(self):
        port, server = self.serve(SDP_CONFIG="/dev/null")
        self.world.wait_for_listener(port)
        client = self.world.start(
            [
                harness.sys.executable,
                "-c",
                (
                    "import socket, sys\n"
                    "for line in sys.stdin:\n"
                    f"    with socket.create_connection(('127.0.0.1', {port})) as s:\n"
                    "        s.sendall(b'x' * 1000)\n"
                    "    print('done', flush=True)\n"
                ),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            environment=self.environment,
        )

        def connect():
            client.popen.stdin.write(b"\n")
            client.popen.stdin.flush()
            self.assertEqual(client.popen.stdout.readline(), b"done\n")
            closed = [p for p in self.world.sdpstat()["processes"] if p["pid"] == client.pid][0]["closed"]
            return closed["fallbacks"].get("rule", 0), closed["connections_closed"]

        # Its file does not exist yet; then it does, and says tcp; then it says both.
        connect()
        self.write("use tcp client * *:*\nuse both server * *:*\n")
        harness.wait_until(lambda: connect()[0] >= 1, "connection that the new rule makes TCP")
        self.write("use both client * *:*\n")
        before = connect()[1]
        harness.wait_until(lambda: connect()[1] > before, "connection over SDP again")
        self.assertIn("libsdp.conf has changed: 1 rule for", self.world.sdp_log())


if __name__ == "__main__":
    harness.main()
