#!/usr/bin/env python3
"""Checks that --preload does not change what a program observes, and that failures of the interpreter are handled.

    preload.py DRUN

Each program runs twice, with and without --preload. Its output, exit code and traceback must be the same.
DRUN_TORCH_PYTHON names a Python with torch for the training job.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

DRUN = "drun"
PATIENCE = 120 * int(os.environ.get("DRUN_TEST_SLOWDOWN", "1"))

FACTS = """
    import json, os, resource, signal, sys, threading, time
    def stream(file):
        return [file.name, file.mode, file.encoding, file.errors, file.newlines, file.line_buffering, file.write_through,
                file.isatty(), file.seekable(), file.fileno(), type(file.buffer).__name__, file.buffer.__class__.__name__]
    def kind(number):
        try:
            return oct(os.fstat(number).st_mode)
        except OSError:
            return None
    main = sys.modules["__main__"]
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    changing = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "DRUN_PROGRESS_FILE", "PET_PRELOAD")
    facts = {
        "name": __name__, "file": __file__, "main": main.__dict__ is globals(), "argv": sys.argv, "path": sys.path,
        "orig_argv": getattr(sys, "orig_argv", None), "flags": repr(sys.flags), "spec": repr(__spec__).split(" at ")[0],
        "package": __package__, "loader": type(__loader__).__name__, "builtins": type(__builtins__).__name__,
        "globals": sorted(name for name in globals() if name.startswith("__")),
        "cmdline": open("/proc/self/cmdline").read(), "executable": sys.executable, "prefix": sys.prefix,
        "environ": [each for each in os.environ.items() if each[0] not in changing],
        "shown_environ": sorted(each for each in open("/proc/self/environ").read().split(chr(0)) if each.split("=")[0] not in changing),
        "descriptors": [[number, kind(number)] for number in range(64) if kind(number)],
        "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)],
        "same_streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "signals": [status[name] for name in ("SigBlk", "SigIgn")],
        # The C library's own, 32 and 33, have handlers once a thread has run.
        "handlers": hex(int(status["SigCgt"], 16) & ~(3 << 31)),
        "leads_group": os.getpgid(0) == os.getpid(), "parent": open("/proc/%d/comm" % os.getppid()).read(),
        "limits": [resource.getrlimit(each) for each in range(16)],
        "cpus": sorted(os.sched_getaffinity(0)), "directory": os.getcwd(), "nice": os.nice(0), "umask": os.umask(0o22),
        "native": threading.main_thread().native_id == threading.get_native_id() == os.getpid(),
        "threads": threading.active_count(), "warnings": sys.warnoptions, "hash": hash("drun"), "comm": status["Name"],
        "processor_time": time.process_time() < 30, "recursion": sys.getrecursionlimit(), "hook": sys.excepthook is sys.__excepthook__,
    }
    print(json.dumps(facts))
