"""vsftpd: two processes for each session, of which the privileged one makes the data connections and hands
them to the other. With TLS the other one hands them on to a third, a sibling.

Without its seccomp filter, which Debian 12's vsftpd does not survive on plain TCP either (it allows no
newfstatat), and with its isolation, for which it forks by the bare system call.
"""

import os
import sys

import harness

CONFIGURATION = """
listen=YES
listen_address=127.0.0.1
listen_port={port}
background=NO
anonymous_enable=YES
local_enable=NO
anon_root={directory}/served
no_anon_password=YES
pasv_enable=YES
pasv_address=127.0.0.1
port_enable=YES
connect_from_port_20=YES
ftp_data_port={data_port}
secure_chroot_dir={directory}/empty
seccomp_sandbox=NO
isolate=YES
isolate_network=NO
xferlog_enable=NO
"""

# With it a third process of each session encrypts: it gets the data connections from the one that has made
# them.
TLS = """
ssl_enable=YES
allow_anon_ssl=YES
rsa_cert_file={directory}/certificate
"""

# Prints the hash of each file it fetches, in one session: the server connects to the client, the other way
# round, and once more.
CLIENT = """
import ftplib, hashlib, sys
with ftplib.FTP() as ftp:
    ftp.connect("127.0.0.1", int(sys.argv[1]), timeout=60)
    ftp.login()
    for passive in False, True, False:
        ftp.set_pasv(passive)
        assert ftp.nlst() == ["file"]
        digest = hashlib.sha256()
        ftp.retrbinary("RETR file", digest.update)
        print(digest.hexdigest())
"""


class Vsftpd(harness.ProgramTest):
    def setUp(self):
        harness.need("vsftpd", "curl")
        if os.geteuid() != 0:
            self.skipTest("vsftpd wants to be root")
        super().setUp()
        self.directory = self.world.directory
        self.directory.chmod(0o755)
        for name in ("served", "empty"):
            (self.directory / name).mkdir(mode=0o755)
        self.wanted = harness.random_file(self.directory / "served" / "file", 20 << 20)
        (self.directory / "served" / "file").chmod(0o644)

    def serve(self, ends, text):
        port = harness.free_port()
        configuration = self.directory / f"vsftpd-{port}.conf"
        configuration.write_text(
            text.format(port=port, data_port=harness.free_port(), directory=self.directory)
        )
        server = self.world.start(["vsftpd", configuration], preload=ends.server)
        self.world.wait_for_listener(port, sdp=ends.server)
        return server, port

    def use(self, ends):
        server, port = self.serve(ends, CONFIGURATION)
        fetched = self.directory / "fetched"
        for way in ["--disable-epsv"], ["--ftp-port", "-"]:
            self.world.run(
                ["curl", "-sS", "--max-time", "20", *way, "-o", fetched, f"ftp://127.0.0.1:{port}/file"],
                preload=ends.client,
            )
            self.assertEqual(harness.file_hash(fetched), self.wanted)
            fetched.unlink()
        answer = self.world.run([sys.executable, "-c", CLIENT, port], preload=ends.client)
        self.assertEqual(answer.decode().split(), [self.wanted] * 3)
        self.assert_carried(port, ends, at_least=3)
        # And the connections for the data: curl's two, Python's six. For passive ones the server listens when
        # it has changed its root.
        over_sdp, over_tcp = self.world.connects(r"\d+")
        if ends.sdp:
            self.assertEqual((over_sdp, over_tcp), (3 + 2 + 6, {}))
        server.stop()

    def test_sessions(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use(ends)

    def use_tls(self, ends):
        server, port = self.serve(ends, CONFIGURATION + TLS)
        fetched = self.directory / "fetched"
        for _ in range(3):
            self.world.run(
                [
                    "curl",
                    "-sS",
                    "--insecure",
                    "--ssl-reqd",
                    "--max-time",
                    "20",
                    "--disable-epsv",
                    "-o",
                    fetched,
                    f"ftp://127.0.0.1:{port}/file",
                ],
                preload=ends.client,
            )
            self.assertEqual(harness.file_hash(fetched), self.wanted)
            fetched.unlink()
        self.assert_carried(port, ends, at_least=3)
        over_sdp, over_tcp = self.world.connects(r"\d+")
        if ends.sdp:
            self.assertEqual((over_sdp, over_tcp), (3 + 3, {}))
        server.stop()

    def test_tls(self):
        harness.need("openssl")
        key, certificate = self.directory / "key", self.directory / "certificate"
        self.world.run(
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
                key,
                "-out",
                certificate,
            ],
            preload=False,
        )
        certificate.write_bytes(key.read_bytes() + certificate.read_bytes())
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use_tls(ends)


if __name__ == "__main__":
    harness.main()
