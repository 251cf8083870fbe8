"""sdp-run --explain and its options; sdpstat doctor: they try what they speak of."""

import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys

import harness
from sdp_world import PMD, SDP_RUN, SDPSTAT


class Tools(harness.ProgramTest):
    def tool(self, *arguments, **environment):
        env = self.world.environment(
            preload=False,
            **(
                {
                    "SDP_PMD_SOCKET": self.world.pmd_socket,
                    "SDP_PM_PORT": self.world.pm_port,
                    "SDP_STATS_DIR": self.world.stats_dir,
                    "SDP_CONFIG": "/dev/null",
                }
                | environment
            ),
        )
        return subprocess.run(
            [str(a) for a in arguments], env=env, capture_output=True, text=True, timeout=60
        )

    def config(self, text):
        path = self.world.directory / "libsdp.conf"
        path.write_text(text)
        return path

    def serve(self, preload=True):
        port = harness.free_port()
        self.world.peer("sink-server", port, preload=preload)
        self.world.wait_for_listener(port, sdp=preload)
        return port


class Explain(Tools):
    def test_sdp(self):
        port = self.serve()
        probes = lambda: set(pathlib.Path("/tmp").glob("sdp-probe-*"))  # other runs' come and go
        before = probes()
        got = self.tool(SDP_RUN, "--explain", f"127.0.0.1:{port}")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.assertIn("no rule of /dev/null speaks of sdp-run", got.stdout)
        self.assertRegex(got.stdout, r"port mapper +says: SDP at 127\.0\.0\.1:\d+\n")
        self.assertRegex(got.stdout, r"RNIC +soft, over the link \w+\n")
        self.assertRegex(got.stdout, r"result +SDP, after [\d.]+ ms")
        harness.wait_until(lambda: probes() <= before, "end of the probe's directory")

    def test_rules_that_never_match(self):
        """sdp-run says it, too, and says it once."""
        port = self.serve()
        path = self.config("use both client * *:*\nuse tcp client * *:80\n")
        shadowed = f"{path}:2:1: never matches: line 1 "
        got = self.tool(SDP_RUN, "--config", path, "true")
        self.assertEqual((got.returncode, got.stderr.count(f"sdp-run: {shadowed}")), (0, 1), got.stderr)
        got = self.tool(SDP_RUN, "--config", path, "--explain", f"127.0.0.1:{port}")
        self.assertEqual(got.stdout.count(f"configuration  {shadowed}"), 1, got.stdout)

    def test_a_configuration_that_is_not_there_is_not_named_as_one(self):
        port = self.serve()
        path = self.world.directory / "none.conf"
        got = self.tool(SDP_RUN, "--explain", f"127.0.0.1:{port}", SDP_CONFIG=path)
        self.assertIn(f"{path}: No such file or directory", got.stdout)
        self.assertNotIn("no rule of", got.stdout)

    def test_denied(self):
        port = self.serve(preload=False)
        got = self.tool(SDP_RUN, "--explain", f"localhost:{port}")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(
            got.stdout,
            r"result +TCP: pm-denied \(remote\): "
            r"the peer's port mapper knows no SDP listener for this port\n",
        )
        self.assertIn("Start the server with the preload, after sdp-pmd", got.stdout)

    def test_rules_of_the_program_that_is_named(self):
        port = self.serve()
        path = self.config(f"use tcp client psql *:{port}\nuse sdp client nginx *:*\n")
        got = self.tool(SDP_RUN, "--config", path, "--explain", f"127.0.0.1:{port}", "/usr/bin/psql")
        self.assertEqual(got.returncode, 1)
        self.assertIn(f"{path}:1: use tcp client psql *:{port}\n", got.stdout)
        self.assertRegex(got.stdout, r"result +TCP: rule \(local\)")
        got = self.tool(SDP_RUN, "--config", path, "--explain", f"127.0.0.1:{port}", "nginx")
        self.assertEqual(got.returncode, 0)
        self.assertIn(f"{path}:2: use sdp client nginx *:*\n", got.stdout)
        got = self.tool(SDP_RUN, "--mode", "tcp", "--explain", f"127.0.0.1:{port}")
        self.assertIn("SDP_MODE=tcp, which stands above all rules", got.stdout)
        self.assertEqual(got.returncode, 1)

    def test_a_program_that_cannot_be_preloaded(self):
        """It would use TCP whatever else is right, and the reason is a code as elsewhere."""
        port = self.serve()
        got = self.tool(SDP_RUN, "--explain", f"127.0.0.1:{port}", self.setuid_program(), "root")
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertRegex(
            got.stdout, r"result +TCP: privileged \(local\): the loader ignores LD_PRELOAD for setuid"
        )
        self.assertRegex(got.stdout, r" /\S+ is setuid, and the loader ignores LD_PRELOAD for it\n")
        self.assertNotIn("SDP, after", got.stdout)

    def setuid_program(self):
        """One that is not this user's."""
        if os.geteuid() == 0:
            program = shutil.copy("/bin/true", self.world.directory / "setuid")
            os.chown(program, 65534, 65534)
            program.chmod(0o4755)
            return program
        for name in "su", "passwd", "mount":
            program = pathlib.Path(shutil.which(name) or "/nonexistent")
            if program.exists() and program.stat().st_mode & stat.S_ISUID:
                return program
        self.skipTest("no setuid program, and only root could make one")

    def test_nobody_listens(self):
        got = self.tool(SDP_RUN, "--require", "--explain", f"127.0.0.1:{harness.free_port()}")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stdout, r"result +no connection: Connection refused: pm-denied")

    def test_targets_that_make_no_sense(self):
        for target in "127.0.0.1", "127.0.0.1:", ":80":
            got = self.tool(SDP_RUN, "--explain", target)
            self.assertEqual(got.returncode, 125)
            self.assertIn("--explain wants HOST:PORT", got.stderr)
        self.assertEqual(self.tool(SDP_RUN, "--explain", "no-such-host.invalid:80").returncode, 125)
        for port in "0", "65536", "70000", "99999999999999999999999":
            got = self.tool(SDP_RUN, "--explain", f"127.0.0.1:{port}")
            self.assertEqual(got.returncode, 125)
            self.assertIn(f"a port from 1 to 65535, but there is '{port}'", got.stderr)


