"""What the programs say of themselves, and what man pages, completions, docs/ and schemas say of them,
agree. Usage: documents_test.py SDPSTAT SDP-RUN SDP-PMD"""

import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import unittest

from document_commands import DOCUMENTS, ROOT, lines_of, spans

PROGRAMS = dict(zip(("sdpstat", "sdp-run", "sdp-pmd"), sys.argv[1:4]))
del sys.argv[1:4]
PAGES = {
    "sdpstat": ROOT / "packaging/man/sdpstat.1",
    "sdp-run": ROOT / "packaging/man/sdp-run.1",
    "sdp-pmd": ROOT / "portmapper/daemon/install/sdp-pmd.8",
    "libsdp.conf": ROOT / "packaging/man/libsdp.conf.5",
    "sdp": ROOT / "packaging/man/sdp.7",
}
READMES = [ROOT / "ARCHITECTURE.md", *ROOT.glob("*/README.md"), *ROOT.glob("test/*/README.md")]
COMMANDS = {"sdpstat": ([], ["why"], ["trace"], ["doctor"]), "sdp-run": ([],), "sdp-pmd": ([],)}
USAGE_ERROR = {"sdpstat": 2, "sdp-run": 125, "sdp-pmd": 2}


def run(program, *arguments):
    return subprocess.run([PROGRAMS[program], *arguments], capture_output=True, text=True, timeout=60)


def page(name):
    """A man page's text with what is only there for roff taken out."""
    text = re.sub(r"\\f.", "", PAGES[name].read_text().replace("\\-", "-"))
    return re.sub(r'" *,? *"', " ", text)


def options(program, *command):
    text = run(program, *command, "--help").stdout
    return {
        option
        for line in text.splitlines()
        if line.startswith("  -")
        for option in re.findall(r"--[a-z0-9-]+", line.split("  ")[1])
    }


def words(text):
    return set(re.findall(r"[A-Za-z0-9_-]+", text))


def all_options(program):
    return {"--help", "--version"}.union(*(options(program, *command) for command in COMMANDS[program]))


def settings():
    """As the programs' own list has them: private-buffers, ..."""
    text = run("sdp-run", "--help").stdout.split("Settings")[1]
    return set(re.findall(r"^  --([a-z0-9-]+) VALUE", text, re.M))


def rows_of_tables(text):
    """Of Markdown: for each row of a table its cells by their titles."""
    rows, titles = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells and titles and not set(line) <= set("|-"):
            rows.append(dict(zip(titles, cells)))
        titles = (titles or cells) if cells else None
    return rows


