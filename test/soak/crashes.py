"""Deaths by a signal that only a mistake raises, of all processes below this one.

Those that a server replaces are among them. The kernel's tracing tells of them; an instance of it is this
process's own. Where there is none, `reason` says why."""

import contextlib
import os
import pathlib
import re
import subprocess

import judge

TRACING = pathlib.Path("/sys/kernel/tracing")
MARK = "the soak is this process"
LINE = re.compile(r"^\s*(.+)-(\d+)\s+\[\d+\]\s+\S+\s+(\d+\.\d+): signal_deliver: sig=(\d+) ", re.MULTILINE)


def deaths(text):
    """[judge.Crash] of what the tracing has said."""
    return [
        judge.Crash(float(when), program.strip(), None, f"{program.strip()} ({pid}) died by signal {signal}")
        for program, pid, when, signal in LINE.findall(text)
    ]


class Crashes:
    def __init__(self, private):
        """`private`: the mounts are this process's own. Processes that it starts from now on are traced."""
        self.instance, self.kept, self.reason = None, None, ""
        try:
            self.set_up(private)
        except (OSError, IndexError, subprocess.CalledProcessError) as error:
            self.end()
            self.instance, self.reason = None, f"no tracing of signals here: {error}"

    def set_up(self, private):
        if private and not (TRACING / "instances").exists():
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True, capture_output=True)
        for old in (TRACING / "instances").glob("sdp-soak-*"):
            with contextlib.suppress(OSError):  # it is in use; those of a run that was killed are not
                old.rmdir()
        instance = TRACING / "instances" / f"sdp-soak-{os.urandom(6).hex()}"
        instance.mkdir()
        self.instance = instance
        self.kept = open(instance / "trace_marker", "w")
        # In a PID namespace this process does not know the number by which the kernel calls it.
        self.kept.write(MARK)
        self.kept.flush()
        own = re.findall(rf"-(\d+)\s+\[\d+\].*{MARK}", (instance / "trace").read_text())[0]
        signals = " || ".join(f"sig == {signal}" for signal in sorted(judge.CRASHES))
        for file, value in (
            ("buffer_size_kb", "64"),
            ("trace_clock", "mono"),
            ("events/signal/signal_deliver/filter", f"sa_handler == 0 && ({signals})"),
            ("options/event-fork", "1"),
            ("set_event_pid", own),
            ("events/signal/signal_deliver/enable", "1"),
        ):
            (instance / file).write_text(value)

    def all(self):
        return deaths((self.instance / "trace").read_text()) if self.instance else []

    def end(self):
        if self.kept:
            with contextlib.suppress(OSError):
                self.kept.close()
        if self.instance:
            with contextlib.suppress(OSError):
                self.instance.rmdir()
