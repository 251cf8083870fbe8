"""git's daemon: for each connection it starts a program that has the connection as standard input and output,
which starts others in turn; the client reads in one process or thread and writes in another."""

import harness

FIXED = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
}


class Git(harness.ProgramTest):
    def setUp(self):
        harness.need("git")
        super().setUp()
        self.directory = self.world.directory
        self.at("init", "-q", "-b", "main", self.directory / "first")
        for number in range(40):
            harness.random_file(self.directory / "first" / f"file-{number}", number * 2_000, seed=number)
        self.commit("first")

    def at(self, *arguments):
        """Where no connection is."""
        return self.world.run(["git", *arguments], preload=False, environment=FIXED).decode().strip()

    def commit(self, name):
        self.at("-C", self.directory / name, "add", ".")
        self.at("-C", self.directory / name, "commit", "-q", "-m", "more")

    def head(self, name):
        return self.at("-C", self.directory / name, "rev-parse", "main")

    def git(self, ends, *arguments):
        self.world.run(["git", *arguments], preload=ends.client, environment=FIXED)

    def test_there_and_back(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                served, copy = f"served-{port}", f"copy-{port}"
                self.at("clone", "-q", "--bare", self.directory / "first", self.directory / served)
                daemon = self.world.start(
                    [
                        "git",
                        "daemon",
                        "--listen=127.0.0.1",
                        f"--port={port}",
                        "--export-all",
                        "--enable=receive-pack",
                        f"--base-path={self.directory}",
                        "--timeout=30",
                    ],
                    preload=ends.server,
                    environment=FIXED,
                )
                self.world.wait_for_listener(port, sdp=ends.server)
                url = f"git://127.0.0.1:{port}/{served}"
                self.git(ends, "clone", "-q", url, self.directory / copy)
                self.assertEqual(self.head(copy), self.head("first"))
                self.at("-C", self.directory / copy, "fsck", "--full", "--strict")
                harness.random_file(self.directory / copy / "large", 4_000_000, seed=port)
                self.commit(copy)
                self.git(ends, "-C", self.directory / copy, "push", "-q", "origin", "main")
                self.assertEqual(self.head(served), self.head(copy))
                self.git(
                    ends, "-C", self.directory / "first", "fetch", "-q", url, f"+main:refs/heads/from-{port}"
                )
                self.assertEqual(
                    self.at("-C", self.directory / "first", "rev-parse", f"from-{port}"), self.head(copy)
                )
                self.assert_carried(port, ends, at_least=3)
                daemon.stop()


if __name__ == "__main__":
    harness.main()
