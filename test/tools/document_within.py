"""What is done with a command within a sentence, which names places to fill in: WITHIN is as HOW of
commands_test.py, and comes before it."""

import os
import pathlib
import re
import shutil
import sys

from document_commands import ROOT
from document_world import Skip, typed

PLACES = {
    r"/proc/PID/root/tmp/sdp-UID": "/tmp",
    r"PID\|PROGRAM \[FD\]|\bPID\b": str(os.getpid()),
    r"\[PROGRAM\]|PROGRAM": pathlib.Path(sys.executable).name,  # which runs
    r"HOST:PORT": "127.0.0.1:1",
    r"ADDR:PORT": "127.0.0.1:3936",
}


def filled(line):
    text = line.text
    for name, value in PLACES.items():
        text = re.sub(name, value, text)
    return line._replace(text=text)


def runs(*statuses, behind=""):
    """It is no wrong usage, whatever it finds. What goes on and on is stopped."""
    return lambda world, line: world.run(f"timeout 1 {typed(line)}{behind}", (*statuses, 124))


def port_mapper(world, line):
    world.stop_all()
    world.stop(world.start(typed(line), lambda output: "sdp-pmd: ready," in output))


def verb_of_systemctl(world, line):
    if shutil.which("systemctl") is None:
        raise Skip("systemctl is not installed")
    if not re.search(rf"^  {typed(line).split()[1]}\b", world.run("systemctl --help"), re.M):
        raise AssertionError(f"{line.text}: no such verb")


def package_of_the_tests(world, line):
    world.run(f"grep -w {line.text.split()[-1]} {ROOT}/scripts/test")


def packages_of_ours(world, line):
    for name in line.text.split()[3:]:
        world.run(f"grep -rwF -e {name} {ROOT}/packaging/CMakeLists.txt")


WITHIN = (
    (r"sdpstat why$", runs(0, behind=" --help")),
    (r"sdpstat (why|doctor) ", runs(0, 1)),
    (r"sdpstat trace ", runs(0, 1, 2)),
    (r"sudo sdp-run --disable NAME$", runs(0, behind=" --help")),
    (r"sdpstat doctor$", runs(0, 1)),
    (r"sdp-run --explain ", runs(0, 1)),
    (r"sdp-run --(anyway|pmd|require)$", runs(0, behind=" true")),
    (r"sdp-run (--pmd )?python[\d.]*$", runs(0)),
    (r"sdp-pmd --", port_mapper),
    (r"sudo systemctl ", verb_of_systemctl),
    (r"sudo apt install ", package_of_the_tests),
    (r"sudo apt purge ", packages_of_ours),
    (r"sdpstat ", runs(0)),
)
