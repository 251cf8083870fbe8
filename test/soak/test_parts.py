"""The soak's own parts: a seed names a plan; what is a leak, a hang, a loss."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import judge  # noqa: E402
import plan  # noqa: E402


class Plans(unittest.TestCase):
    def test_a_seed_names_a_plan(self):
        self.assertEqual(plan.make_plan(7, 10), plan.make_plan(7, 10))
        self.assertNotEqual(plan.make_plan(7, 10).faults, plan.make_plan(8, 10).faults)

    def test_a_longer_run_begins_as_a_shorter_one(self):
        short, long = plan.make_plan(7, 3), plan.make_plan(7, 30)
        self.assertEqual(short.faults, long.faults[: len(short.faults)])
        self.assertEqual(short.across, long.across)

    def test_faults_lie_inside_and_leave_a_calm_end(self):
        for seed in range(50):
            made = plan.make_plan(seed, 4)
            self.assertGreaterEqual(made.faults[0].at, plan.LEAD)
            for fault in made.faults:
                low, high = plan.KINDS[fault.kind].seconds
                self.assertTrue(low <= fault.seconds <= high)
            self.assertTrue(all(fault.end <= made.seconds - plan.CALM + 4 for fault in made.faults))

    def test_all_kinds_and_workloads_come(self):
        made = plan.make_plan(3, 60)
        self.assertEqual({fault.kind for fault in made.faults}, set(plan.KINDS))
        for kind in plan.KINDS.values():
            if isinstance(kind.of, tuple):
                self.assertEqual(
                    {fault.target for fault in made.faults if fault.kind == kind.name}, set(kind.of)
                )

    def test_two_at_once_hit_different_things(self):
        for seed in range(50):
            faults = plan.make_plan(seed, 10).faults
            for one, next_one in zip(faults, faults[1:]):
                if next_one.at < one.end:
                    self.assertNotEqual(one.target, next_one.target)
                    self.assertFalse(plan.KINDS[next_one.kind].restarts)


def happened(kind, target, began, over):
    return judge.Happened(plan.Fault(0, 0.0, over - began, kind, target, 0, 0.0), began, over)


class Hangs(unittest.TestCase):
    """A silence of SDP's is measured by TCP's in the same place, and by what was done meanwhile."""

    def hung(self, sdp, tcp=(), faults=(), late=0.0):
        return judge.hung(
            [judge.Quiet(*one) for one in sdp],
            "redis",
            [judge.Quiet(*one) for one in tcp],
            list(faults),
            0.1,
            lambda *_: late,
        )

    def test_a_silence_without_a_reason(self):
        self.assertEqual(self.hung([(10, 12, "silence")]), [])
        self.assertEqual(len(self.hung([(10, 13, "silence")])), 1)
        self.assertEqual(self.hung([(10, 13, "silence")], late=0.5), [])

    def test_a_fault_lasts_as_long_as_it_lasts(self):
        stopped = happened("server-stopped", "redis", 10, 13)
        self.assertEqual(self.hung([(10, 15, "silence")], faults=[stopped]), [])
        self.assertEqual(len(self.hung([(10, 16, "silence")], faults=[stopped])), 1)
        self.assertEqual(
            len(self.hung([(10, 15, "silence")], faults=[happened("server-stopped", "nginx", 10, 13)])), 1
        )

    def test_what_tcp_takes_beside_it_or_behind_such_a_fault(self):
        self.assertEqual(self.hung([(10, 16, "silence")], tcp=[(9, 14, "silence")]), [])
        self.assertEqual(len(self.hung([(10, 16, "silence")], tcp=[(9, 14, "famine")])), 1)
        self.assertEqual(len(self.hung([(10, 16, "silence")], tcp=[(30, 35, "silence")])), 1)
        twice = [happened("reset", "link", 10, 10.3), happened("reset", "link", 30, 30.3)]
        self.assertEqual(self.hung([(10, 16, "silence")], tcp=[(30, 35, "silence")], faults=twice), [])


class Losses(unittest.TestCase):
    def lost(self, sdp, tcp=(), faults=()):
        return judge.lost(
            *([(when, "reset", when - 0.1) for when in times] for times in (sdp, tcp)), "redis", list(faults)
        )

    def test_an_error_needs_a_reason(self):
        killed = happened("server-killed", "redis", 10, 11)
        self.assertEqual(self.lost([12], faults=[killed]), [])
        self.assertEqual(len(self.lost([9], faults=[killed])), 1)
        self.assertEqual(len(self.lost([30], faults=[killed])), 1)
        self.assertEqual(len(self.lost([12], faults=[happened("server-killed", "nginx", 10, 11)])), 1)

    def test_what_was_under_way(self):
        killed = happened("server-killed", "redis", 10, 11)
        self.assertEqual(judge.lost([(60, "time-out", 9)], [], "redis", [killed]), [])
        self.assertEqual(len(judge.lost([(60, "time-out", 40)], [], "redis", [killed])), 1)

    def test_some_faults_are_none(self):
        self.assertEqual(len(self.lost([12], faults=[happened("pmd-killed", "host a", 10, 13)])), 1)

    def test_what_tcp_was_told_too(self):
        self.assertEqual(self.lost([12], tcp=[15]), [])
        self.assertEqual(len(self.lost([12], tcp=[50])), 1)


class Leaks(unittest.TestCase):
    def life(self, twin, memory, descriptors):
        return judge.Life(
            "redis",
            twin,
            [
                (10.0 * i, kib, number)
                for i, (kib, number) in enumerate(zip(memory, descriptors, strict=True))
            ],
        )

    def test_what_grows(self):
        level, many = [10_000] * 10, [10] * 10
        grows = [10_000 * i for i in range(1, 11)]
        leaks = [
            what
            for _, what, _, _ in judge.leaks(
                [self.life("sdp", grows, range(10, 30, 2)), self.life("tcp", level, many)]
            )
        ]
        self.assertEqual(leaks, ["KiB of memory"])
        leaks = [
            what
            for _, what, _, _ in judge.leaks(
                [self.life("sdp", level, range(10, 110, 10)), self.life("tcp", level, many)]
            )
        ]
        self.assertEqual(leaks, ["descriptors"])

    def test_what_comes_and_goes(self):
        self.assertEqual(judge.leaks([self.life("sdp", [10_000, 90_000] * 5, [5, 50] * 5)]), [])

    def test_what_grows_over_tcp_too(self):
        grows = [10_000 * i for i in range(1, 11)]
        self.assertEqual(
            judge.leaks([self.life("sdp", grows, [5] * 10), self.life("tcp", grows, [5] * 10)]), []
        )

    def test_tcp_and_short_lives_are_not_judged(self):
        self.assertEqual(
            judge.leaks([self.life("tcp", [10, 10, 10, 10**6, 10**6, 10**6], [5] * 6)]), []
        )
        self.assertEqual(judge.leaks([self.life("sdp", [10, 10**6], [5, 500])]), [])


if __name__ == "__main__":
    unittest.main()
