#!/usr/bin/env python3
"""Tests the gate itself: if CI is set, a missing tool or a skip that is not allowed fails the run."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
SKIPS = TREE / "tests/gate/skips.py"
# Programs that the scripts run without looking for them first.
PROGRAMS = "bash env sh dirname find sort sed mkdir basename grep nproc cat rm tail xargs".split()


def skips(cases, *options):
    """Runs skips.py on test cases (name, status, output) in CTest's format. Returns its exit code and output."""
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="x">')
        for name, status, output in cases:
            mark = '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>' if status == "notrun" else ""
            file.write(f'<testcase name="{name}" status="{status}">{mark}<system-out>{output}</system-out></testcase>')
        file.write("</testsuite>\n")
        file.flush()
        ended = subprocess.run([sys.executable, SKIPS, file.name, *options], capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr


class Names(unittest.TestCase):
    def test_no_test_is_named_like_an_option(self):
        """CTest passes a test's name to the test program. Catch2 would parse a name like --help as an option, and pass."""
        for source in (TREE / "tests").rglob("*.cc"):
            names = re.findall(r'TEST_CASE\("([^A-Za-z0-9$][^"]*)"', source.read_text(errors="replace"))
            self.assertEqual(names, [], source)


class OtherSystems(unittest.TestCase):
    def ask(self, **programs):
        """Runs install_packages with these programs (name: shell script) instead of apt-get. Returns its exit code and output."""
        with tempfile.TemporaryDirectory() as directory:
            place = pathlib.Path(directory)
            for name in ("bash", "cat", "dirname", "mkdir", "sed"):
                (place / name).symlink_to(shutil.which(name))
            for name, script in programs.items():
                (place / name).write_text(f"#!/bin/bash\n{script}\n")
                (place / name).chmod(0o755)
            ended = subprocess.run([place / "bash", "-c", ". scripts/lib.sh; install_packages g++"], cwd=TREE, env={"PATH": directory},
                                   capture_output=True, text=True, check=False)
            return ended.returncode, ended.stdout + ended.stderr

    def test_other_package_managers_get_their_own_names(self):
        for program, name in (("dnf", "boost-devel"), ("zypper", "libboost_headers-devel")):
            code, output = self.ask(ldd="echo ldd (GNU libc) 2.34", **{program: "exit 1"})
            self.assertEqual(code, 0, output)
            self.assertIn(f"{program} install", output)
            self.assertIn(name, output)

    def test_musl_is_named_before_anything_is_installed(self):
        code, output = self.ask(ldd="echo 'musl libc (x86_64)' >&2; exit 1", dnf="exit 1")
        self.assertEqual(code, 1, output)
        self.assertIn("this system has musl; drun needs glibc", output)


class Skips(unittest.TestCase):
    RUN = ("edge: it runs", "run", "All tests passed")
    NO_GPU = ("edge: on a GPU", "notrun", "a_test.cc:3: warning:\n  skipped: no NVIDIA GPU: libcuda.so.1 is\n  missing\n\nthis test is skipped\n")
    NO_SSHD = ("e2e: over ssh", "notrun", "a_test.cc:3: warning:\n  skipped: no sshd of the\n  test's own: no ssh\n\nthis test is skipped\n")

    def test_an_allowed_reason_passes(self):
        code, output = skips([self.RUN, self.NO_GPU], "--strict")
        self.assertEqual(code, 0, output)
        self.assertIn("skipped: no NVIDIA GPU: libcuda.so.1 is missing (1)", output)

    def test_another_reason_fails_and_the_test_is_named(self):
        code, output = skips([self.RUN, self.NO_GPU, self.NO_SSHD], "--strict")
        self.assertEqual(code, 1, output)
        self.assertIn("not allowed: e2e: over ssh: no sshd of the test's own: no ssh", output)
        self.assertNotIn("not allowed: edge: on a GPU", output)

    def test_without_strict_every_reason_is_only_printed(self):
        code, output = skips([self.NO_SSHD])
        self.assertEqual(code, 0, output)
        self.assertIn("skipped: no sshd of the test's own: no ssh (1)", output)

    def test_more_reasons_can_be_allowed(self):
        self.assertEqual(skips([self.NO_SSHD], "--strict", "--allow=no sshd")[0], 0)

    def test_a_skip_without_a_reason_fails(self):
        code, output = skips([("e2e: it", "notrun", "this test is skipped")], "--strict")
        self.assertEqual(code, 1, output)
        self.assertIn("e2e: it: no reason given", output)
        self.assertEqual(skips([("e2e: it", "disabled", "")], "--strict")[0], 1)

    def test_a_test_that_passes_and_skips_a_part_counts(self):
        self.assertEqual(skips([("e2e: it", "run", "-- skipped: no pkg-config\n-- done")], "--strict")[0], 1)

    def test_each_reason_of_a_test_counts(self):
        both = ("e2e: it", "notrun", "w:\n  skipped: no NVIDIA GPU\n\nw:\n  skipped: no python\n\nthis test is skipped\n")
        code, output = skips([both], "--strict")
        self.assertEqual(code, 1, output)
        self.assertIn("e2e: it: no python", output)


class Tools(unittest.TestCase):
    """Runs scripts/check and scripts/fuzz in a small tree, with a PATH that lacks tools."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        for name in ("launcher", "rendezvous", "agent", "worker_lib", "tests/fuzz", "bin"):
            (self.place / name).mkdir(parents=True)
        shutil.copytree(TREE / "scripts", self.place / "scripts")
        for name in PROGRAMS:
            (self.place / "bin" / name).symlink_to(shutil.which(name))

    def run_script(self, *words, is_ci, **variables):
        environment = {"PATH": str(self.place / "bin"), "HOME": str(self.place), **variables}
        if is_ci:
            environment["CI"] = "true"
        ended = subprocess.run([self.place / "scripts" / words[0], *words[1:]], env=environment, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    def test_the_check_names_every_missing_tool_and_fails_where_ci_is_set(self):
        code, output = self.run_script("check", is_ci=True)
        self.assertEqual(code, 1, output)
        for tool in ("clang-format 14", "shellcheck", "clang-tidy"):
            self.assertIn(f"needs {tool}", output)

    def test_elsewhere_the_check_names_them_and_goes_on(self):
        code, output = self.run_script("check", is_ci=False)
        self.assertEqual(code, 0, output)
        self.assertIn("needs shellcheck", output)

    def test_the_check_fails_where_a_unit_of_quickstart_does_not_compile(self):
        for name in ("cut", "false", "sha256sum", "touch", "true"):
            (self.place / "bin" / name).symlink_to(shutil.which(name))
        for name in ("rendezvous", "agent"):
            (self.place / name / "a.h").touch()
        for program, text in (("cmake", ""), ("ninja", 'echo "$COMPILER -c a/Unity/b.cxx"; echo "false -c a/net/asio.cc"')):
            (self.place / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
            (self.place / "bin" / program).chmod(0o755)
        for name in ("CMakeLists.txt", "CMakePresets.json", "agent/CMakeLists.txt"):
            (self.place / name).touch()
        code, output = self.run_script("check", "--quick", is_ci=False, COMPILER="false")
        self.assertEqual(code, 1, output)
        for expected in ("its units parse", "unchanged"):
            code, output = self.run_script("check", is_ci=False, COMPILER="true")
            self.assertEqual(code, 0, output)
            self.assertIn("scripts/quickstart: " + expected, output)

    def test_fuzzing_without_libfuzzer_fails_where_ci_is_set(self):
        code, output = self.run_script("fuzz", "1", is_ci=True)
        self.assertEqual(code, 1, output)
        self.assertIn("libFuzzer", output)
        self.assertEqual(self.run_script("fuzz", "1", is_ci=False)[0], 0)


if __name__ == "__main__":
    unittest.main()
