"""PostgreSQL: a process for each connection, psql, and pgbench with clients that stay and with clients that
come and go."""

import hashlib
import pathlib
import random
import re

import harness


def server_program():
    """The newest of the versions installed."""
    found = sorted(
        pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda program: float(program.parts[-3]),
    )
    return found[-1] if found else None


class PostgreSql(harness.ProgramTest):
    user = "postgres"  # the server refuses to be root's

    def setUp(self):
        self.postgres = server_program()
        if self.postgres is None:
            self.skipTest("postgresql is not installed")
        harness.need("psql", "pgbench")
        super().setUp()
        self.data = self.world.directory / "data"
        self.world.run(
            [
                self.postgres.parent / "initdb",
                "--no-sync",
                "--auth=trust",
                "--username=tester",
                "-D",
                self.data,
            ],
            preload=False,
        )

    def serve(self, ends):
        port = harness.free_port()
        server = self.world.start(
            [self.postgres, "-D", self.data, "-p", port, "-h", "127.0.0.1", "-k", "", "-F"],
            preload=ends.server,
        )
        self.world.wait_for_listener(port, sdp=ends.server)
        return server, port

    def client(self, ends, port, program, *arguments, **options):
        return self.world.run(
            [program, "-h", "127.0.0.1", "-p", port, "-U", "tester", *arguments, "postgres"],
            preload=ends.client,
            environment={"PGCONNECT_TIMEOUT": "10"},
            timeout=30,
            **options,
        ).decode()

    def transactions(self, output):
        return int(re.search(r"transactions actually processed: (\d+)/", output)[1])

    def use(self, ends, port):
        harness.wait_until(lambda: self.ready(ends, port), "answer of the server")
        # Rows in and out, whole.
        rows = [f"{i}\t{random.Random(i).randbytes(i % 200).hex()}" for i in range(20_000)]
        text = "\n".join(rows) + "\n"
        self.client(
            ends,
            port,
            "psql",
            "-qc",
            "create table rows (id int, text text)",
            "-c",
            "copy rows from stdin",
            data=text.encode(),
        )
        back = self.client(ends, port, "psql", "-qc", "copy (select * from rows order by id) to stdout")
        self.assertEqual(hashlib.sha256(back.encode()).hexdigest(), hashlib.sha256(text.encode()).hexdigest())
        self.client(ends, port, "psql", "-qc", "drop table rows")

        self.client(ends, port, "pgbench", "-qi", "-s", "1")
        self.assertEqual(
            self.transactions(self.client(ends, port, "pgbench", "-n", "-c", "8", "-j", "2", "-t", "60")), 480
        )
        # A process of the server's for each transaction.
        self.assertEqual(
            self.transactions(self.client(ends, port, "pgbench", "-n", "-S", "-C", "-c", "4", "-t", "10")), 40
        )
        self.assertEqual(
            self.client(ends, port, "psql", "-Atc", "select count(*) from pgbench_history").strip(), "480"
        )
        self.assert_carried(port, ends, at_least=50)
        if ends.sdp:
            self.check_the_backend_s_title(port)

    def check_the_backend_s_title(self, port):
        """It says whose the backend is, though the database bears the program's name."""
        client = self.world.start(
            ["psql", "-h", "127.0.0.1", "-p", port, "-U", "tester", "-c", "select pg_sleep(60)", "postgres"]
        )
        backends = lambda: [
            process["title"] or ""
            for process in self.world.sdpstat()["processes"]
            if process["program"] == "postgres"
        ]
        title = r"tester postgres 127\.0\.0\.1\(\d+\) SELECT"
        harness.wait_until(
            lambda: any(re.fullmatch(title, backend) for backend in backends()), "backend with its title"
        )
        client.stop()

    def ready(self, ends, port):
        return (
            "t"
            in self.world.run(
                ["psql", "-h", "127.0.0.1", "-p", port, "-U", "tester", "-Atc", "select true", "postgres"],
                preload=ends.client,
                check=False,
            ).decode()
        )

    def test_psql_and_pgbench(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                server, port = self.serve(ends)
                self.use(ends, port)
                server.kill(2)  # SIGINT: fast shutdown
                self.assertEqual(server.wait(20), 0, server.output())


if __name__ == "__main__":
    harness.main()
