"""What the clients tell: counts, the longest silences, errors. Times are this process's, as its clock is the
only one that nobody moves."""

import threading
import time

LONG = 0.2  # seconds; silences that are kept


class Stream:
    """One after the other, answers and errors of one thread of a client. A silence ends with either, a famine
    with an answer."""

    def __init__(self, workload, twin, number):
        self.workload, self.twin, self.number = workload, twin, number
        self.lock = threading.Lock()
        self.answers = self.checked = self.unchecked = self.errors = 0  # in bytes the second and the third
        self.last = self.last_answer = None  # None: it does not run
        self.long = []  # (begin, end, "silence" or "famine")
        self.told = []  # (when, what, since): the operation that failed began behind `since`

    def __str__(self):
        return f"{self.workload}/{self.twin} {self.number}"

    def begin(self):
        with self.lock:
            self.last = self.last_answer = time.monotonic()

    def end(self):
        with self.lock:
            self.end_intervals(time.monotonic(), True)
            self.last = self.last_answer = None

    def end_intervals(self, now, answered):
        if self.last is None:
            return
        if now - self.last > LONG:
            self.long.append((self.last, now, "silence"))
        if answered and self.last_answer != self.last and now - self.last_answer > LONG:
            self.long.append((self.last_answer, now, "famine"))

    def answered(self, checked, unchecked=0):
        """`checked`: bytes that were compared with what had to come; `unchecked`: others."""
        now = time.monotonic()
        with self.lock:
            self.end_intervals(now, True)
            self.answers += 1
            self.checked += checked
            self.unchecked += unchecked
            if self.last is not None:
                self.last = self.last_answer = now

    def failed(self, what):
        now = time.monotonic()
        with self.lock:
            self.end_intervals(now, False)
            self.errors += 1
            self.told.append((now, what, self.last if self.last is not None else now))
            if self.last is not None:
                self.last = now


class Findings:
    """What is not accepted. Each is said at once, and counted."""

    def __init__(self, say):
        self.say = say
        self.lock = threading.Lock()
        self.all = []

    def add(self, kind, text):
        with self.lock:
            self.all.append((kind, text))
        self.say(f"FOUND {kind}: {text}")
