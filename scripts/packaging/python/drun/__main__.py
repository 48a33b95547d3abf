"""`python -m drun`: replaces this process by the drun that was installed with this package."""
import os
import pathlib
import sys
import sysconfig


def candidates():
    """pip's directories for programs: of this environment, of the user, and next to the package."""
    yield pathlib.Path(sysconfig.get_path("scripts"))
    user = "nt_user" if os.name == "nt" else "posix_user"
    yield pathlib.Path(sysconfig.get_path("scripts", user))
    package = pathlib.Path(__file__).resolve().parent
    # <prefix>/lib/python3.N/{site,dist}-packages/drun, <prefix>/local/lib/..., --target DIR
    for parent in list(package.parents)[:5]:  # slices require Python 3.10
        yield parent / "bin"
    yield pathlib.Path(sys.prefix) / "bin"
    yield pathlib.Path("/usr/local/bin")


def main():
    for directory in candidates():
        program = directory / "drun"
        if os.access(program, os.X_OK) and program.is_file():
            os.execv(program, [str(program), *sys.argv[1:]])
    sys.exit("drun: the program drun is not where pip installs programs (looked in "
             f"{', '.join(dict.fromkeys(map(str, candidates())))}); reinstall drun-launcher")


if __name__ == "__main__":
    main()
