"""Small programs that everybody has: openssl's server and client, wget and Python's http.server, Perl's and
Tcl's sockets, socat that forks, and a program that systemd's way is started with its listener."""

import hashlib
import socket
import subprocess
import sys

import harness

# Takes its listener as LISTEN_FDS says, serves COUNT connections with an echo.
ACTIVATED = """
import os, socket, sys
assert os.environ["LISTEN_FDS"] == "1" and int(os.environ["LISTEN_PID"]) == os.getpid(), os.environ
listener = socket.socket(fileno=3)
for _ in range(int(sys.argv[1])):
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
"""

# Descriptor $1 becomes the first one passed, to the program behind it.
ACTIVATE = 'exec 3<&$1; shift; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'

# Of an echo server: what several programs read and write in turns is one stream each way. (bash reads a line
# by the byte.)
BASH = """
set -eu
exec 3<>/dev/tcp/127.0.0.1/$1
(echo one; /bin/echo two; cat) <$2 >&3
read -r first <&3
(read -r second <&3; echo "$first $second")
(head -c 3; echo) <&3
(head -c 1000; head -c $(($(stat -c %s $2) - 1003))) <&3 | sha256sum
"""

PERL_SERVER = """
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 16,
                                     ReuseAddr => 1) or die $!;
$SIG{CHLD} = "IGNORE";
while (my $connection = $listener->accept()) {
  my $pid = fork();
  if ($pid == 0) {
    close($listener);
    while (my $line = <$connection>) {
        print $connection scalar reverse(substr($line, 0, -1)), "\\n"; $connection->flush();
    }
    exit 0;
  }
  close($connection);
}
"""
PERL_CLIENT = """
use IO::Socket::INET;
my $connection = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]) or die $!;
$connection->autoflush(1);
for my $i (1 .. 200) {
  my $line = "line $i " . ("x" x ($i * 37));
  print $connection "$line\\n";
  my $answer = <$connection>;
  chomp $answer;
  die "line $i" unless $answer eq scalar reverse($line);
}
print "ok\\n";
"""

TCL_SERVER = """
proc serve {channel address port} {
  fconfigure $channel -translation binary -buffering none -blocking 0
  fileevent $channel readable [list echo $channel]
}
proc echo {channel} {
  set data [read $channel 65536]
  if {[eof $channel]} { close $channel; return }
  puts -nonewline $channel $data
  flush $channel
}
socket -server serve -myaddr 127.0.0.1 [lindex $argv 0]
vwait forever
"""


