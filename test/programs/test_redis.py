"""redis-server: redis-benchmark with 50 clients, 100,000 keys loaded and read back, and replication with
threads for the sockets."""

import re

import harness


class Redis(harness.ProgramTest):
    def setUp(self):
        harness.need("redis-server", "redis-benchmark", "redis-cli")
        super().setUp()
        self.port = harness.free_port()
        self.server = self.world.start(
            [
                "redis-server",
                "--port",
                self.port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--dir",
                self.world.directory,
            ]
        )
        self.world.wait_for_listener(self.port)

    def cli(self, *words, **options):
        return self.world.run(["redis-cli", "-p", self.port, *words], **options).decode().strip()

    def test_benchmark(self):
        requests = 100_000
        output = self.world.run(
            [
                "redis-benchmark",
                "-p",
                self.port,
                "-n",
                requests,
                "-c",
                "50",
                "-t",
                "set,get",
                "-d",
                "100",
                "--csv",
            ]
        ).decode()
        rates = re.findall(r'^"(SET|GET)","([\d.]+)"', output, re.M)
        self.assertEqual([name for name, _ in rates], ["SET", "GET"], output)
        # Each SET carries a value of 100 bytes in, each GET one out.
        self.assert_sdp_carried(at_least_in=requests * 100, at_least_out=requests * 100, process=self.server)
        self.assert_no_tcp()

    def test_pipelined_benchmark(self):
        self.world.run(
            ["redis-benchmark", "-p", self.port, "-n", "200000", "-c", "10", "-P", "32", "-t", "set", "-q"]
        )
        self.assert_sdp_carried(at_least_in=200_000 * 30, process=self.server)

    def test_hundred_thousand_keys(self):
        count = 100_000
        commands = bytearray()
        for i in range(count):
            words = ["SET", f"key:{i}", f"value:{i}:{i * 7919}"]
            commands += f"*{len(words)}\r\n".encode()
            for word in words:
                commands += f"${len(word)}\r\n{word}\r\n".encode()
        loaded = self.cli("--pipe", data=bytes(commands))
        self.assertIn(f"errors: 0, replies: {count}", loaded)
        self.assertEqual(self.cli("DBSIZE"), str(count))
        self.assertEqual(self.world.run_peer("redis-check", self.port, count).strip(), b"ok %d" % count)
        self.assert_sdp_carried(at_least_in=len(commands), at_least_out=count * 10, process=self.server)
        self.assert_no_tcp()


class Replication(harness.ProgramTest):
    """The server forks for the replica's first copy, and has several threads read and write its sockets."""

    def setUp(self):
        harness.need("redis-server", "redis-benchmark", "redis-cli")
        super().setUp()

    def serve(self, preload, *options):
        port = harness.free_port()
        directory = self.world.directory / f"redis-{port}"
        directory.mkdir()
        server = self.world.start(
            [
                "redis-server",
                "--port",
                port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                directory,
                "--io-threads",
                "2",
                "--io-threads-do-reads",
                "yes",
                "--enable-debug-command",
                "yes",
                "--repl-diskless-sync-delay",
                "0",
                *options,
            ],
            preload=preload,
        )
        self.world.wait_for_listener(port, sdp=preload)
        return server, port

    def cli(self, ends, port, *words):
        return self.world.run(["redis-cli", "-p", port, *words], preload=ends.client).decode().strip()

    def replicate(self, ends, *options):
        master, port = self.serve(ends.server, *options)
        load = [
            "redis-benchmark",
            "-p",
            port,
            "-t",
            "set",
            "-n",
            "20000",
            "-r",
            "10000",
            "-d",
            "300",
            "-c",
            "20",
            "-P",
            "20",
            "-q",
        ]
        self.world.run(load, preload=ends.client)
        replica, replica_port = self.serve(ends.client, "--replicaof", "127.0.0.1", port)
        harness.wait_until(
            lambda: "master_link_status:up" in self.cli(ends, replica_port, "info", "replication"),
            "first copy",
        )
        self.world.run(load, preload=ends.client)
        wanted = self.cli(ends, port, "debug", "digest")
        self.assertRegex(wanted, "^[0-9a-f]{40}$")
        harness.wait_until(
            lambda: self.cli(ends, replica_port, "debug", "digest") == wanted, "copy that equals the original"
        )
        self.assert_carried(port, ends, at_least=42)  # redis-benchmark's, the replica's, redis-cli's
        replica.stop()
        master.stop()

    def test_copy_over_the_socket(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.replicate(ends)

    def test_copy_from_a_file(self):
        self.replicate(harness.Ends(server=True, client=True), "--repl-diskless-sync", "no")


if __name__ == "__main__":
    harness.main()
