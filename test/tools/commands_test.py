"""Runs the commands of README.md, CONTRIBUTING.md and docs/ as they stand there. Each document's run in their
order, in network, mount and process namespaces of their own, so that ports, /run and /etc are theirs alone.
Usage: commands_test.py BUILD-DIRECTORY"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from document_commands import DOCUMENTS, ROOT, commands_within, lines_of, program_rows
from document_files import FILES, unit
from document_within import WITHIN, filled
from document_world import PATIENCE, Skip, World, typed

BUILD = pathlib.Path(sys.argv[1]).resolve()
del sys.argv[1]
INSIDE = "SDP_COMMANDS_DOCUMENT"
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid() != 0:
    NAMESPACES.append("--map-root-user")
PACKAGE = """
Package: libsdp
Status: install ok installed
Architecture: all
Version: 0
Maintainer: none
Description: stands for the package
"""
# No libsdp.conf of this host counts, nor what is mounted below its /run. Hosts that the documents name are
# this one. What changes in /etc and /var changes nowhere else.
SANDBOX = """
set -e
ip link set lo up
for address in 10.0.0.1 10.0.0.2; do ip address add $address/32 dev lo; done
mount -t tmpfs none /run
mount -t tmpfs none /mnt
for place in /etc /var; do
  mkdir -p /mnt$place /mnt/work$place
  mount -t overlay overlay -o lowerdir=$place,upperdir=/mnt$place,workdir=/mnt/work$place $place
done
rm -rf /etc/sdp
mkdir /etc/sdp
echo 127.0.0.1 localhost db.example >/etc/hosts
exec "$@"
"""


# --- What is done with a command: HOW has the first form that matches it, and a function of (world, line).


def place(world, line):
    return world.tools if typed(line).startswith("./") else None


def output_has(*expected, statuses=(0,)):
    def run(world, line):
        got = world.run(typed(line), statuses, place(world, line))
        for text in expected:
            if not re.search(text, got, re.M):
                raise AssertionError(f"{line.text}: no {text!r} in\n{got}")

    return run


def form(text):
    """Without what differs from run to run: numbers, and how many blanks there are."""
    return re.sub(r"[\d.:]+", "#", re.sub(r"\s+", " ", text))


def unshown(line, got):
    """What the document shows of the output, and `got` does not have."""
    patterns = {one: ".*".join(map(re.escape, form(one).split("…"))) for one in line.shown}
    return [
        one
        for one, pattern in patterns.items()
        if not any(re.search(pattern, form(real)) for real in got.splitlines())
    ]


def shown(world, line):
    got = world.run(typed(line), (0,), place(world, line))
    if not line.shown or unshown(line, got):
        raise AssertionError(f"{line.text}: {unshown(line, got)} is not in\n{got}")


def ready_line(world, line):
    world.start(line.text.removesuffix(" &"), lambda output: "sdp-pmd: ready," in output)


def listener(port):
    def start(world, line):
        world.start(
            typed(line), lambda output: world.listens(port) and not unshown(line, output), place(world, line)
        )

    return start


def script_help(world, line):
    """Building and testing is not done once more: the script is there and has these options."""
    script, *words = line.text.split(" &&")[0].split()
    text = world.run(f"{ROOT / script} --help")
    for word in words:
        if word.startswith("--") and word not in text:
            raise AssertionError(f"{line.text}: {script} has no {word}")


def bench_help(world, line):
    before, words = line.text.split(), line.text.split()[1:]
    words = [word for last, word in zip(before, words) if not last.startswith("--")]
    text = world.run(f"{ROOT}/scripts/bench --help")
    if not set(words) <= set(re.findall(r"[\w-]+", text)):
        raise AssertionError(f"{line.text}: scripts/bench does not know {words}")


def done_by(test):
    """What another test does."""

    def look(world, line):
        if not re.search(rf"Test +#\d+: {test}$", world.run(f"ctest --test-dir {BUILD} -N"), re.M):
            raise AssertionError(f"{line.text}: there is no test {test}")

    return look


def presets(world, line):
    for kind, preset in re.findall(r"cmake (--build )?--preset (\w+)", line.text):
        world.run(f"cmake {'--build ' if kind else ''}--list-presets | grep '\"{preset}\"'", cwd=ROOT)


def dry_ctest(world, line):
    command = line.text.replace("--preset release", f"--test-dir {BUILD}")
    if not re.search(r"Total Tests: [1-9]", world.run(f"{command} -N")):
        raise AssertionError(f"{line.text}: no test")


def preload_everywhere(world, line):
    """The package's database names the library, as if the package was installed."""
    library = BUILD / "preload/libsdp.so"
    database = pathlib.Path("/var/lib/dpkg")
    with open(database / "status", "a") as status:
        status.write(PACKAGE)
    (database / "info/libsdp.list").write_text(f"/.\n{library}\n{library}.debug\n")
    world.run(line.text)
    preload = pathlib.Path("/etc/ld.so.preload")
    named = preload.read_text()
    loaded = world.run("cat /proc/self/maps")
    preload.unlink()
    if named != f"{library}\n":
        raise AssertionError(f"{line.text}: ld.so.preload has {named!r}")
    if "libsdp.so" not in loaded or "libsdp.so" in world.run("cat /proc/self/maps"):
        raise AssertionError(f"{line.text}: the library is not loaded, or is still")


