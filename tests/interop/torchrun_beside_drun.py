#!/usr/bin/env python3
"""Compares torchrun and drun with the same command lines: options, environment, arguments, lines and log files.

    torchrun_beside_drun.py DRUN

Needs a current torch: executes itself again with the Python in DRUN_TORCH_PYTHON. Imports torch once. Each torchrun is
a fork of this process that calls the main() of the console script.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

# Each worker writes its arguments and environment to $RECORDS, and prints lines that are the same under both launchers.
WORKER = """
import json, os, pathlib, sys
rank, attempt = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
record = {"environment": dict(os.environ), "arguments": sys.argv[1:], "directory": os.getcwd(),
          "is_unbuffered": sys.stdout.write_through}
pathlib.Path(os.environ["RECORDS"], f"{rank}.{attempt}.json").write_text(json.dumps(record))
print(f"apple of worker {rank}, attempt {attempt}\\npear of worker {rank}")
print(f"error of worker {rank}, attempt {attempt}", file=sys.stderr)
sys.exit(int(os.environ.get("FAILS", "0")) if attempt < int(os.environ.get("FAILURES", "1")) else 0)
"""

# Options of torchrun that drun does not have.
WITHOUT = {
    "--print-completion": "prints a completion script and needs a Python package of its own",
    "--help": "ends the program",
}
# A value for each option without choices for which neither 1 nor the default is valid.
SAMPLES = {
    "--rdzv-endpoint": "localhost:29999", "--rdzv-conf": "join_timeout=9", "--log-dir": "logs",
    "--local-ranks-filter": "0", "--duplicate-stdout-filters": "apple,pear",
    "--duplicate-stderr-filters": "apple", "--local-addr": "127.0.0.1", "--logs-specs": "default",
    "--log-line-prefix-template": "${rank}: ", "--rdzv-backend": "static", "--node-rank": "0",
}
# Variables that differ by design. Tests compare only their fixed parts: see normal().
DIFFERENT = {
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER": "drun shortens Gloo's exchange of addresses",
    "GLOO_ENABLE_STORE_V2_API": "drun shortens Gloo's exchange of addresses",
    "DRUN_ROUND": "drun's own",
    "DRUN_PROGRESS_FILE": "drun's own",
    "DRUN_HEARTBEAT_FILE": "drun's own",
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Run:
    """One job under one launcher: `nodes` agents with the same arguments, in a separate directory."""

    def __init__(self, start, words, variables, nodes):
        self.place = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.place.name)
        for name in ("records", "logs"):
            (self.path / name).mkdir()
        (self.path / "worker.py").write_text(WORKER)
        environment = {"PATH": os.environ["PATH"], "PYTHON_EXEC": sys.executable, "HOME": os.environ.get("HOME", "/"),
                       "RECORDS": str(self.path / "records"), "KEPT": "as is = ${HOME}", **variables}
        agents = []
        for node in range(nodes):
            own = [word.replace("NODE", str(node)) for word in words]
            agents.append(start(own, environment, self.path, self.path / f"out{node}", self.path / f"err{node}"))
        self.codes = [wait() for wait in agents]
        self.out = "".join((self.path / f"out{node}").read_text() for node in range(nodes))
        self.err = "".join((self.path / f"err{node}").read_text() for node in range(nodes))
        self.records = {p.name: json.loads(p.read_text()) for p in (self.path / "records").iterdir()}

    def worker_lines(self):
        """Returns the console lines of the workers, sorted, without the launcher's log and the lines that its report repeats."""
        def of(text):
            return sorted(line for line in text.splitlines() if " of worker " in line and not line.startswith("  error  "))
        return {"stdout": of(self.out), "stderr": of(self.err)}

    def normal(self, text):
        """Replaces the random parts of a path: the directory of this run, a random run id, the suffix of mktemp."""
        text = text.replace(f"{self.path}/", "")
        parts = text.split("/")
        for i, part in enumerate(parts):
            if i and parts[i - 1] == "logs":  # the random suffixes differ; Python's may contain a _
                parts[i] = self.normal_id(part[:part.index("_")]) + "_RANDOM"
        return "/".join(parts)

    @staticmethod
    def normal_id(run_id):
        return "RANDOM" if len(run_id) >= 32 else run_id

    def files(self):
        """Returns {relative path: text, or None for a directory} for everything below logs/."""
        root = self.path / "logs"
        found = {}
        for path in sorted(root.rglob("*")):
            name = self.normal(f"logs/{path.relative_to(root)}")
            found[name] = None if path.is_dir() else "\n".join(sorted(path.read_text().splitlines()))
        return found

    def environment(self, record, is_port_given):
        environment = {name: self.normal(value) for name, value in self.records[record]["environment"].items()}
        if not environment["TORCHELASTIC_ERROR_FILE"].startswith("logs/"):  # each launcher uses separate temporary directories
            # Without --log-dir, torchrun has a directory per worker; drun has the files of an attempt in one directory.
            environment["TORCHELASTIC_ERROR_FILE"] = re.sub(r"^/.*/(attempt_\d+)/(?:(\d+)/error|error_(\d+))\.json$",
                                                            lambda m: f"{m[1]}/{m[2] or m[3]}", environment["TORCHELASTIC_ERROR_FILE"])
        environment["TORCHELASTIC_RUN_ID"] = self.normal_id(environment["TORCHELASTIC_RUN_ID"])
        if not is_port_given:  # in this case, the launcher chooses a free port on this machine
            environment["MASTER_PORT"] = "FREE" if int(environment["MASTER_PORT"]) > 0 else "none"
            environment["MASTER_ADDR"] = "HERE" if socket.gethostbyname(environment["MASTER_ADDR"]).startswith("127.") else environment["MASTER_ADDR"]
        return {name: value for name, value in environment.items() if name not in DIFFERENT and name not in ("_", "PWD")}


