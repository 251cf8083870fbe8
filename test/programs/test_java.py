"""OpenJDK: selectors; and what it does when com.sun.sdp.conf tells it to use SDP: it makes a socket of the
old address family and puts it in its TCP socket's place."""

import re

import harness

SOURCE = harness.HERE / "SdpEcho.java"
NIO_SOURCE = harness.HERE / "NioEcho.java"
QUICKLY = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class Java(harness.ProgramTest):
    def setUp(self):
        # javac: a Java program without a compiled form needs the development kit.
        harness.need("java", "javac")
        super().setUp()
        self.port = harness.free_port()
        self.conf = self.world.directory / "sdp.conf"
        self.conf.write_text(f"bind 127.0.0.1 {self.port}\nconnect 127.0.0.1 {self.port}\n")

    def echo(self, *options, **more):
        return self.world.run(["java", *QUICKLY, *options, SOURCE, self.port], **more).decode()

    def test_asks_for_sdp(self):
        said = self.echo(
            f"-Dcom.sun.sdp.conf={self.conf}",
            "-Dcom.sun.sdp.debug",
            "-Djava.net.preferIPv4Stack=true",
            environment={"SDP_LOG": "debug", "SDP_MODE": "both"},
        )
        self.assertIn("sockets ok", said)
        self.assertIn("channels ok", said)
        self.assertEqual(
            len(re.findall(r"connect to 127.0.0.1:\d+: SDP at ", self.world.sdp_log())),
            2,
            self.world.sdp_log(),
        )
        self.assertEqual(said.count("socket converted to SDP protocol"), 4, said)
        self.assert_no_tcp()

    def test_knows_nothing_of_sdp(self):
        said = self.echo(environment={"SDP_LOG": "debug"})
        self.assertIn("channels ok", said)
        self.assertEqual(
            len(re.findall(r"connect to .*: SDP at ", self.world.sdp_log())), 2, self.world.sdp_log()
        )


class Nio(harness.ProgramTest):
    """A server and its client, each of them one thread with a selector."""

    def setUp(self):
        harness.need("java", "javac")
        super().setUp()
        self.world.run(["javac", "-d", self.world.directory, NIO_SOURCE], preload=False)

    def command(self, *arguments, options=()):
        return ["java", *QUICKLY, *options, "-cp", self.world.directory, "NioEcho", *arguments]

    def serve(self, preload, options=()):
        port = harness.free_port()
        server = self.world.start(self.command("serve", port, options=options), preload=preload)
        self.world.wait_for_listener(port, timeout=30, sdp=preload)
        return server, port

    def test_selectors(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                server, port = self.serve(ends.server)
                answer = self.world.run(self.command("send", port, 30, 200_000), preload=ends.client)
                self.assertEqual(answer, b"ok 30\n")
                self.assert_carried(port, ends, at_least=30)
                server.stop()

    def asks_for_sdp(self, port):
        conf = self.world.directory / f"sdp-{port}.conf"
        conf.write_text(f"bind 127.0.0.1 {port}\nconnect 127.0.0.1 {port}\n")
        return [f"-Dcom.sun.sdp.conf={conf}", "-Djava.net.preferIPv4Stack=true"]

    def test_a_client_that_asks_for_sdp(self):
        """It gets SDP from whoever has the library, and never TCP."""
        for served in True, False:
            with self.subTest("preloaded" if served else "plain"):
                server, port = self.serve(served)
                client = self.world.start(
                    self.command("send", port, 5, 200_000, options=self.asks_for_sdp(port))
                )
                self.assertEqual(client.wait(30) == 0, served, client.output())
                over_sdp, over_tcp = self.world.connects(port)
                self.assertEqual((over_sdp, over_tcp), (5 if served else 0, {}))
                if not served:
                    self.assertIn("ConnectException: Connection refused", client.output())
                server.stop()

    def test_a_server_that_asks_for_sdp(self):
        """Clients with the library reach it, others find nobody."""
        port = harness.free_port()
        self.world.start(self.command("serve", port, options=self.asks_for_sdp(port)))
        self.world.wait_for_listener(port, timeout=60)
        self.assertEqual(self.world.run(self.command("send", port, 5, 200_000)), b"ok 5\n")
        plain = self.world.start(self.command("send", port, 1, 1000), preload=False)
        self.assertNotEqual(plain.wait(30), 0)
        self.assertRegex(plain.output(), "ConnectException: Connection refused|Connection reset|Broken pipe")
        listener = self.world.listener(port)
        self.assertEqual((listener["accepted_sdp"], listener["accepted_tcp"]), (5, 0))


if __name__ == "__main__":
    harness.main()