def drop_in(service):
    return pathlib.Path(f"/etc/systemd/system/{service}.service.d/sdp.conf")


def enable(world, line):
    """Writes the drop-in of a service of that name, which is here whether its package is installed or not."""
    service = line.text.split()[-1]
    units = pathlib.Path("/run/systemd/system")
    units.mkdir(parents=True, exist_ok=True)
    (units / f"{service}.service").write_text("[Service]\nExecStart=/bin/sleep infinity\n")
    world.said = world.run(typed(line))
    lines = drop_in(service).read_text().splitlines()
    wanted = {f'Environment="LD_PRELOAD={BUILD}/preload/libsdp.so"', "After=sdp-pmd.service"}
    if not wanted <= set(lines):
        raise AssertionError(f"{line.text}: the drop-in has {lines}")
    unit(world, lines)


def disable(world, line):
    """Takes away what the document has enabled before."""
    if not drop_in(line.text.split()[-1]).exists():
        raise AssertionError(f"{line.text}: there is nothing to take away")
    world.run(typed(line))
    if drop_in(line.text.split()[-1]).exists():
        raise AssertionError(f"{line.text}: the drop-in is there still")


def as_told(world, line):
    """No systemd runs in the sandbox: the last `sdp-run --enable` has named this command."""
    if f"{typed(line)}.service" not in world.said:
        raise AssertionError(f"{line.text}: sdp-run says {world.said}")


def web_server(world, line):
    if shutil.which("nginx", path=world.environment["PATH"]) is None:
        raise Skip("nginx is not installed")
    if "--map-root-user" in NAMESPACES:
        raise Skip("nginx gives files to another user, which takes root")
    world.start(line.text, lambda _: world.listens(80))
    world.run("sdp-run --require curl --silent http://127.0.0.1/")


def columns(world, line, command, statuses=(0,)):
    """The titles that the document shows are among those that the program prints."""
    head = next(one for one in line.shown if re.search(r"\bState\b", one))
    titles = set(re.split(r"\s{2,}", head.strip()))
    real = set(
        re.split(r"\s{2,}", re.search(r"^.*\bState\b.*$", world.run(command, statuses), re.M)[0].strip())
    )
    if not titles <= real:
        raise AssertionError(f"{line.text}: {titles - real} are no titles of {real}")


def table(world, line):
    columns(world, line, "sdpstat")


OPEN = """
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
print('open', flush=True)
input()
"""


def why(world, line):
    world.file("open.py", OPEN.splitlines())
    idle = world.start(
        "tail -f /dev/null | sdp-run --mode tcp python3 open.py", lambda output: "open" in output
    )
    columns(world, line, "sdpstat why python3", statuses=(1,))
    world.stop(idle)


def trace(world, line):
    """The form of the lines that the document shows is that of a connection's real ones."""
    idle = world.start(
        "(printf 'PING\\r\\n'; tail -f /dev/null) | sdp-run nc 127.0.0.1 6379",
        lambda output: "PONG" in output,
    )
    command = re.sub(r" \d+$", "", line.text.removeprefix("$ "))
    number = re.match(r"fd (\d+): ", world.run(f"{command} --last"))[1]
    got = world.run(f"{command} {number} --last")
    real = {form(one.split(" bufs=")[0]) for one in got.splitlines()}
    for one in line.shown:
        if form(one.split(" bufs=")[0]) not in real:
            raise AssertionError(f"{line.text}: no line like {one!r} in\n{got}")
    world.stop(idle)


