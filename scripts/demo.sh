#!/usr/bin/env bash
# scripts/demo.sh [INTERVAL [COUNT]]: starts a small server that leaks, and lets memtrace find the leak: COUNT (3)
# reports, one every INTERVAL (2) seconds. Installs and builds what is missing. Needs root or sudo.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
  say "memtrace must run as root, and there is no sudo"
  exit 77
fi
scripts/build.sh
g++ -std=c++20 -O2 -g -fno-omit-frame-pointer -pthread scripts/demo/leaky_server.cpp -o build/leaky_server
build/leaky_server &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
memtrace=(build/memtrace -p "$server" -T 3 "${1:-2}" "${2:-3}")
say "build/leaky_server runs as process $server and leaks; where? Now: ${memtrace[*]}"
as_root "${memtrace[@]}"
