"""A file server that writes whole files from mapped memory, and clients that read them in large pieces: Zcopy
from the page cache, the same memory lent to several connections at once."""

import hashlib
import sys

import harness

SERVER = """
import mmap, socketserver, sys

class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        while name := self.request.recv(100):
            with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self.request.sendall(len(data).to_bytes(8, "big"))
                self.request.sendall(data)

class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CLIENT = """
import hashlib, socket, sys

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for name in sys.argv[2:]:
    connection.sendall(name.encode())
    size = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
    data = bytearray(size)
    at = 0
    while at < size:
        count = connection.recv_into(memoryview(data)[at:at + (4 << 20)])
        if count == 0:
            sys.exit("the server went away")
        at += count
    print(hashlib.sha256(data).hexdigest())
"""


class FileServer(harness.ProgramTest):
    def test_several_clients(self):
        directory = self.world.directory
        sizes = {"large": 48 << 20, "odd": (5 << 20) + 123, "small": 1000}
        wanted = [harness.random_file(directory / name, size, seed=size) for name, size in sizes.items()]
        self.assertEqual(wanted[0], hashlib.sha256((directory / "large").read_bytes()).hexdigest())
        port = harness.free_port()
        # By itself the embedded RNIC would copy.
        server = self.world.start(
            [sys.executable, "-c", SERVER, port], environment={"SDP_BCOPY_THRESHOLD": 512 << 10}
        )
        self.world.wait_for_listener(port)
        clients = [self.world.start([sys.executable, "-c", CLIENT, port, *sizes]) for _ in range(3)]
        for client in clients:
            self.assertEqual(client.wait(60), 0, client.output())
            self.assertEqual(client.output().split(), wanted)
        total = len(clients) * sum(sizes.values())
        self.assert_sdp_carried(at_least_out=total, process=server)
        self.assert_no_tcp()
        one = next(one for one in self.world.sdpstat()["processes"] if one["pid"] == server.pid)
        zcopy = sum(part["bytes_out"]["read_zcopy"] for part in [one["closed"], *one["connections"]])
        print(f"Read Zcopy carried {zcopy / total:.0%}")
        self.assertGreater(zcopy, 0)


if __name__ == "__main__":
    harness.main()
