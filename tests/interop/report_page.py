#!/usr/bin/env python3
"""Tests the report page in a real browser: the text in its DOM, for jobs that fail, print markup, are killed, or are large.

    report_page.py DRUN
"""
import html.parser
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DRUN = os.path.abspath(sys.argv[1])
BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
WAITS = 60 * int(os.environ.get("DRUN_TEST_SLOWDOWN", "1"))
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"></pre></main></style><h1>Job succeeded</h1>"
# All elements that a page may have. Any other element was injected by a worker.
TAGS = set("""html head meta title style body main header span h1 h2 p dl dt dd div small section pre details summary ul li table caption thead
tbody tr th td svg rect path b br code""".split())


class Page(html.parser.HTMLParser):
    """The DOM as the browser serialized it."""

    def __init__(self, dom):
        super().__init__()
        self.tags, self.texts, self.open, self.attributes = {}, {}, [], set()
        self.feed(dom)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes.update(name for name, _ in attributes)
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if not self.open or self.open[-1] == "style":
            return
        for tag in set(self.open):
            if tag != "title" or "head" in self.open:  # bars also have titles
                self.texts[tag] = self.texts.get(tag, "") + " " + data

    def text(self, tag="body"):
        return " ".join(self.texts.get(tag, "").split())


class ReportPage(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)

    def job(self, *words, env=None):
        return subprocess.run([DRUN, *words], cwd=self.place, capture_output=True, text=True, timeout=WAITS, check=False,
                              env={**os.environ, **(env or {})})

    def script(self, text):
        (self.place / "worker.sh").write_text(text)
        return ["sh", "worker.sh"]

    def browse(self, name="job.html"):
        path = self.place / name
        ran = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={self.place}/profile",
                              "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=WAITS, check=False)
        self.assertIn("</html>", ran.stdout, ran.stderr[-2000:])
        page = Page(ran.stdout)
        self.assertLessEqual(set(page.tags), TAGS)
        self.assertFalse([name for name in page.attributes if name.startswith("on") or name in ("src", "href")])
        self.assertEqual(page.tags["h1"], 1)
        self.assertEqual(page.text("title"), page.text("h1"))
        return page

    def test_a_failed_job(self):
        job = self.job("--nproc-per-node=4", "--max-restarts=1", "--report=job.html", "--report=job.json", "--log-dir=logs", "-t", "2", "--",
                       *self.script('sleep 0.2; echo up; [ $RANK = 2 ] || exec sleep 60; echo "ValueError: bad batch" >&2; exit 7\n'),
                       "--token=s3cret", env={"HF_TOKEN": "s3cret", "NCCL_AUTH": "s3cret", "NCCL_DEBUG": "INFO"})
        self.assertEqual(job.returncode, 7, job.stderr)
        self.assertEqual(json.loads((self.place / "job.json").read_text())["outcome"], "failed")
        page = self.browse()
        self.assertRegex(page.text("h1"), r"^Job failed: rank 2 on node 0 \(.*\) exited with code 7$")
        for words in ("Root cause", "ValueError: bad batch", "Restarts 1", "4 workers on 1 node", "Rounds and restarts", "Where the time went",
                      "Timeline, nodes and ranks", "Incidents", "stopping and restarting", "--token=[redacted]", "NCCL_DEBUG", "INFO",
                      "exit code 7", "stopped by drun, SIGTERM", "logs in"):
            self.assertIn(words, page.text())
        self.assertIn('<p class="why">ValueError: bad batch</p>', (self.place / "job.html").read_text())
        self.assertNotIn("s3cret", (self.place / "job.html").read_text())
        self.assertGreater(page.tags["path"], 10)
        # The ranks of a node: a head row and four workers.
        self.assertGreaterEqual(page.tags["tr"], 5)

    def test_a_job_that_succeeds(self):
        self.assertEqual(self.job("--report=job.html", "--", *self.script("echo fine\n")).returncode, 0)
        page = self.browse()
        self.assertRegex(page.text("h1"), "^Job succeeded in ")
        self.assertNotIn("Root cause", page.text())

    def test_a_job_that_did_not_run(self):
        self.job("--report=job.html", "/no/such/program")
        self.assertRegex(self.browse().text("h1"), r"^Job failed: rank 0 on node 0 \(.*\) could not be started: no such file or directory$")
        self.job("--report=job.html", "--nnodes=2", "--node-rank=0", "--rdzv-conf=join_timeout=1", "--master-addr=127.0.0.1", "--master-port=0", "true")
        self.assertRegex(self.browse().text("h1"), "^Job did not run: ")

    def test_a_hostile_worker(self):
        (self.place / "evil").write_text(HOSTILE + "\n\x1b[31mred\x1b[0m \u202eevil\n")
        record = json.dumps({"message": {"message": HOSTILE, "extraInfo": {"py_callstack": HOSTILE, "timestamp": "1700000000"}}})
        (self.place / "record").write_text(record)
        job = self.job("--report=job.html", "--events=events", "--", *self.script("cat record > $TORCHELASTIC_ERROR_FILE; cat evil >&2; exit 1\n"), HOSTILE,
                       env={"NCCL_EVIL": HOSTILE})
        self.assertEqual(job.returncode, 1)
        page = self.browse()
        self.assertRegex(page.text("h1"), "^Job failed: rank 0 ")
        self.assertIn("<script>document.title='owned'</script>", page.text("pre"))
        self.assertIn("<h1>Job succeeded</h1>", page.text("pre"))
        self.assertNotIn("\u202e", page.text())
        # The same page from the events.
        ran = self.job("report", "events", "-o", "again.html")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(self.browse("again.html").text("h1"), page.text("h1"))
        ran = self.job("report", "--text", "events")
        self.assertIn("<script>document.title='owned'</script>", ran.stdout)
        self.assertNotIn("\x1b", ran.stdout)

    def test_a_job_that_was_killed_halfway(self):
        with subprocess.Popen([DRUN, "--nproc-per-node=2", "--events=events", "--", *self.script("echo up; exec sleep 600\n")], cwd=self.place,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            events = []
            deadline = time.monotonic() + WAITS
            while sum(event["event"] == "worker_alive" for event in events) < 2:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
                path = self.place / "events"
                events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            ran = self.job("report", "events")
            self.assertIn("wrote job.html", ran.stderr)
            self.assertRegex(self.browse().text("h1"), "^Job is running for ")
            os.kill(events[0]["agent_pid"], signal.SIGKILL)
            job.wait(WAITS)
        self.assertEqual(self.job("report", "-o", "job.html", "events").returncode, 0)
        page = self.browse()
        self.assertEqual(page.text("h1"), "No end of the job is recorded")
        self.assertIn("the events of 1 of 1 node end before the end of the job", page.text().replace("1 of 1 nodes", "1 of 1 node"))
        text = self.job("report", "--text", "events").stdout
        self.assertTrue(text.startswith("No end of the job is recorded\n"), text)

    def test_a_page_of_4096_ranks(self):
        self.job("--nproc-per-node=8", "--events=events", "--", *self.script("echo up; [ $RANK = 5 ] || exec sleep 60; sleep 0.3; exit 3\n"))
        first = [json.loads(line) for line in (self.place / "events").read_text().splitlines()]
        with (self.place / "many").open("w") as many:
            for node in range(512):
                for event in first:
                    if node != 77 and event["event"] == "worker_failed":
                        continue
                    event = {**event, "host": f"gpu{node:03}", "agent_pid": 1000 + node}
                    if "rank" in event:
                        event["rank"] += 8 * node
                    if event["event"] == "round_began":
                        event.update(node_rank=node, nodes=512, first_rank=8 * node, world_size=4096)
                    for failure in event.get("failures", ()):
                        failure.update(rank=8 * 77 + 5, node_rank=77, host="gpu077")
                    many.write(json.dumps(event) + "\n")
        ran = self.job("report", "many")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertLess((self.place / "job.html").stat().st_size, 2_000_000)
        page = self.browse()
        self.assertEqual(page.text("h1"), "Job failed: rank 621 on node 77 (gpu077) exited with code 3")
        self.assertIn("4096 workers on 512 nodes", page.text())
        self.assertIn("node 511 (gpu511)", page.text())
        self.assertGreater(page.tags["tr"], 4096)

    def test_what_cannot_be_reported(self):
        (self.place / "other").write_text("no event\n")
        for words, reason in ((["report"], "no event files"), (["report", "missing"], "cannot read missing"), (["report", "other"], "no events in other"),
                              (["--report=a.html", "--report=b.html", "true"], "give one .html file"),
                              (["report", "-o", "/no/such/place", "events"], "cannot read events")):
            ran = self.job(*words)
            self.assertNotEqual(ran.returncode, 0, words)
            self.assertIn(reason, ran.stderr)


if BROWSER is None:
    print("skipped: there is no Chromium here (package chromium)\nthis test is skipped")
    sys.exit(0)
for variable in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_", "SLURM_"))]:
    del os.environ[variable]
unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
