"""Runs one module of CPython's own tests with its own unittest, and writes down how each case ended.

    cpython_cases.py RESULTS MODULE [WORD...] [-WORD...]

WORD: only cases with one of these in their names, if there are any; -WORD: none with this in its name.
RESULTS gets a line "begin NAME" and a line "OUTCOME NAME" for each case (ok, skipped, failed), and "end"
behind them. The process then waits for the end of its standard input, so that its stats page can be read.
What needs the network or much time is left out, as CPython's own runner does by default.
"""

import sys
import traceback
import unittest

from test import support


class Result(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out
        self.outcome = None

    def say(self, *words):
        print(*words, file=self.out, flush=True)

    def note(self, outcome, test, error):
        if error is not None:
            print(
                f"{outcome} {test.id()}\n{''.join(traceback.format_exception(*error))}",
                file=sys.stderr,
                flush=True,
            )
        if self.outcome is None and not isinstance(test, unittest.TestCase):
            self.say(outcome, test.id())  # of a module or a class: what comes before and behind its cases
        elif self.outcome != "failed":
            self.outcome = outcome

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "ok"
        self.say("begin", test.id())

    def stopTest(self, test):
        super().stopTest(test)
        self.say(self.outcome, test.id())
        self.outcome = None

    def addError(self, test, err):
        self.note("failed", test, err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note("failed", test, err)

    def addSkip(self, test, reason):
        self.note("skipped", test, None)

    def addUnexpectedSuccess(self, test):
        self.note("failed", test, None)


def chosen(suite, wanted, unwanted):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from chosen(test, wanted, unwanted)
        elif (not wanted or any(word in test.id() for word in wanted)) and not any(
            word in test.id() for word in unwanted
        ):
            yield test


def main():
    results, module, *words = sys.argv[1:]
    # The module is about nothing but sockets of this host, and asks for the network all the same.
    support.use_resources = ["network"] if module == "test.test_socketserver" else []
    sys.argv[1:] = []
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    with open(results, "w") as out:
        result = Result(out)
        wanted = [word for word in words if not word.startswith("-")]
        unwanted = [word[1:] for word in words if word.startswith("-")]
        unittest.TestSuite(chosen(suite, wanted, unwanted)).run(result)
        result.say("end")
    sys.stdin.read()


if __name__ == "__main__":
    main()
