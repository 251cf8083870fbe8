"""scripts/check-prose on small documents, each with one thing that is wrong, or that only looks so."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check-prose"
LONG = "word " * 30 + "word"


class CheckProse(unittest.TestCase):
    def says(self, text, *findings, name="document.md"):
        """Of this document the check says these things, or nothing if there are none."""
        with tempfile.TemporaryDirectory(prefix="sdp-prose-") as directory:
            document = pathlib.Path(directory) / name
            document.write_text(text)
            (document.parent / "other.md").write_text("## A part of it\n")
            checked = subprocess.run(
                [sys.executable, "-B", CHECK, document], stdout=subprocess.PIPE, text=True, timeout=60
            )
        *said, _ = checked.stdout.splitlines()
        self.assertEqual(len(said), len(findings), said)
        for line, finding in zip(said, findings):
            self.assertIn(finding, line)
        self.assertEqual(checked.returncode, 1 if findings else 0)

    def test_sentences_of_thirty_words(self):
        self.says(f"{LONG[5:]}.\n")
        self.says(f"{LONG}.\n", ":1: 31 words")
        self.says(f"Short.\n\n{'word ' * 20}\n{'word ' * 11}\n", ":3: 31 words")
        self.says(f"{'word ' * 20}end. {'Word ' * 20}\n")
        self.says(f"{'word ' * 20}end: {'Word ' * 20}\n", ":1: 41 words")

    def test_bullets_and_cells_are_by_themselves(self):
        self.says(f"* {'word ' * 20}\n* {'word ' * 20}\n")
        self.says(f"| {'word ' * 20}| {'word ' * 20}|\n")
        self.says(f"| a | {LONG} |\n", ":1: 31 words")

    def test_code_is_no_prose(self):
        self.says(f"Text.\n\n    {LONG}\n")
        self.says(f"```\n{LONG}\n```\n")
        self.says(f"`{LONG}` is code.\n")

    def test_words_that_are_not_used(self):
        self.says("All but for one, and nobody else.\n", '"but for": except', '"nobody": no process')
        self.says("`nobody` is a user.\n")

    def test_links_lead_somewhere(self):
        here = "\n# `Here`, too\n"
        self.says(
            f"[this](other.md#a-part-of-it), [that](https://example.org/x#y), [here](#here-too)\n{here}"
        )
        self.says("\n[this](missing.md)\n", ":2: a link to missing.md")
        self.says("[this](other.md#gone)\n", "other.md#gone: no such heading")
        self.says("[this](#gone)\n", "#gone: no such heading")

    def test_scripts_are_there(self):
        self.says("Run `scripts/test`.\n")
        self.says("    scripts/no-such-thing --all\n", "scripts/no-such-thing is not there")

    def test_files_are_there(self):
        self.says("`scripts/check-prose` and `test/scripts/check_prose_test.py`, not `other/file.cc`\n")
        self.says("`test/scripts/no_such_test.py`\n", "test/scripts/no_such_test.py is not there")

    def test_man_pages(self):
        page = ".SH NAME\nx \\- " + LONG + "\n.SH DESCRIPTION\n{}\n.TP\n.B tag\nText\n.BR code .\nMore.\n"
        self.says(page.format("Short."), name="x.1")
        self.says(page.format(f".nf\n{LONG}\n.fi"), name="x.1")
        self.says(page.format(LONG), ":4: 31 words", name="x.1")
        self.says(page.format(f"{'word ' * 20}\n.B a b\n{'word ' * 10}"), ":4: 31 words", name="x.1")
        self.says(page.format("Nobody knows."), '"nobody"', name="x.1")


if __name__ == "__main__":
    unittest.main()
