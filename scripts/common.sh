# What the scripts share; they source it. Sets the working directory to the repository and defines:
#   usage_if_asked "$@"   prints the caller's first comment block and ends, if the first argument is -h or --help
#   say TEXT              one line to stderr, with the script's name
#   as_root COMMAND...    runs it as root: directly, or by sudo; status 77 if neither is possible
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
script_path=$(basename "$0")

usage_if_asked() {
  case "${1:-}" in
    -h|--help) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "scripts/$script_path"; exit 0 ;;
  esac
}

say() {
  echo "${script_path%.sh}: $*" >&2
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "root is needed for '$1', and there is no sudo"
    return 77
  fi
}
