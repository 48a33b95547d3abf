#!/usr/bin/env python3
"""Compiles the examples in the public headers of worker_lib, and the programs in the documentation, as C++17 (those in
Python as Python).

    doc_programs.py CXX

An example in a header follows an empty comment line and is indented by five spaces; `group` is a ProcessGroup. A program in
a page is an indented block that begins with #include or import. Programs with MPI need mpicxx and its headers.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "worker_lib/include"
HEADERS = ("process_group.h", "work.h", "elements.h", "device_mesh.h")
CXX = sys.argv.pop()

PRELUDE = """#include <thread>
#include "drun/device_mesh.h"
#include "drun/process_group.h"
"""


def header_examples(text):
    """Returns each example with its line number."""
    examples = []
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        if not re.match(r"//     \S", line) or lines[number - 1] != "//":
            continue
        end = number
        while lines[end] == "//" or lines[end].startswith("//     "):
            end += 1
        examples.append((number + 1, [each[2:] for each in lines[number:end]]))
    return examples


def programs(text):
    """Returns each program of a page."""
    blocks = re.findall(r"(?m)^((?:    .*\n|\n)+)", text)
    blocks = [re.sub(r"(?m)^    ", "", block).strip("\n") + "\n" for block in blocks]
    # Another block can follow a C++ program.
    return [re.sub(r"(?s)(\nint main.*?\n}\n).*", r"\1", block) for block in blocks if re.match(r"#include |import ", block)]


def has_mpi():
    words = ["mpicxx", "-fsyntax-only", "-x", "c++", "-"]
    return shutil.which("mpicxx") and subprocess.run(words, input="#include <mpi.h>\n", text=True, stderr=subprocess.DEVNULL).returncode == 0


class Programs(unittest.TestCase):
    def compiles(self, compiler, source):
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "program.cc"
            path.write_text(source)
            ended = subprocess.run([compiler, "-std=c++17", "-Wall", "-fsyntax-only", f"-I{INCLUDE}", path],
                                   capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_examples_in_headers(self):
        for header in HEADERS:
            path = INCLUDE / "drun" / header
            source = PRELUDE
            examples = header_examples(path.read_text())
            self.assertGreater(len(examples), 0, header)
            for number, code in examples:
                source += f"void example_{number}(drun::ProcessGroup& group) {{ static_cast<void>(group); {{\n"
                source += f'#line {number} "{path}"\n' + "\n".join(code) + "\n} }\n"
            with self.subTest(header=header):
                self.compiles(CXX, source)

    def test_programs_in_pages(self):
        count = 0
        for page in sorted([*ROOT.glob("docs/*/*.md"), ROOT / "README.md", ROOT / "worker_lib/README.md"]):
            for program in programs(page.read_text()):
                count += 1
                with self.subTest(page=str(page.relative_to(ROOT)), program=program.split("\n")[0]):
                    if program.startswith("import "):
                        compile(program, page, "exec")
                    elif "<mpi.h>" not in program:
                        self.compiles(CXX, program)
                    elif has_mpi():
                        self.compiles("mpicxx", program)
        self.assertGreaterEqual(count, 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
