"""netcat, both ways with half close: each end's data arrives whole although the other direction is closed already."""

import os
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

    def exchange(self, size_up, size_down):
        directory = self.world.directory
        up = harness.random_file(directory / "up", size_up, seed=1)
        down = harness.random_file(directory / "down", size_down, seed=2)
        hold_client, hold_server = threading.Event(), threading.Event()
        with open(directory / "at-server", "wb") as out:
            # -N: end of file on standard input closes the sending direction only.
            server = self.world.start(["nc", "-N", "-l", "127.0.0.1", self.port], stdin=subprocess.PIPE, stdout=out)
        self.world.wait_for_listener(self.port)
        with open(directory / "at-client", "wb") as out:
            client = self.world.start(["nc", "-N", "127.0.0.1", self.port], stdin=subprocess.PIPE, stdout=out)
        feeders = [self.feed(client, directory / "up", hold_client)]

        def size(name):
            return os.path.getsize(directory / name)

        # The client's direction first, and closed; only then the server sends.
        harness.wait_until(lambda: size("at-server") == size_up, "whole upload at the server", 30)
        self.assert_sdp_carried(at_least_in=size_up, process=server)
        hold_client.set()
        feeders.append(self.feed(server, directory / "down", hold_server))
        harness.wait_until(lambda: size("at-client") == size_down, "whole download at the client", 30)
        self.assert_sdp_carried(at_least_in=size_down, process=client)
        hold_server.set()
        self.assertEqual(client.wait(20), 0, client.output())
        self.assertEqual(server.wait(20), 0, server.output())
        for feeder in feeders:
            feeder.join(10)
        self.assertEqual(harness.file_hash(directory / "at-server"), up)
        self.assertEqual(harness.file_hash(directory / "at-client"), down)

    def test_both_ways(self):
        self.exchange(64 << 20, 48 << 20)

    def test_a_few_bytes(self):
        self.exchange(1, 1)

    def test_both_at_once(self):
        size = 32 << 20
        directory = self.world.directory
        up = harness.random_file(directory / "up", size, seed=1)
        down = harness.random_file(directory / "down", size, seed=2)
        with open(directory / "at-server", "wb") as out, open(directory / "down", "rb") as data:
            server = self.world.start(["nc", "-N", "-l", "127.0.0.1", self.port], stdin=data, stdout=out)
        self.world.wait_for_listener(self.port)
        with open(directory / "at-client", "wb") as out, open(directory / "up", "rb") as data:
            client = self.world.start(["nc", "-N", "127.0.0.1", self.port], stdin=data, stdout=out)
        self.assertEqual(client.wait(30), 0, client.output())
        self.assertEqual(server.wait(30), 0, server.output())
        self.assertEqual(harness.file_hash(directory / "at-server"), up)
        self.assertEqual(harness.file_hash(directory / "at-client"), down)


if __name__ == "__main__":
    harness.main()
