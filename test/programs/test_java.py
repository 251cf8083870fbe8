"""OpenJDK, told by com.sun.sdp.conf to use SDP: it makes a socket of the old address family and puts it in its TCP socket's place."""

import re

import harness

SOURCE = harness.HERE / "SdpEcho.java"


class Java(harness.ProgramTest):
    def setUp(self):
        # javac: a Java program without a compiled form needs the development kit.
        harness.need("java", "javac")
        super().setUp()
        self.port = harness.free_port()
        self.conf = self.world.directory / "sdp.conf"
        self.conf.write_text(f"bind 127.0.0.1 {self.port}\nconnect 127.0.0.1 {self.port}\n")

    def echo(self, *options, **more):
        return self.world.run(["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options, SOURCE, self.port], **more).decode()

    def test_asks_for_sdp(self):
        said = self.echo(f"-Dcom.sun.sdp.conf={self.conf}", "-Dcom.sun.sdp.debug", "-Djava.net.preferIPv4Stack=true",
                         environment={"SDP_LOG": "debug", "SDP_MODE": "both"})
        self.assertIn("sockets ok", said)
        self.assertIn("channels ok", said)
        self.assertEqual(len(re.findall(r"connect to 127.0.0.1:\d+: SDP at ", self.world.sdp_log())), 2, self.world.sdp_log())
        self.assertEqual(said.count("socket converted to SDP protocol"), 4, said)
        self.assert_no_tcp()

    def test_knows_nothing_of_sdp(self):
        said = self.echo(environment={"SDP_LOG": "debug"})
        self.assertIn("channels ok", said)
        self.assertEqual(len(re.findall(r"connect to .*: SDP at ", self.world.sdp_log())), 2, self.world.sdp_log())


if __name__ == "__main__":
    harness.main()
