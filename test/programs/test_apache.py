"""Apache: processes that all accept from one listener (prefork), and threads with epoll (event)."""

import os
import pathlib
import re

import harness

MODULES = pathlib.Path("/usr/lib/apache2/modules")
CONFIGURATION = """
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {directory}/apache-{port}.pid
ErrorLog {directory}/apache.log
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
DocumentRoot {directory}/www
EnableSendfile On
EnableMMAP Off
KeepAlive On
MaxKeepAliveRequests 0
StartServers {processes}
MaxRequestWorkers {workers}
{spare}
{user}
"""


class Apache(harness.ProgramTest):
    def setUp(self):
        harness.need("apache2", "curl", "wrk")
        super().setUp()
        self.www = self.world.directory / "www"
        self.www.mkdir()
        self.size = 48 << 20
        self.large = harness.random_file(self.www / "large", self.size)
        harness.random_file(self.www / "small", 3000)
        self.world.directory.chmod(0o755)  # the workers are another user's

    def serve(self, mpm, ends):
        port = harness.free_port()
        configuration = self.world.directory / f"apache-{port}.conf"
        user = "User www-data\nGroup www-data" if os.geteuid() == 0 else ""
        configuration.write_text(
            CONFIGURATION.format(
                directory=self.world.directory,
                port=port,
                mpm=mpm,
                modules=MODULES,
                user=user,
                processes=20 if mpm == "prefork" else 2,  # a kept connection occupies a process
                workers=25 if mpm == "prefork" else 100,
                # It ends idle ones by a connection of its own, which would count.
                spare="MaxSpareServers 25" if mpm == "prefork" else "",
            )
        )
        server = self.world.start(["apache2", "-f", configuration, "-DFOREGROUND"], preload=ends.server)
        self.world.wait_for_listener(port, sdp=ends.server)
        return server, port

    def use(self, mpm, ends):
        server, port = self.serve(mpm, ends)
        url = f"http://127.0.0.1:{port}"
        fetched = self.world.directory / "fetched"
        for _ in range(2):
            self.world.run(
                ["curl", "-sS", "--fail", "--max-time", "30", "-o", fetched, f"{url}/large"],
                preload=ends.client,
            )
            self.assertEqual(harness.file_hash(fetched), self.large)
        output = self.world.run(
            ["wrk", "--timeout", "20s", "-t", "2", "-c", "16", "-d", "1s", f"{url}/small"],
            preload=ends.client,
        ).decode()
        self.assertNotIn("Socket errors", output)
        self.assertNotIn("Non-2xx", output)
        self.assertGreater(int(re.search(r"(\d+) requests in", output)[1]), 100)
        self.assert_carried(port, ends, at_least=18)
        server.stop()

    def test_prefork(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("prefork", ends)

    def test_event(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("event", ends)


if __name__ == "__main__":
    harness.main()
