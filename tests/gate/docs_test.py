#!/usr/bin/env python3
"""Checks that links and paths in .md files, and references to docs/ in the sources, point to existing files."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tracked(*patterns):
    """Returns the tracked files, or without git all files outside build folders."""
    if shutil.which("git"):
        listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode == 0:
            return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    found = []
    for place, folders, names in os.walk(ROOT):
        if place == str(ROOT):
            folders[:] = [folder for folder in folders if not folder.startswith(("build", "."))]
        paths = [pathlib.Path(place, name) for name in names]
        found += [path for path in paths if any(fnmatch.fnmatch(path.relative_to(ROOT), each) for each in patterns)]
    return found


# Words with a slash that are no paths of the tree: results of builds, placeholders, counts, names of formats.
NOT_PATHS = re.compile(r"(build[\w-]*|dist|bin)/.*|[A-Z.]+/.*|\d+/\w+|drun\.\w+/\d+|init/")


def paths_in(page):
    """Returns the paths in backticks, with a slash or of a C++ source, and the paths of C++ sources in other text."""
    text = page.read_text()
    quoted = re.findall(r"`([\w.+*-]+(?:/[\w.+*-]+)+/?|[\w.+*-]+/|\w+\.(?:h|cc))`", text)
    sources = re.findall(r"(?<![\w/.<-])\w+(?:/\w+)+\.(?:h|cc)\b", text)
    return {word.rstrip("/") for word in quoted + sources if not NOT_PATHS.fullmatch(word)}


def places(files):
    """Returns all that a page may write for these files and their folders: whole paths, and their ends, which are
    relative to a folder that the page is about. The suffix of a source may be left out."""
    found = set()
    for file in files:
        path = file.relative_to(ROOT)
        for each in (path, path.with_suffix(""), *path.parents):
            found.update("/".join(each.parts[i:]) for i in range(len(each.parts)))
    return found


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

    def test_every_path_in_a_page_exists(self):
        known = places(tracked("*"))
        for page in tracked("docs/*.md", "CONTRIBUTING.md", "README.md", "*/README.md"):
            for word in paths_in(page):
                with self.subTest(page=str(page.relative_to(ROOT)), path=word):
                    exists = word in known or ("*" in word and fnmatch.filter(known, word))
                    self.assertTrue(exists, "no such file or folder")

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
