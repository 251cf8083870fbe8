"""The soak's own parts: a seed names a plan; what is a leak, a hang, a loss."""

import contextlib
import json
import pathlib
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import client  # noqa: E402
import clients  # noqa: E402
import crashes  # noqa: E402
import faults  # noqa: E402
import hosts  # noqa: E402
import judge  # noqa: E402
import plan  # noqa: E402
import record  # noqa: E402
import report  # noqa: E402
import soak  # noqa: E402
import watch  # noqa: E402
import workloads  # noqa: E402


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

    def test_who_only_waits_hears_of_a_reset_by_keepalive(self):
        for kind, end, count in ("reset", 15, 0), ("reset", 16.5, 1), ("loss", 15, 1):
            with self.subTest(kind=kind, end=end):
                fault = happened(kind, "link", 10, 10.3)
                self.assertEqual(len(self.hung([(10, end, "silence")], faults=[fault])), count)

    def test_what_tcp_takes_beside_it_or_behind_such_a_fault(self):
        self.assertEqual(self.hung([(10, 16, "silence")], tcp=[(9, 14, "silence")]), [])
        self.assertEqual(len(self.hung([(10, 16, "silence")], tcp=[(9, 14, "famine")])), 1)
        self.assertEqual(len(self.hung([(10, 16, "silence")], tcp=[(30, 35, "silence")])), 1)
        twice = [happened("reset", "link", 10, 10.3), happened("reset", "link", 30, 30.3)]
        self.assertEqual(self.hung([(10, 16, "silence")], tcp=[(30, 35, "silence")], faults=twice), [])

    def test_another_fault_of_that_kind_excuses_little(self):
        losses = [happened("loss", "link", 10, 13), happened("loss", "link", 610, 613)]
        beside = [(610, 648, "silence")]
        self.assertEqual(len(self.hung([(10, 50, "silence")], tcp=beside, faults=losses)), 1)
        self.assertEqual(self.hung([(610, 630, "silence")], tcp=beside, faults=losses), [])
        self.assertEqual(len(self.hung([(610, 648, "silence")], tcp=beside, faults=losses)), 1)


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

    def test_a_server_that_is_not_told_needs_a_reset(self):
        told = [(12, f"{judge.UNTOLD}; 5 of 9 bytes arrived", 10.1)]
        for kind, target, count in (
            ("reset", "link", 0),
            ("client-killed", "netcat", 1),
            ("client-few-descriptors", "netcat", 1),
        ):
            with self.subTest(kind=kind):
                self.assertEqual(
                    len(judge.lost(told, [], "netcat", [happened(kind, target, 10, 10.3)])), count
                )

    def test_some_faults_are_none(self):
        self.assertEqual(len(self.lost([12], faults=[happened("pmd-killed", "host a", 10, 13)])), 1)

    def test_what_tcp_was_told_too(self):
        self.assertEqual(self.lost([12], tcp=[15]), [])
        self.assertEqual(len(self.lost([12], tcp=[50])), 1)

    def test_one_error_of_tcp_explains_one(self):
        self.assertEqual(self.lost([12, 14], tcp=[15, 16]), [])
        self.assertEqual(len(self.lost([12, 13, 14], tcp=[15])), 2)

    def test_no_fault_explains_a_crash(self):
        for how in ("psql ended with -11", "ssh ended with 139: ", "psql ended with -6: x"):
            for fault in happened("client-killed", "redis", 10, 11), happened(
                "address-gone", "host b", 10, 11
            ):
                with self.subTest(f"{how}, {fault.fault.kind}"):
                    told = [(16, how, 15)]
                    self.assertEqual(len(judge.lost(told, [], "redis", [fault])), 1)
                    self.assertEqual(len(judge.lost(told, [(15, "reset", 14)], "redis", [fault])), 1)
        killed = happened("client-killed", "redis", 10, 11)
        self.assertEqual(judge.lost([(16, "psql ended with -9", 15)], [], "redis", [killed]), [])
        self.assertEqual(judge.lost([(16, "psql ended with 2", 15)], [], "redis", [killed]), [])


