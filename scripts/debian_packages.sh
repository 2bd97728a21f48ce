# Sourced by scripts that unpack Debian packages: from the machine's own mirror, by apt with a state of its own in a
# directory. Nothing is installed, and the machine's own lists stay as they are.

# STATE COMMAND...: an apt command with the state in the directory STATE.
apt_of() {
  "$2" -qq -o Dir::Etc::sourcelist="$1/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
    -o Dir::State::lists="$1/lists" -o Dir::Cache="$1/cache" -o Dir::State::status=/dev/null \
    -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o APT::Sandbox::User=root "${@:3}"
}

# STATE SUITE...: downloads the lists of the suites, each as "debian trixie", into the directory STATE.
update_lists() {
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg mirror suite
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | sed -n 's|/debian/*$||p' | head -n 1)
  if [ -z "$mirror" ] || [ ! -e "$keyring" ]; then
    say "there is no Debian mirror among apt's sources, or no $keyring"
    return 1
  fi
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  for suite in "${@:2}"; do
    echo "deb [signed-by=$keyring] $mirror/$suite main"
  done >"$1/sources.list"
  apt_of "$1" apt-get update >&2
}
