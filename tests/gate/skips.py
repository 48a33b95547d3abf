#!/usr/bin/env python3
"""Reports the skipped tests of a CTest run by reason. With --strict it fails if a skip is not allowed.

    tests/gate/skips.py RESULTS.xml [--strict] [--allow REGEX]...

RESULTS.xml is the output of `ctest --output-junit`, with the whole output of passed tests (--test-output-size-passed).
A test is skipped if it prints "skipped: REASON", or if CTest did not run it. A test that skips only some of its checks
counts, too. With --strict every reason must match a line of allowed_skips.txt or an --allow.
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = pathlib.Path(__file__).with_name("allowed_skips.txt")


def allowed_patterns(path=ALLOWED):
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def reasons_of(case):
    """Returns the reasons why a test case was skipped, fully or partly. Empty if it was not."""
    output = "\n".join(node.text or "" for node in case.iter("system-out"))
    # Catch2 wraps a long reason and ends it with an empty line. Other tests print it on one line.
    found = [" ".join(text.split()) for text in re.findall(r"skipped: (.*?)(?=\n\s*\n|\n\S|\Z)", output, re.DOTALL)]
    if not found and (case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")):
        node = case.find("skipped")
        found = ["no reason given" if node is None else f"no reason given ({node.get('message')})"]
    return sorted(set(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--allow", action="append", default=[], type=re.compile)
    arguments = parser.parse_args()
    tests_of = {}
    for case in ElementTree.parse(arguments.results).getroot().iter("testcase"):
        for reason in reasons_of(case):
            tests_of.setdefault(reason, []).append(case.get("name"))
    allowed = allowed_patterns() + arguments.allow
    refused = {reason: tests for reason, tests in tests_of.items() if not any(one.search(reason) for one in allowed)}
    for reason, tests in sorted(tests_of.items()):
        if not (arguments.strict and reason in refused):
            print(f"      skipped: {reason} ({len(tests)})")
    if not (arguments.strict and refused):
        return 0
    for reason, tests in sorted(refused.items()):
        for test in tests:
            print(f"      this skip is not allowed: {test}: {reason}")
    print(f"      where CI is set, only the skips in {ALLOWED.parent.name}/{ALLOWED.name} are allowed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
