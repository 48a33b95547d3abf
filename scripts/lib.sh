# shellcheck shell=bash disable=SC2034
# Shared by quickstart, test and check: packages, step messages, builds. Sourced, not run. Changes to the top of the
# source tree.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
logs=build/logs
unit_size=20 # sources per unit of a build that happens once; large units need less processor time in total

build_packages=(g++ cmake ninja-build libboost-dev libcli11-dev libhwloc-dev libspdlog-dev libssl-dev
  nlohmann-json3-dev)
optional_packages=(libgloo-dev                # worker_lib's backend gloo
  libucx-dev                                  # worker_lib's backend ucx
  libpmix-dev)                                # for rendezvous under Open MPI 5 and prterun
test_packages=(catch2 python3 python3-pip      # pip installs the wheel
  iproute2                                    # network namespaces for nodes
  fuse3 libfuse3-dev                          # a file system that hangs
  openmpi-bin mpich openssh-client            # launchers of drun on several machines
  python3-clustershell python3-yaml           # reference for host lists; reader for manifests
  python3-prometheus-client)                  # reader for metrics
# Services. Tests run private instances of them. Installing them would start them permanently on a user's machine, so
# they are installed only if CI is set; otherwise, tests without their service are skipped.
service_packages=(slurm-wlm munge openssh-server etcd-server)
# Debuggers and source checkers, an MPI to build with, and PyTorch: also installed only if CI is set. A test or check
# without its package fails in CI and is skipped elsewhere.
tool_packages=(gdb elfutils openssl pkg-config libopenmpi-dev shellcheck clang-format-14 clang-tidy
  clang libclang-rt-dev python3-venv python3-torch
  zsh fish tcsh mandoc groff-base)              # completions and manual pages

say() { printf '%s\n' "$*"; }
step() { printf '\n[%s] %s\n' "$1" "$2"; }
note() { printf '      %s\n' "$*"; }
# missing_tool TEXT: reports a step that is left out because a tool is missing. Fails if CI is set.
missing_tool() {
  note "$*"
  [ -z "${CI:-}" ]
}
# Whether there is a clang++ with its libFuzzer.
has_libfuzzer() {
  mkdir -p $logs
  clang++ -x c++ - -fsanitize=fuzzer -o $logs/fuzzer-probe 2>/dev/null \
    <<<'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }'
}
die() {
  printf '\n%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# no_arguments "$@": rejects arguments.
no_arguments() { [ $# = 0 ] || die "unknown argument '$1'; usage: scripts/${0##*/}"; }

# Programs may be installed without the distribution's packages; libraries are looked up by package.
is_there() {
  case $1 in
    g++ | cmake | python3) command -v "$1" >/dev/null && return ;;
    ninja-build) command -v ninja >/dev/null && return ;;
    iproute2) command -v ip >/dev/null && return ;;
  esac
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_of() {
  local package
  for package in "$@"; do is_there "$package" || printf '%s ' "$package"; done
}

# as_root COMMAND...: runs it directly as root, or else with sudo, which may prompt on the terminal.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo >/dev/null || return
  [ -t 0 ] || sudo -n true 2>/dev/null
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" \
    </dev/null >>$logs/packages.log 2>&1
}

# Fetches the package lists only if the first attempt fails, because they may be missing or outdated.
apt_install() {
  apt_get install --no-install-recommends "$@" && return
  apt_get update && apt_get install --no-install-recommends "$@"
}

# Separately, so that a package that does not exist does not prevent the installation of the others.
apt_install_each() {
  local package
  for package in "$@"; do
    apt_get install --no-install-recommends "$package" ||
      note "without $package: apt-get could not install it (log: $logs/packages.log)"
  done
}

