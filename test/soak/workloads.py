"""Ten kinds of servers with clients that check what they get. Each is there twice: over SDP, and over plain
TCP as the oracle."""

import getpass
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

import judge
from clients import START_LIMIT, Failed, Part, ProgramClient, Server, SocketClient, Wrong
from sdp_world import file_hash, find, random_file, wait_until

CLIENT = pathlib.Path(__file__).resolve().parent / "client.py"
MIB = 1 << 20
LOOK = 0.05  # seconds


class Pair(Part):
    """A server, or several, and a client. `twin`: "sdp" or "tcp"."""

    programs = ()

    def __init__(self, twin, server_host, client_host, recorder):
        super().__init__(self.kind, twin, server_host, client_host, recorder)
        self.port = server_host.free_port()
        self.directory = server_host.directory / f"{self.kind}-{twin}"
        self.directory.mkdir()
        self.servers = []
        self.prepare()

    def prepare(self):
        pass

    @property
    def address(self):
        return self.server_host.address

    def serve(self, *argv, host=None, port=None, **options):
        self.servers.append(Server(self, host or self.server_host, argv, port or self.port, **options))

    def socket_client(self, kind, threads, *words):
        return SocketClient(
            self, [sys.executable, "-B", CLIENT, kind, self.address, self.port, threads, *words], threads
        )


class Redis(Pair):
    kind, programs = "redis", ("redis-server",)

    def prepare(self):
        self.serve(
            "redis-server",
            "--port",
            self.port,
            "--bind",
            self.address,
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            self.directory,
            "--tcp-keepalive",
            "4",
            "--timeout",
            "20",
            "--protected-mode",
            "no",
        )
        self.client = self.socket_client("redis", 2)


class Memcached(Pair):
    kind, programs = "memcached", ("memcached",)

    def prepare(self):
        self.serve(
            "memcached",
            "-u",
            getpass.getuser(),
            "-l",
            self.address,
            "-p",
            self.port,
            "-U",
            "0",
            "-t",
            "2",
            "-m",
            "1024",
            "-o",
            "idle_timeout=10",
        )
        self.client = self.socket_client("memcached", 2)


class Echo(Pair):
    kind = "echo"

    def prepare(self):
        self.serve(sys.executable, "-B", CLIENT, "echo-server", self.address, self.port)
        self.client = self.socket_client("echo", 2)


class Witness(Echo):
    """No fault has it as its target, so that it lives from the beginning to the end."""

    kind = "witness"


NGINX = """
daemon off;
{user}
worker_processes 2;
error_log stderr notice;
pid {directory}/nginx.pid;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  keepalive_requests 100000;
  keepalive_timeout 10;
  send_timeout 15;
  client_header_timeout 15;
  sendfile {sendfile};
  server {{ listen {address}:{port} so_keepalive=3s:1s:4; root {directory}/www; }}
}}
"""


class Nginx(Pair):
    """A client that checks, and wrk, which only counts."""

    kind, programs = "nginx", ("nginx", "wrk")

    def web(self, host, port, sendfile):
        www = self.directory / "www"
        www.mkdir()
        hashes = {
            name: random_file(www / name, size, seed=size)
            for name, size in (("small", 3000), ("medium", 180_000), ("large", 2 * MIB))
        }
        configuration = self.directory / "nginx.conf"
        configuration.write_text(
            NGINX.format(
                directory=self.directory,
                address=host.address,
                port=port,
                sendfile=sendfile,
                user="user root;" if os.geteuid() == 0 else "",
            )
        )
        self.serve("nginx", "-c", configuration, "-p", self.directory, host=host, port=port)
        return [f"{name}={value}" for name, value in hashes.items()]

    def prepare(self):
        self.client = self.socket_client("http", 2, *self.web(self.server_host, self.port, "on"))
        self.more_clients = [ProgramClient(self, self.wrk, pause=3.0, number=2)]

    def wrk(self, run):
        said = run(
            "wrk",
            "--timeout",
            "15s",
            "-t",
            "1",
            "-c",
            "6",
            "-d",
            "1s",
            f"http://{self.address}:{self.port}/medium",
        ).decode()
        if "Socket errors" in said or "Non-2xx" in said:
            raise Failed(" ".join(said.split())[-160:])
        return 0, 180_000 * int(re.search(r"(\d+) requests in", said)[1])


