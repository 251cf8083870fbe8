"""What the code blocks of README.md, CONTRIBUTING.md and docs/ hold: commands, statements of libsdp.conf and
of a registry, units of systemd, rules of nft, and what a command prints."""

import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = ROOT / "docs/programs.md"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# `text`: as it stands, without the remark behind it. `kind`: of KINDS, or "within": a command in a sentence.
# `shown`: the lines of output below it.
Line = collections.namedtuple("Line", "document number text kind shown")

KINDS = {
    "command": (
        r"(\$ |# )?(exec|\./|scripts/|cmake|ctest|sdp-(run|pmd)|sdpstat|tshark|dpkg|sudo|systemctl"
        r"|podman|nsenter)"
    ),
    "placed": r"(central|hosts|clients): +",  # a command, and where it runs
    "options": r"SDP_PMD_OPTIONS=",
    "rule": r"(use|set|log) [^{\[]*$",
    "grammar": r"(use|log) .*[{\[]",
    "registry": r"(serve|balance|allow|deny|map|host|pmtime) ",
    "unit": r"\[(Unit|Service|Manager)\]$|(Wants|After|Environment|DefaultEnvironment)=",
    "filter": r" *(tcp|udp) dport ",  # rules of nft
    "file": r"# /",  # the name of the file whose text follows
}
PICTURE = re.compile(r"[─│┌└═◀▶▲▼]")


def blocks(path):
    """[(number of the first line, lines)] of each block that is indented by four blanks."""
    found, block = [], []
    lines = path.read_text().splitlines()
    for number, line in enumerate([*lines, ""], 1):
        above_is_text = number > 1 and lines[number - 2].strip() and not block
        if line.startswith("    ") and not above_is_text:
            block.append(line[4:])
        elif block:
            found.append((number - len(block), block))
            block = []
    return found


def lines_of(path):
    """All lines of a document's blocks but pictures and what a `$ command` prints. A kind of None: what that
    line is, this file does not know."""
    found = []
    for first, block in blocks(path):
        if any(PICTURE.search(line) for line in block):
            continue
        for number, line in enumerate(block, first):
            kind = next((kind for kind, form in KINDS.items() if re.match(form, line)), None)
            if kind is None and found and found[-1].text.startswith("$ "):
                found[-1].shown.append(line)
                continue
            text = re.split(r"\s+#|\s{3,}", line)[0] if kind in ("command", "rule") else line
            found.append(Line(path.name, number, text.strip(), kind, []))
    return found


def spans(path):
    """[(number, text)] of `what stands so` in a document's prose and tables."""
    lines = path.read_text().splitlines()
    prose = "\n".join("" if line.startswith("    ") else line for line in lines)
    return [
        (prose[: span.start()].count("\n") + 1, " ".join(span[1].split()))
        for span in re.finditer(r"`([^`]+)`", prose)
    ]


def program_rows():
    """[(number, program, [command])] of the table in docs/programs.md."""
    found = []
    for number, line in enumerate(PROGRAMS.read_text().splitlines(), 1):
        commands = re.findall(r"`(sdp-run [^`]+)`", line)
        if line.startswith("|") and commands:
            found.append((number, line.strip("|").split("|")[0].strip(), commands))
    return found


def commands_within(path):
    """The commands that a document's sentences and tables name, with what stands behind the program's name.
    Those of program_rows() are not among them."""
    rows = {number for number, *_ in program_rows()} if path == PROGRAMS else ()
    return [
        Line(path.name, number, text, "within", [])
        for number, text in spans(path)
        if number not in rows and re.match(KINDS["command"], text) and re.match(r"[^ :]+ ", text)
    ]
