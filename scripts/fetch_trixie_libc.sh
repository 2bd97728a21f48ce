#!/usr/bin/env bash
# scripts/fetch_trixie_libc.sh DIR: unpacks Debian 13's C library (glibc 2.41) into DIR, from the machine's own Debian
# mirror, with an apt state of its own: nothing is installed. Does nothing where DIR has it already.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

[ $# = 1 ] || { say "name a directory; --help tells more"; exit 2; }
directory=$(realpath -m "$1")
[ ! -e "$directory/usr/lib/x86_64-linux-gnu/libc.so.6" ] || exit 0
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# shellcheck disable=SC2016  # apt's own variable
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | head -n 1)
if [ -z "$mirror" ] || [ ! -e "$keyring" ]; then
  say "there is no Debian mirror among apt's sources, or no $keyring"
  exit 1
fi

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
echo "deb [signed-by=$keyring] $mirror trixie main" >"$state/sources.list"
chmod -R a+rX "$state"
apt=(apt-get -qq -o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=-
  -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state/cache" -o Acquire::Languages=none -o Acquire::Retries=0
  -o Acquire::http::Timeout=10)
"${apt[@]}" update
(cd "$state" && "${apt[@]}" download libc6)
mkdir -p "$directory"
dpkg-deb -x "$state"/libc6_*.deb "$directory"
