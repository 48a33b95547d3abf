#!/usr/bin/env python3
"""Checks that docs/reference/options.md has every option of drun --help-all and the helper commands, with the same text.

usage: options_page.py DRUN [--write]       --write: writes the page instead of comparing it
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/options.md"
INTRODUCTION = """# Options

This page is generated from drun's table of options by `tests/gate/options_page.py build/bin/drun --write`.

Options may be written with `-` or `_`, and may be abbreviated while they are unambiguous. Most options can also be set by a variable
(`PET_NNODES=3` for `--nnodes=3`) or by a line of a TOML file that `--config` names (`nnodes = 3`). The command line takes precedence,
then the variable, then the file. Options come before the program; words after it are its own arguments. In the file, a value that
consists of several parts may also be a list: `ssh-args = ["-p", "22"]`, `redirects = ["0:3", "1:2"]`.
"""
COMMANDS = {
    "drun doctor": "Takes the options above as well. See [check machines](../guide/doctor.md).",
    "drun status": "See [running jobs](../guide/running-jobs.md).",
    "drun list": "See [running jobs](../guide/running-jobs.md).",
    "drun stop": "See [running jobs](../guide/running-jobs.md).",
    "drun logs": "See [running jobs](../guide/running-jobs.md).",
    "drun stacks": "See [find a hang](../guide/hangs.md).",
    "drun report": "See [the page for browsers](report.md#the-page-for-browsers).",
    "drun store": "Serves a TCPStore for PyTorch programs and torchrun.",
}


def groups(text):
    """Parses a help text. Returns [(title, [(names, text)])]."""
    found = []
    for line in text.splitlines():
        if re.match(r"\S.*:$", line):
            found.append((line[:-1], []))
        elif found and (match := re.match(r"  (-\w, |    )(--\S+(?: .*?)?)(?:  +(.*))?$", line)):
            found[-1][1].append([match.group(1).strip() + " " * bool(match.group(1).strip()) + match.group(2).rstrip(), match.group(3) or ""])
        elif found and found[-1][1] and line.startswith(" " * 30):
            found[-1][1][-1][1] = (found[-1][1][-1][1] + " " + line.strip()).strip()
        elif line.strip() and found and not line.startswith(" "):
            found.append(("", []))  # text after the options
    return [(title, options) for title, options in found if options]


def table(options):
    lines = ["| option | meaning | default |", "|---|---|---|"]
    for names, text in options:
        default = ""
        if match := re.search(r"\s*\[default(?: address)?: ((?:[^\[\]]|\[[^\]]*\])*)\]$", text):
            default = match.group(1)
            text = text[:match.start()] + text[match.end():]
        escape = lambda cell: cell.replace("|", "\\|")  # noqa: E731
        lines.append(f"| `{escape(names)}` | {escape(text)} | {escape(default)} |")
    return "\n".join(lines) + "\n"


def page(drun):
    def help_of(*words):
        return subprocess.run([drun, *words], capture_output=True, text=True, check=True).stdout

    text = INTRODUCTION
    for title, options in groups(help_of("--help-all")):
        link = re.search(r" \((docs/[\w/-]+\.md)\)", title)
        heading = title.replace(link.group(0), "") if link else title
        heading, _, note = heading.partition(". ")
        text += f"\n## {heading}\n\n"
        if note:
            text += note + "\n\n"
        if link:
            relative = link.group(1).replace("docs/reference/", "").replace("docs/", "../")
            text += f"See [{pathlib.PurePath(relative).stem}]({relative}).\n\n"
        text += table(options)
    for command, note in COMMANDS.items():
        shown = [option for title, options in groups(help_of(command.split()[1], "--help"))
                 for option in options if command != "drun doctor" or title == "drun doctor"]
        text += f"\n## {command}\n\n{note}\n\n{table(shown)}"
    return text


def main():
    wanted = page(sys.argv[1])
    if "--write" in sys.argv:
        PAGE.write_text(wanted)
        return 0
    if wanted.count("\n| `") < 70:
        print("the help has too few options; does this script still understand its layout?")
        return 1
    if PAGE.exists() and PAGE.read_text() == wanted:
        return 0
    have = set(PAGE.read_text().splitlines()) if PAGE.exists() else set()
    for line in wanted.splitlines():
        if line not in have:
            print(f"missing: {line}")
    for line in sorted(have - set(wanted.splitlines())):
        print(f"outdated: {line}")
    print("\ndocs/reference/options.md differs from drun --help-all; run tests/gate/options_page.py DRUN --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
