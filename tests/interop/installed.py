#!/usr/bin/env python3
"""Tests an installed drun: its dependencies, the errors if they are missing, and the packages of the container image.

    installed.py CMAKE BUILD_DIRECTORY SOURCE_DIRECTORY
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# Runs a command with a directory as the root of its file system, with this machine's devices and processes.
INSIDE = 'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
# Optional libraries, which belong to the drivers of GPUs and networks and to the programs that use them.
OF_HARDWARE = {"libcuda.so.1", "libnccl.so.2", "libnvidia-ml.so.1", "libucp.so.0", "libucs.so.0"}
# Packages that every Debian system has, because apt needs them.
ALWAYS_THERE = {"libc6", "libgcc-s1"}


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def needed_by(program):
    """Returns the names of the shared libraries that the loader loads for a program."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", program)))


def elf_class(path):
    with open(path, "rb") as file:
        return file.read(5)[4]


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.place = pathlib.Path(directory.name)
        cls.bin = cls.place / "installed/bin"
        output_of(CMAKE, "--install", BUILD, "--prefix", cls.place / "installed")

    def run_program(self, *words, **environment):
        ended = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=100,
                               env={"PATH": os.environ["PATH"], **environment})
        return ended.returncode, ended.stdout, ended.stderr


class Alone(Installed):
    """Runs drun and a shell in a root directory without libraries other than glibc."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.place / "root"
        for name in ("bin", "dev", "proc", "tmp"):
            (cls.root / name).mkdir(parents=True)
        glibc = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
        shell = shutil.which("dash") or "/bin/sh"
        for program, name in ((cls.bin / "drun", "drun"), (shell, "sh")):
            shutil.copy(program, cls.root / "bin" / name)
            for library in re.findall(r"/\S+", output_of("ldd", program).replace(f"{program}:", "")):
                if name == "drun" and os.path.basename(library) not in glibc:
                    raise AssertionError(f"drun needs {library}")
                target = cls.root / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
        (cls.root / "secret").write_text("0123456789abcdef0123456789abcdef\n")
        (cls.root / "secret").chmod(0o600)

    def inside(self, *words):
        return self.run_program("unshare", "-rm", "sh", "-c", INSIDE, self.root, *words)

    def setUp(self):
        code, _, err = self.inside("/bin/sh", "-c", "exit 0")
        if code:
            self.skipTest(f"cannot make a mount namespace: {err.strip()}")

    def refuses(self, reason, *options, code=125):
        """Checks that drun reports the reason and starts nothing."""
        result = self.inside("/bin/drun", *options, "/bin/sh", "-c", "echo started")
        self.assertEqual(result[:2], (code, ""), result)
        self.assertIn(reason, result[2])

    def test_a_job_needs_glibc_alone(self):
        code, out, err = self.inside("/bin/drun", "--nproc-per-node=2", "/bin/sh", "-c", "echo rank $RANK")
        self.assertEqual((code, sorted(out.splitlines())), (0, ["rank 0", "rank 1"]), err)

    def test_a_secret_without_openssl_is_refused(self):
        self.refuses("install libssl3", "--secret-file=/secret")
        self.refuses("install libssl3", "--secret-file=/secret", "--nnodes=2", "--node-rank=0", "--master-port=1")

    def test_an_etcd_over_https_without_openssl_is_refused(self):
        self.refuses("install libssl3", "--nnodes=1:2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1",
                     "--rdzv-conf=protocol=https")

    def test_places_without_hwloc_are_refused(self):
        for option in ("--bind-to=core", "--numa-binding=node", "--omp-threads=auto"):
            self.refuses("install libhwloc15", option)

    def test_a_preflight_without_its_program_is_refused(self):
        self.refuses("/bin/drun-probe, a part of drun, is missing", "--preflight", code=127)


class Copied(Installed):
    """Runs drun as a copy on a machine without an installation, with drun-probe in the same directory."""

    def test_doctor_and_preflight_run_the_probe_that_is_beside_drun(self):
        other = self.place / "other"
        other.mkdir()
        drun = shutil.copy(self.bin / "drun", other)
        code, _, err = self.run_program(drun, "doctor", "--json", "--nproc-per-node=1")
        self.assertEqual(code, 127, err)
        self.assertIn(f"{other}/drun-probe", err)
        shutil.copy(self.bin / "drun-probe", other)
        for call in ((drun,), ("/bin/sh", "-c", 'PATH=$0:$PATH; exec drun "$@"', str(other))):
            code, out, err = self.run_program(*call, "doctor", "--json", "--nproc-per-node=1")
            found = json.loads(out)
            self.assertEqual(code, 0 if found["is_well"] else 1, err)
            self.assertIsNotNone(found["nodes"][0])
        code, out, err = self.run_program(drun, "--preflight", "sh", "-c", "echo round $DRUN_ROUND")
        self.assertEqual((code, out), (0, "round 1\n"), err)


class Image(Installed):
    """Checks that scripts/engines/Containerfile installs the packages of all libraries that the installed programs load."""

    FILE = "scripts/engines/Containerfile"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = (SOURCE / cls.FILE).read_text().replace("\\\n", " ")
        cls.stage = cls.text[cls.text.rindex("\nFROM "):]

    def test_it_has_the_packages_of_all_libraries_and_no_others(self):
        release = re.search(r"FROM debian:(\d+)", self.stage).group(1)
        here = pathlib.Path("/etc/os-release").read_text()
        if "ID=debian" not in here or f'VERSION_ID="{release}"' not in here:
            self.skipTest(f"the image's packages are Debian {release}'s")
        wanted = set()
        for program in self.bin.iterdir():
            wanted |= needed_by(program)
        for folder in ("launcher", "agent", "rendezvous", "worker_lib"):
            for path in (SOURCE / folder).rglob("*.[ch]*"):
                wanted |= set(re.findall(r'"(lib[a-z0-9_-]+\.so\.[0-9.]+)"', path.read_text()))
        self.assertLessEqual({"libssl.so.3", "libhwloc.so.15"}, wanted, "the names of libraries that are loaded late")
        paths = {}
        for name, path in re.findall(r"(?m)^\s*(\S+) .* => (\S+)$", output_of("/sbin/ldconfig", "-p")):
            if elf_class(path) == elf_class(sys.executable):  # not the 32-bit library
                paths.setdefault(name, path)
        packages = set()
        for library in wanted - OF_HARDWARE:
            if not library.startswith(("ld-linux", "linux-vdso")):
                self.assertIn(library, paths)
                # Debian's packages list a file under /lib or /usr/lib; /lib is a link to /usr/lib.
                names = {paths[library], os.path.realpath(paths[library])}
                said = subprocess.run(["dpkg", "-S", *names], capture_output=True, text=True, check=False).stdout
                packages.add(re.split("[:,]", said)[0])
        installs = re.search(r"apt-get install (.*?)&&", self.stage).group(1).split()
        self.assertEqual(sorted(word for word in installs if not word.startswith("-")), sorted(packages - ALWAYS_THERE))

    def test_it_builds_as_the_scripts_do_and_starts_drun(self):
        command = re.search(r"bash -c '([^']*)'", self.text).group(1)
        known = output_of("bash", "-c", f'cd "{SOURCE}" && . scripts/lib.sh && declare -F install_packages build && echo "${{build_packages[@]}}"')
        for word in re.findall(r"\b(install_packages|build) ", command):
            self.assertIn(word, known.split())
        self.assertIn("${build_packages[@]}", command)
        self.assertIn("COPY --from=build /out /usr/local", self.stage)
        self.assertIn('ENTRYPOINT ["drun"]', self.stage)


def main():
    global CMAKE, BUILD, SOURCE
    parser = argparse.ArgumentParser()
    for name in ("cmake", "build", "source"):
        parser.add_argument(name)
    arguments, rest = parser.parse_known_args()
    CMAKE, BUILD, SOURCE = arguments.cmake, pathlib.Path(arguments.build).resolve(), pathlib.Path(arguments.source).resolve()
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(not result.wasSuccessful())


main()