class Tools(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()

    def echo(self, ends, port, sizes=b"1\n100000\n3\n2000000\n"):
        answer = self.world.run_peer("echo-client", port, preload=ends.client, data=sizes)
        self.assertEqual(answer.count(b"ok"), sizes.count(b"\n"))

    def test_openssl(self):
        harness.need("openssl")
        directory = self.world.directory
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
                directory / "key",
                "-out",
                directory / "certificate",
            ],
            check=True,
            capture_output=True,
        )
        (directory / "www").mkdir()
        wanted = harness.random_file(directory / "www" / "file", 5 << 20)
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(
                    [
                        "sh",
                        "-c",
                        f"cd {directory}/www && "
                        f"exec openssl s_server -accept 127.0.0.1:{port} -key {directory}/key -cert "
                        f"{directory}/certificate -HTTP -quiet",
                    ],
                    preload=ends.server,
                )
                self.world.wait_for_listener(port, sdp=ends.server)
                for _ in range(2):
                    # Its -HTTP sends the file as it is.
                    answer = self.world.run(
                        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-quiet", "-ign_eof"],
                        preload=ends.client,
                        data=b"GET /file HTTP/1.0\r\n\r\n",
                    )
                    self.assertEqual(hashlib.sha256(answer[-(5 << 20) :]).hexdigest(), wanted)
                self.assert_carried(port, ends, at_least=2)
                server.stop()

    def test_wget_and_curl_in_parallel(self):
        harness.need("wget", "curl")
        names = [f"file-{i}" for i in range(12)]
        (self.world.directory / "www").mkdir()
        wanted = {
            name: harness.random_file(self.world.directory / "www" / name, 300_000 * (i + 1), seed=i)
            for i, name in enumerate(names)
        }
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(
                    [
                        sys.executable,
                        "-m",
                        "http.server",
                        "--bind",
                        "127.0.0.1",
                        "--directory",
                        self.world.directory / "www",
                        port,
                    ],
                    preload=ends.server,
                )
                self.world.wait_for_listener(port, sdp=ends.server)
                urls = [f"http://127.0.0.1:{port}/{name}" for name in names]
                for command in (
                    ["wget", "-q", "-P", "fetched"],
                    [
                        "curl",
                        "-sS",
                        "--fail",
                        "--parallel",
                        "--create-dirs",
                        "--output-dir",
                        "fetched",
                        "--remote-name-all",
                    ],
                ):
                    self.world.run([*command, *urls], preload=ends.client)
                    for name in names:
                        path = self.world.directory / "fetched" / name
                        self.assertEqual(harness.file_hash(path), wanted[name])
                        path.unlink()
                self.assert_carried(port, ends, at_least=13)
                server.stop()

    def test_perl_forks_for_each_client(self):
        harness.need("perl")
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(["perl", "-e", PERL_SERVER, port], preload=ends.server)
                self.world.wait_for_listener(port, sdp=ends.server)
                clients = [
                    self.world.start(["perl", "-e", PERL_CLIENT, port], preload=ends.client) for _ in range(4)
                ]
                for client in clients:
                    self.assertEqual(client.wait(30), 0, client.output())
                self.assert_carried(port, ends, at_least=4)
                server.stop()

    def test_bash(self):
        """One connection, of the shell and its commands."""
        harness.need("bash")
        path = self.world.directory / "file"
        data = b"abc" + bytes(range(256)) * 200  # what fits before anybody reads
        path.write_bytes(data)
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.peer("echo-server", port, preload=ends.server)
                self.world.wait_for_listener(port, sdp=ends.server)
                answer = self.world.run(
                    ["bash", "-c", BASH, "bash", port, path], preload=ends.client
                ).decode()
                self.assertEqual(answer, f"one two\nabc\n{hashlib.sha256(data[3:]).hexdigest()}  -\n")
                self.assert_carried(port, ends)
                server.stop()

    def test_tcl(self):
        harness.need("tclsh")
        script = self.world.directory / "server.tcl"
        script.write_text(TCL_SERVER)
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(["tclsh", script, port], preload=ends.server)
                self.world.wait_for_listener(port, sdp=ends.server)
                self.echo(ends, port, b"1\n20000\n3\n")
                self.assert_carried(port, ends)
                server.stop()

    def test_a_listener_from_systemd(self):
        harness.need("systemd-socket-activate")
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                environment = {
                    name: value
                    for name, value in self.world.environment(ends.server).items()
                    if name.startswith(("SDP_", "LD_PRELOAD"))
                }
                passed = [
                    option for name, value in environment.items() for option in ("-E", f"{name}={value}")
                ]
                server = self.world.start(
                    [
                        "systemd-socket-activate",
                        "-l",
                        f"127.0.0.1:{port}",
                        *passed,
                        sys.executable,
                        "-c",
                        ACTIVATED,
                        2,
                    ],
                    preload=ends.server,
                )
                self.world.wait_for_listener(port, sdp=ends.server)
                # Who comes first starts the program.
                self.echo(ends, port)
                self.echo(ends, port)
                self.assertEqual(server.wait(20), 0, server.output())
                over_sdp, over_tcp = self.world.connects(port)
                if ends.sdp:
                    # The first one's hands may still be shaken when exec ends who does it: then it has come
                    # by TCP.
                    self.assertGreaterEqual(over_sdp, 1)
                    self.assertLessEqual(over_tcp.total(), over_tcp["hello-failed"])

    def test_a_listener_from_a_systemd_without_the_library(self):
        harness.need("systemd-socket-activate")
        port = harness.free_port()
        environment = {
            name: value
            for name, value in self.world.environment(True).items()
            if name.startswith(("SDP_", "LD_PRELOAD"))
        }
        passed = [option for name, value in environment.items() for option in ("-E", f"{name}={value}")]
        server = self.world.start(
            [
                "systemd-socket-activate",
                "-l",
                f"127.0.0.1:{port}",
                *passed,
                sys.executable,
                "-c",
                ACTIVATED,
                3,
            ],
            preload=False,
        )
        self.world.wait_for_listener(port, sdp=False)
        ends = next(ends for ends in harness.BOTH_AND_EACH_ALONE if ends.sdp)
        # Who starts the program finds nobody who speaks SDP. From then on it is there.
        self.echo(ends, port)
        self.world.wait_for_listener(port, sdp=True)
        self.echo(ends, port)
        self.echo(ends, port)
        self.assertEqual(server.wait(20), 0, server.output())
        over_sdp, over_tcp = self.world.connects(port)
        self.assertEqual(over_sdp, 2)
        self.assertEqual(over_tcp.total(), 1)


class ListenerOfAnother(harness.ProgramTest):
    """A program that is started with its listener by one that keeps it, as systemd does, under a rule that
    allows SDP alone."""

    with_pmd = False

    def setUp(self):
        super().setUp()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        self.port = self.listener.getsockname()[1]

    def start(self, connections, **environment):
        fd = self.listener.fileno()
        return self.world.start(
            ["sh", "-c", ACTIVATE, "sh", fd, sys.executable, "-c", ACTIVATED, connections],
            pass_fds=(fd,),
            environment=environment,
        )

    def is_turned_away(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
                client.sendall(b"x")
                return client.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):  # at whatever moment; refused it is not
            return True

    def is_served(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
            client.sendall(b"x")
            return client.recv(1) == b"x"

    def test_without_a_port_mapper_all_are_turned_away_until_there_is_one(self):
        server = self.start(1, SDP_MODE="sdp")
        self.assertTrue(self.is_turned_away())
        self.assertTrue(self.is_turned_away())
        self.world.start_first_pmd()
        # Whoever comes has it look again, now and then.
        harness.wait_until(
            lambda: self.is_turned_away()
            and b"ok"
            in self.world.run_peer(
                "echo-client", self.port, data=b"1000\n", environment={"SDP_MODE": "sdp"}, check=False
            ),
            "client over SDP",
        )
        self.assertEqual(server.wait(20), 0, server.output())
        self.assertEqual(self.world.connects(self.port), (1, {}))

    def test_where_there_can_be_no_sdp_the_other_one_has_its_listener_still(self):
        self.world.start_first_pmd()
        server = self.start(1, SDP_MODE="sdp", SDP_RNIC="verbs")  # no device has a loopback address
        self.assertNotEqual(server.wait(20), 0)
        self.assertIn("Invalid argument", server.output())
        server = self.start(1, SDP_MODE="tcp")
        self.assertTrue(self.is_served())
        self.assertEqual(server.wait(20), 0, server.output())


if __name__ == "__main__":
    harness.main()