"""

# Each value is a program whose exit code, output and traceback must be the same.
ENDINGS = {
    "returns": "print('done')",
    "exits with a number": "import sys; sys.exit(3)",
    "exits with a text": "import sys; sys.exit('what is wrong')",
    "exits with nothing": "import sys; sys.exit()",
    "ends at once": "import os; print('x', end=''); os._exit(7)",
    "raises": "def f():\n    raise ValueError('bad')\n\nf()",
    "raises from another": "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('second') from e",
    "raises while handling": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    import json\n    json.loads('{')",
    "is no Python": "print('a'\nx = = 1",
    "cannot import": "import no_such_module",
    "is interrupted": "raise KeyboardInterrupt",
    "is killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "is terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "crashes": "import os, signal\nsignal.signal(signal.SIGSEGV, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGSEGV)",
    "has exit handlers": "import atexit\natexit.register(print, 'last')\natexit.register(print, 'first')\nraise SystemExit(4)",
    "has an exit handler that fails": "import atexit\natexit.register(lambda: 1 / 0)",
    "has a hook": "import sys\nsys.excepthook = lambda kind, value, tb: print('hook', kind.__name__, value, tb.tb_lineno, file=sys.stderr)\nraise ValueError('x')",
    "has a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(9)\nraise ValueError('x')",
    "waits for its threads": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')",
    "has a thread that fails": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t')\nt.start(); t.join()",
    "leaves a destructor": "class A:\n    def __del__(self):\n        print('deleted')\na = A()",
    "writes to both": "import sys\nfor i in range(3):\n    print(i)\n    print(-i, file=sys.stderr)",
    "reads its input": "import sys\nprint(repr(sys.stdin.read()))",
    "pickles": """
        import dataclasses, pickle
        @dataclasses.dataclass
        class Point:
            x: int
        print(pickle.loads(pickle.dumps(Point(3))), Point.__module__, pickle.dumps(Point(3)))""",
    "annotates": "x: int = 1\nprint(__annotations__ if '__annotations__' in globals() else 'none')",
    "has source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "has a docstring": "'''about'''\nprint(__doc__)",
    "forks": "import os\npid = os.fork()\nif pid == 0:\n    print('child', os.environ['RANK'])\n    os._exit(0)\nprint(os.waitpid(pid, 0)[1])",
}
for _method in ("fork", "spawn", "forkserver"):
    ENDINGS[f"uses multiprocessing by {_method}"] = f"""
        import dataclasses, multiprocessing, os
        @dataclasses.dataclass
        class Point:
            x: int
        def work(point):
            return Point(point.x + 1), os.environ["RANK"], multiprocessing.parent_process() is not None
        if __name__ == "__main__":
            multiprocessing.set_start_method("{_method}")
            with multiprocessing.Pool(2) as pool:
                print(pool.map(work, [Point(1), Point(2)]))
    """

DDP = """
    import os, sys, torch, torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.arange(64.).reshape(16, 4) / 64, torch.ones(16, 1))
    for epoch in range(2):
        for inputs, wanted in DataLoader(data, batch_size=4, num_workers=2):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
    print("sum %.6f" % sum(float(p.sum()) for p in model.parameters()))
    if hasattr(torch, "compile"):  # 2.0 and later; this backend needs no C++ compiler
        compiled = torch.compile(lambda x: torch.sin(x).sum() * 2, backend="aot_eager")
        print("compiled %.4f" % float(compiled(torch.ones(3, requires_grad=True))))
    dist.destroy_process_group()
