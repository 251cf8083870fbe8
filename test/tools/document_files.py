"""What is done with the files that a document shows: all lines of one kind that stand together."""

import re
import shutil

from document_world import Skip


def rules(world, lines):
    """`sdpstat doctor` finds nothing wrong with a libsdp.conf of these lines, and something with one more."""
    config = world.file("libsdp.conf", lines)
    got = world.run("sdpstat doctor", (0, 1), SDP_CONFIG=str(config))
    verdict = re.search(r"^(\S+) +configuration.*$", got, re.M)
    if verdict[1] != "ok":
        raise AssertionError(f"{lines}: {verdict[0]}\n{got}")
    world.file("libsdp.conf", [*lines, "use nothing"])
    got = world.run("sdpstat doctor", (0, 1), SDP_CONFIG=str(config))
    if re.search(r"^(\S+) +configuration", got, re.M)[1] == "ok":
        raise AssertionError(f"doctor finds 'use nothing' right\n{got}")


def registry(world, lines):
    world.file("registry", lines)
    shutil.copy(world.directory / "registry", "/etc/sdp/registry")


def unit(world, lines):
    if "[Manager]" in lines:  # of system.conf.d: systemd-analyze has no check of these
        world.file("manager.conf", lines)
        return
    if shutil.which("systemd-analyze") is None:
        raise Skip("systemd-analyze is not installed")
    (world.directory / "test.service.d").mkdir(exist_ok=True)
    world.file("test.service", ["[Service]", "ExecStart=/bin/true"])
    world.file("sdp-pmd.service", ["[Service]", "ExecStart=/bin/true"])
    world.file("test.service.d/override.conf", lines)
    got = world.run(f"systemd-analyze verify {world.directory}/test.service", (0, 1))
    if "override.conf" in got:
        raise AssertionError(f"{lines}:\n{got}")


def placed(world, lines):
    """Of what runs on several hosts, each by itself: the port mapper becomes ready, the setting is one."""
    world.stop_all()
    for line in lines:
        command = line.split(":", 1)[1].strip()
        if command.startswith("sdp-pmd"):
            world.stop(world.start(command, lambda output: "sdp-pmd: ready," in output))
        else:
            name, value = command.split("=")
            world.run(f"sdp-run --{name.removeprefix('SDP_').lower().replace('_', '-')} {value} true")


def options(world, lines):
    for line in lines:
        value = line.split("=", 1)[1].strip('"')
        world.stop(world.start(f"sdp-pmd {value}", lambda output: "sdp-pmd: ready," in output))


def packet_filter(world, lines):
    """nft loads a chain of these rules, into the sandbox's network alone."""
    if shutil.which("nft", path=world.environment["PATH"]) is None:
        raise Skip("nft is not installed")
    table = world.file("rules.nft", ["table inet documents {", "chain input {", *lines, "}", "}"])
    world.run(f"nft -f {table} && nft delete table inet documents")


FILES = {
    "rule": rules,
    "registry": registry,
    "unit": unit,
    "options": options,
    "placed": placed,
    "filter": packet_filter,
}
