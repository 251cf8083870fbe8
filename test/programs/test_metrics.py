"""sdpstat --metrics of programs that run: Prometheus' own checker takes it, and the example for the node
exporter writes it."""

import configparser
import os
import re
import shlex
import subprocess
import unittest

import harness
from sdp_world import ROOT, SDPSTAT

EXAMPLES = ROOT / "packaging/examples"


class Metrics(harness.ProgramTest):
    def metrics(self):
        got = subprocess.run(
            [SDPSTAT, "--metrics", "--dir", self.world.stats_dir],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return got.stdout

    def some_programs(self):
        """A server with a connection over SDP, and a client of a port that nobody has over SDP."""
        port = harness.free_port()
        self.server = self.world.peer("echo-server", port)
        self.world.wait_for_listener(port)
        self.world.run_peer("connect", port, 3)
        plain = harness.free_port()
        self.world.peer("echo-server", plain, preload=False)
        harness.wait_until(lambda: harness.tcp_listens(plain), "the server over TCP")
        client = self.world.peer("echo-client", plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        return client

    def test_prometheus_takes_it(self):
        harness.need("promtool")
        client = self.some_programs()
        own = f'program="[^"]+",pid="{self.server.pid}"'
        wanted = (
            rf"^sdp_connections_closed_total{{{own}}} 3$",
            rf'^sdp_payload_bytes_total{{{own},direction="in",link="\w+",mechanism="bcopy"}} 3$',
            rf"^sdp_listeners{{{own}}} 1$",
            rf"^sdp_unregistered_listeners{{{own}}} 0$",
            rf'^sdp_fallbacks_total{{program="[^"]+",pid="{client.pid}",reason="pm-denied"}} 1$',
        )
        harness.wait_until(
            lambda: all(re.search(form, self.metrics(), re.M) for form in wanted),
            f"these in {self.metrics()}",
        )
        for text in self.metrics(), self.nothing():
            got = subprocess.run(
                [harness.find("promtool"), "check", "metrics"],
                input=text,
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "", ""), text)

    def nothing(self):
        empty = self.world.directory / "empty"
        empty.mkdir()
        return subprocess.run(
            [SDPSTAT, "--metrics", "--dir", empty], capture_output=True, text=True, timeout=30, check=True
        ).stdout

    def test_the_example_writes_the_collector_s_file(self):
        self.some_programs()
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(EXAMPLES / "sdp-metrics.service")
        service = unit["Service"]
        self.assertEqual(service["WorkingDirectory"], service["ReadWritePaths"])
        place = self.world.directory / "collector"
        place.mkdir()
        subprocess.run(
            shlex.split(service["ExecStart"]),
            cwd=place,
            env={
                "PATH": f"{SDPSTAT.parent}:{os.environ['PATH']}",
                "SDP_STATS_DIR": str(self.world.stats_dir),
            },
            check=True,
            timeout=30,
        )
        self.assertEqual([file.name for file in place.iterdir()], ["sdp.prom"])
        self.assertIn(f'sdp_listeners{{program="', (place / "sdp.prom").read_text())

    def test_the_example_s_units_have_no_mistakes(self):
        harness.need("systemd-analyze")
        got = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *map(str, EXAMPLES.glob("sdp-metrics.*"))],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertNotIn("sdp-metrics", got.stderr, got.stderr)

    def test_mistakes_are_answered(self):
        for words in ["--json"], ["--summary"], ["state", "listen"], ["--watch"]:
            with self.subTest(words):
                got = subprocess.run(
                    [SDPSTAT, "--metrics", *words], capture_output=True, text=True, timeout=30
                )
                self.assertEqual((got.returncode, got.stdout), (2, ""))
                self.assertIn("--metrics", got.stderr)


if __name__ == "__main__":
    harness.main()
