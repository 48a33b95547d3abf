#!/usr/bin/env python3
"""Runs PyTorch's tests of torchrun and TCPStore against drun.

    pytorch_suites.py DRUN launcher|store

launcher: runs test/distributed/launcher/test_run.py. torch.distributed.run.main is replaced by a call of drun under the
name torchrun. store: runs test/distributed/test_store.py with a `drun store` process for each server.

The files are from Debian's source package of PyTorch 2.6 and are not part of this project. The package (27 MB) is
downloaded once, with a separate apt configuration, into $XDG_CACHE_HOME/drun/pytorch-tests. The suites run with the
Python in DRUN_TORCH_PYTHON.
"""
import fcntl
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "drun", "pytorch-tests")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITE, VERSION = "trixie", "2.6."
FILES = ("test/distributed/launcher/", "test/distributed/test_store.py")
JOB_SECONDS = 120

# Tests that do not apply, with the reason.
NOT_LAUNCHED = {
    "test_nproc_gpu_launch_configurations": "mocks torch.cuda to have three GPUs",
    "test_launch_elastic_agent_raise_exception": "mocks torchrun's agent",
    "test_launch_shutdown": "mocks torchrun's agent",
}
LAUNCHED = 21
STORES = {"TCPStoreTest", "LibUvTCPStoreTest", "PrefixTCPStoreTest"}
NOT_STORED = {
    "test_address_already_in_use": "is about a server in this process",
    "test_multitenancy": "is about two servers in this process",
    "test_repr": "prints a server in this process",
    "test_init_pg_and_rpc_with_same_socket": "is about two servers in this process",
    "test_take_over_listen_socket": "passes a socket to a server in this process",
    "test_store_timeout_on_missing_clients": "is about a server that waits for clients in its constructor",
    "test_world_size_0_raises": "is about an argument of a constructor",
}
STORED = 25


def skip(reason):
    print(f"skipped: {reason}\nthis test is skipped")
    sys.exit(0)


def archive_site():
    """Returns the URL of the Debian archive that apt uses on this machine."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages"],
                            capture_output=True, text=True, check=False)
    sites = [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("Debian ") and "security" not in line]
    if not sites:
        skip("PyTorch's test suites cannot be downloaded: apt has no source of Debian's packages")
    return sites[0]


def apt(program, *words):
    """Returns an apt command that knows only the source packages of one release."""
    place = CACHE / "apt"
    (place / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (place / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (place / "sources.list").write_text(f"deb-src [signed-by={KEYRING}] {archive_site()} {SUITE} main\n")
    options = {"Dir::Etc::sourcelist": place / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State::lists": place / "lists",
               "Dir::Cache": place, "APT::Sandbox::User": "", "Acquire::Retries": "3"}
    command = [program, "-q", *(f"-o{name}={value}" for name, value in options.items()), *words]
    return subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=True, timeout=300,
                          stdin=subprocess.DEVNULL).stdout


def downloaded():
    """Returns the directory with FILES."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree = CACHE / "source"
        if (CACHE / "complete").exists():
            return tree
        if not os.path.exists(KEYRING):
            skip(f"PyTorch's test suites cannot be downloaded: there is no {KEYRING}")
        try:
            apt("apt-get", "update")
            versions = re.findall(r"^Version: (\S+)$", apt("apt-cache", "showsrc", "pytorch"), re.M)
            version = next(version for version in versions if version.startswith(VERSION))
            apt("apt-get", "source", "--download-only", f"pytorch={version}")
            archive = next(CACHE.glob("pytorch_*.orig.tar.*"))
        except (OSError, StopIteration, subprocess.SubprocessError) as error:
            print(getattr(error, "stderr", "") or "")
            skip(f"PyTorch's test suites cannot be downloaded: {error!r}")
        with tarfile.open(archive) as packed:
            for member in packed:
                name = member.name.partition("/")[2]
                if member.isfile() and name.startswith(FILES):
                    path = tree / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(packed.extractfile(member).read())
                    path.chmod(member.mode & 0o755 | 0o600)
        archive.unlink()
        (CACHE / "complete").touch()
        return tree


