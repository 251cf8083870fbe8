"""memcached (libevent, several threads, connections handed between them) with a client that speaks its
protocol."""

import os
import shutil

import harness


class Memcached(harness.ProgramTest):
    def setUp(self):
        harness.need("memcached")
        super().setUp()
        self.port = harness.free_port()
        self.server = self.serve(self.port)

    def serve(self, port, preload=True):
        server = self.world.start(
            ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "4"], preload=preload
        )
        self.world.wait_for_listener(port, sdp=preload)
        return server

    def test_values_come_back(self):
        answer = self.world.run_peer("memcached", self.port, 5000)
        size = int(answer.split()[1])
        self.assert_sdp_carried(at_least_in=size, at_least_out=size, process=self.server)
        self.assert_no_tcp()

    def test_four_clients_at_once(self):
        clients = [self.world.peer("memcached", self.port, 1500) for _ in range(4)]
        for client in clients:
            self.assertEqual(client.wait(), 0, client.output())
        size = int(clients[0].output().split()[1])
        self.assert_sdp_carried(at_least_in=4 * size, at_least_out=4 * size, process=self.server)

    def test_as_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root becomes another user")
        self.world.directory.chmod(0o755)
        self.world.log_file.touch()
        self.world.log_file.chmod(0o666)
        shutil.chown(self.world.stats_dir, "nobody")
        port = harness.free_port()
        self.world.start(["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "4"])
        self.world.wait_for_listener(port)
        self.world.run_peer("memcached", port, 2000)
        self.assertEqual(self.world.connects(port), (1, {}))

    def test_each_end_alone(self):
        for ends in harness.BOTH_AND_EACH_ALONE[1:]:
            with self.subTest(str(ends)):
                port = harness.free_port()
                self.serve(port, preload=ends.server)
                self.world.run_peer("memcached", port, 2000, preload=ends.client)
                self.assert_carried(port, ends)


if __name__ == "__main__":
    harness.main()
