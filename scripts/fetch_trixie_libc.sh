#!/usr/bin/env bash
# scripts/fetch_trixie_libc.sh DIR: unpacks Debian 13's C library (glibc 2.41) into DIR, from the machine's own Debian
# mirror; nothing is installed. Does nothing where DIR has it already.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"
source scripts/debian_packages.sh

[ $# = 1 ] || { say "name a directory; --help tells more"; exit 2; }
directory=$(realpath -m "$1")
[ ! -e "$directory/usr/lib/x86_64-linux-gnu/libc.so.6" ] || exit 0
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
update_lists "$state" "debian trixie"
(cd "$state" && apt_of "$state" apt-get download libc6)
mkdir -p "$directory"
dpkg-deb -x "$state"/libc6_*.deb "$directory"
