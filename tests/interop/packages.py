#!/usr/bin/env python3
"""Tests scripts/package with programs that are already built: the wheel, and the check of their symbols.

    packages.py BIN_DIRECTORY SOURCE_DIRECTORY
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

BIN, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
PACKAGING = SOURCE / "scripts/packaging"


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.top = pathlib.Path(cls.directory.name)
        root = cls.top / "root"
        (root / "bin").mkdir(parents=True)
        (root / "share/man/man1").mkdir(parents=True)
        (root / "share/man/man1/drun.1").write_text(".TH drun 1\n")
        for program in ("drun", "drun-perf", "drun-probe"):
            shutil.copy(BIN / program, root / "bin")
        made = run(sys.executable, PACKAGING / "make_wheel.py", "--version", "1.2.3", "--machine", os.uname().machine,
                   "--root", root, "--output", cls.top)
        assert made.returncode == 0, made.stderr
        [cls.wheel] = cls.top.glob("*.whl")

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_name_and_members(self):
        name = r"^drun_launcher-1\.2\.3-py3-none-manylinux_2_(\d+)_" + os.uname().machine + r"\.whl$"
        self.assertRegex(self.wheel.name, name)
        # The documentation promises no older glibc, although the symbols may allow one.
        self.assertGreaterEqual(int(re.match(name, self.wheel.name)[1]), 28)
        with zipfile.ZipFile(self.wheel) as members:
            names = members.namelist()
            self.assertIsNone(members.testzip())
        for name in ("drun/__main__.py", "drun_launcher-1.2.3.data/scripts/drun",
                     "drun_launcher-1.2.3.data/scripts/drun-probe", "drun_launcher-1.2.3.data/data/share/man/man1/drun.1",
                     "drun_launcher-1.2.3.dist-info/RECORD"):
            self.assertIn(name, names)
        self.assertFalse([name for name in names if name.endswith("torchrun")])

    def test_pip_installs_it_and_the_module_runs_the_program(self):
        target = self.top / "target"
        pip = run(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
                  "--target", target, self.wheel)
        if "No module named pip" in pip.stderr:
            self.skipTest("this test is skipped: this Python has no pip")
        self.assertEqual(pip.returncode, 0, pip.stderr)
        environment = {**os.environ, "PYTHONPATH": str(target)}
        shown = run(sys.executable, "-m", "drun", "--version", env=environment)
        self.assertRegex(shown.stdout, r"^drun \d+\.\d+\.\d+ \(commit ")
        job = run(sys.executable, "-m", "drun", "--standalone", "--nproc-per-node=2", "sh", "-c", "echo rank=$RANK; exit 3",
                  env=environment)
        self.assertEqual(job.returncode, 3, job.stderr)

    def test_same_input_same_bytes(self):
        again = self.top / "again"
        again.mkdir()
        run(sys.executable, PACKAGING / "make_wheel.py", "--version", "1.2.3", "--machine", os.uname().machine, "--root",
            self.top / "root", "--output", again)
        [wheel] = again.glob("*.whl")
        self.assertEqual(wheel.read_bytes(), self.wheel.read_bytes())


class Symbols(unittest.TestCase):
    def test_a_program_for_this_system_alone_is_named_with_what_it_needs(self):
        checked = run(sys.executable, PACKAGING / "check_symbols.py", os.uname().machine, BIN / "drun")
        self.assertNotEqual(checked.returncode, 0)
        self.assertRegex(checked.stderr, r"drun: needs (glibc 2\.\d+ for \w+|lib)")

    def test_another_machine_and_no_program_are_errors(self):
        other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
        checked = run(sys.executable, PACKAGING / "check_symbols.py", other, BIN / "drun")
        self.assertIn(f"drun: is not for {other}", checked.stderr)
        self.assertNotEqual(run(sys.executable, PACKAGING / "check_symbols.py", other).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
