#!/usr/bin/env python3
"""Checks that every JSON field that drun writes is documented, and that every documented field is written.

    documented_json.py BIN_DIRECTORY SOURCE_DIRECTORY

Runs many kinds of jobs and compares their JSON output with the tables of the .md files. The section of a schema is the one
that contains the marker of the schema.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

# Text that identifies the section of each schema. An object whose fields are documented in the section of its parent has no marker.
MARKERS = {
    "report": "drun.report/1", "job": "drun.job/1", "status": "drun.status/1", "stacks": "drun.stacks/1", "plan": '| `schema` | `"drun.plan/1"`',
    "hosts": '| `schema` | `"drun.hosts/1"`', "doctor": '| `schema` | `"drun.doctor/1"`', "events": "`agent_started`", "line": '"stream":"stderr"',
    "error file": "`py_callstack`", "placement": "`memory_nodes`",
}
# Objects whose keys are names of variables, or that have a separate schema.
OPAQUE = {"environment", "variables", "placement"}
WAITS = 60 * int(os.environ.get("DRUN_TEST_SLOWDOWN", "1"))


def fields_of(value, found, nested, texts, parent=""):
    """Adds all keys to `found`, the keys of nested objects to `nested` by parent key, and text values to `texts`."""
    if isinstance(value, list):
        for each in value:
            fields_of(each, found, nested, texts, parent)
    elif isinstance(value, str):
        texts.add(value)
    elif isinstance(value, dict) and parent not in OPAQUE:
        found.update(value)
        if parent:
            nested.setdefault(parent, set()).update(value)
        for key, each in value.items():
            fields_of(each, found, nested, texts, key)


def sections(source):
    """Yields (file, text) for every section of every Markdown file."""
    # Skips build directories, because other tests create and remove files there.
    folders = [path for path in source.iterdir() if path.is_dir() and not path.name.startswith(("build", "dist", "."))]
    for path in sorted([*source.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]):
        for text in re.split(r"(?m)^(?=#+ )", path.read_text()):
            yield path, text


def code_words(text):
    """Returns the words in code spans and code blocks."""
    spans = re.findall(r"`([^`\n]+)`", text) + re.findall(r"(?m)^    (.*)$", text) + re.findall(r"(?ms)^```.*?^```", text)
    return {word for span in spans for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", span)}


def names_in(cell):
    """Returns the code spans that are names of fields. Code spans in parentheses are values."""
    outside = re.sub(r"\([^()]*\)", "", cell)
    return [span for span in re.findall(r"`([^`]+)`", outside) if re.fullmatch(r"[a-z][A-Za-z0-9_]*", span)]


def rows(text):
    for line in re.sub(r"(?m)^\|.*\n\|[-|: ]+\n", "", text).splitlines():  # skips the heads of the tables
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) > 1:
            yield cells


class Documented(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        self.running = []
        self.addCleanup(self.end_all)
        self.reports = 0

    def end_all(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def sections_of(self, schema):
        texts = [text for _, text in sections(SOURCE) if MARKERS[schema] in text]
        self.assertTrue(texts, f"no .md file has {MARKERS[schema]}")
        return "\n".join(texts)

    def compare(self, **objects):
        """`objects`: the written objects of each schema. Schemas that share a section are compared together."""
        written, nested, texts, text = set(), {}, set(), ""
        for schema, values in objects.items():
            found = set()
            fields_of(values, found, nested, texts)
            section = self.sections_of(schema)
            self.assertEqual(sorted(found - code_words(section)), [], f"{schema}: written, but not documented")
            written |= found
            text += section
        documented = set()
        for cells in rows(text):
            names = names_in(cells[0])
            documented.update(names)
            if len(names) == 1 and names[0] in nested:
                documented.update(names_in(cells[1]))
        self.assertGreater(len(documented), 2)
        self.assertEqual(sorted(documented - written - texts), [], f"{', '.join(objects)}: documented, but not written")

    # Jobs.

    def start(self, *words, **options):
        process = subprocess.Popen([DRUN, *words], cwd=self.place, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, **options)
        self.running.append(process)
        return process

    def end(self, process):
        out, err = process.communicate(timeout=WAITS)
        return process.returncode, out, err

    def job(self, *words, **options):
        """Starts a job that writes a report and events."""
        self.reports += 1
        return self.start(f"--report=report{self.reports}", "--events=events", *words, **options)

    def output_of(self, *words):
        code, out, err = self.end(self.start(*words))
        self.assertEqual(code, 0, err)
        return out

    def until(self, holds):
        deadline = time.monotonic() + WAITS
        while not holds():
            self.assertLess(time.monotonic(), deadline, "timed out")
            time.sleep(0.05)

    def free_port(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return str(listener.getsockname()[1])

    def write(self, name, text):
        (self.place / name).write_text(text)
        return ["sh", name]

    def all_reports(self):
        return [json.loads(path.read_text()) for path in self.place.glob("report*")]

    def events(self):
        return [json.loads(line) for line in (self.place / "events").read_text().splitlines()]

    def has_started(self, count=1):
        path = self.place / "up"
        return lambda: path.exists() and len(path.read_text()) >= count

    def two_nodes(self, *words):
        port = self.free_port()
        return [self.job("--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}", *words)
                for node in (0, 1)]

    # Tests.

    def test_the_report_and_the_events(self):
        self.end(self.job("--bind-to=core", "true"))
        self.end(self.job("--", *self.write("fails", "echo '{\"message\": \"m\"}' > $TORCHELASTIC_ERROR_FILE; echo why >&2; exit 3\n")))
        self.end(self.job("-r", "2", "--max-restarts=1", "--", *self.write("killed", "kill -KILL $$\n")))
        self.end(self.job("--rdzv-conf=join_timeout=1", "--nnodes=2", "--node-rank=0", "--master-port", self.free_port(), "true"))
        self.end(self.job("--hang-timeout=1", "--", "sleep", "600"))
        self.end(self.job("--inject=kill:rank=0@100ms", "--", "sleep", "600"))
        stays = self.write("stays", "echo -n . >> up; exec sleep 600\n")
        stopped = self.job("--", *stays)
        self.until(self.has_started())
        stopped.send_signal(signal.SIGTERM)
        self.end(stopped)
        (self.place / "up").unlink()
        nodes = self.two_nodes("--heartbeat-timeout=2", "--shutdown-timeout=1", "--", *stays)
        self.until(self.has_started(2))

        def agents():
            below = self.below(nodes[1].pid)
            return [e["agent_pid"] for e in self.events() if e["event"] == "agent_started" and e["agent_pid"] in below]

        self.until(agents)  # drun writes events from a thread
        os.kill(agents()[0], signal.SIGKILL)
        for node in nodes:
            self.end(node)
        outcomes = {report["outcome"] for report in self.all_reports()}
        self.assertLessEqual({"succeeded", "failed", "interrupted", "node_lost", "not_run"}, outcomes)
        self.left_out_node()
        self.slow_rank()
        reports, events = self.all_reports(), self.events()
        self.compare(report=reports)
        placements = [report["placement"] for report in reports if report["placement"]]
        self.compare_events(events)
        self.assertTrue(placements)
        self.compare(placement=placements)

    def below(self, pid):
        """Returns the process and its descendants."""
        found, new = {pid}, [pid]
        while new:
            task = pathlib.Path(f"/proc/{new[0]}/task")
            new = new[1:]
            for path in task.glob("*/children"):
                new += [int(word) for word in path.read_text().split() if int(word) not in found]
                found.update(new)
        return found

    def left_out_node(self):
        """Runs an elastic job that continues without the node whose worker fails."""
        port = self.free_port()
        words = ["--nnodes=1:2", "--rdzv-backend=c10d", "--max-restarts=2", "--exclude-after=1"]
        script = self.write("elastic", "[ $WORLD_SIZE = 2 ] || exit 0; [ $GROUP_RANK = 0 ] || exit 5; exec sleep 600\n")
        first = self.job(*words, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf=is_host=1,last_call_timeout=30,join_timeout=30", "--", *script)
        second = self.job(*words, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf=is_host=0,join_timeout=30", "--", *script)
        for node in (first, second):
            self.end(node)
        self.assertTrue(any(report["left_out"] for report in self.all_reports()), "no node was left out")

    def slow_rank(self):
        """Runs a job whose rank 1 makes half as many steps per second as rank 0, in windows of half a second, until that
        is noticed."""
        script = self.write("slow", "begin=$(date +%s%3N); while [ ! -e noticed ]; do now=$(date +%s%3N)\n"
                                    "echo $(((now - begin) / (1 + RANK))) >> $DRUN_PROGRESS_FILE; sleep 0.02; done\n")
        job = self.job("-np", "2", "--", *script, env={**os.environ, "DRUN_SPEED_WINDOW": "0.5"})
        self.until(lambda: any(event["event"] == "slow_found" for event in self.events()))
        (self.place / "noticed").touch()
        self.end(job)
        self.assertTrue(any(report["slow"] for report in self.all_reports()), "no slow rank was found")

    def compare_events(self, events):
        """Compares the events with their table: the first column has the event, the second its fields."""
        section = self.sections_of("events")
        known = code_words(section)
        table = {names_in(cells[0])[0]: set(names_in(cells[1])) for cells in rows(section) if names_in(cells[0])}
        self.assertEqual(sorted({e["event"] for e in events} ^ table.keys()), [], "events written or documented, but not both")
        always = {"time", "event", "run_id", "host", "agent_pid", "up_s"}
        self.assertLessEqual(always, known)
        for name, documented in table.items():
            with self.subTest(name):
                written = {key for e in events if e["event"] == name for key in e} - always
                self.assertEqual(sorted(written ^ documented), [], "written or documented, but not both")

    def test_status_and_stacks(self):
        stays = self.write("stays", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 4; echo -n . >> up; exec sleep 600\n")
        job = self.job("--max-restarts=1", "-t", "3", "--log-dir=logs", "-np", "1", "--", *stays, ":", "-np", "1", *stays)
        self.until(self.has_started(2))
        status = json.loads(self.output_of("status", str(job.pid), "--json"))
        node = json.loads(self.output_of("status", str(job.pid), "--node", "--json"))
        stacks = json.loads(self.output_of("stacks", str(job.pid), "--json"))
        job.send_signal(signal.SIGTERM)
        self.end(job)
        self.assertTrue(status["last_failure"] and node["last_failure"])
        with_nodes = {"left_out": [{"node_rank": 1, "host": "h", "round": 0, "reason": "r"}],  # as the report's
                      "slow": [{"rank": 1, "node_rank": 1, "host": "h", "round": 0, "slower_percent": 9, "evidence": "e", "is_slow": True}]}
        self.compare(job=[status, with_nodes], status=node)
        self.compare(stacks=stacks)

    def test_the_plan(self):
        plan = json.loads(self.output_of("--dry-run=json", "-np", "1", "--wrap=env", "true", ":", "-np", "1", "true"))
        self.compare(plan=plan)

    def test_the_plan_for_other_hosts(self):
        self.compare(hosts=json.loads(self.output_of("--dry-run=json", "-H", "a,b", "true")))

    def test_the_findings_of_drun_doctor(self):
        port = self.free_port()
        words = ["doctor", "--json", "--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
        # If a node cannot start the program, doctor reports a finding.
        nodes = [self.start(*words, f"--node-rank={node}", "--", program) for node, program in enumerate(("true", "/no/such/program"))]
        found = [json.loads(out) for _, out, _ in map(self.end, nodes) if out.startswith("{")]
        self.assertTrue(any(each["findings"] for each in found), found)
        self.compare(doctor=found)

    def test_lines_as_objects(self):
        out = self.output_of("--output=json", "sh", "-c", r"printf 'a\n\377\n'; head -c 600000 /dev/zero | tr '\0' x; echo")
        lines = [json.loads(line) for line in out.splitlines()]
        written = set().union(*lines)
        documented = code_words(self.sections_of("line"))
        self.assertEqual(sorted(written - documented), [])
        self.assertLessEqual({"base64", "partial"}, written)
        example = next(line for line in self.sections_of("line").splitlines() if MARKERS["line"] in line)
        self.assertEqual(sorted(json.loads(example)), sorted(lines[0]))

    def test_the_error_file(self):
        record = '{"message": {"message": "m", "extraInfo": {"py_callstack": "t", "timestamp": "1700000000"}}}'
        script = self.write("records", f"echo '{record}' > $TORCHELASTIC_ERROR_FILE; exit 3\n")
        self.end(self.start("--", *script, env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(self.place / "error.json")}))
        copy = json.loads((self.place / "error.json").read_text())
        self.assertEqual(copy["message"]["errorCode"], 3)
        self.compare(**{"error file": copy})


def main():
    global BIN, DRUN, SOURCE
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("source")
    arguments, rest = parser.parse_known_args()
    BIN, SOURCE = pathlib.Path(arguments.bin).resolve(), pathlib.Path(arguments.source).resolve()
    DRUN = str(BIN / "drun")
    for name in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_", "SLURM_"))]:
        del os.environ[name]
    unittest.main(argv=[sys.argv[0], *rest])


main()
