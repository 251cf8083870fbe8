"""nginx with two workers: curl fetches a GiB, wrk hammers small and large files over keep-alive
connections."""

import hashlib
import os
import re
import signal
import subprocess

import harness

CONFIGURATION = """
daemon off;
user {user};
worker_processes {workers};
error_log stderr notice;
pid {directory}/nginx.pid;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  sendfile {sendfile};
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  keepalive_requests 1000000;
  server {{ listen 127.0.0.1:{port}; root {directory}/www; }}
}}
"""


class Nginx(harness.ProgramTest):
    def setUp(self):
        harness.need("nginx")
        super().setUp()
        self.port = harness.free_port()
        self.www = self.world.directory / "www"
        self.www.mkdir()

    def serve(self, sendfile="on", workers=2, preload=True, user="root", environment=None):
        configuration = self.world.directory / "nginx.conf"
        configuration.write_text(
            CONFIGURATION.format(
                directory=self.world.directory, port=self.port, sendfile=sendfile, workers=workers, user=user
            )
        )
        server = self.world.start(
            ["nginx", "-c", configuration, "-p", self.world.directory],
            preload=preload,
            environment=environment,
        )
        self.world.wait_for_listener(self.port, sdp=preload)
        return server

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"

    def curl_hash(self, name, preload=True):
        """The SHA-256 of what curl receives, without a copy on disk."""
        curl = self.world.start(
            ["curl", "-sS", "--fail", "--max-time", "120", self.url(name)],
            stdout=subprocess.PIPE,
            preload=preload,
        )
        digest, size = hashlib.sha256(), 0
        while data := curl.popen.stdout.read(1 << 20):
            digest.update(data)
            size += len(data)
        self.assertEqual(curl.wait(), 0, curl.output())
        return size, digest.hexdigest()

    def wrk(self, name):
        harness.need("wrk")
        output = self.world.run(
            ["wrk", "--timeout", "20s", "-t", "2", "-c", "50", "-d", "4s", self.url(name)]
        ).decode()
        self.assertNotIn("Socket errors", output)
        self.assertNotIn("Non-2xx", output)
        return int(re.search(r"(\d+) requests in", output)[1])

    def test_curl_fetches_a_gib(self):
        harness.need("curl")
        size = 1 << 30
        wanted = harness.random_file(self.www / "big", size)
        self.serve()
        self.assertEqual(self.curl_hash("big"), (size, wanted))
        self.assert_sdp_carried(at_least_out=size)
        self.assert_no_tcp()

    def test_without_sendfile(self):
        harness.need("curl")
        size = 64 << 20
        wanted = harness.random_file(self.www / "file", size)
        self.serve(sendfile="off")
        self.assertEqual(self.curl_hash("file"), (size, wanted))
        self.assert_sdp_carried(at_least_out=size)

    def test_wrk_with_small_files(self):
        harness.random_file(self.www / "small", 1024)
        self.serve()
        self.assert_sdp_carried(at_least_out=self.wrk("small") * 1024)
        self.assert_no_tcp()

    def test_wrk_with_large_files(self):
        harness.random_file(self.www / "large", 1 << 20)
        self.serve()
        self.assert_sdp_carried(at_least_out=self.wrk("large") << 20)
        self.assert_no_tcp()

    def test_each_worker_has_its_name_and_what_it_is(self):
        """Its processes write titles over their arguments. A rule that comes later knows the name, too."""
        harness.need("curl")
        (self.www / "file").write_text("x")
        rules = self.world.directory / "libsdp.conf"
        server = self.serve(environment={"SDP_CONFIG": rules})
        self.curl_hash("file")

        def table(*words):
            return subprocess.run(
                [harness.SDPSTAT, "--dir", self.world.stats_dir, *words],
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout

        def rows(*words):
            return [line.split("  ")[-1] for line in table("-H", "-l", *words).splitlines()]

        def shown(*words):
            return sorted(re.sub(r"\[\d+\]:\d+", "", row) for row in rows(*words))

        wanted = ["nginx (master process)"] + 2 * ["nginx (worker process)"]
        harness.wait_until(lambda: shown() == wanted, f"the three processes: {rows()}")
        self.assertEqual(shown("process", "nginx"), wanted)
        self.assertEqual(shown("process", "nginx: *"), [])
        self.assertRegex(table("why", "nginx"), rf"nginx\[{server.pid}\] \(master process\): ")
        rules.write_text("use tcp server nginx *:*\n")
        configuration = self.world.directory / "nginx.conf"
        text = configuration.read_text()

        def rule_holds():
            """Of a listener that is new. The library looks at its file once a second at most."""
            listen = f"listen 127.0.0.1:{self.port};"
            other = f"127.0.0.1:{harness.free_port()}"
            configuration.write_text(text.replace(listen, f"{listen} listen {other};"))
            server.popen.send_signal(signal.SIGHUP)
            harness.wait_until(lambda: other in table("-a", "process", "nginx"), f"listener at {other}")
            return other in table("-t", "process", "nginx", "and", "reason", "rule")

        harness.wait_until(rule_holds, "listener that the rule leaves to TCP")

    def test_each_end_alone(self):
        """With workers of another user's, if that can be."""
        harness.need("curl")
        user = "www-data" if os.geteuid() == 0 else "root"
        self.world.directory.chmod(0o755)
        size = 64 << 20
        wanted = harness.random_file(self.www / "file", size)
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.port = harness.free_port()
                server = self.serve(workers=4, preload=ends.server, user=user)
                for _ in range(4):
                    self.assertEqual(self.curl_hash("file", preload=ends.client), (size, wanted))
                self.assert_carried(self.port, ends, at_least=4)
                server.stop()


if __name__ == "__main__":
    harness.main()
