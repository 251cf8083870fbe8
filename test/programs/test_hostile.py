"""Whatever reaches the SDP listener that is not SDP is dropped with a log line and costs nobody else
anything."""

import contextlib
import os
import re
import select
import socket
import struct
import subprocess
import time

import harness

# An MPA Request Frame: key, flags and revision, private data length (RFC 5044, 7.1.1).
MPA_KEY = b"MPA ID Req Frame"
HANDSHAKE_TIMEOUT_MS = 1500
BUSY = 6  # seconds that a machine may keep somebody waiting; less than the default time-out leaves
# 24 Private Buffers of 16 KiB, IRD 8, ORD 7.
HELLO = bytes.fromhex("0018 00 00 00000020 00000000 00000000  0010 00 11 00008010 00004000 0008 0007")


class HostileConnections(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.port = harness.free_port()
        self.server = self.world.peer(
            "echo-server", self.port, environment={"SDP_HANDSHAKE_TIMEOUT_MS": HANDSHAKE_TIMEOUT_MS}
        )
        host, port = self.world.wait_for_listener(self.port)["sdp_local"].rsplit(":", 1)
        self.assertEqual(host, "127.0.0.1")
        self.sdp_address = (host, int(port))
        self.client = self.world.peer("echo-client", self.port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(self.client.popen.stdout.readline(), b"connected\n")
        self.echo(1000)

    def echo(self, size):
        self.client.popen.stdin.write(b"%d\n" % size)
        self.client.popen.stdin.flush()
        self.assertEqual(self.client.popen.stdout.readline(), b"ok %d\n" % size)

    def attack(self):
        return socket.create_connection(self.sdp_address, timeout=10)

    def assert_dropped(self, connection, timeout):
        """The other end closes or resets within `timeout` seconds."""
        connection.settimeout(timeout)
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            self.fail(f"the connection is still open after {timeout} s")

    def assert_unharmed_and_logged(self, lines_before):
        self.echo(1_000_000)
        self.world.run_peer("connect", self.port, 5)
        self.assertTrue(self.server.running())
        harness.wait_until(lambda: self.world.sdp_log().count("\n") > lines_before, "line in the log")

    def test_foreign_bytes(self):
        messages = {
            "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "a TLS hello": bytes.fromhex("16030100f5010000f10303") + os.urandom(200),
            "random bytes": os.urandom(1 << 20),
            "zeros": bytes(100_000),
            "an MPA Reply": b"MPA ID Rep Frame" + bytes([0x00, 1, 0, 0]),
            "an MPA revision that is not": MPA_KEY + bytes([0x40, 77, 0, 0]),
            "private data beyond the limit": MPA_KEY + bytes([0x40, 1, 0xFF, 0xFF]) + bytes(65535),
            "no Hello": MPA_KEY + bytes([0x40, 1, 0, 0]),
            "a Hello of zeros": MPA_KEY + bytes([0x40, 1, 0, 32]) + bytes(32),
        }
        for name, message in messages.items():
            with self.subTest(name):
                lines = self.world.sdp_log().count("\n")
                with self.attack() as connection:
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(message)
                    self.assert_dropped(connection, HANDSHAKE_TIMEOUT_MS / 1000 + BUSY)
                self.assert_unharmed_and_logged(lines)

    def test_half_a_request_held_open(self):
        lines = self.world.sdp_log().count("\n")
        with contextlib.ExitStack() as open_connections:
            held = [open_connections.enter_context(self.attack()) for _ in range(20)]
            for number, connection in enumerate(held):
                connection.sendall((MPA_KEY + bytes([0x40, 1, 0, 32]))[:number])
            self.echo(1_000_000)
            self.world.run_peer("connect", self.port, 5)
            start = time.monotonic()
            for connection in held:
                self.assert_dropped(connection, HANDSHAKE_TIMEOUT_MS / 1000 + BUSY)
            self.assertLess(time.monotonic() - start, HANDSHAKE_TIMEOUT_MS / 1000 + BUSY)
        self.assert_unharmed_and_logged(lines)

    def test_broken_rules_are_in_the_log(self):
        """Of SDP or of iWARP: they end the connection, and the log says so at its default level, with the
        messages that led to it."""
        queue_0 = bytes.fromhex(
            "4143 00000000 00000000 00000001 00000000"
        )  # untagged, last: Send, queue 0, MSN 1
        queue_7 = bytes.fromhex("4143 00000000 00000007 00000001 00000000")
        message = bytes.fromhex("0018 00 7f 00000010 00000001 00000000")  # MID 0x7f
        for ddp, said, last in (
            (queue_0, "unknown-mid", "got not SDP "),
            (queue_7, r"link-lost; .*Terminate sent", "HelloAck"),
        ):
            with self.subTest(said):
                port = harness.free_port()
                self.world.peer("echo-server", port, environment={"SDP_LOG": "error"})
                host, sdp_port = self.world.wait_for_listener(port)["sdp_local"].rsplit(":", 1)
                with socket.create_connection((host, int(sdp_port)), timeout=10) as connection:
                    connection.sendall(MPA_KEY + bytes([0x00, 1, 0, len(HELLO)]) + HELLO)
                    reply = connection.recv(4096)
                    self.assertTrue(reply.startswith(b"MPA ID Rep Frame"), reply)
                    connection.sendall(struct.pack(">H", len(ddp) + len(message)) + ddp + message + bytes(4))
                    self.assert_dropped(connection, 30)
                pattern = rf"aborted: {said}.*\n(?:.* s before: .*\n)*.* s before: .*{last}"
                harness.wait_until(lambda: re.search(pattern, self.world.sdp_log()), "the abort in the log")
        self.echo(1000)

    def test_connections_that_come_and_go(self):
        for _ in range(200):
            with self.attack() as connection:
                connection.sendall(b"M")
        self.echo(100_000)
        self.world.run_peer("connect", self.port, 5)
        self.assertTrue(self.server.running())


class OneThreadForAll(harness.ProgramTest):
    """A server that trusts what it waits with and then accepts blockingly must not be put to sleep by a
    connection that never says Hello."""

    def test_a_connection_that_says_nothing_sensible_and_select(self):
        self.serves_on("select-server")

    def test_a_connection_that_says_nothing_sensible_and_epoll(self):
        self.serves_on("epoll-server")

    def serves_on(self, server):
        port = harness.free_port()
        self.world.peer(server, port)
        host, sdp_port = self.world.wait_for_listener(port)["sdp_local"].rsplit(":", 1)
        client = self.world.peer("echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        for _ in range(5):
            with socket.create_connection((host, int(sdp_port)), timeout=10) as junk:
                junk.sendall(b"M")
                client.popen.stdin.write(b"1000\n")
                client.popen.stdin.flush()
                self.assertTrue(select.select([client.popen.stdout], [], [], BUSY)[0], "the server sleeps")
                self.assertEqual(client.popen.stdout.readline(), b"ok 1000\n")


if __name__ == "__main__":
    harness.main()