class Settings(Tools):
    def environment_of(self, *arguments):
        got = self.tool(SDP_RUN, *arguments, "env")
        self.assertEqual(got.returncode, 0, got.stderr)
        return dict(line.split("=", 1) for line in got.stdout.splitlines() if "=" in line)

    def test_every_option_is_its_variable(self):
        text = self.tool(SDP_RUN, "--help").stdout
        knobs = re.findall(r"^  --([a-z0-9-]+) VALUE", text.split("Settings")[1], re.M)
        self.assertGreater(len(knobs), 15)
        values = {
            "mode": "both",
            "rnic": "soft",
            "log": "info",
            "log-file": "/x",
            "log-destination": "file",
            "stats-dir": "/y",
            "pmd-socket": "/z",
            "pm-server": "10.0.0.1:4000",
            "force": "bcopy",
            "io-uring": "allow",
            "link": "tcp",
            "ports": "45000-45099",
            "pm-redirect": "1",
            "any-privileged-port": "1",
        }
        for knob in knobs:
            if knob == "set":
                continue
            value = values.get(knob, "1000" if "mpa" not in knob else "1")
            seen = self.environment_of(f"--{knob}", value)
            self.assertEqual(seen["SDP_" + knob.upper().replace("-", "_")], value)
        self.assertEqual(
            self.environment_of("--set", "send-buffer=5", "--set", "mpa-crc=1")["SDP_SEND_BUFFER"], "5"
        )
        self.assertEqual(self.environment_of("--require")["SDP_MODE"], "sdp")

    def test_what_is_wrong_is_said(self):
        for arguments, message in (
            (["--mode", "udp"], "mode udp is not one of both, sdp, tcp"),
            (["--private-buffers", "2"], "private-buffers 2 is not a number from 3 to 4096"),
            (["--set", "bufers=2"], "there is no setting 'bufers'"),
            (["--set", "bufers"], "--set wants NAME=VALUE"),
            (["--nonsense"], "no such option: --nonsense"),
        ):
            got = self.tool(SDP_RUN, *arguments, "true")
            self.assertEqual(got.returncode, 125, arguments)
            self.assertIn(message, got.stderr)
        self.assertRegex(self.tool(SDP_RUN, "--version").stdout, r"^sdp-run \d+\.\d+\.\d+\n$")

    def test_a_port_mapper_for_one_program_beside_the_host_s(self):
        """A user's program has the host's: it starts none, and does not say that one is missing."""
        if os.geteuid() != 0:
            self.skipTest("namespaces need root")
        harness.need("ip", "unshare")
        for file in SDP_RUN, self.world.library:
            shutil.copy(file, self.world.directory)
        self.world.directory.chmod(0o755)
        script = """
            ip link set lo up && mount -t tmpfs tmpfs /run && cd "$1" || exit
            "$2" --log-level error --ready-fd 3 3>ready 2>/dev/null &
            until [ -s ready ]; do sleep 0.02; done
            setpriv --reuid=65533 --clear-groups ./sdp-run --lib ./libsdp.so --pmd true
            status=$?
            kill $!
            exit $status
        """
        got = self.tool(
            *("unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, "sh"),
            self.world.directory,
            PMD,
            SDP_PMD_SOCKET="",
            XDG_RUNTIME_DIR="",
        )
        self.assertEqual((got.returncode, got.stderr), (0, ""))

    def test_require_fails_rather_than_falls_back(self):
        port = self.serve(preload=False)
        got = self.tool(
            SDP_RUN,
            "--require",
            sys.executable,
            "-c",
            f"import socket; socket.create_connection(('127.0.0.1', {port}))",
        )
        self.assertEqual(got.returncode, 1)
        self.assertIn("ConnectionRefusedError", got.stderr)


class Doctor(Tools):
    def test_a_host_where_all_is_well(self):
        got = self.tool(SDPSTAT, "doctor", "sleep")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.assertRegex(got.stdout, r"ok +self-test +a connection to itself is SDP \(soft/\w+\), open after")
        self.assertRegex(got.stdout, r"ok +sleep +\S+/sleep can be preloaded")
        self.assertIn("Nothing stands in SDP's way on this host.", got.stdout)

    def test_what_it_finds(self):
        path = self.config(
            "use tcp server * *:*\nuse tcp client * *:80\nuse both server sleep *:5\n"
            "use nothing\nset rnic hard\n"
        )
        got = self.tool(SDPSTAT, "doctor", "sleep", SDP_RNIC="verbs")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stdout, r"FAIL +(RDMA devices|self-test)")
        env_config = subprocess.run(
            [SDPSTAT, "doctor", "sleep"],
            capture_output=True,
            text=True,
            timeout=60,
            env={
                **self.world.environment(preload=False),
                "SDP_CONFIG": str(path),
                "SDP_PMD_SOCKET": "/nonexistent",
                "SDP_PM_PORT": str(self.world.pm_port),
            },
        )
        self.assertEqual(env_config.returncode, 1)
        for pattern in (
            rf"WARN +configuration +{path}:3:1: never matches",
            rf"FAIL +configuration +{path}:4:5: expected tcp, sdp or both",
            rf"FAIL +configuration +{path}:5:10: rnic hard is not one of",
            r"FAIL +port mapper +none answers at /nonexistent",
            rf"note +sleep +{path}:1: use tcp server \* \*:\*",
        ):
            self.assertRegex(env_config.stdout, pattern)
        one = self.config("use tcp server * *:1\n")
        self.assertIn(f"{one}: 1 rule\n", self.tool(SDPSTAT, "doctor", SDP_CONFIG=one).stdout)
        missing = self.tool(SDPSTAT, "doctor", "/nonexistent/program")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("is not found", missing.stdout + missing.stderr)

    def test_a_directory_for_statistics_that_others_can_write_to(self):
        """What helps is said for the directory that it is: nobody takes /tmp from others."""
        shared = self.world.directory / "shared"
        shared.mkdir()
        for mode, remedy in (0o777, f"chmod go-w {shared}."), (
            0o1777,
            "Let SDP_STATS_DIR name a directory of its own.",
        ):
            shared.chmod(mode)
            got = self.tool(SDPSTAT, "doctor", SDP_STATS_DIR=shared)
            self.assertEqual(got.returncode, 1)
            self.assertRegex(
                got.stdout,
                rf"FAIL +statistics +{shared} can be written by others, and is not used\n"
                rf" +-> {re.escape(remedy)}\n",
            )
        shared.chmod(0o700)
        self.assertRegex(
            self.tool(SDPSTAT, "doctor", SDP_STATS_DIR=shared).stdout, rf"ok +statistics +{shared}\n"
        )

    def test_a_directory_for_statistics_that_cannot_be_used(self):
        link, file = self.world.directory / "link", self.world.directory / "file"
        link.symlink_to(self.world.stats_dir)
        file.write_text("")
        for path, text in (
            (link, "is a symbolic link, and is not used"),
            (file, "is not a directory"),
            ("/", "is the root directory, and is not used"),
            ("/nonexistent/stats", "is not there, and cannot be made"),
        ):
            got = self.tool(SDPSTAT, "doctor", SDP_STATS_DIR=path)
            self.assertEqual(got.returncode, 1)
            self.assertRegex(got.stdout, rf"FAIL +statistics +{path} {text}.*\n +-> ")

    def test_a_full_file_system_for_statistics(self):
        if os.geteuid() != 0:
            self.skipTest("this is not root")
        place = self.world.directory / "full"
        place.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(place)]
        if subprocess.run(["unshare", "-m", *mount], capture_output=True).returncode != 0:
            self.skipTest("no right to mount a file system")
        script = f"{' '.join(mount)} && head -c 65536 /dev/zero >{place}/x; exec {SDPSTAT} doctor"
        got = self.tool("unshare", "-m", "sh", "-c", script, SDP_STATS_DIR=place)
        self.assertRegex(got.stdout, rf"FAIL +statistics +{place} has no room: .*\n +-> Make room there")

    def test_a_port_mapper_that_does_not_serve_this_user(self):
        """Each trouble has its advice, and the self-test points there."""
        if os.geteuid() != 0:
            self.skipTest("this is not root")
        path = self.world.directory / "stranger.sock"
        listener = self.world.start(
            [
                "setpriv",
                "--reuid=65533",
                "--clear-groups",
                sys.executable,
                "-c",
                "import os, signal, socket, sys\n"
                "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                "s.bind(sys.argv[1]); s.listen(); os.chmod(sys.argv[1], 0o777); signal.pause()",
                path,
            ],
            preload=False,
        )
        self.world.directory.chmod(0o777)
        harness.wait_until(
            lambda: path.exists() and path.stat().st_mode & 0o777 == 0o777, "stranger's socket"
        )
        got = self.tool(SDPSTAT, "doctor", SDP_PMD_SOCKET=path)
        self.assertRegex(
            got.stdout,
            rf"FAIL +port mapper +{path} is served by user 65533, .*\n +-> Remove it \(rm {path}\)",
        )
        self.assertRegex(
            got.stdout, r"FAIL +self-test .*\n +-> It needs the port mapper: see that line first"
        )
        listener.stop()
        got = self.tool(SDPSTAT, "doctor", SDP_PMD_SOCKET=path)
        self.assertRegex(
            got.stdout, rf"FAIL +port mapper +none answers at {path}, which belongs to user 65533"
        )

    def test_a_port_mapper_that_a_program_has_for_itself(self):
        """It is no failure that the host has none, and the advice is right when it has died."""
        if os.geteuid() != 0:
            self.skipTest("namespaces need root")
        harness.need("ip", "nsenter", "unshare")
        port = harness.free_port()
        enter = 'ip link set lo up && mount -t tmpfs tmpfs /run && exec "$@"'
        server = self.world.start(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", enter, "sh"]
            + [SDP_RUN, "--stats-dir", self.world.stats_dir, "--pmd"]
            + [sys.executable, harness.PEER, "sink-server", port],
            preload=False,
        )
        path = self.world.wait_for_listener(port)["port_mapper"]

        def inside(*command):
            return self.tool(
                "nsenter",
                f"--target={server.pid}",
                "--net",
                "--mount",
                *command,
                SDP_PMD_SOCKET="",
                SDP_PM_PORT="",
            ).stdout

        said = inside(SDPSTAT, "doctor")
        self.assertRegex(
            said,
            rf"note +port mapper +none answers at /run/sdp/pmd\.sock; python\S*\[\d+\] has one for itself\n"
            rf" +-> .*SDP_PMD_SOCKET={path}",
        )
        self.assertRegex(said, r"ok +UDP port +3935 is in use, as it should be\n")
        self.assertRegex(said, r"ok +self-test +a connection to itself is SDP")
        self.assertIn("Nothing stands in SDP's way on this host.", said)

        children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        daemon, program = sorted(
            children, key=lambda pid: pathlib.Path(f"/proc/{pid}/comm").read_text() != "sdp-pmd\n"
        )
        os.kill(int(daemon), signal.SIGKILL)
        harness.wait_until(lambda: self.world.listener(port) is None, "listener that is not registered")
        advice = f"sdp-pmd --socket {path}"
        said = inside(SDPSTAT, "doctor")
        self.assertRegex(said, rf"WARN +listeners +1 of 1 not registered.*\n +-> .*{advice}")
        self.assertRegex(inside(SDPSTAT, "why", program), rf"\nnot-registered: .*{advice}")
        self.world.start(
            ["nsenter", f"--target={server.pid}", "--net", "--mount", PMD, *advice.split()[1:]], preload=False
        )
        self.world.wait_for_listener(port)

    def test_a_port_mapper_that_does_not_let_this_user_in(self):
        if os.geteuid() != 0:
            self.skipTest("this is not root")
        program = shutil.copy(SDPSTAT, self.world.directory)
        self.world.directory.chmod(0o755)
        self.world.pmd_socket.chmod(0o600)
        got = self.tool("setpriv", "--reuid=65533", "--clear-groups", program, "doctor")
        self.assertRegex(
            got.stdout,
            rf"FAIL +port mapper +this user may not use {self.world.pmd_socket}: servers stay TCP\n"
            r" +-> Start sdp-pmd with a --socket-mode that lets this user in",
        )

    def test_the_way_to_another_host(self):
        """Step by step, as far as it goes."""
        port, plain = self.serve(), self.serve(preload=False)
        got = self.tool(SDPSTAT, "doctor", f"localhost:{port}")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        for pattern in (
            r"ok +name +localhost is \S+",
            r"ok +port mapper +answers for \S+",
            r"ok +its answer +SDP at \S+:\d+",
            r"ok +trust ",
            r"ok +SDP port +takes connections",
            r"ok +MPA ",
            r"ok +handshake ",
            r"ok +connection +is SDP, open after",
            "Nothing stands in SDP's way to this host.",
        ):
            self.assertRegex(got.stdout, pattern)
        got = self.tool(SDPSTAT, "doctor", f"127.0.0.1:{plain}")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(
            got.stdout, r"ok +port mapper +answers for 127\.0\.0\.1\nFAIL +its answer +pm-denied: "
        )
        self.assertRegex(got.stdout, r"WARN +connection +is TCP")
        got = self.tool(SDPSTAT, "doctor", f"127.0.0.1:{plain}", SDP_PM_PORT=harness.free_port())
        self.assertRegex(got.stdout, r"FAIL +port mapper +pm-unreachable: ")
        got = self.tool(SDPSTAT, "doctor", "no-such-host.invalid:80")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stdout, r"FAIL +name +no-such-host.invalid: ")
        self.assertRegex(self.tool(SDPSTAT, "doctor", "localhost:0").stdout, "FAIL +target +wanted is a port")

    def test_root_is_not_alarmed_by_what_is_another_user_s(self):
        """Root sees all users' statistics, but its own programs have theirs elsewhere."""
        if os.geteuid() != 0:
            self.skipTest("this is not root")
        other = pathlib.Path("/tmp/sdp-65533")
        if other.exists():
            self.skipTest(f"{other} is there already")
        other.mkdir()
        self.addCleanup(other.rmdir)
        os.chown(other, 65533, 65533)
        other.chmod(0o777)
        got = self.tool(SDPSTAT, "doctor", SDP_STATS_DIR="")
        self.assertRegex(got.stdout, r"ok +statistics +(/run/sdp-stats|no process has published any yet)\n")


if __name__ == "__main__":
    harness.main()