def with_packages(names):
    """Installs packages from PyPI that torch.testing imports without declaring them, in a separate directory."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    place = CACHE / "packages"
    sys.path.append(str(place))
    missing = [name for name in missing if not (place / name).exists()]
    if missing:
        ended = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", f"--target={place}", *missing],
                               capture_output=True, text=True, check=False, timeout=300)
        if ended.returncode:
            print(ended.stderr)
            skip(f"pip cannot install {' '.join(missing)}")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def use_drun_as_launcher(drun):
    import torch.distributed.elastic.events as events
    import torch.distributed.run as launch
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    link = os.path.join(tempfile.mkdtemp(), "torchrun")
    os.symlink(drun, link)

    def run(args):
        return subprocess.run([link, *args], capture_output=True, text=True, check=False, timeout=JOB_SECONDS,
                              stdin=subprocess.DEVNULL, env={**os.environ, "PYTHON_EXEC": sys.executable})

    def main(args=None):
        ended = run(args)
        # One script exits without destroying its process group. On a busy machine, PyTorch then sometimes destroys a
        # running thread at exit, which aborts the worker after it has printed its result.
        for _ in range(2):
            if ended.returncode == 0 or "terminate called without an active exception" not in ended.stderr:
                break
            print("retrying: a worker was aborted at its exit")
            ended = run(args)
        print(ended.stdout)
        print(ended.stderr, file=sys.stderr)
        if ended.returncode == 2:
            raise ValueError(ended.stderr)
        # torchrun's event for the agent, which one test counts.
        events.record(events.Event(name="torchelastic.worker.status", source=events.EventSource.AGENT))
        if ended.returncode:
            failure = ProcessFailure(local_rank=0, pid=0, exitcode=ended.returncode, error_file="")
            raise ChildFailedError(link, {0: failure})
    launch.main = main


def use_drun_as_store(drun):
    import torch.distributed as dist

    own = dist.TCPStore

    def store(host_name, port=0, world_size=None, is_master=False, *rest, **named):
        if not is_master:
            return own(host_name, port, world_size, False, *rest, **named)
        server = subprocess.Popen([drun, "store", "--loopback", f"--port={port}"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        unittest.addModuleCleanup(end, server)
        line = server.stderr.readline()
        return own(host_name, int(re.search(r"port (\d+)", line).group(1)), world_size, False, *rest, **named)

    def end(server):
        server.send_signal(signal.SIGTERM)
        server.communicate()
        assert server.returncode == 0, f"drun store exited with {server.returncode}"

    # Replaces it in the helpers of PyTorch's tests as well.
    for module in list(sys.modules.values()):
        if getattr(module, "TCPStore", None) is own:
            module.TCPStore = store


def cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


def main():
    drun, which = os.path.abspath(sys.argv[1]), sys.argv[2]
    python = os.environ.get("DRUN_TORCH_PYTHON", "")
    if not os.access(python, os.X_OK):
        skip("DRUN_TORCH_PYTHON names no Python with a current torch")
    if os.environ.get("DRUN_TORCH_TRIED") != python:
        os.environ["DRUN_TORCH_TRIED"] = python
        os.execv(python, [python, *sys.argv])
    for name in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_", "DRUN_", "SLURM_"))]:
        del os.environ[name]
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # one test expects "auto" to select the CPUs
    tree = downloaded()
    try:
        import torch.distributed.run  # noqa: F401
    except ImportError as error:
        skip(f"DRUN_TORCH_PYTHON names no Python with a current torch: {error}")
    with_packages(["expecttest"])
    suite = tree / (FILES[0] + "test_run.py" if which == "launcher" else FILES[1])
    sys.argv = [str(suite)]  # torch.testing reads it and requires the tests to be in that file
    if which == "launcher":
        use_drun_as_launcher(drun)
        module = load(suite)
        wanted, without, count = {"ElasticLaunchTest"}, NOT_LAUNCHED, LAUNCHED
    else:
        module = load(suite)
        use_drun_as_store(drun)
        wanted, without, count = STORES, NOT_STORED, STORED
    chosen = [case for case in cases(unittest.defaultTestLoader.loadTestsFromModule(module))
              if type(case).__name__ in wanted and case._testMethodName not in without]
    result = unittest.TextTestRunner(verbosity=2, buffer=True).run(unittest.TestSuite(chosen))
    unittest.doModuleCleanups()
    if result.skipped:
        print(f"these were skipped: {result.skipped}")
    print(f"{result.testsRun} tests of PyTorch, {len(result.failures) + len(result.errors)} failed")
    sys.exit(0 if result.wasSuccessful() and result.testsRun == count and not result.skipped else 1)


main()
