"""stunnel: a tunnel's two ends and what is before and behind them, each connection over SDP; TLS inside the
tunnel."""

import subprocess

import harness

END = """
foreground = yes
pid =
syslog = no
[tunnel]
client = {client}
accept = 127.0.0.1:{accept}
connect = 127.0.0.1:{connect}
{certificate}
"""


class Stunnel(harness.ProgramTest):
    def setUp(self):
        harness.need("stunnel4", "openssl")
        super().setUp()
        self.certificate = self.world.directory / "certificate.pem"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-keyout",
                self.certificate,
                "-out",
                self.world.directory / "public.pem",
            ],
            check=True,
            capture_output=True,
        )
        with open(self.certificate, "a") as whole:
            whole.write((self.world.directory / "public.pem").read_text())

    def tunnel_end(self, connect, is_client, preload):
        accept = harness.free_port()
        configuration = self.world.directory / f"stunnel-{accept}.conf"
        configuration.write_text(
            END.format(
                client="yes" if is_client else "no",
                accept=accept,
                connect=connect,
                certificate="" if is_client else f"cert = {self.certificate}",
            )
        )
        end = self.world.start(["stunnel4", configuration], preload=preload)
        self.world.wait_for_listener(accept, sdp=preload)
        return end, accept

    def test_tunnel(self):
        size = 12 << 20
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                sink = self.world.peer("sink-server", port, preload=ends.client)
                self.world.wait_for_listener(port, sdp=ends.client)
                far, far_port = self.tunnel_end(port, is_client=False, preload=ends.server)
                near, near_port = self.tunnel_end(far_port, is_client=True, preload=ends.client)
                for _ in range(3):
                    self.world.run_peer("send", near_port, size, preload=ends.client)
                self.assert_carried(near_port, harness.Ends(ends.client, ends.client), at_least=3)
                self.assert_carried(far_port, ends, at_least=3)
                self.assert_carried(port, harness.Ends(ends.client, ends.server), at_least=3)
                for process in (near, far, sink):
                    process.stop()


if __name__ == "__main__":
    harness.main()
