#!/usr/bin/env python3
"""Reads /metrics of --metrics-port with Prometheus' parser, and compares it with drun status and with the docs.

    metrics.py DRUN SOURCE_DIRECTORY
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("skipped: Python has no prometheus_client (package python3-prometheus-client)\nthis test is skipped")
    sys.exit(0)

DRUN, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
RUN_ID = 'a "run"\\id é'
DEADLINE = time.monotonic() + 100


def until(attempt):
    while True:
        result = attempt()
        if result:
            return result
        assert time.monotonic() < DEADLINE, "timed out"
        time.sleep(0.05)


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers["Content-Type"]
        families = list(text_string_to_metric_families(answer.read().decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), f"duplicate family: {names}"
    for family in families:
        assert family.type in ("gauge", "counter") and family.documentation and family.samples, family
    return {sample.name: family for family in families for sample in family.samples}


def check(families, status):
    """Compares the metrics of an idle agent with its status."""
    def value(name):
        (sample,) = families[name].samples
        return sample.value
    assert families["drun_info"].samples[0].labels == {"run_id": RUN_ID, "host": status["host"]}, families["drun_info"]
    for name in ("nodes", "node_rank", "world_size", "max_restarts"):
        assert value(f"drun_{name}") == status[name], name
    assert value("drun_rounds_total") == status["round"] + 1
    assert value("drun_restarts_total") == status["restarts"] == 1
    for name, counted in (("nodes", 1), ("workers", 2), ("restarts", 1), ("restarts_left", 2), ("spares", 0)):
        assert value(f"drun_job_{name}") == counted, name
    phases = {sample.labels["phase"]: sample.value for sample in families["drun_phase"].samples}
    assert phases.pop(status["phase"]) == 1 and not any(phases.values()), phases
    workers = {(s.labels["rank"], s.labels["local_rank"]): s.value for s in families["drun_worker_running"].samples}
    assert workers == {("0", "0"): 1, ("1", "1"): 1}, workers
    (failure,) = families["drun_last_failure_timestamp_seconds"].samples
    assert failure.labels == {"rank": "1", "exit_code": "9", "ended": "exit code 9"}, failure
    assert abs(failure.value - time.time()) < 100, failure
    for name, counter in families.items():
        assert (counter.type == "counter") == name.endswith("_total"), name


def documented():
    """Returns the names of metrics in the section that lists them."""
    texts = [text for path in (SOURCE / "docs").rglob("*.md") for text in re.split(r"(?m)^(?=#+ )", path.read_text())]
    return {name for text in texts if "`drun_rounds_total`" in text for name in re.findall(r"`(drun_[a-z_]+)`", text)}


def main():
    with tempfile.TemporaryDirectory() as place:
        log = pathlib.Path(place, "log")
        script = "[ $TORCHELASTIC_RESTART_COUNT$RANK != 01 ] || exit 9; echo up $TORCHELASTIC_RESTART_COUNT; exec sleep 600"
        with open(log, "w") as to:
            job = subprocess.Popen([DRUN, "--metrics-port=0", "--nproc-per-node=2", "--max-restarts=3", "--shutdown-timeout=5",
                                    f"--rdzv-id={RUN_ID}", "--", "sh", "-c", script], stdout=to, stderr=to, stdin=subprocess.DEVNULL)
        try:
            until(lambda: log.read_text().count("up 1") == 2 or job.poll() is not None)
            port = re.search(r"metrics.*?(\d{4,5})\b", log.read_text()).group(1)
            status = json.loads(subprocess.run([DRUN, "status", "--node", "--json", str(job.pid)], capture_output=True, text=True,
                                               check=True, timeout=60).stdout)
            families = scrape(port)
            check(families, status)
            differing = families.keys() ^ documented()
            assert not differing, f"documented or exported, but not both: {sorted(differing)}"
        except BaseException:
            print(log.read_text())
            raise
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(60)
    print(f"{len(families)} metrics ok")


main()