class Documents(unittest.TestCase):
    def test_every_option_is_in_the_man_page(self):
        for program, commands in COMMANDS.items():
            known = words(page(program))
            for command in commands:
                found = options(program, *command) - {"--help", "--version"}
                self.assertTrue(found or command == ["doctor"], (program, command))
                self.assertEqual(found - known, set(), (program, command))
            described = words(page(program).split(".SH EXAMPLES")[0])
            named = {word for word in described if re.match(r"--[a-z]", word)}
            self.assertEqual(named - all_options(program), set(), program)

    def test_every_option_of_the_tools_is_in_the_manual(self):
        manual = {word for _, span in spans(ROOT / "docs/manual.md") for word in span.split()}
        for program, commands in COMMANDS.items():
            for command in commands:
                for line in run(program, *command, "--help").stdout.split("Settings")[0].splitlines():
                    forms = (
                        set(re.findall(r"--?[A-Za-z0-9][\w-]*", line.split("  ")[1]))
                        if line[:3] == "  -"
                        else ()
                    )
                    if forms and not forms & {"--help", "--version"}:
                        self.assertTrue(forms & manual, (program, command, line))

    def test_every_setting_is_in_every_list_of_settings(self):
        names = settings()
        self.assertGreater(len(names), 15)
        variables = {"SDP_" + name.upper().replace("-", "_") for name in names}
        self.assertEqual(names - words(page("libsdp.conf")), set())
        self.assertEqual({"--" + name for name in names} - words(page("sdp-run")), set())
        self.assertEqual((variables | {"SDP_CONFIG", "LIBSDP_CONFIG_FILE"}) - words(page("sdp")), set())
        manual = (ROOT / "docs/manual.md").read_text().split("## Environment")[1].split("\n## ")[0]
        described = re.findall(r"^\* `(SDP_[A-Z0-9_]+)`:", manual, re.M)
        self.assertEqual(sorted(described), sorted(variables | {"SDP_CONFIG"}))
        source = (ROOT / "preload/config_reader.cc").read_text()
        old_names = {"SDP_CQ_POLL_US"}
        self.assertEqual(set(re.findall(r'"(SDP_[A-Z0-9_]+)"', source)), variables | old_names)
        self.assertEqual(old_names - words(manual), set())

    def test_every_reason_is_in_the_man_page_and_nothing_else(self):
        codes = re.findall(
            r"^  ([a-z][a-z-]*) +(?:local|remote|path) ", run("sdpstat", "why", "--codes").stdout, re.M
        )
        self.assertGreater(len(codes), 20)
        text = page("sdpstat").split(".SH REASONS")[1].split(".SH")[0]
        self.assertEqual(re.findall(r"^\.TP\n\.B ([a-z-]+)$", text, re.M), codes)
        guide = (ROOT / "docs/troubleshooting.md").read_text()
        self.assertEqual(re.findall(r"^\* `([a-z-]+)`(?: \([a-z]+\))?: ", guide, re.M), codes)
        # What a process can note down, and what an engine can end with.
        layout = (ROOT / "preload/stats_layout.h").read_text()
        noted = re.findall(r'"([a-z-]+)"', layout[layout.index("ToString(FallbackReason") :].split("\n}")[0])
        self.assertGreater(len(noted), 15)
        self.assertEqual(set(noted) - set(codes) - {"unknown"}, set())
        status = (ROOT / "core/engine/status.cc").read_text()
        aborts = re.findall(
            r'return "([a-z-]+)"', status[status.index("ToString(AbortReason") :].split("\n}")[0]
        )
        self.assertGreater(len(aborts), 15)
        self.assertEqual(set(aborts) - words(text) - {"none"}, set())

    def test_what_documents_name_exists(self):
        """Options, by the program before them; variables and names with hyphens, by the sources."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout
        if not listed:
            self.skipTest("this is no clone of the repository")
        files = [ROOT / name for name in listed.split("\0") if name and "/corpus/" not in name]
        sources = [path for path in files if path.suffix != ".md" and path.is_file()]
        known = set().union(*(words(path.read_text(errors="ignore")) for path in sources))
        ours = set().union(*map(all_options, PROGRAMS))
        for path in [*DOCUMENTS, *READMES]:
            named = set(re.findall(r"\bSDP_[A-Z0-9_]+", path.read_text()))
            texts = [span for _, span in spans(path)]
            named |= {text for text in texts if re.fullmatch(r"[a-z]+(-[a-z]+)+", text)}
            self.assertEqual(named - known, set(), path)
            for text in [*texts, *(line.text for line in lines_of(path) if line.kind == "command")]:
                program, *rest = text.removeprefix("$ ").removeprefix("./").split()
                if program == "sdp-run":  # the options behind the program that it runs are that program's
                    rest = re.match(r"((--\S+|[A-Z]+:\S+|\S+:\d+) ?)*", " ".join(rest))[0].split()
                if program in PROGRAMS or program.startswith("--"):
                    allowed = all_options(program) if program in PROGRAMS else ours | known
                    used = {
                        re.match(r"--[a-z0-9-]+", w)[0] for w in (program, *rest) if re.match(r"--[a-z]", w)
                    }
                    self.assertEqual(used - allowed, set(), (path, text))
                if program == "set" and rest:
                    self.assertTrue(rest[0] in settings() | {"NAME"}, (path, text))

    def test_charts_show_the_figures_of_the_tables(self):
        page = (ROOT / "docs/performance.md").read_text()
        for section in page.split("\n## ")[1:]:
            for chart in re.findall(r"\]\((charts/[\w-]+\.svg)\)", section):
                drawn = re.findall(r">(\d+\.\d\d)</text>", (ROOT / "docs" / chart).read_text())
                self.assertTrue(drawn, chart)
                self.assertEqual(set(drawn) - set(re.findall(r"\b\d+\.\d\d\b", section)), set(), chart)

    def test_the_readme_has_the_figures_of_the_tables(self):
        """Each is rounded from one of performance.md, of a row whose name has all the words of its row's."""
        measured = rows_of_tables((ROOT / "docs/performance.md").read_text())
        compared = 0
        for row in rows_of_tables((ROOT / "README.md").read_text()):
            work = words(next(iter(row.values())))
            for column, ratio in ("local link", "times as fast"), ("TCP link", "SDP : TCP"):
                if figure := row.get(column):
                    places = len(figure.partition(".")[2])
                    known = {
                        f"{float(one[ratio]):.{places}f}"
                        for one in measured
                        if one.get(ratio) and work <= words(one["work"])
                    }
                    self.assertIn(figure, known, row)
                    compared += 1
        self.assertGreater(compared, 8)

    def test_the_programs_say_it_in_plain_words(self):
        unwanted = runpy.run_path(str(ROOT / "scripts/check-prose"))["WORDS"]
        said = {
            (program, *command): run(program, *command, "--help").stdout
            for program, commands in COMMANDS.items()
            for command in commands
        }
        said["sdpstat", "why", "--codes"] = run("sdpstat", "why", "--codes").stdout
        for command, text in said.items():
            found = [word for word in unwanted if re.search(rf"\b{word}\b", text, re.IGNORECASE)]
            self.assertEqual(found, [], command)

    def test_a_service_with_the_usual_filter_may_make_our_calls(self):
        """docs/deployment.md names systemd's set for SystemCallFilter=."""
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not here")

        def calls_of(name):
            listed = subprocess.run(
                ["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True
            )
            for line in map(str.strip, listed.stdout.splitlines()[1:]):
                if line.startswith("@"):
                    yield from calls_of(line)
                elif line and not line.startswith("#"):
                    yield line

        ours = set(re.findall(r"SYS_([a-z]\w+)", (ROOT / "preload/confinement.cc").read_text()))
        self.assertGreater(len(ours), 50)
        self.assertEqual(ours - set(calls_of("@system-service")), set())

    def test_mandoc_has_nothing_to_say(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is not installed")
        for name, path in PAGES.items():
            got = subprocess.run(["mandoc", "-T", "lint", path], capture_output=True, text=True, timeout=60)
            self.assertEqual((got.returncode, got.stdout + got.stderr), (0, ""), name)

    def test_man_pages_are_well_formed(self):
        if shutil.which("man") is None:
            self.skipTest("man is not installed")
        for name, path in PAGES.items():
            got = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path],
                capture_output=True,
                text=True,
                timeout=60,
                env=dict(os.environ, MANROFFSEQ="", LC_ALL="C.UTF-8"),
            )
            self.assertEqual((got.returncode, got.stderr), (0, ""), name)
            for section, other in re.findall(r"^\.BR ([a-z.-]+) \((\d)\)", page(name), re.M):
                known = section in PAGES or section in ("ss", "wireshark") or other == "2"
                self.assertTrue(known, (name, section, other))

    def test_versions_and_help_as_usual(self):
        versions = {run(program, "--version").stdout.split()[1] for program in PROGRAMS}
        self.assertEqual(len(versions), 1)
        self.assertRegex(versions.pop(), r"^\d+\.\d+\.\d+$")
        for program in PROGRAMS:
            got = run(program, "--help")
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            self.assertIn("Usage: " + program, got.stdout)

    def test_who_mistypes_is_told_what_to_type(self):
        for program, typed, meant in (
            ("sdpstat", "--lisening", "--listening"),
            ("sdpstat", "--sum", "--summary"),
            ("sdp-run", "--requier", "--require"),
            ("sdp-run", "--privat-buffers=4", "--private-buffers"),
            ("sdp-pmd", "--lisetn", "--listen"),
            ("sdp-pmd", "--privileged-port", "--privileged-ports"),
        ):
            with self.subTest(program, typed=typed):
                got = run(program, typed)
                self.assertEqual((got.returncode, got.stdout), (USAGE_ERROR[program], ""))
                self.assertIn(f"did you mean {meant}?", got.stderr)
                self.assertIn(f"{program} --help", got.stderr)
        for arguments, status, text in (
            (("sdpstat", "trace", "--pcpa", "x", "1"), 2, "did you mean --pcap? `sdpstat trace --help`"),
            (("sdpstat", "docotr"), 2, "did you mean the command doctor?"),
            (("sdpstat", "why"), 2, "which process?"),
            (("sdpstat", "--pid", "x"), 2, "--pid: Value x not in range 1 to"),
            (("sdpstat", "--interval", "0"), 2, "--interval: Value 0 not in range 0.1"),
            (("sdpstat", "--dir", "/no/such/place"), 2, "--dir /no/such/place: no such directory"),
            (("sdpstat", "--dir", "/"), 2, "/ is the root directory, where no process keeps statistics"),
            (("sdp-run", "--stats-dir", "/", "true"), 125, "stats-dir / is not a directory of its own"),
            (("sdp-pmd", "--log-level", "loud"), 2, "--log-level: loud not in {error,info,debug}"),
            (("sdp-pmd", "--limit-source", "x"), 2, "--limit-source: Value x not in range 0 to 4294967295"),
            (("sdp-pmd", "--nonsense"), 2, "not expected: --nonsense"),
            (
                ("sdp-run", "--set", "private-bufers=4", "true"),
                125,
                "no setting 'private-bufers', perhaps private-buffers",
            ),
        ):
            with self.subTest(arguments):
                got = run(*arguments)
                self.assertEqual((got.returncode, got.stdout), (status, ""))
                self.assertIn(text, got.stderr)

    def completed(self, library, line):
        """What bash offers at the end of a line."""
        typed = line.split()
        program = typed[0]
        script = "\n".join(
            (
                f"source {library}",
                f"source {ROOT}/packaging/completions/{program}",
                f"function {program} {{ {PROGRAMS[program]} \"$@\"; }}",
                f"COMP_WORDS=({' '.join(typed)}) COMP_CWORD={len(typed) - 1} "
                f"COMP_LINE='{line}' COMP_POINT={len(line)} COMP_TYPE=9",
                f"_{program.replace('-', '_')} {program} {typed[-1]} {typed[-2]}",
                'printf "%s\\n" "${COMPREPLY[@]}"',
            )
        )
        got = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60)
        return got.stdout.split()

    def test_completions_know_the_options(self):
        """Bash completes an option of each program, and what stands behind some."""
        library = pathlib.Path("/usr/share/bash-completion/bash_completion")
        if not library.exists():
            self.skipTest("bash-completion is not installed")
        for line, wanted in (
            ("sdpstat --lis", "--listening"),
            ("sdpstat wh", "why"),
            ("sdpstat trace --pc", "--pcap"),
            ("sdpstat why --co", "--codes"),
            ("sdpstat state est", "established"),
            ("sdpstat reason pm-den", "pm-denied"),
            ("sdp-run --requ", "--require"),
            ("sdp-run --mode bo", "both"),
            ("sdp-pmd --pmt", "--pmtime"),
            ("sdp-pmd --log-format js", "json"),
        ):
            self.assertIn(wanted, self.completed(library, line), line)

    def test_completion_offers_processes_that_run_a_program(self):
        library = pathlib.Path("/usr/share/bash-completion/bash_completion")
        if not library.exists():
            self.skipTest("bash-completion is not installed")
        own = str(os.getpid())
        name = pathlib.Path("/proc/self/comm").read_text().strip()
        self.assertIn(own, self.completed(library, f"sdpstat --pid {own[0]}"))
        self.assertIn(own, self.completed(library, f"sdpstat why {own[0]}"))
        self.assertIn(name, self.completed(library, f"sdpstat trace {name[0]}"))
        for line in "sdpstat why kthr", "sdpstat why kworker/":
            self.assertEqual(self.completed(library, line), [], line)

    def test_help_names_values_by_what_they_are(self):
        for program in "sdpstat", "sdp-run":
            for command in COMMANDS[program]:
                text = run(program, *command, "--help").stdout
                self.assertEqual(re.findall(r"\b(?:TEXT|U?INT|FLOAT)\b", text), [], (program, command))

    def test_schemas_describe_every_member(self):
        def undescribed(node, path):
            if not isinstance(node, dict):
                return []
            out = []
            for name, member in node.get("properties", {}).items():
                told = (
                    "description" in member
                    or "const" in member
                    or "$ref" in member
                    or "enum" in member
                    or member.get("type") == "object"
                )
                out += [] if told else [f"{path}/{name}"]
            for name, member in node.items():
                out += undescribed(member, f"{path}/{name}")
            return out

        for name in "sdpstat", "sdpstat-why":
            schema = json.loads((ROOT / f"tools/sdpstat/{name}.schema.json").read_text())
            self.assertEqual(undescribed(schema, name), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
