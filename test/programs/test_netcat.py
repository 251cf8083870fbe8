"""netcat, both ways, and with half close: what comes after it arrives whole."""

import os
import pathlib
import subprocess
import threading

import harness


class Netcat(harness.ProgramTest):
    def setUp(self):
        harness.need("nc")
        super().setUp()
        self.port = harness.free_port()

    def feed(self, process, path, hold):
        """Gives the file to the program's standard input, and end of file once `hold` is set."""

        def run():
            try:
                with open(path, "rb") as file:
                    while data := file.read(1 << 20):
                        process.popen.stdin.write(data)
                process.popen.stdin.flush()
                hold.wait(60)
                process.popen.stdin.close()
            except BrokenPipeError:
                pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def size(self, name):
        return os.path.getsize(self.world.directory / name)

    def exchange(self, size_up, size_down):
        """Both directions at once. netcat ends when the other end closes its direction, so both hold theirs
        until all has arrived."""
        directory = self.world.directory
        up = harness.random_file(directory / "up", size_up, seed=1)
        down = harness.random_file(directory / "down", size_down, seed=2)
        done = threading.Event()
        with open(directory / "at-server", "wb") as out:
            server = self.world.start(
                ["nc", "-N", "-l", "127.0.0.1", self.port], stdin=subprocess.PIPE, stdout=out
            )
        self.world.wait_for_listener(self.port)
        with open(directory / "at-client", "wb") as out:
            client = self.world.start(["nc", "-N", "127.0.0.1", self.port], stdin=subprocess.PIPE, stdout=out)
        feeders = [self.feed(client, directory / "up", done), self.feed(server, directory / "down", done)]
        harness.wait_until(lambda: self.size("at-server") == size_up, "whole upload at the server", 60)
        harness.wait_until(lambda: self.size("at-client") == size_down, "whole download at the client", 60)
        self.assert_sdp_carried(at_least_in=size_up, process=server)
        self.assert_sdp_carried(at_least_in=size_down, process=client)
        self.assert_no_tcp()
        done.set()
        self.assertEqual(client.wait(20), 0, client.output())
        self.assertEqual(server.wait(20), 0, server.output())
        for feeder in feeders:
            feeder.join(10)
        self.assertEqual(harness.file_hash(directory / "at-server"), up)
        self.assertEqual(harness.file_hash(directory / "at-client"), down)

    def test_a_connect_that_the_helper_has_finished_is_ready_for_a_lack_of_memory(self):
        """The unwinder is there before memory may run out."""
        self.world.start(["nc", "-l", "127.0.0.1", self.port])
        self.world.wait_for_listener(self.port)
        client = self.world.start(["nc", "127.0.0.1", self.port], stdin=subprocess.PIPE)
        harness.wait_until(lambda: "accept on" in self.world.sdp_log(), "the connection")
        self.assertIn("libgcc_s", pathlib.Path(f"/proc/{client.pid}/maps").read_text())

    def test_both_ways(self):
        self.exchange(64 << 20, 48 << 20)

    def test_a_few_bytes(self):
        self.exchange(1, 1)

    def test_an_answer_after_half_close(self):
        size = 20 << 20
        wanted = harness.random_file(self.world.directory / "up", size)
        server = self.world.peer("sink-server", self.port)
        self.world.wait_for_listener(self.port)
        with open(self.world.directory / "up", "rb") as data:
            client = self.world.start(
                ["nc", "-N", "127.0.0.1", self.port], stdin=data, stdout=subprocess.PIPE
            )
            answer = client.popen.stdout.read()
        self.assertEqual(client.wait(20), 0, client.output())
        self.assertEqual(answer.decode(), wanted)
        self.assert_sdp_carried(at_least_in=size, at_least_out=len(answer), process=server)

    def test_into_a_listener_that_only_receives(self):
        size = 5 << 20
        wanted = harness.random_file(self.world.directory / "up", size)
        with open(self.world.directory / "at-server", "wb") as out:
            server = self.world.start(["nc", "-l", "127.0.0.1", self.port], stdout=out)
        self.world.wait_for_listener(self.port)
        with open(self.world.directory / "up", "rb") as data:
            client = self.world.start(["nc", "-N", "127.0.0.1", self.port], stdin=data)
        self.assertEqual(client.wait(20), 0, client.output())
        self.assertEqual(server.wait(20), 0, server.output())
        self.assertEqual(harness.file_hash(self.world.directory / "at-server"), wanted)
        self.assert_no_tcp()
        self.assertGreaterEqual(self.world.connects(self.port)[0], 1)

    def test_dd_through_pipes(self):
        size = 256 << 20
        wanted = harness.random_file(self.world.directory / "disk", size)
        receive = f"nc -l 127.0.0.1 {self.port} | sha256sum > sum"
        send = f"dd if=disk bs=1M status=none | nc -N 127.0.0.1 {self.port}"
        server = self.world.start(["sh", "-c", receive])
        self.world.wait_for_listener(self.port)
        client = self.world.start(["sh", "-c", send])
        self.assertEqual(client.wait(60), 0, client.output())
        self.assertEqual(server.wait(60), 0, server.output())
        self.assertEqual((self.world.directory / "sum").read_text().split()[0], wanted)
        self.assert_no_tcp()
        self.assertGreaterEqual(self.world.connects(self.port)[0], 1)


if __name__ == "__main__":
    harness.main()
