"""haproxy in front of nginx, with threads: what comes in over SDP goes out over SDP. As HTTP and as TCP, also
where it is to splice."""

import harness

CONFIGURATION = """
global
  nbthread 2
  maxconn 400
  log stderr local0 notice
defaults
  mode {mode}
  timeout connect 5s
  timeout client 20s
  timeout server 20s
  {option}
listen relay
  bind 127.0.0.1:{port}
  server one 127.0.0.1:{behind}
"""
BEHIND = """
daemon off;
user root;
worker_processes 1;
error_log stderr notice;
pid {directory}/nginx.pid;
events {{ worker_connections 1024; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {directory}/www; }} }}
"""


class Haproxy(harness.ProgramTest):
    def setUp(self):
        harness.need("haproxy", "nginx", "curl", "wrk")
        super().setUp()
        self.directory = self.world.directory
        (self.directory / "www").mkdir()
        self.large = harness.random_file(self.directory / "www" / "large", 48 << 20)
        harness.random_file(self.directory / "www" / "small", 3000)

    def relay(self, mode, option, ends):
        """`ends`: haproxy, and what is in front of and behind it."""
        behind, port = harness.free_port(), harness.free_port()
        configuration = self.directory / "nginx.conf"
        configuration.write_text(BEHIND.format(directory=self.directory, port=behind))
        nginx = self.world.start(["nginx", "-c", configuration, "-p", self.directory], preload=ends.client)
        self.world.wait_for_listener(behind, sdp=ends.client)
        configuration = self.directory / f"haproxy-{port}.conf"
        configuration.write_text(CONFIGURATION.format(mode=mode, option=option, port=port, behind=behind))
        haproxy = self.world.start(["haproxy", "-db", "-f", configuration], preload=ends.server)
        self.world.wait_for_listener(port, sdp=ends.server)

        url = f"http://127.0.0.1:{port}"
        fetched = self.directory / "fetched"
        self.world.run(
            ["curl", "-sS", "--fail", "--max-time", "30", "-o", fetched, f"{url}/large"], preload=ends.client
        )
        self.assertEqual(harness.file_hash(fetched), self.large)
        output = self.world.run(
            ["wrk", "--timeout", "20s", "-t", "2", "-c", "20", "-d", "1s", f"{url}/small"],
            preload=ends.client,
        ).decode()
        self.assertNotIn("Socket errors", output)
        self.assertNotIn("Non-2xx", output)
        self.assert_carried(port, ends, at_least=20)
        self.assert_carried(behind, harness.Ends(server=ends.client, client=ends.server))
        haproxy.stop()
        nginx.stop()

    def test_http(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.relay("http", "", ends)

    def test_tcp_with_splice(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.relay(
                    "tcp", "option splice-auto\n  option splice-request\n  option splice-response", ends
                )


if __name__ == "__main__":
    harness.main()
