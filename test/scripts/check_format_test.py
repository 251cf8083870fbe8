"""scripts/check-format on small trees, each with one thing that is wrong, or that only looks so."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "check-format"


class CheckFormat(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="sdp-format-")
        self.addCleanup(directory.cleanup)
        self.tree = pathlib.Path(directory.name)
        subprocess.run(["git", "init", "--quiet", self.tree], check=True)
        shutil.copy(ROOT / ".clang-format", self.tree)

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")

    def check(self, *options, path=None):
        environment = dict(os.environ, PATH=path) if path else None
        return subprocess.run(
            [sys.executable, "-B", CHECK, "--tree", self.tree, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def says(self, name, text, *findings):
        """With this one file the check fails with these lines, or passes if there are none."""
        (self.tree / name).write_text(text)
        checked = self.check()
        *said, summary = [line for line in checked.stdout.splitlines() if not line.startswith("skipped")]
        self.assertEqual(len(said), len(findings), checked.stdout)
        for line, finding in zip(said, findings):
            self.assertTrue(line.startswith(f"{name}:{finding}"), checked.stdout)
        wanted = {1} if findings else {0, 77}
        self.assertIn(checked.returncode, wanted, checked.stdout)
        self.assertIn(" problems" if findings else ": fine", summary)
        (self.tree / name).unlink()

    def test_wide_lines(self):
        for name, before, comment in (
            ("a.cc", "", "//"),
            ("b.h", "", "//"),
            ("calls.inc", "", "//"),
            ("c.py", "", "#"),
            ("script", "#!/usr/bin/env python3\n", "#"),
            ("d.sh", "", "#"),
            ("hook", "#!/bin/sh\n", "#"),
            ("CMakeLists.txt", "", "#"),
            ("e.cmake", "", "#"),
        ):
            with self.subTest(name):
                line = before.count("\n") + 1
                # One word: clang-format would break what has several.
                fitting = f"{comment} " + "x" * (109 - len(comment))
                self.assertEqual(len(fitting), 110)
                self.says(name, f"{before}{fitting}\n")
                self.says(name, f"{before}{fitting}x\n", f"{line}: 111 columns where 110 are allowed")

    def test_a_line_has_characters_not_bytes(self):
        self.says("a.py", "# " + "─" * 108 + "\n")
        self.says("a.py", "# " + "─" * 109 + "\n", "1: 111 columns")

    def test_other_files_may_be_wide(self):
        self.says("a.json", "x" * 200 + "\n")

    def test_wide_prose(self):
        wide = "word " * 20 + "and"
        self.assertGreater(len(wide), 100)
        self.says("a.md", f"{wide}\n", "1: 103 columns where prose has 100")
        self.says("a.md", f"* an item\n  {wide}\n", "2: 105 columns")
        self.says("a.md", f"* an item\n    {wide}\n", "2: 107 columns")
        self.says("a.md", f"```\n{wide}\n```\n{wide}\n", "4: 103 columns")
        self.says("a.md", f"    {wide}\n\n{wide}\n", "3: 103 columns")
        self.says("a.md", f"# {wide}\n\n| {wide} |\n\n    {wide}\n\n    {wide}\n\n```\n{wide}\n```\n")
        self.says("a.md", f"* https://{'x' * 100}/\n")

    def test_unformatted_cplusplus(self):
        self.need("clang-format-14")
        self.says("a.cc", "int one = 1;\n")
        self.says("a.cc", "int one = 1;\nint  two = 2;\n", "2: clang-format-14 writes this otherwise")

    def test_fix(self):
        self.need("clang-format-14")
        (self.tree / "a.cc").write_text("int  two = 2;\n")
        self.assertEqual(self.check().returncode, 1)
        fixed = self.check("--fix")
        self.assertEqual(fixed.returncode, 0, fixed.stdout)
        self.assertEqual((self.tree / "a.cc").read_text(), "int two = 2;\n")

    def test_without_clang_format(self):
        """What is not compared is said; what is found all the same fails."""
        git = self.tree / "bin"
        git.mkdir()
        (git / "git").symlink_to(shutil.which("git"))
        (self.tree / "a.cc").write_text("int  two = 2;\n")
        checked = self.check(path=str(git))
        self.assertEqual(checked.returncode, 77, checked.stdout)
        self.assertIn("skipped in part: clang-format-14, which is not installed", checked.stdout)
        (self.tree / "a.py").write_text("x" * 111 + "\n")
        self.assertEqual(self.check(path=str(git)).returncode, 1)


if __name__ == "__main__":
    unittest.main()
