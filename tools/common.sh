# What tools/setup, tools/demo and tools/test share. Sourced by bash, from any directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
started=$SECONDS

say() { printf '%s\n' "[$((SECONDS - started)) s] $*"; }
die() {
  printf '%s\n' "$*" >&2
  exit 1
}

# Runs a command with its output in build/logs/NAME.log; shows the end of it if the command fails.
quietly() {
  local name=$1 log
  shift
  mkdir -p "$root/build/logs"
  log=$root/build/logs/$name.log
  if ! "$@" > "$log" 2>&1 < /dev/null; then
    tail -n 60 "$log" >&2
    die "failed: $* (the whole output: build/logs/$name.log)"
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    die "installing packages needs root or sudo: $*"
  fi
}

# Two jobs at least: a build on one core should still overlap compiling with reading.
jobs() {
  local n
  n=$(nproc)
  [ "$n" -gt 1 ] || n=2
  echo "$n"
}

configure_and_build() { # PRESET TARGETS…; with cmake_options, if they are set
  local preset=$1
  shift
  say "configuring and building preset $preset"
  local launcher=()
  if command -v ccache > /dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    # Another clone finds what this one has compiled, what uses precompiled headers too.
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    export CCACHE_IGNOREOPTIONS='-fmacro-prefix-map=*'  # it has this clone's path
  fi
  quietly "configure-$preset" cmake --preset "$preset" "${launcher[@]}" ${cmake_options[@]+"${cmake_options[@]}"}
  quietly "build-$preset" cmake --build "build/$preset" -j "$(jobs)" ${1+--target "$@"}
}
