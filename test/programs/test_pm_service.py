"""What sdp-pmd makes of messages that come twice, late or not at all (section 7 of the draft): the client is
the test, which looks at the answers and at what the daemon counts."""

import dataclasses
import re
import socket
import time

import harness
from test_pm_client import ACCEPT, ACK, REQ, Message, address

PATIENCE = 20


class PmService(harness.ProgramTest):
    with_pmd = False

    def serve(self, ack_timeout):
        """Seconds. A program's listener is registered, and asked for from `self.socket`."""
        self.metrics = self.world.directory / "metrics.sock"
        milliseconds = str(round(ack_timeout * 1000))
        options = ("--ack-timeout", milliseconds, "--metrics", f"unix:{self.metrics}")
        self.world.pmd = self.world.start_first_pmd(*options)
        self.port = harness.free_port()
        self.world.peer("echo-server", self.port)
        self.sdp_port = int(self.world.wait_for_listener(self.port)["sdp_local"].rsplit(":", 1)[1])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", self.world.pm_port))

    def counted(self, name):
        with socket.socket(socket.AF_UNIX) as scraper:
            scraper.settimeout(PATIENCE)
            scraper.connect(str(self.metrics))
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: sdp\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: scraper.recv(65536), b"")).decode()
        return int(re.search(rf"(?m)^sdp_pmd_{name}(?:_total)? (\d+)$", answer)[1])

    def await_count(self, number, name):
        harness.wait_until(lambda: self.counted(name) >= number, f"{number} {name}", PATIENCE)
        self.assertEqual(self.counted(name), number)

    def request(self, handle, cp_port=9):
        """Nobody connects from there."""
        host = address("127.0.0.1")
        return Message(0, REQ, 4, 0, 0, self.port, cp_port, handle, host, host)

    def ask(self, request):
        """A PMReq, which is accepted; the PMAck to that."""
        self.socket.send(request.pack())
        accept = Message.parse(self.socket.recv(100))
        wanted = dataclasses.replace(request, mt=ACCEPT, ap_port=self.sdp_port, pm_time=accept.pm_time)
        self.assertEqual(accept, wanted)
        return dataclasses.replace(accept, mt=ACK, pm_time=0)

    def assert_discarded(self, acks):
        """Each is counted, has no answer, and leaves the transactions as they are."""
        waiting, before = self.counted("waiting"), self.counted("unknown_acks")
        for ack in acks:
            self.socket.send(ack.pack())
        self.await_count(before + len(acks), "unknown_acks")
        self.assertEqual(self.counted("waiting"), waiting)
        self.socket.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.socket.recv(100)
        self.socket.settimeout(PATIENCE)

    def test_a_transaction_without_a_pmack_ends_in_time(self):
        """7.5, 7.5.2: and a PMAck behind that is of no known state."""
        self.serve(ack_timeout=0.3)
        start = time.monotonic()
        ack = self.ask(self.request(1))
        self.await_count(1, "timeouts")
        self.assertGreaterEqual(time.monotonic() - start, 0.3)
        self.assertEqual(self.counted("waiting"), 0)
        self.assert_discarded([ack])

    def test_a_duplicate_is_answered_and_the_time_begins_anew(self):
        """7.5.2: where the duplicate came so late that it was a new request, it is tried again."""
        self.serve(ack_timeout=1)
        for handle in range(1, 20):
            harness.wait_until(lambda: self.counted("waiting") == 0, "end of the last one", PATIENCE)
            request, before = self.request(handle), self.counted("duplicates")
            start = time.monotonic()
            self.ask(request)
            harness.wait_until(lambda: time.monotonic() - start > 0.5, "half of the time")
            timeouts, again = self.counted("timeouts"), time.monotonic()
            self.ask(request)
            if self.counted("duplicates") > before:
                break
        self.assertEqual(self.counted("duplicates"), before + 1)
        self.assertEqual(self.counted("superseded"), 0)
        self.await_count(timeouts + 1, "timeouts")
        self.assertGreaterEqual(time.monotonic() - again, 1)
        self.assertEqual(self.counted("waiting"), 0)

    def test_a_pmack_of_no_known_state_is_discarded(self):
        """7.5.2: of another handle, port or service, and a second one."""
        self.serve(ack_timeout=600)
        ack = self.ask(self.request(1))
        others = ({"handle": 2}, {"cp_port": 10}, {"ap_port": self.port}, {"cp": address("127.0.0.2")})
        self.assert_discarded([dataclasses.replace(ack, **other) for other in others])
        self.socket.send(ack.pack())
        self.await_count(1, "acks")
        self.assertEqual(self.counted("waiting"), 0)
        self.assert_discarded([ack])

    def test_a_new_handle_discards_the_prior_state(self):
        """7.5.2: the new one is answered as any other."""
        self.serve(ack_timeout=600)
        prior = self.ask(self.request(1))
        other = self.ask(self.request(1, cp_port=10))
        new = self.ask(self.request(2))
        self.assertEqual((self.counted("superseded"), self.counted("waiting")), (1, 2))
        self.assert_discarded([prior])
        for number, ack in (1, new), (2, other):
            self.socket.send(ack.pack())
            self.await_count(number, "acks")
        self.assertEqual(self.counted("waiting"), 0)

    def test_a_duplicate_behind_the_end_of_its_state_is_a_new_request(self):
        """7.5.2: it is answered, and its state ends by time-out, since the client discards the answer."""
        self.serve(ack_timeout=0.3)
        for handle in range(1, 20):
            before = self.counted("acks")
            self.socket.send(self.ask(self.request(handle)).pack())
            # On a machine that is that slow the PMAck comes behind the time-out.
            done = lambda: self.counted("acks") > before or self.counted("unknown_acks") >= handle
            harness.wait_until(done, "end of the PMAck", PATIENCE)
            if self.counted("acks") > before:
                break
        timeouts = self.counted("timeouts")
        self.ask(self.request(handle))
        self.assertEqual(self.counted("duplicates"), 0)
        self.await_count(timeouts + 1, "timeouts")
        self.assertEqual(self.counted("waiting"), 0)


if __name__ == "__main__":
    harness.main()