HAPROXY = """
global
  nbthread 2
  maxconn 200
  log stderr local0 notice
defaults
  mode http
  retries 3
  timeout connect 5s
  timeout client 15s
  timeout server 15s
  option clitcpka
  option srvtcpka
listen relay
  bind {address}:{port}
  server one {behind}
"""


class Haproxy(Nginx):
    """nginx is behind it, on the client's host."""

    kind, programs = "haproxy", ("haproxy", "nginx")

    def prepare(self):
        behind = self.client_host.free_port()
        hashes = self.web(self.client_host, behind, "off")
        configuration = self.directory / "haproxy.conf"
        configuration.write_text(
            HAPROXY.format(
                address=self.address, port=self.port, behind=f"{self.client_host.address}:{behind}"
            )
        )
        self.serve("haproxy", "-db", "-f", configuration)
        self.client = self.socket_client("http", 2, *hashes)


class Postgres(Pair):
    """What the server has confirmed is in the table, and nothing else but what it may have confirmed to a
    client that was gone."""

    kind, programs = "postgres", ("psql", "pgbench")
    bin = max(
        pathlib.Path("/usr/lib/postgresql").glob("*/bin"),
        default=pathlib.Path("/none"),
        key=lambda path: float(path.parts[-2]),
    )
    user = "postgres" if os.geteuid() == 0 else None

    def prepare(self):
        self.confirmed = self.number = 0
        self.draw = random.Random(self.port)
        data = self.directory / "data"
        if self.user:
            shutil.chown(self.directory, self.user, self.user)
        initdb = self.server_host.start(
            [
                self.bin / "initdb",
                "--no-sync",
                "--no-instructions",
                "--auth=trust",
                "--username=soak",
                "-D",
                data,
            ],
            preload=False,
            user=self.user,
            directory=self.directory,
        )
        if initdb.wait(2 * START_LIMIT) != 0:
            raise AssertionError(f"initdb: {initdb.output()}")
        with open(data / "pg_hba.conf", "a") as file:
            file.write("host all all all trust\n")
        settings = {
            "listen_addresses": self.address,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": 40,
            "tcp_keepalives_idle": 3,
            "tcp_keepalives_interval": 1,
            "tcp_keepalives_count": 4,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.serve(
            self.bin / "postgres",
            "-D",
            data,
            "-p",
            self.port,
            *words,
            user=self.user,
            directory=self.directory,
            settle=self.settle,
        )
        self.client = ProgramClient(self, self.transact, pause=0.2)
        self.script = self.directory / "script"
        self.script.write_text(
            "\\set n random(1, 1000000)\ninsert into load values (:n, repeat(md5(:n::text), 20));\n"
            "select count(*) from (select * from load limit 100) few;\n"
        )

    def words(self):
        return "-h", self.address, "-p", self.port, "-U", "soak"

    def settle(self, run):
        """The server answers, and the tables are there."""
        said = []

        def ready():
            try:
                run(
                    "psql",
                    *self.words(),
                    "-qc",
                    "create table if not exists rows (number int primary key, text text)",
                    "-c",
                    "create table if not exists load (number int, text text)",
                    "postgres",
                    preload=False,
                    timeout=10,
                )
                return True
            except Failed as error:
                said.append(error)
                return False

        try:
            wait_until(ready, "answer of the server", START_LIMIT)
        except AssertionError:
            raise AssertionError(f"postgres: {said[-1]}") from None

    def transact(self, run):
        if self.draw.random() < 0.3:
            said = run(
                "pgbench", *self.words(), "-n", "-f", self.script, "-c", "2", "-t", "8", "postgres"
            ).decode()
            if "actually processed: 16/16" not in said:
                raise Failed(f"pgbench: {said[-200:]}")
            return 0, 16 * 640
        self.number += 1
        text = random.Random(self.number).randbytes(self.draw.choice((10, 2000, 50_000))).hex()
        rows = f"{self.number}\t{text}\n"
        run("psql", *self.words(), "-qc", "copy rows from stdin", "postgres", data=rows.encode())
        self.confirmed += 1
        select = f"select count(*) over (), text from rows order by number = {self.number} desc limit 1"
        back = run("psql", *self.words(), "-qAtc", f"copy ({select}) to stdout", "postgres").decode()
        count, _, found = back.rstrip("\n").partition("\t")
        if found != text:
            raise Wrong(f"row {self.number} differs, or is not there")
        if not self.confirmed <= int(count) <= self.number:
            raise Wrong(f"there are {count} rows, {self.confirmed} were confirmed, {self.number} sent")
        return 2 * len(text), 0


class Iperf3(Pair):
    kind, programs = "iperf3", ("iperf3",)

    def prepare(self):
        self.draw = random.Random(self.port)
        self.serve(
            "iperf3",
            "-s",
            "-p",
            self.port,
            "-B",
            self.address,
            "--rcv-timeout",
            "4000",
            "--idle-timeout",
            "6",
        )
        self.client = ProgramClient(self, self.measure, pause=0.3)

    def measure(self, run):
        options = self.draw.choice(([], ["-R", "--rcv-timeout", "8000"], ["-P", "3"], ["--bidir"]))
        said = run(
            "iperf3",
            "-c",
            self.address,
            "-p",
            self.port,
            "-n",
            "6M",
            "--connect-timeout",
            "8000",
            "-J",
            *options,
            check=False,
        )
        try:
            result = json.loads(said)
        except ValueError:
            raise Failed(f"iperf3: {said[-200:]!r}") from None
        if "error" in result:
            raise Failed(result["error"])
        sent, received = (result["end"][k]["bytes"] for k in ("sum_sent", "sum_received"))
        # The server reads no more once the client has said on its other connection that it is done.
        if received > sent:
            raise Wrong(f"{sent} bytes sent, {received} received")
        return 0, received


SSHD = """
ListenAddress {address}
Port {port}
HostKey {directory}/host-key
AuthorizedKeysFile {directory}/user-key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
MaxStartups 100
SetEnv SHLVL=2
LoginGraceTime 15
ClientAliveInterval 4
ClientAliveCountMax 2
"""


class Ssh(Pair):
    """sshd executes itself for each client, which has a process with a seccomp filter first.

    SHLVL keeps bash from reading the user's .bashrc, where anything may be."""

    kind, programs = "ssh", ("ssh", "sshd", "ssh-keygen")

    def prepare(self):
        self.draw = random.Random(self.port)
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for key in ("host-key", "user-key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key], check=True
            )
        configuration = self.directory / "sshd.conf"
        configuration.write_text(SSHD.format(address=self.address, port=self.port, directory=self.directory))
        self.serve(find("sshd"), "-D", "-e", "-f", configuration)
        self.client = ProgramClient(self, self.log_in, pause=0.4)

    def log_in(self, run):
        data = self.draw.randbytes(self.draw.choice((1, 30_000, 1_500_000)))
        options = (
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            f"UserKnownHostsFile={self.directory}/known-hosts",
            "LogLevel=ERROR",
            "ConnectTimeout=20",
        )
        back = run(
            "ssh",
            "-p",
            self.port,
            "-i",
            self.directory / "user-key",
            "-F",
            "none",
            *(f"-o{option}" for option in options),
            self.address,
            "(cat; true) | (cat)" if self.draw.random() < 0.3 else "cat",
            data=data,
        )
        if back != data:
            raise Wrong(f"{len(back)} bytes came back, {len(data)} were sent")
        return 2 * len(data), 0


RSYNC = """
address = {address}
port = {port}
use chroot = no
reverse lookup = no
timeout = 15
{user}
[files]
path = {directory}/served
read only = no
"""


class Rsync(Pair):
    kind, programs = "rsync", ("rsync",)

    def prepare(self):
        self.draw = random.Random(self.port)
        for name in ("source", "served", "returned"):
            (self.directory / name).mkdir()
        for name in range(12):
            random_file(self.directory / "source" / str(name), name * 37_000, seed=name)
        configuration = self.directory / "rsyncd.conf"
        configuration.write_text(
            RSYNC.format(
                address=self.address,
                port=self.port,
                directory=self.directory,
                user="uid = 0\ngid = 0" if os.geteuid() == 0 else "",
            )
        )
        self.serve("rsync", "--daemon", "--no-detach", f"--config={configuration}", "--log-file=/dev/stderr")
        self.client = ProgramClient(self, self.copy, pause=0.4)

    def copy(self, run):
        """There and back, after a change of one file's middle."""
        changed = self.directory / "source" / str(self.draw.randrange(1, 12))
        with open(changed, "r+b") as file:
            file.seek(self.draw.randrange(20_000))
            file.write(self.draw.randbytes(500))
        url = f"rsync://{self.address}:{self.port}/files/"
        for source, target in (f"{self.directory}/source/", url), (url, f"{self.directory}/returned/"):
            run(
                "rsync",
                "-a",
                "--checksum",
                "--delete",
                "--timeout=20",
                "--contimeout=20",
                "--sockopts=SO_KEEPALIVE",
                source,
                target,
            )
        for file in (self.directory / "source").iterdir():
            if file_hash(file) != file_hash(self.directory / "returned" / file.name):
                raise Wrong(f"{file.name} differs")
        return 2 * changed.stat().st_size, 0  # the others were there, and did not have to come


class Netcat(Pair):
    """A server for each transfer, which ends with it.

    It is OpenBSD's nc. A client that is told of a broken connection ends with 0. Its server has no timer, and
    may never be told, on TCP as well: of a connection that a filter resets, its sender alone hears."""

    kind, programs = "netcat", ("nc",)

    def prepare(self):
        self.draw = random.Random(self.port)
        self.client = ProgramClient(self, self.transfer, pause=0.3)

    def transfer(self, run):
        data = self.draw.randbytes(self.draw.choice((1, 40_000, 3_000_000)))
        out = self.directory / "out"
        with run.beside(self.server_host, "nc", "-l", self.address, self.port, output=out) as server:
            wait_until(lambda: self.server_host.tcp_listens(self.port) or not server.running(), "nc", 30)
            if not server.running():
                raise Failed(f"nc does not listen: {server.output()[-200:].strip()}")
            run("nc", "-N", self.address, self.port, data=data)
            # Looks are counted, so that a machine that keeps this program waiting does not shorten the wait.
            for _ in range(int(judge.BEYOND / LOOK)):
                if not server.running():
                    break
                time.sleep(LOOK)
            else:
                raise Failed(f"{judge.UNTOLD}; {out.stat().st_size} of {len(data)} bytes arrived")
            status = server.wait(0)
        found = out.read_bytes()
        if found != data[: len(found)]:
            raise Wrong(f"other bytes arrived than were sent, {len(found)} of {len(data)}")
        if status != 0 or len(found) < len(data):
            raise Failed(f"{len(found)} of {len(data)} bytes arrived; the server ended with {status}")
        return len(data), 0


KINDS = {
    pair.kind: pair for pair in (Redis, Nginx, Postgres, Iperf3, Ssh, Rsync, Netcat, Echo, Memcached, Haproxy)
}


def missing():
    """What has to be installed, by the names of its programs."""
    programs = [program for pair in KINDS.values() for program in pair.programs if find(program) is None]
    programs += [program for program in ("bash", "unshare", "setpriv") if find(program) is None]
    return programs + ([] if (Postgres.bin / "initdb").exists() else ["initdb"])
