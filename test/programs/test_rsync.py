"""rsync's daemon: a process for each connection; at the receiving end two processes use one socket, one
reads, one writes."""

import os

import harness

CONFIGURATION = """
address = 127.0.0.1
port = {port}
use chroot = no
reverse lookup = no
{user}
[files]
path = {directory}/served
read only = no
"""


class Rsync(harness.ProgramTest):
    def setUp(self):
        harness.need("rsync")
        super().setUp()
        self.directory = self.world.directory

    def serve(self, ends):
        port = harness.free_port()
        (self.directory / "served").mkdir(exist_ok=True)
        user = "uid = 0\ngid = 0" if os.geteuid() == 0 else ""
        configuration = self.directory / f"rsyncd-{port}.conf"
        configuration.write_text(CONFIGURATION.format(port=port, directory=self.directory, user=user))
        self.world.start(
            ["rsync", "--daemon", "--no-detach", f"--config={configuration}", "--log-file=/dev/stderr"],
            preload=ends.server,
        )
        self.world.wait_for_listener(port, sdp=ends.server)
        return port

    def tree(self, name):
        """A directory of one large file, one that delta transfer finds a piece of, and many small ones;
        {name: hash}."""
        root = self.directory / name
        (root / "many").mkdir(parents=True)
        harness.random_file(root / "large", 40_000_000, seed=5)
        for i in range(300):
            harness.random_file(root / "many" / f"file-{i}", i * 37, seed=i)
        return self.hashes(root)

    @staticmethod
    def hashes(root):
        return {
            str(path.relative_to(root)): harness.file_hash(path) for path in root.rglob("*") if path.is_file()
        }

    def assert_same(self, name, wanted):
        found = self.hashes(self.directory / name)
        differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        self.assertEqual(differing, [])

    def rsync(self, ends, *arguments):
        self.world.run(["rsync", "-a", "--delete", "--timeout=20", *arguments], preload=ends.client)

    def test_there_and_back(self):
        wanted = self.tree("source")
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = self.serve(ends)
                url = f"rsync://127.0.0.1:{port}/files/"
                self.rsync(ends, f"{self.directory}/source/", url)
                self.assert_same("served", wanted)
                # Again, with a piece of the large file changed at the far end: sums one way, differences the
                # other.
                with open(self.directory / "served" / "large", "r+b") as large:
                    large.seek(7_000_000)
                    large.write(b"changed" * 1000)
                self.rsync(ends, "--checksum", f"{self.directory}/source/", url)
                self.assert_same("served", wanted)
                self.rsync(ends, url, f"{self.directory}/returned/")
                self.assert_same("returned", wanted)
                self.assert_carried(port, ends, at_least=3)


if __name__ == "__main__":
    harness.main()
