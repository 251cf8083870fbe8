"""A central port mapper: programs ask it instead of the target, and it knows from the target's own daemon."""

import socket
import subprocess
import time

import harness
import sdp_world


class CentralPortMapper(harness.ProgramTest):
    with_pmd = False

    def start_pmd(self, name, *arguments):
        socket_path = self.world.directory / f"{name}.sock"
        port = harness.free_port(socket.SOCK_DGRAM)
        pmd = self.world.start(
            [sdp_world.PMD, "--listen", f"127.0.0.1:{port}", "--socket", socket_path, *arguments],
            preload=False,
        )
        harness.wait_until(lambda: "ready" in pmd.output(), f"{name} to be ready:\n{self.world.logs()}")
        return pmd, port, socket_path

    def setUp(self):
        super().setUp()
        self.central, self.central_port, _ = self.start_pmd("central", "--serve", "127.0.0.0/8")
        self.host, _, self.host_socket = self.start_pmd(
            "host", "--central", f"127.0.0.1:{self.central_port}", "--lifetime", "1"
        )

    def client_environment(self):
        # Nobody listens on SDP_PM_PORT: only who asks the central port mapper learns the SDP address.
        return {"SDP_PM_SERVER": f"127.0.0.1:{self.central_port}", "SDP_MODE": "sdp"}

    def send_when_known(self, port):
        """Sends over SDP as soon as the central port mapper has heard of the server."""
        deadline = time.monotonic() + 60
        while True:
            client = self.world.peer("send", port, 5 << 20, environment=self.client_environment())
            if client.wait(20) == 0:
                return
            self.assertLess(time.monotonic(), deadline, self.world.logs())

    def test_a_program_asks_it(self):
        port = harness.free_port()
        server = self.world.peer("sink-server", port, environment={"SDP_PMD_SOCKET": self.host_socket})
        self.world.wait_for_listener(port)
        self.send_when_known(port)
        self.assert_sdp_carried(at_least_in=5 << 20, process=server)

    def test_when_it_is_gone_programs_use_tcp_at_once(self):
        port = harness.free_port()
        self.world.peer("sink-server", port, environment={"SDP_PMD_SOCKET": self.host_socket})
        self.world.wait_for_listener(port)
        self.central.popen.kill()
        self.central.wait(10)
        began = time.monotonic()
        client = self.world.peer(
            "echo-client",
            port,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            environment={"SDP_PM_SERVER": f"127.0.0.1:{self.central_port}"},
        )
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        self.assertLess(time.monotonic() - began, 9)  # less than a client would wait for it
        self.assertEqual(self.world.sdp_bytes(client), (0, 0))


if __name__ == "__main__":
    harness.main()
