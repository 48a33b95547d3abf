#!/usr/bin/env python3
"""Checks that links in .md files, and references to docs/ in the sources, point to existing files."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tracked(*patterns):
    """Returns the tracked files, or without git all files outside build folders."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    found = [path for pattern in patterns for path in ROOT.rglob(pattern)]
    return [path for path in found if not path.relative_to(ROOT).parts[0].startswith(("build", "."))]


def anchor(heading):
    """Returns the anchor that GitHub creates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    return {anchor(heading) for heading in re.findall(r"(?m)^#+ (.*)$", path.read_text())}


class Docs(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        for page in tracked("*.md"):
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if "://" in target or target.startswith("mailto:"):
                    continue
                path, _, fragment = target.partition("#")
                full = (page.parent / path).resolve() if path else page
                with self.subTest(page=str(page.relative_to(ROOT)), link=target):
                    self.assertTrue(full.exists(), "no such file")
                    if fragment:
                        self.assertIn(fragment, anchors(full), "no such heading")

    def test_every_reference_to_a_page_names_a_page(self):
        for source in tracked("*.cc", "*.h", "*.py", "*.txt", "*.md", "scripts/*"):
            try:
                text = source.read_text()
            except UnicodeDecodeError:
                continue
            for name in re.findall(r"(?<![\w/])docs/\w+/[\w-]+\.md", text):
                with self.subTest(source=str(source.relative_to(ROOT)), page=name):
                    self.assertTrue((ROOT / name).exists(), "no such page")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
