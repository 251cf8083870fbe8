"""python3 -m http.server with urllib, over IPv4 and IPv6."""

import sys

import harness


class HttpServer(harness.ProgramTest):
    def fetch(self, host, url_host, count, size):
        port = harness.free_port()
        wanted = harness.random_file(self.world.directory / "file", size)
        server = self.world.start(
            [sys.executable, "-m", "http.server", port, "--bind", host, "--directory", self.world.directory]
        )
        self.world.wait_for_listener(port)
        self.world.run_peer("fetch", f"http://{url_host}:{port}/file", count, wanted)
        self.assert_sdp_carried(at_least_out=count * size, process=server)
        self.assert_no_tcp()

    def test_many_files(self):
        self.fetch("127.0.0.1", "127.0.0.1", 50, 300_000)

    def test_by_name(self):
        self.fetch("127.0.0.1", "localhost", 3, 1000)

    def test_a_large_file(self):
        self.fetch("127.0.0.1", "127.0.0.1", 1, 200 << 20)

    def test_ipv6(self):
        self.fetch("::1", "[::1]", 5, 100_000)


if __name__ == "__main__":
    harness.main()