"""


class Ended:
    def __init__(self, code, out, err, log):
        self.code, self.out, self.err, self.log = code, out, err, log


class Preload(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.place = pathlib.Path(self.directory.name)

    def write(self, name, text):
        path = self.place / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    def environment(self, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "DRUN_", "SLURM_", "PYTHON"))}
        environment.update({"PYTHON_EXEC": sys.executable, "PYTHONPATH": str(self.place), "OMP_NUM_THREADS": "1", **variables})
        return environment

    def job(self, *words, preload="json", stdin="", **variables):
        """Runs a job. Returns its exit code and the stdout and stderr of its workers."""
        logs = tempfile.mkdtemp(dir=self.place)
        options = [f"--preload={preload}"] if preload else []
        ended = subprocess.run([DRUN, "--standalone", "--redirects=3", f"--log-dir={logs}", *options, *words], input=stdin, text=True,
                               capture_output=True, env=self.environment(**variables), cwd=self.place, timeout=PATIENCE)

        def texts(name):
            text = "".join(path.read_text() for path in sorted(pathlib.Path(logs).rglob(name)))
            return re.sub("0x[0-9a-f]{8,}", "0x", text)  # addresses of objects

        return Ended(ended.returncode, texts("stdout.log"), texts("stderr.log"), ended.stderr)

    def both(self, *words, **more):
        cold = self.job(*words, preload=None, **more)
        warm = self.job(*words, **more)
        self.assertIn("preloaded json", warm.log)
        self.assertNotIn("without the preloaded", warm.log)
        return cold, warm

    # Same behavior as in a cold start.

    def facts(self, *words, **more):
        cold, warm = self.both(*words, **more)
        self.assertEqual((cold.code, warm.code), (0, 0), warm.err + warm.log)
        return json.loads(cold.out), json.loads(warm.out)

    def test_a_script_has_the_same_surroundings(self):
        self.write("facts.py", FACTS)
        for name in ("facts.py", "./facts.py", str(self.place / "facts.py")):
            with self.subTest(name):
                cold, warm = self.facts(name, "-a", "b c", PYTHONHASHSEED="7", LC_ALL="C")
                self.maxDiff = None
                self.assertEqual(cold, warm)

    def test_a_script_behind_a_link_has_the_same_surroundings(self):
        (self.place / "real").mkdir()
        self.write("real/facts.py", FACTS)
        (self.place / "link.py").symlink_to(self.place / "real" / "facts.py")
        cold, warm = self.facts("link.py", PYTHONHASHSEED="7")
        self.assertEqual(cold, warm)

    def test_a_module_has_the_same_surroundings(self):
        self.write("facts.py", FACTS)
        (self.place / "package").mkdir()
        self.write("package/__init__.py", "")
        self.write("package/__main__.py", FACTS)
        for name in ("facts", "package"):
            with self.subTest(name):
                cold, warm = self.facts("-m", name, "x", PYTHONHASHSEED="7")
                self.assertEqual(cold, warm)

    def test_variables_that_change_python_have_the_same_effect(self):
        self.write("facts.py", FACTS)
        for variables in ({"PYTHONSAFEPATH": "1"}, {"PYTHONFAULTHANDLER": "1"}, {"PYTHONIOENCODING": "latin-1:replace"},
                          {"PYTHONWARNINGS": "error"}, {"PYTHONDEVMODE": "1"}, {"LC_ALL": "POSIX"}):
            with self.subTest(variables):
                cold, warm = self.facts("facts.py", **{"PYTHONHASHSEED": "7", **variables})
                self.assertEqual(cold, warm)

    def test_a_bound_worker_has_its_cpus(self):
        self.write("facts.py", FACTS)
        cold = self.job("--bind-to=core", "facts.py", preload=None)
        if cold.code != 0:
            self.skipTest("this test is skipped: workers cannot be bound here: " + cold.log)
        warm = self.job("--bind-to=core", "facts.py")
        self.assertEqual(json.loads(cold.out)["cpus"], json.loads(warm.out)["cpus"])
        self.assertIn("preloaded json", warm.log)

    def test_programs_end_alike(self):
        for name, text in ENDINGS.items():
            with self.subTest(name):
                self.write("program.py", text)
                for words in (["program.py"], ["-m", "program"]):
                    cold, warm = self.both(*words)
                    self.assertEqual((cold.code, cold.out, cold.err), (warm.code, warm.out, warm.err))

    def test_a_module_that_does_not_exist_ends_alike(self):
        cold, warm = self.both("-m", "no_such_module")
        self.assertEqual((cold.code, cold.out, cold.err), (warm.code, warm.out, warm.err))

    def test_standard_input_reaches_rank_0(self):
        self.write("program.py", "import os, sys\nprint(os.environ['RANK'], repr(sys.stdin.read()))")
        cold, warm = self.both("--nproc-per-node=2", "--stdin=rank0", "program.py", stdin="a\r\nb\n")
        self.assertEqual((cold.code, cold.out), (warm.code, warm.out))
        self.assertIn("0 'a\\r\\nb\\n'", warm.out)

    def test_a_signal_to_drun_reaches_workers(self):
        self.write("program.py", """
            import signal, sys, time
            def handle(number, frame):
                print("got", number)
                sys.exit(5)
            signal.signal(signal.SIGTERM, handle)
            open("begun", "w").close()
            time.sleep(600)
        """)
        codes = []
        for options in ([], ["--preload=json"]):
            (self.place / "begun").unlink(missing_ok=True)
            with subprocess.Popen([DRUN, "--standalone", *options, "program.py"], env=self.environment(), cwd=self.place, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True) as drun:
                self.wait_for(lambda: (self.place / "begun").exists())
                drun.send_signal(signal.SIGTERM)
                codes.append((drun.communicate(timeout=PATIENCE)[0], drun.returncode))
        self.assertEqual(codes[0], codes[1])
        self.assertEqual(codes[0][0], "got 15\n")

    def test_ranks_have_random_numbers_of_their_own(self):
        modules = ["random", "tempfile", "multiprocessing"]
        try:
            import numpy.random  # noqa: F401

            modules.append("numpy")
        except ImportError:
            print("numpy's generator is not looked at: there is no numpy here")
        self.write("program.py", f"""
            import multiprocessing, os, random, sys, tempfile
            values = [random.random(), next(tempfile._get_candidate_names()), multiprocessing.current_process().authkey.hex()]
            if {"numpy" in modules}:
                import numpy
                values.append(numpy.random.rand())
            print(*values)
            sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
        """)
        warm = self.job("--nproc-per-node=4", "--max-restarts=1", "--restart-backoff=0", "program.py", preload=",".join(modules))
        self.assertEqual(warm.code, 0, warm.err)
        values = [set(column) for column in zip(*(line.split() for line in warm.out.splitlines()))]
        lines = len(warm.out.splitlines())
        self.assertGreaterEqual(lines, 5)
        self.assertEqual([len(each) for each in values], [lines] * len(values), warm.out)

    def test_what_modules_set_at_import_stays_set(self):
        self.write("setter.py", "import os\nos.environ['SET_BY_IMPORT'] = '1'\nos.environ.pop('REMOVED', None)\nos.environ['RANK'] = 'no'\n")
        self.write("program.py", "import os\nprint(os.environ['SET_BY_IMPORT'], os.environ.get('REMOVED'), os.environ['RANK'])")
        warm = self.job("program.py", preload="setter", REMOVED="x")
        self.assertEqual(warm.out, "1 None 0\n", warm.err + warm.log)

    # Fallback to a cold start.

    def counting(self, more=""):
        return self.write("counting.py", f"""
            import os
            with open({str(self.place / "imports")!r}, "a") as file:
                file.write(str(os.getpid()) + "\\n")
        """) and self.write("counting.py", (self.place / "counting.py").read_text() + textwrap.dedent(more))

    def imports(self):
        path = self.place / "imports"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def test_unsafe_modules_are_named_and_workers_start_plainly(self):
        unsafe = {
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='busy', daemon=True).start()": "Python thread busy",
            "import socket\nkept = socket.socketpair()": "a socket is open",
            "import subprocess\nkept = subprocess.Popen(['sleep', '600'])": "a child process exists",
        }
        self.write("program.py", "import os\nprint('rank', os.environ['RANK'])")
        for text, reason in unsafe.items():
            with self.subTest(reason):
                self.write("unsafe.py", text)
                ended = self.job("--nproc-per-node=2", "program.py", preload="json,unsafe")
                self.assertEqual(ended.code, 0)
                self.assertEqual(ended.out, "rank 0\nrank 1\n")
                self.assertEqual(ended.log.count("workers start without the preloaded modules"), 1, ended.log)
                self.assertIn("after the import of unsafe", ended.log)
                self.assertIn(reason, ended.log)

    def test_variables_that_differ_between_ranks_are_named(self):
        self.counting()
        self.write("program.py", "import counting, os\nprint(os.environ.get('PYTHONHASHSEED'))")
        ended = self.job("-np", "2", "-x", "PYTHONHASHSEED=1", "program.py", ":", "-np", "1", "-x", "PYTHONHASHSEED=2", "program.py", preload="counting")
        self.assertEqual(ended.code, 0, ended.log)
        self.assertEqual(sorted(ended.out.split()), ["1", "1", "2"])
        self.assertIn("PYTHONHASHSEED", ended.log)
        self.assertEqual(self.imports(), 2)

    def test_other_programs_start_plainly(self):
        ended = self.job("sh", "-c", "echo $RANK")
        self.assertEqual((ended.code, ended.out), (0, "0\n"))
        self.assertIn("--preload has no effect", ended.log)

    # Failures.

    def test_an_import_that_fails_is_the_error_of_the_job(self):
        self.write("broken.py", "def f():\n    raise ValueError('broken at import')\n\nf()\n")
        self.write("program.py", "print('never')")
        for text, wanted in (("broken", "ValueError: broken at import"), ("no_such_module", "No module named 'no_such_module'")):
            with self.subTest(text):
                ended = self.job("--nproc-per-node=2", "program.py", preload=text)
                self.assertNotEqual(ended.code, 0)
                self.assertEqual(ended.out, "")
                self.assertIn(wanted, ended.log)
                self.assertIn("failed at the import of " + text, ended.log)
                self.assertNotIn("<string>", ended.log)

    def test_an_import_that_hangs_is_killed_and_shown(self):
        self.write("hanging.py", "import time\ntime.sleep(600)\n")
        self.write("program.py", "print('never')")
        began = time.monotonic()
        ended = self.job("--preload-timeout=1", "program.py", preload="hanging")
        self.assertNotEqual(ended.code, 0)
        self.assertLess(time.monotonic() - began, PATIENCE / 2)
        self.assertIn("took longer than 1 s", ended.log)
        self.assertIn('hanging.py", line 2', ended.log)

    def test_an_import_that_ends_the_interpreter_is_reported(self):
        self.write("ending.py", "import os\nos._exit(9)\n")
        self.write("program.py", "print('never')")
        ended = self.job("program.py", preload="ending")
        self.assertNotEqual(ended.code, 0)
        self.assertIn("ended at the import", ended.log)

    def test_a_stop_during_the_import_ends_the_job_at_once(self):
        self.write("hanging.py", "import time\nopen('importing', 'w').close()\ntime.sleep(600)\n")
        self.write("program.py", "print('never')")
        with subprocess.Popen([DRUN, "--standalone", "--preload=hanging", "program.py"], env=self.environment(), cwd=self.place,
                              stderr=subprocess.PIPE, text=True) as drun:
            self.wait_for(lambda: (self.place / "importing").exists())
            began = time.monotonic()
            drun.send_signal(signal.SIGTERM)
            drun.communicate(timeout=PATIENCE)
            self.assertEqual(drun.returncode, 128 + signal.SIGTERM)
            self.assertLess(time.monotonic() - began, PATIENCE / 4)

    def test_a_restart_is_warm(self):
        self.counting("print('printed at import')")
        self.write("program.py", "import counting, os, sys\nprint(os.environ['DRUN_ROUND'])\nsys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2)")
        ended = self.job("--nproc-per-node=2", "--max-restarts=2", "--restart-backoff=0", "program.py", preload="counting")
        self.assertEqual(ended.code, 0, ended.log)
        self.assertEqual(self.imports(), 1)
        self.assertEqual(ended.log.count("printed at import"), 1)

    def test_the_wait_for_the_imports_is_a_phase(self):
        self.write("slow.py", "import time\ntime.sleep(1)\n")
        self.write("program.py", "import os, sys\nprint('begun')\nsys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 1)")
        ended = self.job("--max-restarts=1", "--restart-backoff=0", "--events=events", "program.py", preload="slow")
        self.assertEqual(ended.code, 0, ended.log)
        events = [json.loads(line) for line in (self.place / "events").read_text().splitlines()]
        phases = [(event["phase"], event["up_s"]) for event in events if event["event"] == "phase"]
        names = [name for name, _ in phases]
        self.assertEqual(names[:4], ["waiting", "spawn", "import", "spawn"])
        self.assertEqual(names.count("import"), 1)  # the restart is warm
        self.assertGreater(phases[3][1] - phases[2][1], 0.5)

    def test_an_interpreter_that_is_killed_is_started_again(self):
        self.counting()
        self.write("program.py", """
            import counting, os, signal, sys, time
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                for name in os.listdir("/proc"):
                    try:
                        if b"(drun preload)" in open(f"/proc/{name}/cmdline", "rb").read() and int(open(f"/proc/{name}/stat").read().split()[3]) == os.getppid():
                            os.kill(int(name), signal.SIGKILL)
                    except (OSError, ValueError):
                        pass
                sys.exit(1)
            print("second")
        """)
        ended = self.job("--max-restarts=1", "--restart-backoff=0", "program.py", preload="counting")
        self.assertEqual(ended.code, 0, ended.log)
        self.assertEqual(ended.out, "second\n")
        self.assertIn("is started again", ended.log)
        self.assertEqual(self.imports(), 2)

    def test_nothing_is_left_when_drun_is_killed(self):
        self.write("program.py", "import os, time\nopen('begun' + os.environ['RANK'], 'w').close()\ntime.sleep(600)")
        mark = f"preload-{os.getpid()}-{time.monotonic()}"
        for victim in ("guardian", "agent", "interpreter"):
            with self.subTest(victim):
                for path in self.place.glob("begun*"):
                    path.unlink()
                with subprocess.Popen([DRUN, "--standalone", "--nproc-per-node=2", "--preload=json", "program.py"], env=self.environment(MARK=mark),
                                      cwd=self.place, stderr=subprocess.PIPE, text=True) as drun:
                    self.wait_for(lambda: len(list(self.place.glob("begun*"))) == 2)
                    self.assertEqual(len(self.marked(mark)), 5)  # guardian, agent, interpreter, two workers
                    if victim == "interpreter":
                        for pid in self.marked(mark):
                            if b"(drun preload)" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                                os.kill(pid, signal.SIGKILL)
                                self.wait_for(lambda: pid not in self.marked(mark))
                        drun.send_signal(signal.SIGTERM)
                    elif victim == "agent":
                        children = pathlib.Path(f"/proc/{drun.pid}/task/{drun.pid}/children").read_text().split()
                        os.kill(int(children[0]), signal.SIGKILL)
                    else:
                        drun.kill()
                    drun.communicate(timeout=PATIENCE)
                self.wait_for(lambda: not self.marked(mark))

    def marked(self, mark):
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and f"MARK={mark}".encode() in pathlib.Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                pass
        return found

    def wait_for(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    # The option.

    def test_the_variable_and_the_configuration_file_set_the_modules(self):
        self.write("program.py", "print('ran')")
        self.assertIn("preloaded json,csv in", self.job("program.py", preload=None, PET_PRELOAD="json,csv").log)
        self.write("drun.conf", "preload = \"json\"\n")
        self.assertIn("preloaded json in", self.job(f"--config={self.place}/drun.conf", "program.py", preload=None).log)

    def test_a_dry_run_shows_the_modules(self):
        self.write("program.py", "print('ran')")
        words = [DRUN, "--standalone", "--preload=json,csv", "--preload-timeout=5"]
        text = subprocess.run([*words, "--dry-run", "program.py"], capture_output=True, text=True, env=self.environment(), cwd=self.place, timeout=PATIENCE)
        self.assertRegex(text.stdout, "preload +json, csv, within 5 s")
        wrong = subprocess.run([DRUN, "--preload=json;x", "program.py"], capture_output=True, text=True, env=self.environment(), cwd=self.place, timeout=PATIENCE)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("is not the name of a Python module", wrong.stderr)

    def test_a_training_job_of_torch(self):
        python = os.environ.get("DRUN_TORCH_PYTHON", "")
        if not python or subprocess.run([python, "-c", "import torch.distributed"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this test is skipped: DRUN_TORCH_PYTHON names no Python with torch")
        self.write("train.py", DDP)
        cold = self.job("--nproc-per-node=2", "train.py", preload=None, PYTHON_EXEC=python)
        warm = self.job("--nproc-per-node=2", "train.py", preload="torch", PYTHON_EXEC=python)
        self.assertEqual((cold.code, warm.code), (0, 0), cold.err + warm.err + warm.log)
        self.assertEqual(cold.out, warm.out)
        self.assertIn("preloaded torch", warm.log)
        self.assertNotIn("without the preloaded", warm.log)


if __name__ == "__main__":
    DRUN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
