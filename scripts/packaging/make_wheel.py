#!/usr/bin/env python3
"""Makes a wheel from built programs: programs in data/scripts, man pages and completions in data/share, and the
module for `python -m drun`.

The platform tag names glibc 2.28, the oldest version that zig.cmake compiles for, even if all symbols are older. Programs
with newer symbols get the newest one's version; check_symbols.py rejects them for a release.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import stat
import subprocess
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ["drun", "drun-perf", "drun-probe"]
OLDEST_GLIBC = 28  # 2.28, which docs/guide/install.md names


def newest_glibc(programs):
    text = "".join(subprocess.run(["readelf", "-W", "--dyn-syms", str(program)], check=True, capture_output=True,
                                  text=True).stdout for program in programs)
    return max(int(minor) for minor in re.findall(r"@GLIBC_2\.(\d+)", text))


def metadata(version):
    readme = (SOURCE / "docs/guide/install.md")
    body = readme.read_text() if readme.exists() else ""
    return (f"Metadata-Version: 2.1\nName: drun-launcher\nVersion: {version}\n"
            "Summary: A launcher of distributed jobs: a faster, stricter torchrun for any language\n"
            "License: MIT\nKeywords: torchrun,launcher,distributed,mpi,slurm\n"
            "Classifier: Environment :: Console\nClassifier: Operating System :: POSIX :: Linux\n"
            "Classifier: License :: OSI Approved :: MIT License\nRequires-Python: >=3.8\n"
            "Provides-Extra: stacks\nRequires-Dist: py-spy; extra == 'stacks'\n"
            f"Description-Content-Type: text/markdown\n\n{body}")


class Wheel:
    """A zip file with a record of its members. Reproducible: the same input gives the same bytes."""

    def __init__(self, path, version):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.info = f"drun_launcher-{version}.dist-info"
        self.record = []

    def add(self, name, data, mode=0o644):
        member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        member.external_attr = (stat.S_IFREG | mode) << 16
        member.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(member, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        name = f"{self.info}/RECORD"
        self.zip.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)),
                          "\n".join(self.record + [f"{name},,"]) + "\n")
        self.zip.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--root", required=True, type=pathlib.Path, help="what was installed: bin/, share/")
    parser.add_argument("--output", required=True, type=pathlib.Path)
    args = parser.parse_args()
    programs = [args.root / "bin" / name for name in PROGRAMS]
    tag = f"py3-none-manylinux_2_{max(newest_glibc(programs), OLDEST_GLIBC)}_{args.machine}"
    path = args.output / f"drun_launcher-{args.version}-{tag}.whl"
    wheel = Wheel(path, args.version)
    data = f"drun_launcher-{args.version}.data"
    for source in sorted((SOURCE / "scripts/packaging/python/drun").glob("*.py")):
        wheel.add(f"drun/{source.name}", source.read_bytes())
    for program in programs:
        wheel.add(f"{data}/scripts/{program.name}", program.read_bytes(), 0o755)
    for folder, _, names in sorted(os.walk(args.root / "share")):
        for name in sorted(names):
            file = pathlib.Path(folder) / name
            wheel.add(f"{data}/data/{file.relative_to(args.root)}", file.read_bytes())
    wheel.add(f"{wheel.info}/METADATA", metadata(args.version).encode())
    wheel.add(f"{wheel.info}/WHEEL",
              f"Wheel-Version: 1.0\nGenerator: drun\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.add(f"{wheel.info}/licenses/LICENSE", (SOURCE / "LICENSE").read_bytes())
    wheel.close()
    print(f"      dist/{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
