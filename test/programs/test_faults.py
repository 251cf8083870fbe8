"""The port mapper dies, the peer dies: what is open lives on, or ends as TCP would end it."""

import signal
import socket
import subprocess
import sys

import harness


class PortMapperDies(harness.ProgramTest):
    def test_open_connections_live_on_and_new_ones_use_tcp(self):
        port = harness.free_port()
        server = self.world.peer("echo-server", port)
        self.world.wait_for_listener(port)
        client = self.world.peer("echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        self.echo(client, 1_000_000)

        self.world.pmd.kill(signal.SIGKILL)
        self.world.pmd.wait()
        self.echo(client, 5_000_000)
        self.assert_sdp_carried(at_least_in=6_000_000, at_least_out=6_000_000, process=server)
        self.world.run_peer("connect", port, 3)

        # A new port mapper, the same listener: it is registered again, and clients find it.
        self.world.start_pmd()

        def over_sdp():
            before = self.world.sdp_bytes(server)
            self.world.run_peer("connect", port, 1)
            return self.world.sdp_bytes(server) > before

        harness.wait_until(over_sdp, "SDP connection after the port mapper came back")
        self.echo(client, 100_000)

    def echo(self, client, size):
        client.popen.stdin.write(b"%d\n" % size)
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"ok %d\n" % size)


# Echoes to one client at a time. At the first line it takes all descriptors that there are, at the next one
# it gives them back.
TAKES_ALL = """
import os, resource, select, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
taken = []
while True:
    ready, _, _ = select.select([listener, sys.stdin], [], [])
    if sys.stdin not in ready:
        with listener.accept()[0] as connection:
            while data := connection.recv(65536):
                connection.sendall(data)
        continue
    sys.stdin.readline()
    if taken:
        while taken:
            os.close(taken.pop())
    else:
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
    print("done", flush=True)
"""


class PortMapperDiesAtTheLimit(harness.ProgramTest):
    def test_a_listener_is_registered_again_when_there_are_descriptors(self):
        port = harness.free_port()
        server = self.world.start(
            [sys.executable, "-c", TAKES_ALL, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.world.wait_for_listener(port)
        self.tell(server)
        self.world.pmd.stop()
        harness.wait_until(lambda: not self.row(port)["registered"], "loss of the port mapper")
        self.world.pmd = self.world.start_pmd()
        harness.wait_until(lambda: f"process {server.pid}:" in self.world.pmd.output(), "registration")
        # There is no number at which the library could keep it.
        harness.wait_until(lambda: not self.row(port)["registered"], "end of that registration")
        self.tell(server)
        self.world.wait_for_listener(port)
        self.world.run_peer("connect", port, 1)
        self.assertEqual(self.world.connects(port), (1, {}))

    def tell(self, server):
        server.popen.stdin.write(b"\n")
        server.popen.stdin.flush()
        self.assertEqual(server.popen.stdout.readline(), b"done\n")

    def row(self, port):
        (row,) = [r for p in self.world.sdpstat()["processes"] for r in p["listeners"]]
        self.assertEqual(row["local"], f"127.0.0.1:{port}")
        return row


# Listens, tells on which port, and for each line closes that and listens there again, without SO_REUSEADDR.
LISTENS_AGAIN = """
import socket, sys
address = (sys.argv[1], 0)
for line in sys.stdin:
    s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
    s.bind(address)
    s.listen()
    address = s.getsockname()
    print(address[1], flush=True)
    sys.stdin.readline()
    s.close()
"""


class PortMapperStandsStill(harness.ProgramTest):
    def listens_again(self, host):
        self.world.pmd.popen.send_signal(signal.SIGSTOP)
        self.addCleanup(self.world.pmd.popen.send_signal, signal.SIGCONT)
        program = self.world.start(
            [sys.executable, "-c", LISTENS_AGAIN, host], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

        def listen():
            program.popen.stdin.write(b"\n")
            program.popen.stdin.flush()
            return int(program.popen.stdout.readline())

        port = listen()
        program.popen.stdin.write(b"\n")  # closes
        self.assertEqual(listen(), port)
        program.kill()
        program.wait()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection((host, port))
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other:
            other.bind((host, port))

    def test_a_closed_listeners_port_is_free(self):
        self.listens_again("127.0.0.1")

    def test_a_closed_listeners_port_is_free_ipv6(self):
        self.listens_again("::1")


class PeerDies(harness.ProgramTest):
    def end_seen_by_client(self, number):
        port = harness.free_port()
        server = self.world.peer("echo-server", port)
        self.world.wait_for_listener(port)
        client = self.world.peer("wait-for-end", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        self.assert_sdp_carried(at_least_in=1, process=server)
        client.popen.stdin.write(b"\n")
        client.popen.stdin.flush()
        server.kill(number)
        how, seconds = client.popen.stdout.readline().split()
        self.assertIn(how, (b"eof", b"reset"))
        return (float(seconds),)

    def test_server_killed(self):
        self.assert_takes_less((1.0,), lambda: self.end_seen_by_client(signal.SIGKILL))

    def test_server_terminated(self):
        self.assert_takes_less((1.0,), lambda: self.end_seen_by_client(signal.SIGTERM))

    def test_client_killed_costs_the_server_nothing(self):
        port = harness.free_port()
        server = self.world.peer("echo-server", port)
        self.world.wait_for_listener(port)
        for _ in range(5):
            client = self.world.peer("echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(client.popen.stdout.readline(), b"connected\n")
            client.popen.stdin.write(b"50000000\n")
            client.popen.stdin.flush()
            before = self.world.sdp_bytes(server)
            harness.wait_until(lambda: self.world.sdp_bytes(server) > before, "transfer under way")
            client.kill()
            client.wait()

        def connections():
            return self.world.sdpstat()["summary"]["connections_open"]

        harness.wait_until(lambda: connections() == 0, "end of the dead clients' connections")
        self.world.run_peer("connect", port, 10)
        self.assertTrue(server.running())


if __name__ == "__main__":
    harness.main()
