"""Where the commands of a document run. What is there is as if the packages were installed."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

PATIENCE = 60


class Skip(Exception):
    pass


def typed(line):
    """What a user types, without sudo: root runs the test, in a sandbox."""
    return re.sub(r"^\$ |\bsudo ", "", line.text)


class World:
    """Where one document's commands run: what has started, and how a command is run."""

    def __init__(self, build, directory):
        self.directory = pathlib.Path(directory)
        self.started = []
        self.said = ""  # by the last `sdp-run --enable`
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("SDP_", "LD_"))}
        path = f"{build}/tools:{build}/portmapper:{os.environ['PATH']}:/usr/sbin:/sbin"
        # As if the packages were installed: the programs in the path, the library where the loader looks.
        self.environment = {**keep, "PATH": path, "LD_LIBRARY_PATH": f"{build}/preload"}
        self.environment["SDP_LINK"] = "tcp"  # the documents show connections between hosts
        # As build/release/tools, but with room for what servers leave where they run.
        self.tools = self.directory / "tools"
        self.tools.mkdir()
        for program in "sdp-run", "sdpstat":
            (self.tools / program).symlink_to(build / "tools" / program)

    def run(self, command, statuses=(0,), cwd=None, **environment):
        got = subprocess.run(
            ["bash", "-c", command],
            env={**self.environment, **environment},
            cwd=cwd or self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if got.returncode not in statuses:
            raise AssertionError(f"{command}: status {got.returncode}\n{got.stdout}{got.stderr}")
        return got.stdout + got.stderr

    def start(self, command, ready, cwd=None):
        """Starts a server, and waits until ready(its output so far)."""
        log = self.directory / f"{len(self.started)}.log"
        with open(log, "w") as out:
            process = subprocess.Popen(
                ["bash", "-c", command],
                env=self.environment,
                cwd=cwd or self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.started.append(process)
        deadline = time.monotonic() + PATIENCE
        while not ready(log.read_text()):
            if process.poll() not in (None, 0) or time.monotonic() > deadline:
                raise AssertionError(f"{command}: not ready:\n{log.read_text()}")
            time.sleep(0.02)
        return process

    def listens(self, port):
        listeners = [
            listener
            for process in json.loads(self.run("sdpstat --json 2>/dev/null"))["processes"]
            for listener in process["listeners"]
        ]
        return any(one["local"].endswith(f":{port}") and one["registered"] for one in listeners)

    def stop(self, process):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)

    def stop_all(self):
        for process in self.started:
            if process.poll() is None:
                self.stop(process)

    def file(self, name, lines):
        path = self.directory / name
        path.write_text("\n".join(lines) + "\n")
        return path
