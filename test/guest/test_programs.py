"""Unmodified programs whose connecting side runs over a kernel RNIC, with sdpstat as the witness."""

import hashlib
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))

import harness  # noqa: E402
from kernel_rnic import ADDRESS, DEVICE, need_kernel_rnic  # noqa: E402

PATIENT = {"SDP_PM_TIMEOUT_MS": 20000}
OVER_KERNEL_RNIC = {"SDP_RNIC": "verbs", **PATIENT}

NGINX = """
daemon off;
user root;
error_log stderr notice;
pid {directory}/nginx.pid;
events {{ worker_connections 64; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  server {{ listen {address}:{port}; root {directory}/www; }}
}}
"""


class Programs(unittest.TestCase):
    def setUp(self):
        need_kernel_rnic()
        self.world = harness.TestWorld(listen=[ADDRESS])
        self.addCleanup(self.world.stop)
        self.port = harness.free_port()

    def tearDown(self):
        harness.tell_if_failed(self)

    def server(self, *argv, rnic="soft", **options):
        process = self.world.start([*argv], environment={**PATIENT, "SDP_RNIC": rnic}, **options)
        self.world.wait_for_listener(self.port, 60)
        return process

    def client(self, *argv, **options):
        return self.world.run([*argv], environment=OVER_KERNEL_RNIC, timeout=90, **options)

    def assert_no_tcp(self):
        self.assertNotIn("TCP, because", self.world.sdp_log())

    def rnics(self, process):
        """What the process's open connections go over, as sdpstat has it."""
        return [
            c["rnic"]
            for p in self.world.sdpstat()["processes"]
            if p["pid"] == process.pid
            for c in p["connections"]
        ]

    def wait_for_device(self, process, connections=1):
        harness.wait_until(
            lambda: self.rnics(process) == [DEVICE] * connections,
            f"{connections} connections over {DEVICE}",
            30,
        )

    def accepted_over_device(self):
        return sum(
            row["accepted_sdp"]
            for p in self.world.sdpstat()["processes"]
            for row in p["listeners"]
            if row["rnic"] == DEVICE
        )

    def test_iperf3(self):
        harness.need("iperf3")
        server = self.server("iperf3", "-s", "-1", "-B", ADDRESS, "-p", self.port, rnic="verbs")
        client = self.world.start(
            ["iperf3", "-c", ADDRESS, "-p", self.port, "-t", "4"], environment=OVER_KERNEL_RNIC
        )
        for end in client, server:
            self.wait_for_device(end, 2)
        self.assertEqual(client.wait(60), 0, client.output())
        self.assertIn("receiver", client.output())
        print(*[line for line in client.output().splitlines() if "receiver" in line], flush=True)
        self.assert_no_tcp()

    def test_redis(self):
        harness.need("redis-server")
        harness.need("redis-benchmark")
        self.server(
            "redis-server",
            "--bind",
            ADDRESS,
            "--port",
            self.port,
            "--save",
            "",
            "--protected-mode",
            "no",
            rnic="verbs",
        )
        output = self.client(
            "redis-benchmark", "-h", ADDRESS, "-p", self.port, "-n", "2000", "-c", "10", "-t", "set,get", "-q"
        )
        print(
            *[
                line
                for line in output.decode().replace("\r", "\n").splitlines()
                if "requests per second" in line
            ],
            sep="\n",
            flush=True,
        )
        self.assertGreaterEqual(self.accepted_over_device(), 20)  # ten for each of the two
        self.assert_no_tcp()

    def test_netcat_half_close(self):
        """The server has said all that it has to say, and hears the client's answer to that. (A listening nc
        ends when its client has.)"""
        harness.need("nc")
        directory = self.world.directory
        there, back = harness.random_file(directory / "there", 3 << 20), harness.random_file(
            directory / "back", 3 << 20, seed=2
        )
        with open(directory / "there", "rb") as data, open(directory / "back-copy", "wb") as out:
            server = self.server("nc", "-N", "-l", ADDRESS, self.port, rnic="verbs", stdin=data, stdout=out)
        with open(directory / "there-copy", "wb") as out:
            client = self.world.start(
                ["nc", "-N", ADDRESS, self.port],
                environment=OVER_KERNEL_RNIC,
                stdin=subprocess.PIPE,
                stdout=out,
            )
        harness.wait_until(
            lambda: (directory / "there-copy").stat().st_size == 3 << 20, "all that the server has to say", 60
        )
        for end in client, server:
            self.wait_for_device(end)
        with client.popen.stdin as answer:
            answer.write((directory / "back").read_bytes())
        self.assertEqual(client.wait(60), 0, client.output())
        self.assertEqual(server.wait(60), 0, server.output())
        self.assertEqual(harness.file_hash(directory / "there-copy"), there)
        self.assertEqual(harness.file_hash(directory / "back-copy"), back)
        self.assert_no_tcp()

    def fetch_from_nginx(self, *processes):
        """curl's connection is over the device; nginx's end as nginx's processes have it."""
        harness.need("nginx", "curl")
        directory = self.world.directory
        (directory / "www").mkdir()
        wanted = harness.random_file(directory / "www" / "file", 3 << 20)
        (directory / "nginx.conf").write_text(
            "\n".join(processes) + NGINX.format(directory=directory, address=ADDRESS, port=self.port)
        )
        self.server("nginx", "-c", directory / "nginx.conf", "-p", directory, rnic="verbs")
        for _ in range(2):
            # It is on its way until somebody reads what it prints.
            client = self.world.start(
                ["curl", "-s", "-S", "-f", f"http://{ADDRESS}:{self.port}/file"],
                environment=OVER_KERNEL_RNIC,
                stdout=subprocess.PIPE,
            )
            self.wait_for_device(client)
            content, _ = client.popen.communicate(timeout=60)
            self.assertEqual(client.popen.returncode, 0, client.output())
            self.assertEqual(hashlib.sha256(content).hexdigest(), wanted)
        self.assert_no_tcp()

    def test_nginx_with_workers(self):
        self.fetch_from_nginx("worker_processes 2;")

    def test_nginx_in_one_process(self):
        """Without a fork between listen and accept, which a kernel RNIC's listener does not survive: both
        ends are the device's."""
        self.fetch_from_nginx("master_process off;")
        self.assertEqual(self.accepted_over_device(), 2)

    def test_the_devices_descriptors_are_out_of_the_way(self):
        self.server(sys.executable, harness.PEER, "echo-server", self.port, ADDRESS)
        program = """
import os, resource, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"a"); assert s.recv(1) == b"a"
def rdma():
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if "infiniband" in os.readlink("/proc/self/fd/" + number):
                found.append(int(number))
        except OSError:
            pass
    return sorted(found)
theirs = rdma()
assert len(theirs) >= 4, theirs  # the device, its events, the connection manager's, completions
limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 65536)
assert theirs[0] >= limit // 2, (theirs, limit)
assert os.open("/dev/null", os.O_RDONLY) == s.fileno() + 1
os.closerange(s.fileno() + 1, limit)
for number in theirs:
    try:
        os.close(number)
        sys.exit("closed")
    except OSError:
        pass
    try:
        os.dup2(0, number)
        sys.exit("overwritten")
    except OSError:
        pass
assert rdma() == theirs
s.sendall(b"b" * 100000)
left = 100000
while left:
    left -= len(s.recv(left))
s.close()
again = socket.create_connection((sys.argv[1], int(sys.argv[2])))
again.sendall(b"c"); assert again.recv(1) == b"c"
print("ok")
"""
        self.assertEqual(self.client(sys.executable, "-c", program, ADDRESS, self.port), b"ok\n")
        self.assert_no_tcp()

    def echo_without_the_device(self, *argv, rnic="verbs", before=""):
        """A client that cannot use the device gets its answers all the same; what the log says of it."""
        self.server(sys.executable, harness.PEER, "echo-server", self.port, ADDRESS)
        program = (
            "import os, socket, sys; "
            + before
            + """
for _ in range(2):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"x")
    assert s.recv(1) == b"x"
print("ok")
"""
        )
        output = self.world.run(
            [*argv, sys.executable, "-c", program, ADDRESS, self.port],
            timeout=90,
            environment={**OVER_KERNEL_RNIC, "SDP_RNIC": rnic},
        )
        self.assertEqual(output, b"ok\n")
        return self.world.sdp_log()

    def test_too_little_locked_memory(self):
        harness.need("prlimit")
        for rnic, said in ("verbs", "TCP, because"), (
            "auto",
            "the embedded RNIC, because the kernel's failed",
        ):
            with self.subTest(rnic):
                log = self.echo_without_the_device("prlimit", "--memlock=65536:65536", rnic=rnic)
                self.assertIn("the limit on locked memory, ulimit -l, may be too small", log)
                self.assertEqual(log.count(said), 2)  # the second time, too: it is not the peer who failed
                self.port = harness.free_port()

    def test_no_permission_for_the_device(self):
        harness.need("unshare", "mount")
        if os.geteuid() != 0:
            raise unittest.SkipTest("not root: whoever runs this has the permission or has not")
        self.world.log_file.touch()
        self.world.log_file.chmod(0o666)
        self.world.directory.chmod(0o755)
        # The device itself stays as it is, for others.
        hide = (
            f'cp -a /dev/infiniband/rdma_cm {self.world.directory}/rdma_cm && '
            f'chmod 600 {self.world.directory}/rdma_cm && '
            f'mount --bind {self.world.directory}/rdma_cm /dev/infiniband/rdma_cm && exec "$@"'
        )
        log = self.echo_without_the_device(
            "unshare",
            "-m",
            "sh",
            "-c",
            hide,
            "sh",
            before="'x'.encode('idna'); os.setresuid(65534, 65534, 65534)",
        )
        self.assertIn("SDP_RNIC=verbs: /dev/infiniband/rdma_cm: Permission denied", log)
        self.assertIn("TCP, because no-rnic", log)

    def test_the_libraries_cannot_be_loaded(self):
        harness.need("unshare", "mount")
        if os.geteuid() != 0:
            raise unittest.SkipTest("not root: no mount name space")
        library = next(iter(sorted(pathlib.Path("/usr/lib").glob("*/librdmacm.so.1"))), None)
        if library is None:
            raise unittest.SkipTest("librdmacm.so.1 is not where Debian has it")
        nothing = self.world.directory / "nothing"
        nothing.touch()
        for rnic, said in ("verbs", "TCP, because no-rnic (SDP_RNIC=verbs: "), ("auto", None):
            with self.subTest(rnic):
                self.world.log_file.write_text("")
                hide = f'mount --bind {nothing} {library.resolve()} && exec "$@"'
                log = self.echo_without_the_device("unshare", "-m", "sh", "-c", hide, "sh", rnic=rnic)
                self.assertEqual(
                    [line for line in log.splitlines() if "connect to" in line and DEVICE in line], []
                )
                if said is not None:
                    self.assertIn(said, log)
                    self.assertIn("librdmacm.so.1: file too short", log)
                else:
                    self.assertIn(f"connect to {ADDRESS}:{self.port}: SDP at", log)
                self.port = harness.free_port()

    def test_no_route(self):
        program = """
import errno, socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=20)
    sys.exit("connected")
except OSError as e:
    print(errno.errorcode[e.errno])
"""
        harness.need("ip")
        # 192.0.2.0/24 is for documentation: a host with a default route would wait for it.
        if (
            subprocess.run(
                [harness.find("ip"), "route", "get", "192.0.2.1"], capture_output=True, timeout=60
            ).returncode
            == 0
        ):
            raise unittest.SkipTest("this host has a default route")
        for rnic in "verbs", "auto":
            with self.subTest(rnic):
                self.world.log_file.write_text("")
                output = self.world.run(
                    [sys.executable, "-c", program, "192.0.2.1"],
                    timeout=90,
                    environment={**OVER_KERNEL_RNIC, "SDP_RNIC": rnic},
                )
                self.assertEqual(output, b"ENETUNREACH\n")
                self.assertIn("connect to 192.0.2.1:9: TCP, because pm-unreachable", self.world.sdp_log())

    def test_waits_for_several_sockets_look_at_the_completion_queue_first(self):
        self.server(sys.executable, harness.PEER, "echo-server", self.port, ADDRESS)
        harness.check_that_waits_look_first(
            self, ADDRESS, self.port, ["recv", "poll", "select", "epoll"], OVER_KERNEL_RNIC
        )
        self.assert_no_tcp()

    def test_a_child_gets_an_error_and_the_parent_goes_on(self):
        self.server(sys.executable, harness.PEER, "echo-server", self.port, ADDRESS)
        program = """
import errno, os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"a"); assert s.recv(1) == b"a"
child = os.fork()
if child == 0:
    said = "nothing"
    try:
        s.sendall(b"b")
    except OSError as e:
        said = errno.errorcode[e.errno]
    print("the child", said, flush=True)
    s.close()
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert status == 0, status
s.sendall(b"c"); assert s.recv(1) == b"c"
print("the parent goes on")
"""
        output = self.client(sys.executable, "-c", program, ADDRESS, self.port)
        self.assert_no_tcp()
        self.assertEqual(output, b"the child EIO\nthe parent goes on\n")


if __name__ == "__main__":
    harness.main()
