#!/usr/bin/env python3
"""Tests scripts/quickstart: its arguments, the packages that it installs, its build, and the job that it runs.

    quickstart_test.py BIN_DIRECTORY

The tests run in a copy of scripts/ with stand-ins for the programs that install and build. The job also runs with
the real programs.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = "bash env sh cp dirname mkdir rm tail tee cat grep sort nproc".split()

# Each logs its arguments. The test adds further behavior.
STAND_INS = {
    "id": "echo ${ID:-0}",
    "dpkg-query": 'echo "${STATUS:-installed}"',
    "apt-get": '[ ! -e "$PLACE/no-lists" ] || [ "${*#*update}" != "$*" ] || exit 100; [ "${*#*update}" = "$*" ] || rm -f "$PLACE/no-lists"',
    "cmake": 'case $* in *--build*) mkdir -p build/bin/examples; cp "$PLACE"/built/drun build/bin;'
             ' cp "$PLACE"/built/train build/bin/examples;; esac',
    "g++": "", "ninja": "", "python3": "",
}
DRUN = """#!/bin/sh
echo "drun $*" >> "$PLACE/calls"
for word; do case $word in --report=*) echo '{}' > ${word#*=};; esac; done
echo "lines of the job"
exit ${EXIT:-0}
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        for name in ("bin", "built"):
            (self.place / name).mkdir()
        shutil.copytree(TREE / "scripts", self.place / "scripts")
        for name in PROGRAMS:
            (self.place / "bin" / name).symlink_to(shutil.which(name))
        for name, text in STAND_INS.items():
            self.program(self.place / "bin" / name, f'#!/bin/sh\necho "{name} $*" >> "$PLACE/calls"\n{text}\n')
        self.program(self.place / "built/drun", DRUN)
        self.program(self.place / "built/train", "#!/bin/sh\n")

    @staticmethod
    def program(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def run_it(self, *words, script="quickstart", **variables):
        ended = subprocess.run([self.place / "scripts" / script, *words], capture_output=True, text=True, check=False, timeout=200,
                               stdin=subprocess.DEVNULL,
                               env={"PATH": str(self.place / "bin"), "PLACE": str(self.place), "HOME": str(self.place), **variables})
        return ended.returncode, ended.stdout + ended.stderr

    def calls(self, program):
        path = self.place / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == program]

    def build_packages(self):
        text = (TREE / "scripts/lib.sh").read_text()
        return re.search(r"(?s)build_packages=\((.*?)\)", text).group(1).split()

    def test_the_readme_names_scripts_that_are_there(self):
        named = set(re.findall(r"(?m)^    (scripts/\w+)", (TREE / "README.md").read_text()))
        self.assertLessEqual({"scripts/quickstart", "scripts/test"}, named)
        for name in named:
            self.assertTrue((TREE / name).stat().st_mode & 0o111, name)

    def test_an_argument_is_refused_before_anything_is_done(self):
        for script in ("quickstart", "test"):
            for word in ("--fast", "-h", "3"):
                code, output = self.run_it(word, script=script)
                self.assertEqual((code, output.strip()), (1, f"{script}: unknown argument '{word}'; usage: scripts/{script}"))
        self.assertEqual(self.calls("cmake") + self.calls("apt-get"), [])
        self.assertFalse((self.place / "build").exists())

    def test_from_packages_to_a_finished_job(self):
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        steps = re.findall(r"(?m)^\[(\d)/(\d)\] ", output)
        self.assertEqual(steps, [("1", "3"), ("2", "3"), ("3", "3")], output)
        presets = {preset["name"]: preset for preset in json.loads((TREE / "CMakePresets.json").read_text())["configurePresets"]}
        configure, build = self.calls("cmake")
        self.assertEqual(configure[:2], ["--preset", "quickstart"])
        self.assertEqual(build, ["--build", "--preset", "quickstart", "--target", "quickstart"])
        # In the same directory, the release preset undoes what this one sets.
        quick, release = presets["quickstart"], presets["release"]
        self.assertEqual((quick["inherits"], quick["cacheVariables"]["DRUN_TESTS"]), ("release", "OFF"))
        for name, values in {"DRUN_QUICK_BUILD": ("ON", "OFF"), "DRUN_WITH_GLOO": ("OFF", "AUTO")}.items():
            self.assertEqual((quick["cacheVariables"][name], release["cacheVariables"][name]), values)
        (words,) = self.calls("drun")
        self.assertEqual(words[:2], ["--local-nodes=3", "--nproc-per-node=4"])
        self.assertEqual(words[-1], "build/bin/examples/train")
        self.assertIn("lines of the job", output)
        self.assertIn("The job is done.", output)
        self.assertTrue((self.place / re.search(r"(?m)^  outcome  (.*)$", output).group(1)).exists())

    def test_the_exit_code_is_the_jobs(self):
        code, output = self.run_it(EXIT="7")
        self.assertEqual(code, 7, output)
        self.assertIn("The job failed: exit code 7.", output)

    def test_missing_packages_are_installed_with_new_lists_where_the_old_ones_do_not_do(self):
        (self.place / "no-lists").touch()
        code, output = self.run_it(STATUS="not-installed")
        self.assertEqual(code, 0, output)
        kinds = [next(word for word in words if word in ("install", "update")) for words in self.calls("apt-get")]
        self.assertEqual(kinds[:3], ["install", "update", "install"])
        asked = {word for words in self.calls("apt-get") for word in words}
        self.assertLessEqual({"libboost-dev", "libgloo-dev", "--no-install-recommends"}, asked)
        self.assertNotIn("cmake", asked, "which is here")

    def test_without_root_the_command_to_ask_for_is_shown(self):
        code, output = self.run_it(STATUS="not-installed", ID="1000")
        self.assertEqual(code, 1, output)
        self.assertEqual(self.calls("apt-get"), [])
        announced = re.search(r"(?m)^  (apt-get install .*)$", output).group(1).split()
        here = {"g++", "cmake", "ninja-build"}
        self.assertLessEqual(set(self.build_packages()) - here, set(announced))
        self.assertEqual(announced[2], "--no-install-recommends")
        self.assertEqual([word for word in announced[3:] if word.startswith("-")], [])

    def test_the_job_with_the_real_programs(self):
        for source, name in ((BIN / "drun", "drun"), (BIN / "examples/train", "train")):
            shutil.copy(source, self.place / "built" / name)
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        report = json.loads((self.place / "build/quickstart/report.json").read_text())
        self.assertEqual((report["outcome"], report["nodes"], report["workers"]), ("succeeded", 3, 12))
        for node in range(3):
            folder = self.place / f"build/quickstart/node{node}"
            self.assertEqual(len(list(folder.glob("*/attempt_0/*/stdout.log"))), 4)
        # The last lines of its output are commands and files.
        self.assertIn("  outcome  build/quickstart/report.json", output)
        self.assertIn("[node0:0]: ", output)


def main():
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(not result.wasSuccessful())


main()