def crash(when, twin, program="redis-server"):
    return judge.Crash(when, program, twin, "it died")


class Crashes(unittest.TestCase):
    def crashed(self, *all, kind="little-memory"):
        return judge.crashed(list(all), [happened(kind, "redis", 10, 12)])

    def test_a_crash_is_one_whatever_the_fault(self):
        for kind in plan.KINDS:
            self.assertEqual(len(self.crashed(crash(11, "sdp"), kind=kind)), 1, kind)
            self.assertEqual(len(self.crashed(crash(11, None), kind=kind)), 1, kind)

    def test_short_of_memory_tcp_may_excuse_it(self):
        self.assertEqual(self.crashed(crash(11, "sdp"), crash(12, "tcp")), [])
        self.assertEqual(self.crashed(crash(11, None), crash(12, None)), [])
        self.assertEqual(len(self.crashed(crash(11, "sdp"), crash(12, "sdp"))), 2)
        self.assertEqual(len(self.crashed(crash(11, "sdp"), crash(40, "tcp"))), 1)
        self.assertEqual(len(self.crashed(crash(11, "sdp"), crash(12, "tcp", "nginx"))), 1)
        self.assertEqual(len(self.crashed(crash(11, "sdp"), crash(12, "tcp"), kind="few-descriptors")), 1)

    def test_sshd_that_was_stopped_in_its_own_sleep(self):
        killed = judge.Crash(12.1, "sshd", None, "sshd (7) died by signal 31")
        stopped = happened("server-stopped", "ssh", 10, 12)
        self.assertEqual(judge.crashed([killed], [stopped]), [])
        for other, fault in (
            (killed, happened("server-killed", "ssh", 10, 12)),
            (killed, happened("server-stopped", "nginx", 10, 12)),
            (killed, happened("server-stopped", "ssh", 8, 10)),
            (judge.Crash(12.1, "sshd", None, "sshd (7) died by signal 11"), stopped),
            (judge.Crash(12.1, "nginx", None, "nginx (7) died by signal 31"), stopped),
        ):
            with self.subTest(other=other, fault=fault):
                self.assertEqual(len(judge.crashed([other], [fault])), 1)

    def test_a_client_that_crashes_short_of_memory_as_its_twin_does(self):
        told = [(11, "ssh ended with -6: ", 10)]
        for kind, other, count in (
            ("client-little-memory", [(11.5, "ssh ended with -11: ", 10)], 0),
            ("client-little-memory", [(11.5, "ssh ended with 255: ", 10)], 1),
            ("client-little-memory", [(40, "ssh ended with -11: ", 39)], 1),
            ("client-few-descriptors", [(11.5, "ssh ended with -11: ", 10)], 1),
        ):
            with self.subTest(kind=kind, other=other):
                fault = happened(kind, "redis", 10, 12)
                self.assertEqual(len(judge.lost(told, other, "redis", [fault])), count)

    def test_what_the_kernel_tells(self):
        text = (
            "# tracer: nop\n"
            "           bash-8684    [001] d..1.  5399.540220: signal_deliver:"
            " sig=11 errno=0 code=0 sa_handler=0 sa_flags=0\n"
            "  nginx: worker-77   [000] .....  5400.000001: signal_deliver:"
            " sig=6 errno=0 code=-6 sa_handler=0 sa_flags=0\n"
        )
        self.assertEqual(
            [(one.when, one.program) for one in crashes.deaths(text)],
            [(5399.54022, "bash"), (5400.000001, "nginx: worker")],
        )

    def test_a_worker_that_its_master_replaces(self):
        script = (
            "import sys; sys.path.insert(0, sys.argv[1]); import crashes, subprocess\n"
            "seen = crashes.Crashes(True)\n"
            "worker = 'kill -KILL $BASHPID & wait; (kill -SEGV $BASHPID) & wait; exit 0'\n"
            "status = subprocess.run(['bash', '-c', worker]).returncode\n"
            "print(seen.reason or f'{status} {len(seen.all())}'); seen.end()\n"
        )
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                sys.executable,
                "-B",
                "-c",
                script,
                pathlib.Path(__file__).parent.resolve(),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        if "no tracing" in done.stdout:
            print(f"skipped: {done.stdout.strip()}")
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.stdout.split(), ["0", "1"])

    def test_what_logs_tell(self):
        for line in (
            "sdp: preload/x.cc:7: broken invariant: !full()",
            "2026/11/24 [alert] 7#7: worker process 12 exited on signal 11 (core dumped)",
            "LOG:  server process (PID 12) was terminated by signal 6: Aborted",
            "bash: line 1:    44 Segmentation fault      cat",
            "*** stack smashing detected ***: terminated",
            "free(): invalid pointer",
            "Redis 7.0.15 crashed by signal: 11, si_code: 1",
        ):
            self.assertEqual(judge.crash_lines(f"one\n{line}\n"), [line])
        for line in "worker process 12 exited on signal 9", "LOG: aborting any active transactions":
            self.assertEqual(judge.crash_lines(line), [])

    def test_what_the_library_tells(self):
        bad = "sdp[7]: connection with 10.0.0.1:9 aborted: bad-sequence; mseq 7"
        good = (
            "sdp[7]: connection with 10.0.0.1:9 aborted: link-lost; connection lost: Connection reset by peer"
        )
        self.assertEqual(judge.error_lines(f"{good}\n{bad}\n"), [bad])
        lost = "sdp[7]: no descriptor left to close a connection in good order: its last bytes are lost"
        few = [happened("few-descriptors", "redis", 10, 12)]
        self.assertEqual(judge.broken([(11, bad), (11, lost)], few), [(11, bad)])
        self.assertEqual(len(judge.broken([(40, lost)], few)), 1)

    def host(self, log):
        """A host of no world: its `examine` alone."""
        host = object.__new__(hosts.Host)
        host.name, host.processes, host.crashes = "a", [], []
        return host, types.SimpleNamespace(
            log=log, output=log.read_text, program="nginx", twin="sdp", lines_read=0
        )

    def test_a_process_that_is_forgotten_is_examined(self):
        with tempfile.TemporaryDirectory(prefix="sdp-soak-parts-") as directory:
            log = pathlib.Path(directory) / "log"
            for command, said, count in (
                ("kill -SEGV $$", "", 1),
                ("kill -KILL $$", "", 0),
                ("exit 1", "worker process 12 exited on signal 11\n", 1),
            ):
                log.write_text(said)
                host, process = self.host(log)
                process.popen = subprocess.Popen(["bash", "-c", command])
                process.popen.wait()
                host.forget(process)
                self.assertEqual(len(host.crashes), count, command)

    def test_a_living_process_is_examined_by_its_log(self):
        with tempfile.TemporaryDirectory(prefix="sdp-soak-parts-") as directory:
            log = pathlib.Path(directory) / "log"
            log.write_text("worker process 12 exited on signal 11\n")
            host, process = self.host(log)
            process.popen = types.SimpleNamespace(poll=lambda: None)
            host.examine(process)
            host.examine(process)
            self.assertEqual(len(host.crashes), 1)


