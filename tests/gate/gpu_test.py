#!/usr/bin/env python3
"""Tests scripts/gpu over the stand-ins for NCCL and CUDA's driver: its steps, its table, and how it finds libraries.

    gpu_test.py BUILD_DIRECTORY
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CUDA = BUILD / "bin/standin/libcuda_standin.so"
NCCL = BUILD / "bin/standin/libnccl_standin.so"
ONLY_ON_A_GPU = {
    "train_gpu and the CPU, 1 rank": "the stand-in runs no kernels",
    "train_gpu and the CPU, 2 ranks": "the stand-in runs no kernels",
    "RAS during a hang": "the stand-in has no RAS",
    "compute-sanitizer": "the stand-in runs no kernels",
}


class Ended:
    def __init__(self, *words, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("DRUN_", "NCCL_", "STANDIN_", "CUDA_"))}
        ended = subprocess.run([TREE / "scripts/gpu", "--build", BUILD, *words], capture_output=True, text=True, check=False,
                               env={**environment, **variables})
        self.code, self.out, self.err = ended.returncode, ended.stdout, ended.stderr
        cells = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in self.out.splitlines()[4:]]
        self.rows = {name: (result, figure) for name, result, _, figure in cells}


class Gpu(unittest.TestCase):
    def test_every_step_runs_or_names_why_it_does_not(self):
        ended = Ended("--standin")
        self.assertEqual(ended.code, 0, ended.out + ended.err)
        self.assertTrue(ended.out.startswith("**Not run on hardware.** "), ended.out)
        self.assertEqual(len(ended.rows), 30, ended.out)
        for name, (result, figure) in ended.rows.items():
            self.assertEqual(result, "skipped" if name in ONLY_ON_A_GPU else "ok", ended.out)
            self.assertEqual(figure, ONLY_ON_A_GPU.get(name, figure))
            self.assertTrue(figure, name)

    def test_a_step_that_fails_does_not_stop_the_others(self):
        ended = Ended("--standin", "--only", "size 2|permission$", STANDIN_NCCL_FAULT="nothing=1")
        self.assertEqual(ended.code, 1, ended.out + ended.err)
        result, figure = ended.rows["collectives x types, world size 2 on one GPU"]
        self.assertEqual(result, "failed", ended.out)
        self.assertIn("rank 0: ", figure)
        self.assertEqual(ended.rows["two ranks on one GPU without permission"][0], "ok", ended.out)

    def test_a_step_without_end_is_stopped(self):
        ended = subprocess.run([BUILD / "bin/gpu_check", "absent_rank", "2", "1"], capture_output=True, text=True, check=False,
                               env={**os.environ, "DRUN_CUDA_LIBRARY": str(CUDA), "DRUN_NCCL_LIBRARY": str(NCCL)})
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("rank 0: not done in time", ended.stdout)

    def test_later_versions_of_nccl_share_a_gpu_without_host_names(self):
        ended = Ended("--standin", "--only", "size 2|permission$", STANDIN_NCCL_FAULT="version=23003")
        self.assertEqual(ended.code, 0, ended.out + ended.err)
        self.assertEqual(len(ended.rows), 2, ended.out)

    def test_nccl_is_found_in_a_python_package(self):
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory, "nvidia/nccl/lib")
            folder.mkdir(parents=True)
            (folder / "libnccl.so.2").symlink_to(NCCL)
            pathlib.Path(directory, "libnccl.so.2").write_text("what the loader finds is not a library")
            ended = Ended("--only", "^load", PYTHONPATH=directory, LD_LIBRARY_PATH=directory, DRUN_CUDA_LIBRARY=str(CUDA))
            self.assertEqual(ended.code, 0, ended.out + ended.err)
            self.assertRegex(ended.out, r"^[0-9-]+: stand-in x 1, driver \S+, CUDA 13\.0, NCCL 2\.28\.9, ")
            self.assertIn(str(folder), ended.err)

    def test_without_a_gpu_the_reason_is_named(self):
        ended = Ended(DRUN_CUDA_LIBRARY="/nowhere/libcuda.so.1")
        self.assertEqual(ended.code, 1)
        self.assertEqual(ended.out, "")
        self.assertIn("no GPU can be used here: ", ended.err)
        self.assertIn("cannot load /nowhere/libcuda.so.1", ended.err)

    def test_unknown_words_are_rejected(self):
        for words, text in (["--all"], "unknown argument '--all'"), (["--only"], "--only needs a value"), \
                (["--standin", "--only", "no such step"], "no step matches"), (["--build", "/nowhere"], "/nowhere/bin/gpu_check does not exist"):
            ended = Ended(*words)
            self.assertEqual(ended.code, 1, ended.err)
            self.assertIn(text, ended.err)


unittest.main()
