"""Large and small blocking transfers with each mechanism forced (SDP 9), and what the library chooses by
itself: transfer checks the data, sdpstat says what carried it."""

import itertools
import json
import select
import subprocess

import harness
import sdp_world

TRANSFER = sdp_world.BUILD / "test" / "programs" / "transfer"
MIB = 1 << 20


class Mechanisms(harness.ProgramTest):
    def transfer(self, shape, size, messages, force=None, timeout=40, reading=(), seen=None, **settings):
        """What each mechanism carried to and from the client."""
        if force:
            settings["SDP_FORCE"] = force
        process = self.world.start(
            [TRANSFER, shape, size, messages, *reading],
            environment=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            # It says when it is done, and stays until its input ends.
            harness.wait_until(
                lambda: select.select([process.popen.stdout], [], [], 0)[0],
                f"end of {shape} by {force}:\n{self.world.logs()}",
                timeout,
            )
            line = process.popen.stdout.readline().split()
            self.assertEqual(len(line), 3, self.world.logs())
            if seen:
                seen(process)
            # What went the direct way, a process tells up to two seconds late.
            harness.wait_until(
                lambda: sum(self.count(process).values()) >= int(line[2]),
                f"what {shape} by {force} has carried",
            )
            carried = self.count(process)
        finally:
            process.popen.stdin.close()
        self.assertEqual(process.wait(10), 0)
        return carried

    def count(self, process):
        """Bytes to and from the process by each mechanism, as sdpstat has them; its open connections."""
        carried = dict.fromkeys(sdp_world.MECHANISMS, 0)
        one = next(one for one in self.world.sdpstat()["processes"] if one["pid"] == process.pid)
        self.connections = one["connections"]
        for part in [one["closed"], *one["connections"]]:
            for direction in ("bytes_in", "bytes_out"):
                for mechanism, count in part[direction].items():
                    carried[mechanism] += count
        return carried

    def test_a_link_within_the_host_is_not_paced(self):
        # Nor does the program see that: test/posix compares what it reads with TCP's.
        def controls(process):
            shown = subprocess.run(
                ["ss", "-Htnip"], check=True, capture_output=True, text=True
            ).stdout.splitlines()
            return [
                info.split()[0] for socket, info in zip(shown, shown[1:]) if f"pid={process.pid}," in socket
            ]

        self.transfer(
            "turns", MIB, 4, seen=lambda process: self.assertIn(set(controls(process)), ({"reno"}, {"cubic"}))
        )

    def test_bcopy(self):
        for shape in ("stream", "turns", "requests"):
            carried = self.transfer(shape, MIB, 20, "bcopy")
            self.assertEqual(sum(carried.values()), carried["bcopy"], (shape, carried))

    def test_read(self):
        for shape in ("stream", "turns", "requests"):
            carried = self.transfer(shape, MIB, 20, "read")
            self.assertGreater(carried["read_zcopy"], 15 * MIB, (shape, carried))

    def test_read_behind_writes_that_were_cancelled(self):
        # Of these up to 8 MiB are read, too.
        carried = self.transfer("stream", MIB, 40, "read", reading=["cancelled"])
        self.assertGreater(carried["read_zcopy"], 30 * MIB, carried)

    def test_write(self):
        for shape in ("stream", "turns", "requests"):
            carried = self.transfer(shape, MIB, 20, "write")
            self.assertGreater(carried["write_zcopy"], 10 * MIB, (shape, carried))

    def test_transaction(self):
        carried = self.transfer("requests", MIB, 20, "transaction")
        self.assertGreater(carried["transaction"], 10 * 64, carried)
        self.assertGreater(carried["write_zcopy"], 10 * MIB, carried)
        for shape in ("stream", "turns"):
            carried = self.transfer(shape, MIB, 20, "transaction")
            self.assertGreater(carried["write_zcopy"], 10 * MIB, (shape, carried))

    def test_transactions_whose_answers_are_read_whole(self):
        # Readers that want all lend nothing (9.3), so that their questions leave by themselves.
        carried = self.transfer("requests", 100_000, 400, "transaction", reading=["whole"])
        self.assertEqual(carried["transaction"], 0, carried)

    def test_transaction_of_what_is_small(self):
        # No answer is large enough to be advertised for; a request must not wait for that.
        for shape in ("stream", "turns", "requests"):
            self.transfer(shape, 100, 500, "transaction")

    def test_forced_at_every_size(self):
        for force in ("read", "write", "transaction"):
            for size in (1, 2000, 33_000, 3 * MIB + 1):
                for shape in ("stream", "turns", "requests"):
                    self.transfer(shape, size, 8, force)

    def test_forced_with_readers_that_want_all(self):
        # Memory of theirs is never lent (9.3): who is told to write into nothing else must not wait for it.
        for force in ("read", "write", "transaction"):
            for shape in ("stream", "turns", "requests"):
                carried = self.transfer(shape, MIB, 8, force, reading=["whole"])
                self.assertEqual(carried["write_zcopy"], 0, (force, shape, carried))

    def test_the_embedded_rnic_copies(self):
        for shape, size in itertools.product(("stream", "turns", "requests"), (1000, 100_000, 5 * MIB)):
            carried = self.transfer(shape, size, 40)
            self.assertEqual(sum(carried.values()), carried["bcopy"], (shape, size, carried))

    def test_the_threshold_is_obeyed(self):
        carried = self.transfer("stream", MIB, 20, SDP_BCOPY_THRESHOLD=2 * MIB)
        self.assertEqual(sum(carried.values()), carried["bcopy"], carried)
        carried = self.transfer("stream", 100_000, 200, SDP_BCOPY_THRESHOLD=50_000)
        self.assertGreater(carried["read_zcopy"] + carried["write_zcopy"], MIB, carried)
        with open(self.world.directory / "libsdp.conf", "w", encoding="utf-8") as file:
            file.write("set bcopy-threshold 2097152\n")
        carried = self.transfer("stream", MIB, 20, SDP_CONFIG=self.world.directory / "libsdp.conf")
        self.assertEqual(sum(carried.values()), carried["bcopy"], carried)

    def test_a_stream_has_private_buffers_enlarged(self):
        sizes = lambda: [(one["local_buffer_size"], one["remote_buffer_size"]) for one in self.connections]
        suitable, small = 64528, 4096
        for shape, message, settings, there, here in (
            ("stream", 200_000, {}, suitable, small),
            ("turns", 60_000, {}, suitable, suitable),
            ("turns", 1000, {}, small, small),
            ("stream", 200_000, {"SDP_PRIVATE_BUFFER_LIMIT": 4096}, small, small),
            ("stream", 200_000, {"SDP_PRIVATE_BUFFER_LIMIT": 8192, "SDP_PRIVATE_BUFFERS": 4}, 8192, small),
        ):
            with self.subTest(shape, message=message, settings=settings):
                carried = self.transfer(shape, message, 50, SDP_PRIVATE_BUFFER_SIZE=small, **settings)
                self.assertEqual(sum(carried.values()), carried["bcopy"], carried)
                self.assertEqual(sizes(), [(here, there)])
        with open(self.world.directory / "libsdp.conf", "w", encoding="utf-8") as file:
            file.write("set private-buffer-size 128\nset private-buffer-limit 1000\n")
        self.transfer("stream", 200_000, 10, SDP_CONFIG=self.world.directory / "libsdp.conf")
        self.assertEqual(sizes(), [(128, 1000)])

    def test_iperf3_with_large_blocks(self):
        harness.need("iperf3")
        port = harness.free_port()
        server = self.world.start(["iperf3", "-s", "-p", port, "-B", "127.0.0.1", "--forceflush"])
        self.world.wait_for_listener(port)
        output = self.world.run(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "2", "-l", "1M", "-J"])
        received = json.loads(output)["end"]["sum_received"]["bytes"]
        self.assert_sdp_carried(at_least_in=received, process=server)
        by = next(one for one in self.world.sdpstat()["processes"] if one["pid"] == server.pid)["closed"][
            "bytes_in"
        ]
        print("iperf3 -l 1M:", by)


if __name__ == "__main__":
    harness.main()