class Touched(unittest.TestCase):
    def test_a_fault_of_another_excuses_no_server(self):
        for kind, may_end in ("client-killed", False), ("worker-killed", False), ("server-killed", True):
            server = types.SimpleNamespace(touched=0)
            pair = types.SimpleNamespace(workload="echo", servers=[server], clients=[])
            working = faults.Faults({}, [pair], None)
            setattr(working, kind.replace("-", "_"), lambda fault, pair: None)
            seen = []
            working.run(happened(kind, "echo", 0, 0).fault, lambda _: seen.append(server.touched))
            self.assertEqual(seen, [int(may_end)], kind)
            self.assertEqual(server.touched, 0)


class Forks(unittest.TestCase):
    def serve(self, spoil):
        """A listener that sends back what comes, through `spoil(number of the connection, data)`."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def work():
            for number in range(1000):
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as asked:
                    data = asked.read(4 + 5000)[4:]
                    connection.sendall(spoil(number, data))

        threading.Thread(target=work, daemon=True).start()
        return listener.getsockname()[1]

    def found(self, spoil):
        """What is found when each shell says something of an error, too."""
        findings = record.Findings(lambda _: None)

        def start(argv, mode, stdout):
            command = ["bash", "-c", "echo noise >&2; " + argv[2]]
            popen = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
            return types.SimpleNamespace(popen=popen, output=lambda: "noise", kill=popen.kill)

        host = types.SimpleNamespace(start=start, forget=lambda _: None)
        pair = types.SimpleNamespace(
            workload="echo",
            twin="sdp",
            address="127.0.0.1",
            port=self.serve(spoil),
            client_host=host,
            mode=lambda mode: mode,
        )
        fault = happened("forks", "echo", 0, 0).fault
        faults.Faults({}, [], findings).forks(fault, pair)()
        return [kind for kind, _ in findings.all]

    def test_a_limit_ends_though_a_child_is_gone(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        restore = faults.Faults({}, [], None).limited([process.pid], resource.RLIMIT_NOFILE, lambda pid: 20)
        for tree in [gone.pid, process.pid], [process.pid, gone.pid]:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (20, before[1]))
            with mock.patch.object(faults, "tree", return_value=tree):
                restore()
            self.assertEqual(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), before)

    def test_wrong_data_are_not_tried_again(self):
        self.assertEqual(self.found(lambda number, data: b"x" + data[1:] if number == 0 else data), ["wrong"])

    def test_an_end_that_comes_early_is(self):
        self.assertEqual(self.found(lambda number, data: data[:2000] if number == 0 else data), [])
        self.assertEqual(self.found(lambda number, data: data[:2000]), ["lost"])
        self.assertEqual(self.found(lambda number, data: data), [])


class Calm(unittest.TestCase):
    def awaits(self, kind, target):
        """Whether a shell of echo's that failed waits for that fault's end; False: it goes on at once."""
        pairs = [types.SimpleNamespace(workload=name) for name in ("echo", "redis")]
        working = faults.Faults({"a": None}, pairs, None)
        went_on = threading.Event()

        def go_on():
            working.await_calm("echo")
            went_on.set()

        with working.noted(plan.Fault(0, 0.0, 1.0, kind, target, 0, 0.0)):
            waiting = threading.Thread(target=go_on)
            waiting.start()
            at_once = went_on.wait(0.5)
        waiting.join(10)
        self.assertTrue(went_on.is_set())
        return not at_once

    def test_what_breaks_connections_is_waited_for(self):
        self.assertTrue(self.awaits("address-gone", "host a"))
        self.assertTrue(self.awaits("server-killed", "echo"))

    def test_what_concerns_others_or_breaks_none_is_not(self):
        self.assertFalse(self.awaits("server-killed", "redis"))
        self.assertFalse(self.awaits("server-stopped", "echo"))


class Limits(unittest.TestCase):
    def test_a_client_is_short_for_a_while_and_lives_again(self):
        for kind, what in (
            ("client-few-descriptors", resource.RLIMIT_NOFILE),
            ("client-little-memory", resource.RLIMIT_AS),
        ):
            for ends in (False, True):
                with self.subTest(kind=kind, ends=ends):
                    ours, its = socket.socketpair()
                    self.addCleanup(ours.close)
                    program = subprocess.Popen(
                        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=its, bufsize=0
                    )
                    its.close()
                    self.addCleanup(program.communicate)
                    program.stdin.write(b"x")
                    self.assertEqual(program.stdout.read(1), b"x", "it is up")
                    before = resource.prlimit(program.pid, what)
                    started = []
                    client = types.SimpleNamespace(
                        processes=lambda program=program: [program.pid],
                        running=lambda program=program: program.poll() is None,
                        start=lambda started=started: started.append(True),
                    )
                    pair = types.SimpleNamespace(workload="redis", servers=[], client=client)
                    working = faults.Faults({}, [pair], None)
                    during = []

                    def wait(_, program=program, during=during, what=what, ends=ends):
                        during.append(resource.prlimit(program.pid, what))
                        if ends:
                            program.kill()
                            program.wait(10)

                    working.run(happened(kind, "redis", 0, 0).fault, wait)
                    self.assertNotEqual(during, [before])
                    self.assertEqual(started, [True] * ends)
                    if not ends:
                        self.assertEqual(resource.prlimit(program.pid, what), before)
                        program.kill()
                        program.wait(10)

    def test_a_program_that_has_not_begun_is_left_alone(self):
        program = subprocess.Popen(["sleep", "60"])
        self.addCleanup(program.wait, 10)
        self.addCleanup(program.kill)
        before = resource.prlimit(program.pid, resource.RLIMIT_AS)
        client = types.SimpleNamespace(processes=lambda: [program.pid], running=lambda: True)
        pair = types.SimpleNamespace(workload="redis", servers=[], client=client)
        during = []
        faults.Faults({}, [pair], None).run(
            happened("client-little-memory", "redis", 0, 0).fault,
            lambda _: during.append(resource.prlimit(program.pid, resource.RLIMIT_AS)),
        )
        self.assertEqual(during, [before])


class Stores(unittest.TestCase):
    def test_an_answer_to_a_deletion_may_be_lost(self):
        stored, lost = {}, []

        class Fake(client.Store):
            def empty(self, connection):
                stored.clear()

            def identity(self, connection):
                return 1

            def set(self, connection, key, data):
                stored[key] = data

            def get(self, connection, key):
                return stored.get(key)

            def delete(self, connection, key):
                if stored.pop(key, None) is None:
                    raise client.Wrong(key)
                if not lost:
                    lost.append(key)
                    raise ConnectionResetError

        talker = Fake(0, random.Random(1))
        for _ in range(4):  # connections; each has keys of its own
            talker.open(None)
            for _ in range(150):
                try:
                    talker.step(None)
                except ConnectionResetError:
                    break
        self.assertEqual(len(lost), 1)


class Watches(unittest.TestCase):
    def connection(self, link, opened, role="accepting"):
        return {
            "state": "established",
            "local": "10.77.0.1:6379",
            "role": role,
            "link": link,
            "opened_at_ns": opened,
            "reason_text": "" if link == "local" else "no memory",
        }

    def test_links_within_a_host(self):
        host, found = type("Host", (), {"name": "a"})(), record.Findings(lambda _: None)
        server = types.SimpleNamespace(port=6379)
        pair = types.SimpleNamespace(servers=[server], port=6379, server_host=host, client_host=host)
        watching = watch.Watch([host], [pair], found)
        run = types.SimpleNamespace(watch=watching, findings=found)

        def look(*connections):
            process = {"pid": 7, "start_time": 1, "closed": {"connections_closed": 0}, "listeners": []}
            watching.take_statistics(host, {"processes": [{**process, "connections": list(connections)}]})

        def judged(since):
            before = len(found.all)
            soak.Soak.judge_links(run, pair, since, 0.0)
            return [kind for kind, _ in found.all[before:]]

        self.assertEqual(judged(0), [], "nobody was seen")
        look(self.connection("tcp", 1), self.connection("local", 1, role="connecting"))
        self.assertEqual(judged(time.monotonic()), ["fallback"], "none of all")
        look(self.connection("tcp", 1), self.connection("local", 2))
        self.assertEqual([link for link, _ in watching.links_of(pair)], ["tcp", "local"])
        self.assertEqual(judged(time.monotonic()), [], "an old one may be on TCP")
        begin = time.monotonic()
        look(self.connection("tcp", 3))
        self.assertEqual(judged(begin), ["fallback"])

    def test_a_process_that_executes_another_program(self):
        watching = watch.Watch([], [], None)
        for name in "ssh server: sshd", "ssh server: sshd", "ssh server: bash":
            watching.take_process((7, "1"), name, "sdp", (1.0, 1024, 7))
        (life,) = watching.lives.values()
        self.assertEqual((life.name, len(life.samples)), ("ssh server: bash", 1))

    def test_all_that_runs_is_looked_at(self):
        program = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
        self.addCleanup(program.wait, 10)
        self.addCleanup(hosts.kill_tree, program.pid)
        part = types.SimpleNamespace(roots=lambda: [program.pid])
        pair = types.SimpleNamespace(workload="netcat", twin="tcp", servers=[], clients=[part])
        watching = watch.Watch([], [pair], None)

        def names():
            watching.sample_processes()
            return {life.name for life in watching.lives.values()}

        hosts.wait_until(lambda: {"netcat ends: sh", "netcat ends: sleep"} <= names(), "look", 10)

    def test_the_log_is_read_for_errors(self):
        with tempfile.NamedTemporaryFile("w", prefix="sdp-soak-parts-") as file:
            host = type("Host", (), {"log_file": file.name})
            watching = watch.Watch([host], [], None)
            bad = "sdp[7]: connection with 10.0.0.1:9 aborted: bad-sequence"
            file.write(f"{bad}\nsdp[7]: connect to 10.0.0.1:9: TCP, because pm-denied (x)\n")
            file.flush()
            watching.read_log(host)
            watching.read_log(host)
            self.assertEqual([line for _, line in watching.lines], [bad])
            self.assertEqual(len(watching.fallbacks), 1)


class Verdicts(unittest.TestCase):
    def records(self, **other):
        heard = [judge.Heard("redis", twin, 0, 1000, [], []) for twin in ("sdp", "tcp")]
        lists = {
            name: [] for name in ("happened", "late", "dead", "lives", "crashes", "traced", "lines", "found")
        }
        return judge.Records(**{"start": 0.0, "end": 60.0, "streams": heard, **lists, **other})

    def test_records_that_were_written_are_judged_alike(self):
        self.assertEqual(list(judge.verdict(self.records())), [])
        heard = self.records().streams
        heard[0].told = [(16.0, "psql ended with -11", 15.0)]
        heard[0].long = [(20.0, 30.0, "silence")]
        samples = [(10.0 * i, 10_000, 10 + 20 * i) for i in range(10)]
        records = self.records(
            streams=heard,
            happened=[happened("client-killed", "redis", 10.0, 11.0)],
            dead=[(40.0, "redis", "sdp", "a server", "ended with 1: x")],
            lives=[judge.Life("redis", "sdp", samples)],
            crashes=[crash(11.0, "sdp")],
            traced=[crash(11.0, None)],
            lines=[(11.0, "aborted: bad-sequence")],
        )
        found = list(judge.verdict(records))
        self.assertEqual(
            sorted(kind for kind, _ in found),
            ["broken", "crashed", "crashed", "hung", "leaked", "lost", "lost"],
        )
        again = judge.Records.from_json(json.loads(json.dumps(records.as_json())))
        self.assertEqual(list(judge.verdict(again)), found)

    def test_the_beginning_of_a_process_is_no_growth(self):
        def life(first):
            return judge.Life("redis", "sdp", [(2.0 * i, first if i < 3 else 90_000, 9) for i in range(40)])

        self.assertEqual(list(judge.verdict(self.records(lives=[life(1000)]))), [])
        self.assertEqual(len(judge.leaks([life(1000)])), 1)

    def test_a_server_whose_address_is_gone_when_it_listens(self):
        how = "ended with 1: unable to start listener for connections: Cannot assign requested address"
        gone = [happened("address-gone", "host b", 10.0, 11.0)]
        for when, faults_then, kinds in ((11.5, gone, []), (40.0, gone, ["lost"]), (11.5, [], ["lost"])):
            records = self.records(dead=[(when, "iperf3", "sdp", "a server", how)], happened=faults_then)
            self.assertEqual([kind for kind, _ in judge.verdict(records)], kinds)

    def test_the_client_of_an_sshd_that_its_filter_has_killed(self):
        heard = [judge.Heard("ssh", twin, 0, 1000, [], []) for twin in ("sdp", "tcp")]
        heard[0].told = [(12.2, "ssh ended with 255: ", 11.0)]
        killed = judge.Crash(12.1, "sshd", None, "sshd (7) died by signal 31")
        for traced, kinds in (([killed], []), ([], ["lost"])):
            records = self.records(
                streams=heard, traced=traced, happened=[happened("server-stopped", "ssh", 10.0, 12.0)]
            )
            self.assertEqual([kind for kind, _ in judge.verdict(records)], kinds)

    def test_a_server_that_crashes_beside_tcps(self):
        dead = [(40.0, "redis", twin, "a server", "ended with -11: ") for twin in ("sdp", "tcp")]
        self.assertEqual([kind for kind, _ in judge.verdict(self.records(dead=dead))], ["lost"])


class Netcats(unittest.TestCase):
    def transfer(self, arrives, ends):
        """The server has got all, or the half of it, and ends, or does not."""
        with tempfile.TemporaryDirectory(prefix="sdp-soak-parts-") as directory:
            netcat = workloads.Netcat.__new__(workloads.Netcat)
            netcat.directory, netcat.port = pathlib.Path(directory), 1
            netcat.draw = types.SimpleNamespace(randbytes=random.Random(1).randbytes, choice=lambda _: 1000)
            netcat.server_host = types.SimpleNamespace(address="", tcp_listens=lambda _: True)
            sent = []

            class Server:
                def running(self):
                    return not (sent and ends)

                def wait(self, timeout):
                    return 0

            class Run:
                def __call__(self, *argv, data):
                    sent.append(data)
                    (netcat.directory / "out").write_bytes(data[: arrives * len(data) // 100])

                @contextlib.contextmanager
                def beside(self, *_, **__):
                    yield Server()

            with mock.patch.object(judge, "BEYOND", 0.2):
                return netcat.transfer(Run())

    def test_what_arrives_is_checked(self):
        self.assertEqual(self.transfer(100, True), (1000, 0))
        with self.assertRaisesRegex(clients.Failed, "500 of 1000 bytes arrived; the server ended with 0"):
            self.transfer(50, True)

    def test_a_server_that_does_not_end(self):
        for arrives in 50, 100:
            with self.assertRaisesRegex(clients.Failed, f"{judge.UNTOLD}; {10 * arrives} of 1000"):
                self.transfer(arrives, False)


class Bytes(unittest.TestCase):
    def test_what_is_checked_and_what_is_only_counted(self):
        stream = record.Stream("redis", "sdp", 0)
        stream.begin()
        reader = types.SimpleNamespace(streams=[stream])
        process = types.SimpleNamespace(popen=types.SimpleNamespace(stdout=[b"ok 0 70 5\n", b"ok 0 7 0\n"]))
        clients.SocketClient.read(reader, process)
        self.assertEqual((stream.answers, stream.checked, stream.unchecked), (2, 77, 5))

    def test_wrk_checks_nothing(self):
        pair = types.SimpleNamespace(address="", port=1)
        said = workloads.Nginx.wrk(pair, lambda *_: b"  3 requests in 1.00s, 1.00MB read")
        self.assertEqual(said, (0, 540_000))


class Table(unittest.TestCase):
    def lives(self, *spans, program="redis-server"):
        return [
            judge.Life(
                f"redis server: {program}", "sdp", [(begin, 1024, 7), (begin + 1, 4096, 11), (end, 2048, 9)]
            )
            for begin, end in spans
        ]

    def rows(self, lines):
        return [line.split() for line in lines if line.startswith("redis server: ")]

    def test_every_process_is_in_it(self):
        lives = self.lives((100.0, 140.0), (200.0, 202.0)) + self.lives((100.0, 101.0), program="other")
        rows = self.rows(report.process_lines(lives, 90.0))
        figures = ["1.0", "2.0", "4.0", "7", "9", "11"]
        self.assertEqual(
            [row[4:] for row in rows],
            [["1", "10", "1", *figures], ["1", "10", "40", *figures], ["1", "110", "2", *figures]],
        )

    def test_many_lives_of_a_program_share_a_line(self):
        lives = self.lives(*((100.0 * i, 100.0 * i + 50 + i) for i in range(20)), (5000.0, 5010.0))
        lives[3].samples.append((340.0, 9216, 13))
        rows = self.rows(report.process_lines(lives, 0.0))
        self.assertEqual(
            [row[4:7] for row in rows],
            [["1", "1700", "67"], ["1", "1800", "68"], ["1", "1900", "69"], ["18", "-", "66"]],
        )
        self.assertEqual(rows[-1][7:], ["1.0", "9.0", "9.0", "7", "13", "13"])
        self.assertEqual(len(self.rows(report.life_lines(lives, 0.0))), 21)

    def test_processes_that_look_alike_are_all_counted(self):
        lives = self.lives(*[(0.0, 50.0)] * 5)
        self.assertEqual(
            [row[4] for row in self.rows(report.process_lines(lives, 0.0))], ["1", "1", "1", "2"]
        )

    def test_a_workload(self):
        host = object()
        pairs = []
        for twin in "sdp", "tcp":
            stream = record.Stream("redis", twin, 0)
            stream.answered(7000, 30_000)
            pairs.append(
                types.SimpleNamespace(
                    workload="redis",
                    twin=twin,
                    streams=[stream],
                    port=1,
                    servers=[],
                    server_host=host,
                    client_host=host,
                )
            )
        watching = types.SimpleNamespace(
            fallbacks=[(0.0, 1, "x")],
            of_pair=lambda _: (4, 1, 0, 0),
            links_of=lambda _: [("local", ""), ("tcp", "x"), ("local", "")],
        )
        head, row = [line.split() for line in report.workload_lines(pairs, watching)][:2]
        self.assertEqual(
            row,
            [
                "redis",
                "one",
                "1",
                "1",
                "0",
                "0",
                "7000",
                "B",
                "7000",
                "B",
                "30",
                "KB",
                "30",
                "KB",
                "4",
                "1",
                "1",
                "2",
                "1",
            ],
        )


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

    def test_a_short_life_may_grow_by_less(self):
        def life(growth, number, seconds=58.0):
            samples = [(2.0 * i, 10_000 + growth * i // 29, 10 + number * i // 29) for i in range(30)]
            return judge.Life("redis", "sdp", [(when * seconds / 58, *values) for when, *values in samples])

        self.assertEqual(len(judge.leaks([life(18_700 * 1024 // 1000 + 2000, 0)])), 1)
        self.assertEqual(len(judge.leaks([life(0, 12)])), 1)
        self.assertEqual(judge.leaks([life(3000, 2)]), [])

    def test_restarts_hide_no_leak(self):
        """Each life alone grows by what is accepted; ten of them do not."""

        def lives(twin, descriptors, memory):
            return [
                judge.Life(
                    "redis",
                    twin,
                    [
                        (1000 * n + 2.0 * i, 10_000 + memory * i // 30, 10 + descriptors * i // 30)
                        for i in range(31)
                    ],
                )
                for n in range(10)
            ]

        found = judge.leaks(lives("sdp", 5, 0))
        self.assertEqual(
            [(what, "together" in who) for who, what, _, _ in found], [("descriptors a minute", True)]
        )
        found = judge.leaks(lives("sdp", 0, 12000))
        self.assertEqual([what for _, what, _, _ in found], ["KiB of memory a minute"])
        self.assertEqual(judge.leaks(lives("sdp", 5, 12000) + lives("tcp", 5, 12000)), [])
        self.assertEqual(judge.leaks(lives("sdp", 1, 1000)), [])


if __name__ == "__main__":
    unittest.main()