def start_torchrun(words, environment, directory, out, err):
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        os.chdir(directory)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["torchrun", *words]
        code = torchrun.main(words) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # a traceback of the launcher, as Python prints it
        print(error, file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Beside(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.link = str(pathlib.Path(directory.name, "torchrun"))  # selects torchrun's behavior where the two differ
        os.symlink(DRUN, cls.link)

    def start_drun(self, words, environment, directory, out, err):
        with open(out, "w") as to, open(err, "w") as errors:
            return subprocess.Popen([self.link, *words], env=environment, cwd=directory, stdout=to, stderr=errors,
                                    stdin=subprocess.DEVNULL).wait

    def both(self, words, nodes=1, is_port_given=False, has_records=True, **variables):
        """Runs the arguments under both launchers and compares the workers' records. Returns the runs of torchrun and drun."""
        words = [str(word) for word in words]
        theirs = Run(start_torchrun, words, variables, nodes)
        ours = Run(self.start_drun, words, variables, nodes)
        for run in (theirs, ours):
            self.addCleanup(run.place.cleanup)
        said = f"\ntorchrun: {theirs.codes} {theirs.err}\ndrun: {ours.codes} {ours.err}"
        self.assertEqual(theirs.codes, ours.codes, said)
        self.assertEqual(sorted(theirs.records), sorted(ours.records), said)
        self.assertEqual(bool(theirs.records), has_records, said)
        for record in theirs.records:
            self.assertEqual(theirs.environment(record, is_port_given), ours.environment(record, is_port_given), record)
            for what in ("arguments", "is_unbuffered"):
                self.assertEqual(theirs.records[record][what], ours.records[record][what], record)
            self.assertEqual(ours.records[record]["directory"], str(ours.path))
            self.assertEqual(theirs.records[record]["environment"].get("KEPT"), "as is = ${HOME}")
        self.assertEqual(theirs.worker_lines(), ours.worker_lines(), said)
        self.assertEqual(theirs.files(), ours.files())
        return theirs, ours

    # Options.

    def accepts(self, words, **variables):
        ended = subprocess.run([DRUN, "--dry-run", *words, "worker.py"], capture_output=True, text=True, check=False,
                               env={"PATH": os.environ["PATH"], **variables})
        return ended.returncode == 0, f"{words} {variables}: {ended.stderr}"

    def test_every_option_and_every_spelling_of_it_is_accepted(self):
        checked = 0
        for action in torchrun.get_args_parser()._actions:
            names = action.option_strings
            if not names or set(names) & WITHOUT.keys():
                continue
            is_flag = action.nargs == 0
            value = next((SAMPLES[name] for name in names if name in SAMPLES), None)
            if value is None:
                value = str(action.choices[0]) if action.choices else "1" if action.type in (int, float) else str(action.default or "1")
            if "--numa-binding" in names:  # needs a GPU to select CPUs
                self.assertEqual(set(action.choices), {"node", "socket", "exclusive", "core-complex"})
                for name in names:
                    for choice in action.choices:
                        is_accepted, said = self.accepts([f"{name}={choice}"])
                        self.assertTrue(is_accepted or "no GPU is visible" in said, said)
                continue
            for name in names:
                with self.subTest(name):
                    forms = [[name]] if is_flag else [[name, value]] + ([[f"{name}={value}"]] if name.startswith("--") else [[name + value]])
                    for words in forms:
                        self.assertTrue(*self.accepts(words))
            if type(action).__name__ in ("env", "check_env"):
                with self.subTest(f"PET_{action.dest.upper()}"):
                    self.assertTrue(*self.accepts([], **{f"PET_{action.dest.upper()}": "1" if is_flag else value}))
            checked += 1
        self.assertGreater(checked, 25)

    def test_what_a_parser_without_an_option_looks_like_is_rejected(self):
        self.assertFalse(self.accepts(["--no-such-option=1"])[0])

    # Jobs.

    def test_one_worker_and_no_options(self):
        self.both(["worker.py", "a", "--epochs=3", "-x", "two words", ""])

    def test_arguments_that_look_like_options_are_the_programs_own(self):
        self.both(["--nproc-per-node", "1", "worker.py", "--nproc-per-node=9", "--", "--log-dir", "x", "-m"])

    def test_the_local_rank_in_an_argument_is_replaced(self):
        self.both(["--nproc_per_node=2", "worker.py", "--device=${local_rank}", "$$${local_rank}", "$local_rank", "${rank}"])

    def test_roles_restarts_and_a_run_id(self):
        self.both(["--nproc-per-node=2", "--role=trainer", "--max-restarts=2", "--rdzv-id=job7", "--master-port", free_port(),
                   "worker.py"], is_port_given=True)

    def test_one_node_alone_on_a_free_port(self):
        self.both(["--standalone", "--nproc-per-node=2", "-t", "3", "--log-dir=logs", "worker.py"])

    def test_variables_stand_for_options(self):
        self.both(["worker.py"], PET_NPROC_PER_NODE="3", PET_ROLE="r", PET_MAX_RESTARTS="1", PET_TEE="3", PET_LOG_DIR="logs",
                  PET_LOG_LINE_PREFIX_TEMPLATE="${rank}> ")

    def test_the_command_line_wins_over_variables(self):
        self.both(["--nproc-per-node=2", "--role=given", "worker.py"], PET_NPROC_PER_NODE="3", PET_ROLE="r")

    def test_two_nodes_with_ranks_of_their_own(self):
        self.both(["--nnodes=2", "--nproc-per-node=2", "--node-rank=NODE", "--master-addr=127.0.0.1", "--master-port", free_port(),
                   "worker.py"], nodes=2, is_port_given=True)

    def test_one_node_that_meets_at_an_endpoint(self):
        self.both(["--nnodes=1:1", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint", f"localhost:{free_port()}",
                   "--rdzv-id=e", "--local-addr=127.0.0.1", "worker.py"])

    def test_a_module_and_a_program_that_is_not_python(self):
        self.both(["-m", "worker", "a", "-m"])
        self.both(["--no-python", sys.executable, "-u", "worker.py", "--no-python"])

    def test_a_virtual_local_rank(self):
        self.both(["--nproc-per-node=2", "--virtual-local-rank", "worker.py"], CUDA_VISIBLE_DEVICES="5,7")
        self.both(["--nproc-per-node=2", "--virtual-local-rank", "worker.py"])

    def test_signals_and_threads_in_the_workers_environment(self):
        theirs, _ = self.both(["--nproc-per-node=2", "--signals-to-handle=SIGTERM,SIGUSR1", "worker.py"], OMP_NUM_THREADS="3",
                              TORCHELASTIC_SIGNALS_TO_HANDLE="SIGHUP", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
        environment = theirs.records["0.0.json"]["environment"]
        self.assertEqual(environment["TORCHELASTIC_SIGNALS_TO_HANDLE"], "SIGTERM,SIGUSR1")

    # Lines and log files.

    def test_streams_to_files(self):
        self.both(["--nproc-per-node=2", "-r", "0:1,1:2", "--log-dir=logs", "--rdzv-id=j", "--master-port", free_port(), "worker.py"],
                  is_port_given=True)

    def test_labels_filters_and_ranks_on_the_console(self):
        _, ours = self.both(["--nproc-per-node=2", "--tee=3", "--local_ranks_filter=1", "--log_dir=logs", "--log-line-prefix-template",
                             "${hostname}:${rank}/${local_rank} ${role_name} ${other}$$: ", "--duplicate-stdout-filters=apple,zebra",
                             "worker.py"])
        self.assertIn(f"{socket.gethostname()}:1/1 default ${{other}}$: pear of worker 1", ours.worker_lines()["stdout"])

    def test_the_label_of_the_variable(self):
        self.both(["-t", "3", "--log-dir=logs", "worker.py"], TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="<${rank}>")
        self.both(["-t", "3", "--log-dir=logs", "worker.py"])

    def test_no_log_files(self):
        self.both(["--nproc-per-node=2", "--log-dir=/dev/null", "worker.py"])

    def test_a_restart_has_a_directory_and_a_count_of_its_own(self):
        self.both(["--max-restarts=2", "-r", "3", "--log-dir=logs", "worker.py"], FAILS="7", FAILURES="1")

    # Exit codes.

    def test_a_failed_job_ends_with_1_under_torchruns_name(self):
        theirs, _ = self.both(["worker.py"], FAILS="7")
        self.assertEqual(theirs.codes, [1])

    def test_a_usage_error_ends_with_2(self):
        theirs, _ = self.both(["--no-such-option", "worker.py"], has_records=False)
        self.assertEqual(theirs.codes, [2])


def main():
    global DRUN, torchrun
    parser = argparse.ArgumentParser()
    parser.add_argument("drun")
    arguments, rest = parser.parse_known_args()
    DRUN = os.path.abspath(arguments.drun)
    python = os.environ.get("DRUN_TORCH_PYTHON", "")
    if python and os.environ.get("DRUN_TORCH_TRIED") != python:
        os.environ["DRUN_TORCH_TRIED"] = python
        if os.access(python, os.X_OK):
            os.execv(python, [python, *sys.argv])
    try:
        import torch.distributed.run as torchrun
    except Exception as error:  # treats a broken installation as missing
        torchrun = None
        print(f"{sys.executable}: {error}")
    if torchrun is None or not python:
        print("skipped: DRUN_TORCH_PYTHON names no Python with a current torch\nthis test is skipped")
        return
    for name in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_", "DRUN_", "SLURM_"))]:
        del os.environ[name]
    unittest.main(argv=[sys.argv[0], *rest])


main()