# Without apt: prints the command that installs the required packages, and installs nothing.
other_distribution() {
  note "this is not Debian or Ubuntu; the packages that the build needs are installed by"
  if command -v dnf >/dev/null; then
    note "  dnf install gcc-c++ cmake ninja-build boost-devel cli11-devel hwloc-devel spdlog-devel openssl-devel json-devel pmix-devel"
    note "  (RHEL and Rocky: dnf install epel-release first, and dnf config-manager --set-enabled crb)"
  elif command -v zypper >/dev/null; then
    note "  zypper install gcc-c++ cmake ninja libboost_headers-devel cli11-devel hwloc-devel spdlog-devel libopenssl-devel nlohmann_json-devel"
  else
    note "  your package manager; on Debian they are called: $* ${optional_packages[*]}"
  fi
}

# drun uses interfaces that only glibc has.
require_glibc() {
  case $(ldd --version 2>&1) in
    *musl*) die "this system has musl; drun needs glibc 2.28 or later, for example in a Debian container" ;;
  esac
}

# install_packages PACKAGES...: installs these and the optional packages, if missing.
install_packages() {
  local missing wanted
  require_glibc
  mkdir -p $logs && [ -w $logs ] || die "cannot write in build/: remove it if another user made it"
  if ! command -v apt-get >/dev/null; then
    other_distribution "$@"
    return
  fi
  read -ra missing <<<"$(missing_of "$@")"
  read -ra wanted <<<"$(missing_of "${optional_packages[@]}")"
  if [ $((${#missing[@]} + ${#wanted[@]})) = 0 ]; then
    note "all there"
    return
  fi
  if ! can_be_root; then
    [ ${#missing[@]} = 0 ] && { note "without ${wanted[*]}: no root and no sudo"; return; }
    die "these packages are missing, and there is neither root nor sudo to install them; ask for:
  apt-get install --no-install-recommends ${missing[*]} ${wanted[*]}"
  fi
  note "installing: ${missing[*]} ${wanted[*]}"
  : >$logs/packages.log
  [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}" || {
    tail -n 15 $logs/packages.log >&2
    die "apt-get could not install ${missing[*]} (log: $logs/packages.log)"
  }
  [ ${#wanted[@]} = 0 ] || apt_install "${wanted[@]}" || apt_install_each "${wanted[@]}"
}

# logged LOG COMMAND...: on a terminal, the command prints its own progress line. Otherwise its output goes to the log;
# on failure the log is printed without progress lines.
logged() {
  local log=$logs/$1
  shift
  if [ -t 1 ]; then
    "$@"
  elif ! "$@" >"$log" 2>&1; then
    grep -vE '^\[[0-9]+/[0-9]+\] |^ +Start +[0-9]+: | Passed +[0-9.]+ sec$' "$log" | tail -n 200
    note "log: $log"
    return 1
  fi
}

# The compiler takes up to 2.3 GB for each of the large units.
limit_build_jobs() {
  local name kib jobs=1 cores
  while read -r name kib _; do [ "$name" != MemAvailable: ] || jobs=$((kib / 2300000)); done </proc/meminfo
  cores=$(nproc)
  export CMAKE_BUILD_PARALLEL_LEVEL=$((jobs < 1 ? 1 : jobs < cores ? jobs : cores))
}

# build PRESET [CMAKE-OPTION...] [-- TARGET...]: configures and builds the preset.
build() {
  local preset=$1 options=() began=$SECONDS
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift || true
  if command -v ccache >/dev/null; then
    # Allows cache hits across checkouts, and for sources with precompiled headers.
    export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  # In CI each build happens once.
  [ -z "${CI:-}" ] || [ "$preset" = quickstart ] || options+=(-DCMAKE_UNITY_BUILD_BATCH_SIZE="$unit_size")
  # Precompiled headers save nothing in units of this size, and clang's differ in each build, which defeats ccache.
  [ -z "${CI:-}" ] || [ "$preset" != fuzz ] || options+=(-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
  mkdir -p $logs
  if ! cmake --preset "$preset" "${options[@]}" >$logs/"$preset"-configure.log 2>&1; then
    tail -n 30 $logs/"$preset"-configure.log >&2
    die "cmake could not configure the build"
  fi
  logged "$preset"-build.log cmake --build --preset "$preset" ${1+--target "$@"} ||
    die "the build failed"
  note "built in $((SECONDS - began)) s"
}
