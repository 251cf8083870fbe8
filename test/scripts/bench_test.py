"""What scripts/bench reads off programs and /proc, and how it judges."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import bench_costs  # noqa: E402
import bench_limits  # noqa: E402
import bench_local  # noqa: E402
import bench_wire  # noqa: E402
import bench_workloads  # noqa: E402
from bench_workloads import Row, Sample  # noqa: E402


def judged(row, sdp, tcp, **others):
    """Of one run on each side."""
    samples = {side: [Sample(*value)] for side, value in {"sdp": sdp, "tcp": tcp, **others}.items()}
    return {side: bench_workloads.result(row, samples, side) for side in ("tcp", *others)}


class Judging(unittest.TestCase):
    def test_a_rate(self):
        one = judged(Row("rate", "k/s", True, 4), sdp=(8, 1.0), tcp=(2, 4.0))["tcp"]
        self.assertEqual((one["times"], one["met"], one["cpu"]), (4.0, True, 0.25))
        self.assertFalse(judged(Row("rate", "k/s", True, 4), (7.9, 1), (2, 1))["tcp"]["met"])

    def test_a_time(self):
        one = judged(Row("time", "us", False, 40), sdp=(0.5, None), tcp=(25, None))["tcp"]
        self.assertEqual((one["times"], one["met"], one["cpu"]), (50.0, True, None))
        self.assertFalse(judged(Row("time", "us", False, 40), (1, None), (25, None))["tcp"]["met"])

    def test_the_median_of_the_runs_counts(self):
        samples = {"sdp": [Sample(v, v) for v in (9, 1, 2)], "tcp": [Sample(v, v) for v in (1, 8, 4)]}
        one = bench_workloads.result(Row("rate", "k/s", True, 0.4), samples)
        self.assertEqual((one["sdp"], one["other"], one["cpu"], one["met"]), (2, 4, 0.5, True))

    def test_each_side_has_a_target_of_its_own(self):
        both = judged(Row("rate", "k/s", True, {"tcp": 10, "unix": 7}), (60, 1), (5, 1), unix=(10, 1))
        self.assertEqual((both["tcp"]["met"], both["unix"]["met"]), (True, False))
        ring = judged(Row("rate", "k/s", True, {"tcp": 10}), (60, 1), (5, 1), ring=(900, 1))["ring"]
        self.assertEqual((ring["target"], ring["met"]), (None, True))

    def test_values_of_their_own(self):
        memory = Row("memory", "KiB", False, {"tcp": 16}, "absolute")
        self.assertTrue(judged(memory, (16, None), (0, None))["tcp"]["met"])
        self.assertFalse(judged(memory, (17, None), (9, None))["tcp"]["met"])
        added = Row("call", "ns", False, 40, "difference")
        self.assertTrue(judged(added, (130, None), (90, None))["tcp"]["met"])
        self.assertFalse(judged(added, (131, None), (90, None))["tcp"]["met"])

    def test_each_row_of_a_workload_has_a_target(self):
        for workloads in bench_workloads.WORKLOADS, bench_local.WORKLOADS, bench_wire.WORKLOADS:
            for name, workload in workloads.items():
                for row in workload.rows:
                    with self.subTest(f"{name}: {row.name}"):
                        targets = row.target if isinstance(row.target, dict) else {"tcp": row.target}
                        self.assertTrue(targets)
                        self.assertLessEqual(set(targets), set(workload.sides) - {"sdp"})


class Reading(unittest.TestCase):
    def test_messages_of_sockperf(self):
        ping_pong = (
            "sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; SentMessages=50170; "
            "ReceivedMessages=50169\nsockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=28409;"
        )
        self.assertEqual(bench_workloads.messages_sent(ping_pong), 50170)
        throughput = "sockperf: Test ended\nsockperf: Total of 343280 messages sent in 1.000 sec\n"
        self.assertEqual(bench_workloads.messages_sent(throughput), 343280)

    def test_a_process_with_blanks_in_its_name(self):
        stat = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 100 20 3 400 20 0 1 0 5 6 7"
        parent, seconds = bench_costs.processor_times(stat)
        self.assertEqual((parent, seconds * os.sysconf("SC_CLK_TCK")), (3, 523))

    def test_the_time_of_processes_below_this_one(self):
        before = bench_costs.cpu_seconds()
        work = "import time; t = time.process_time() + 0.1\nwhile time.process_time() < t: pass\n"
        # One that has ended, below one that lives.
        waits = (
            "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); print(flush=True)"
        )
        waits += "; sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", waits, work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            self.assertGreaterEqual(bench_costs.cpu_seconds() - before, 0.09)
            process.stdin.close()
        self.assertGreaterEqual(bench_costs.cpu_seconds() - before, 0.09)


class Limits(unittest.TestCase):
    def test_runs_last_about_so_long(self):
        for each in 1e-7, 1e-5, 1e-2:
            with self.subTest(each):
                messages = bench_limits.messages_for(lambda n, each=each: 0.001 + n * each, 0.3)
                self.assertAlmostEqual(0.001 + messages * each, 0.3, delta=0.05)

    def test_no_run_is_of_a_few_messages(self):
        self.assertEqual(bench_limits.messages_for(lambda n: n * 10.0, 0.3), 8)


if __name__ == "__main__":
    unittest.main()
