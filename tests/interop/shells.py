#!/usr/bin/env python3
"""Tests completion in real shells, and the manual pages with the tools that read them.

    shells.py BIN_DIRECTORY SOURCE_DIRECTORY

bash and zsh run on a pseudoterminal, to which the test sends keystrokes. fish and tcsh run without a terminal. A shell
or tool that is not installed is skipped.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

SECONDS = 30

# Both configurations bind ^T to "insert all matches" and ^G to "write the line to the file $LINE".
BASH = r"""
PS1= HISTFILE= INPUTRC=/dev/null
bind 'set enable-bracketed-paste off'
bind '"\C-t": insert-completions'
bind -x '"\C-g": printf %s "$READLINE_LINE" >"$LINE.new"; mv "$LINE.new" "$LINE"'
"""
ZSH = r"""
PS1= HISTFILE=
fpath=("$FUNCTIONS" $fpath)
autoload -Uz compinit && compinit -u -D
zle -C all-matches complete-word _generic
zstyle ':completion:all-matches:*' completer _all_matches _complete
zstyle ':completion:all-matches:*' insert true
bindkey '^T' all-matches
dump() { printf %s "$BUFFER" >"$LINE.new"; mv "$LINE.new" "$LINE" }
zle -N dump
bindkey '^G' dump
"""


def until(is_so, what):
    end = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"not within {SECONDS} s: {what}")
        time.sleep(0.01)


class Terminal:
    """An interactive shell on a pseudoterminal."""

    def __init__(self, command, startup, place, environment):
        self.line = place / "line"
        ready = place / "ready"
        startup_file = place / "startup"
        startup_file.write_text(startup)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execvpe(command[0], command, {**environment, "LINE": str(self.line), "TERM": "dumb"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 5000, 0, 0))
        self.output = b""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.type(f". {startup_file}; : >{ready}\r")
        until(ready.exists, f"{command[0]} is ready; it printed {self.output}")

    def read(self):
        while True:
            try:
                self.output += os.read(self.fd, 65536)
            except OSError:  # the shell has exited
                return

    def type(self, text):
        os.write(self.fd, text.encode())

    def completed(self, text):
        """Returns the command line after all matches have been inserted."""
        self.line.unlink(missing_ok=True)
        self.type(f"\x15{text}\x14\x07")
        until(self.line.exists, f"{text!r} is completed; the shell printed {self.output[-2000:]}")
        return self.line.read_text().split()

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        self.reader.join()


class Shells(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        (self.place / "logs").mkdir()
        (self.place / "log file.toml").touch()
        (self.place / "hosts").write_text("gpu[1-2] slots=4\ncpu7\n")
        self.environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.place)}

    def check(self, completed):
        """Checks the same command lines in every shell. completed(TEXT) returns the words of the completed line."""
        self.assertEqual(completed("drun --nproc-"), ["drun", "--nproc-per-node"])
        self.assertEqual(completed("drun --nproc_p"), ["drun", "--nproc_per_node"])
        self.assertEqual(completed("drun --rdzv-backend c"), ["drun", "--rdzv-backend", "c10d"])
        self.assertEqual(completed("drun --rdzv-backend=c"), ["drun", "--rdzv-backend=c10d"])
        self.assertEqual(sorted(completed("drun --engine ")), ["--engine", "auto", "drun", "none"])
        self.assertEqual(completed("drun --hostfile=hosts --hosts g")[3:], ["gpu1", "gpu2"])
        self.assertEqual(completed("drun --hostfile hosts --include=gpu1@c")[-1], "--include=gpu1@cpu7")
        self.assertEqual([word.rstrip("/") for word in completed("drun --log-dir lo")], ["drun", "--log-dir", "logs"])
        self.assertEqual([word.rstrip("/") for word in completed("drun --log-dir=lo")], ["drun", "--log-dir=logs"])
        self.assertEqual(completed("drun --np 2 ls log")[:4], ["drun", "--np", "2", "ls"])
        self.assertIn("logs", [word.rstrip("/") for word in completed("drun --np 2 ls log")])
        self.assertNotIn("--log-dir", completed("drun --np 2 ls --log-d"))
        commands = completed("drun sta")[1:]
        self.assertLessEqual({"stacks", "status"}, set(commands))
        self.assertTrue(all(word.startswith("sta") for word in commands), commands)  # the others are programs
        with self.job("job-to-complete"):
            self.assertEqual(completed("drun status job-"), ["drun", "status", "job-to-complete"])

    def job(self, run_id):
        job = subprocess.Popen([f"{BIN}/drun", "--standalone", f"--rdzv-id={run_id}", "sleep", "600"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        class Job:
            def __enter__(self):
                until(lambda: subprocess.run([f"{BIN}/drun", "status", run_id], capture_output=True).returncode == 0,
                      f"{run_id} runs")

            def __exit__(self, *_):
                job.terminate()
                job.wait(SECONDS)
        return Job()

    def needs(self, program):
        if not shutil.which(program):
            print(f"skipped: {program} is not installed")
            self.skipTest(f"{program} is not installed")

    def test_bash(self):
        for common in ["", "/usr/share/bash-completion/bash_completion"]:
            if common and not os.path.exists(common):
                continue
            startup = BASH + (f". {common}\n" if common else "") + f". {SOURCE}/launcher/cli/completion/drun.bash\n"
            with self.subTest(common):
                shell = Terminal(["bash", "--norc", "--noprofile", "-i"], startup, self.place, self.environment)
                self.addCleanup(shell.close)
                self.check(shell.completed)
                self.assertEqual(shell.completed("drun --config log"), ["drun", "--config", "log\\", "file.toml", "logs"])
                (self.place / "ready").unlink()

    def test_zsh(self):
        self.needs("zsh")
        shell = Terminal(["zsh", "-f", "-i"], ZSH, self.place,
                         {**self.environment, "FUNCTIONS": f"{SOURCE}/launcher/cli/completion"})
        self.addCleanup(shell.close)
        self.check(shell.completed)

    def test_fish(self):
        self.needs("fish")

        def completed(text):
            ended = subprocess.run(["fish", "--no-config", "-c", f". {SOURCE}/launcher/cli/completion/drun.fish; complete -C \"$argv\"",
                                    text], capture_output=True, text=True, env=self.environment, cwd=self.place, check=True)
            self.assertEqual(ended.stderr, "")
            words = [line.split("\t")[0] for line in ended.stdout.splitlines()]
            return text.split(" ")[:-1] + words  # the completions replace the last word
        self.check(completed)

    def test_tcsh(self):
        self.needs("tcsh")
        script = self.place / "drun.tcsh"
        script.write_text(subprocess.run([f"{BIN}/drun", "--print-completion=tcsh"], capture_output=True, text=True, check=True).stdout)
        ended = subprocess.run(["tcsh", "-f", "-c", f"source {script}; complete drun"], capture_output=True, text=True, check=True)
        self.assertIn("n/--engine/(auto none)/", ended.stdout)
        self.assertEqual(ended.stderr, "")

    def test_what_is_installed_is_what_is_printed(self):
        for shell, name in (("bash", "drun.bash"), ("zsh", "_drun"), ("fish", "drun.fish")):
            printed = subprocess.run([f"{BIN}/drun", "--print-completion", shell], capture_output=True, text=True, check=True).stdout
            self.assertEqual(printed, pathlib.Path(SOURCE, "launcher/cli/completion", name).read_text())


class ManualPages(unittest.TestCase):
    PAGES = ["drun", "drun-perf"]

    def setUp(self):
        self.pages = {}
        for name in self.PAGES:
            self.pages[name] = subprocess.run([f"{BIN}/{name}", "--print-man"], capture_output=True, text=True, check=True).stdout

    def under(self, tool, *options):
        if not shutil.which(tool):
            print(f"skipped: {tool} is not installed")
            self.skipTest(f"{tool} is not installed")
        for name, page in self.pages.items():
            ended = subprocess.run([tool, *options], input=page, capture_output=True, text=True, check=False)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), f"{name}: {ended.stdout[-2000:]}")
            yield name, ended.stdout

    def test_groff_has_no_warnings(self):
        for name, text in self.under("groff", "-man", "-ww", "-Tutf8", "-P-c"):
            self.assertIn(name.upper(), text)

    def test_mandoc_has_no_warnings(self):
        for name, text in self.under("mandoc", "-Tlint", "-Wwarning"):
            self.assertEqual(text, "", name)


def main():
    global BIN, SOURCE
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("source")
    arguments, rest = parser.parse_known_args()
    BIN, SOURCE = os.path.abspath(arguments.bin), os.path.abspath(arguments.source)
    for name in [name for name in os.environ if name.startswith(("PET_", "DRUN_", "SLURM_"))]:
        del os.environ[name]
    unittest.main(argv=[sys.argv[0], *rest])


main()
