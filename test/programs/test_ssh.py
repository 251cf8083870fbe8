"""OpenSSH: sshd with its re-exec, privilege separation and the seccomp filter of what runs before the log-in;
ssh and scp."""

import getpass
import hashlib
import os
import pathlib
import random
import shutil
import subprocess

import harness

CONFIGURATION = """
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host-key
AuthorizedKeysFile {directory}/user-key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
LogLevel VERBOSE
Subsystem sftp internal-sftp
"""


class OpenSsh(harness.ProgramTest):
    def setUp(self):
        harness.need("sshd", "ssh", "scp", "ssh-keygen")
        super().setUp()
        self.directory = self.world.directory
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(
                mode=0o755, exist_ok=True
            )  # where what runs before the log-in is locked in
        for key in ("host-key", "user-key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key], check=True
            )

    def serve(self, ends, *options):
        port = harness.free_port()
        configuration = self.directory / f"sshd-{port}"
        configuration.write_text(CONFIGURATION.format(port=port, directory=self.directory))
        self.world.start(
            [shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-D", "-e", "-f", configuration, *options],
            preload=ends.server,
        )
        self.world.wait_for_listener(port, sdp=ends.server)
        return port

    def options(self, port_option, port):
        return [
            port_option,
            str(port),
            "-i",
            str(self.directory / "user-key"),
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            f"UserKnownHostsFile={self.directory}/known-hosts",
            "-o",
            "LogLevel=ERROR",
        ]

    def ssh(self, ends, port, command, **options):
        return self.world.run(
            ["ssh", *self.options("-p", port), "127.0.0.1", command], preload=ends.client, **options
        )

    def use(self, ends, port):
        up = random.Random(1).randbytes(3_000_000)
        answer = self.ssh(ends, port, "sha256sum", data=up)
        self.assertEqual(answer.split()[0].decode(), hashlib.sha256(up).hexdigest())
        wanted = harness.random_file(self.directory / "down", 4_000_000)
        self.assertEqual(
            hashlib.sha256(self.ssh(ends, port, f"cat {self.directory}/down")).hexdigest(), wanted
        )
        remote = f"{getpass.getuser()}@127.0.0.1:{self.directory}"
        self.world.run(
            ["scp", *self.options("-P", port), f"{remote}/down", self.directory / "copied"],
            preload=ends.client,
        )
        self.world.run(
            ["scp", *self.options("-P", port), self.directory / "copied", f"{remote}/returned"],
            preload=ends.client,
        )
        self.assertEqual(harness.file_hash(self.directory / "returned"), wanted)
        with self.assertRaisesRegex(AssertionError, "ended with 37"):
            self.ssh(ends, port, "exit 37")
        self.assert_carried(port, ends, at_least=5)

    def test_sshd_with_re_exec(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use(ends, self.serve(ends))

    def test_sshd_without_re_exec(self):
        ends = harness.Ends(server=True, client=True)
        self.use(ends, self.serve(ends, "-r"))


if __name__ == "__main__":
    harness.main()