HOW = (
    (r"scripts/bench\b", bench_help),
    (r"scripts/", script_help),
    (r"cmake ", presets),
    (r"ctest ", dry_ctest),
    (r"sudo apt install ./build/release/packages/\*\.deb$", done_by("packages_install")),
    (r"dpkg -L libsdp \| grep .* >> /etc/ld.so.preload$", preload_everywhere),
    (r"podman (run|inspect) ", done_by("program_containers")),
    (r"nsenter --target PID --pid ", done_by("program_containers")),
    (r"(sudo )?systemctl enable --now sdp-metrics.timer$", done_by("program_metrics")),
    (r"(sudo )?systemctl ", as_told),
    (r"(sudo )?sdp-run .*--enable \S+$", enable),
    (r"(sudo )?sdp-run --disable \S+$", disable),
    (r"sdp-pmd &$", ready_line),
    (r"\$ \./sdp-run --pmd redis-server --port 6380$", listener(6380)),
    (r"\$ \./", shown),
    (r"sdp-run redis-server --port 6379$", listener(6379)),
    (r"sdp-run redis-benchmark ", output_has("requests per second|requests completed")),
    (r"sdp-run --explain db.example:5432 psql$", output_has("pm-denied", statuses=(1,))),
    (r"\$ sdpstat$", table),
    (r"\$ sdpstat why ", why),
    (r"\$ sdpstat trace ", trace),
    (r"sdp-run java ", done_by("program_java")),
    (r"(sdpstat trace \S+ (--last )?--pcap|tshark -X lua_script:) ?", done_by("program_wireshark")),
    (r"sdpstat ", output_has()),
    (r"exec env LD_PRELOAD=libsdp.so nginx ", web_server),
)

# Which test in test/programs/ runs a row of docs/programs.md, where that has another name.
PROGRAM_TESTS = {
    "Java (NIO)": "java",
    "OpenSSH": "ssh",
    "PostgreSQL": "postgres",
    "Python": "tools",
    "stress-ng": "stress_ng",
    "wrk": "nginx",
}


def run_command(world, line):
    within = line.kind == "within"
    line = filled(line) if within else line
    for pattern, how in (*WITHIN, *HOW) if within else HOW:
        if re.match(pattern, line.text):
            how(world, line)
            return
    raise AssertionError(f"{line.document}:{line.number}: this test does not know how to run: {line.text}")


def together(lines):
    """The lines in groups of one kind without a gap; each command is a group of its own."""
    groups = []
    for line in lines:
        last = groups[-1][-1] if groups else None
        alone = line.kind in ("command", "within")
        joins = last and not alone and line.kind == last.kind and line.number <= last.number + 2
        groups[-1].append(line) if joins else groups.append([line])
    # A registry comes before the commands that name its file.
    return sorted(groups, key=lambda group: group[0].kind != "registry")


def run_document(path):
    with tempfile.TemporaryDirectory(prefix="sdp-commands-") as directory:
        world = World(BUILD, directory)
        ran = 0
        lines = sorted(lines_of(path) + commands_within(path), key=lambda line: line.number)
        for group in together(lines):
            try:
                if group[0].kind in ("command", "within"):
                    run_command(world, group[0])
                elif group[0].kind in FILES:
                    FILES[group[0].kind](world, [line.text for line in group])
                else:
                    continue
                ran += len(group)
            except Skip as reason:
                print(f"skipped: {path.name}:{group[0].number}: {group[0].text}: {reason}")
        print(f"{path.name}: {ran} lines ran")
        world.stop_all()


class Commands(unittest.TestCase):
    def test_each_line_is_of_a_known_kind(self):
        for path in DOCUMENTS:
            for line in lines_of(path):
                self.assertIsNotNone(line.kind, f"{line.document}:{line.number}: {line.text}")

    def test_each_row_of_programs_has_a_test_that_runs_them(self):
        rows = program_rows()
        self.assertGreater(len(rows), 15)
        for number, name, commands in rows:
            test = ROOT / f"test/programs/test_{PROGRAM_TESTS.get(name, name.lower())}.py"
            self.assertTrue(test.is_file(), f"programs.md:{number}: {name} has no test")
            text = test.read_text()
            for command in commands:
                program = pathlib.Path(command.split()[1]).name.rstrip("0123456789")
                named = re.search(rf"\b{program}", text, re.IGNORECASE)
                self.assertTrue(named, f"{test.name} has no {program}")

    def test_the_commands_of_each_document_run(self):
        probe = subprocess.run(
            [*NAMESPACES, "bash", "-c", SANDBOX, "bash", "true"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if probe.returncode != 0:
            self.skipTest(
                "no sandbox of namespaces here: " + (probe.stderr.splitlines() or ["unshare failed"])[-1]
            )
        for path in DOCUMENTS:
            if not any(
                line.kind in ("command", "within", *FILES) for line in lines_of(path) + commands_within(path)
            ):
                continue
            with self.subTest(path.name):
                got = subprocess.run(
                    [*NAMESPACES, "bash", "-c", SANDBOX, "bash", sys.executable, "-B", __file__, BUILD],
                    env={**os.environ, INSIDE: str(path)},
                    capture_output=True,
                    text=True,
                    timeout=5 * PATIENCE,
                )
                print(got.stdout, end="", flush=True)
                self.assertEqual(got.returncode, 0, got.stdout + got.stderr)


if __name__ == "__main__":
    if INSIDE in os.environ:
        run_document(pathlib.Path(os.environ[INSIDE]))
    else:
        unittest.main(verbosity=2)
