#!/usr/bin/env bash
# scripts/build.sh [--directory DIR] [--sanitize] [--tests] [TARGET...]: builds TARGETs, or all (memtrace alone without
# --tests), in DIR (build). Installs missing packages first.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

directory=build
sanitize=OFF
tests=OFF
while [ $# -gt 0 ]; do
  case "$1" in
    --directory) directory=$2; shift ;;
    --sanitize) sanitize=ON ;;
    --tests) tests=ON ;;
    -*) say "no such option: $1; --help shows them"; exit 2 ;;
    *) break ;;
  esac
  shift
done

if [ "$tests" = ON ]; then scripts/install_packages.sh test; else scripts/install_packages.sh build; fi
mkdir -p "$directory"
cmake -S . -B "$directory" -G Ninja -DMEMTRACE_TESTS="$tests" -DMEMTRACE_SANITIZE="$sanitize" \
  >"$directory/configure.log" 2>&1 || { cat "$directory/configure.log" >&2; exit 1; }
ninja -C "$directory" --quiet "$@"
