#!/usr/bin/env bash
# scripts/tidy.sh [--directory DIR] [FILE...]: clang-tidy with the checks of .clang-tidy over FILEs, or over every C++
# source of userspace/ in the build in DIR (build), two at a time. Minutes for all. The tests are left out: their
# precompiled header is GCC's, which clang cannot read.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

directory=build
if [ "${1:-}" = --directory ]; then
  directory=$2
  shift 2
fi
[ -f "$directory/compile_commands.json" ] || { say "$directory is not configured: run make first"; exit 2; }
ninja -C "$directory" --quiet memtrace_skel_files

if [ $# = 0 ]; then
  mapfile -t sources < <(sed -n 's/^ *"file": "\(.*\/userspace\/.*\.cpp\)".*/\1/p' "$directory/compile_commands.json" | sort -u)
else
  sources=("$@")
fi
# -Wpedantic is the compiler's part: here it would complain about libbpf's macros.
printf '%s\0' "${sources[@]}" |
  xargs -0 --max-args=1 --max-procs="$(nproc)" \
    clang-tidy --quiet --extra-arg=-Wno-pedantic -p "$directory" 2> >(grep -v ' warnings\? generated' >&2)
