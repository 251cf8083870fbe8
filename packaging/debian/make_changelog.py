"""Debian's changelog of the packages, made of the project's. Usage: make_changelog.py CHANGELOG.md VERSION
MAINTAINER DATE; DATE is that of a version without one, as RFC 5322 has it. The first version has to be
VERSION."""

import datetime
import email.utils
import re
import sys
import textwrap

WIDTH = 76


def plain(text):
    """Markdown without links and marks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "").replace("`", "")


def date_of(heading, default):
    day = re.search(r"\d{4}-\d\d-\d\d", heading)
    if not day:
        return default
    moment = datetime.datetime.fromisoformat(day[0]).replace(hour=8, tzinfo=datetime.timezone.utc)
    return email.utils.format_datetime(moment)


def entry(heading, body, maintainer, default_date):
    version = heading.split(",")[0].strip()
    lines = [f"sdp ({version}) unstable; urgency=medium", ""]
    for paragraph in re.split(r"\n\n+|\n(?=\* )", body.strip()):
        text = plain(" ".join(paragraph.split()))
        if text.startswith("* "):
            lines += textwrap.wrap(text[2:], WIDTH, initial_indent="  * ", subsequent_indent="    ")
        elif paragraph.startswith("**"):
            lines += ([""] if lines[-1] else []) + [f"  [ {text} ]"]
        elif text:
            lines += textwrap.wrap(text, WIDTH, initial_indent="  * ", subsequent_indent="    ")
    return version, "\n".join([*lines, "", f" -- {maintainer}  {date_of(heading, default_date)}", ""])


def main(path, version, maintainer, default_date):
    with open(path, encoding="utf-8") as file:
        _, *parts = re.split(r"^## +", file.read(), flags=re.M)
    entries = [entry(*part.split("\n", 1), maintainer, default_date) for part in parts]
    if not entries or entries[0][0] != version:
        sys.exit(f"{path}: the first version is not {version}")
    print("\n".join(text for _, text in entries), end="")


main(*sys.argv[1:])
