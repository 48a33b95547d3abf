#!/usr/bin/env python3
"""Checks that programs run on any Linux with glibc 2.28: no newer symbols, and no libraries except glibc's.

    check_symbols.py MACHINE PROGRAM...
"""
import pathlib
import re
import subprocess
import sys

NEWEST = (2, 28)
LIBRARIES = re.compile(r"^(libc|libm|libdl|libpthread|librt)\.so\.\d+$|^ld-linux-[\w-]+\.so\.\d+$")
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}


def readelf(option, program):
    return subprocess.run(["readelf", "-W", option, program], check=True, capture_output=True, text=True).stdout


def problems_of(machine, program):
    if not re.search(rf"Machine:.*{MACHINES[machine]}", readelf("--file-header", program)):
        yield f"is not for {machine}"
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", program)):
        if not LIBRARIES.match(library):
            yield f"needs {library}"
    symbols = readelf("--dyn-syms", program)
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"@GLIBC_([\d.]+)", symbols)}
    if not versions:
        yield "has no symbols of glibc"
    for version in sorted(versions):
        if version > NEWEST:
            names = re.findall(rf"(\w+)@GLIBC_{'.'.join(map(str, version))}\b", symbols)
            yield f"needs glibc {'.'.join(map(str, version))} for {', '.join(sorted(set(names)))}"


def main(machine, programs):
    found = [f"{pathlib.Path(program).name}: {problem}" for program in programs for problem in problems_of(machine, program)]
    if found or not programs:
        sys.exit("\n".join(found) or "no program to check")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
