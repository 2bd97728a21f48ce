#!/usr/bin/env bash
# scripts/test.sh [--quick]: builds, checks and runs every test; the last line is `N passed, N failed, N skipped`, in
# which each Catch2 test case counts one, and so does each check: laws and clang-tidy, build, sanitizers. --quick leaves
# out clang-tidy and the sanitizers. Installs missing packages first. Tests that need root use sudo, or are skipped.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

passed=0
failed=0
skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# check NAME COMMAND...: one thing that passes or fails.
check() {
  local name=$1 begin=$SECONDS
  shift
  say "$name ..."
  if "$@"; then
    passed=$((passed + 1))
    say "$name passed in $((SECONDS - begin)) s"
  else
    failed=$((failed + 1))
    say "$name FAILED"
  fi
}

# The number before WORD in Catch2's last lines: "test cases: 9 | 7 passed | 2 failed", "(80 assertions in 9 test cases)".
catch2_count() {
  local count
  case "$1" in
    passed) count=$(sed -n 's/.*All tests passed (.* in \([0-9]*\) test case.*/\1/p' "$log" | tail -n 1) ;;
    *) count= ;;
  esac
  [ -n "$count" ] || count=$(sed -n "s/.*test cases:.*| *\([0-9]*\) $1 *\(|.*\)\{0,1\}$/\1/p" "$log" | tail -n 1)
  echo "${count:-0}"
}

# suite LABEL [COMMAND-PREFIX...]: the Catch2 program of the label, by ctest.
suite() {
  local label=$1 status=0 suite_failed suite_skipped
  shift
  say "tests of $label ..."
  "$@" ctest --test-dir build --no-tests=error --label-regex "^$label\$" --verbose >"$log" 2>&1 || status=$?
  if [ "$status" != 0 ]; then cat "$log" >&2; fi
  suite_failed=$(catch2_count failed)
  suite_skipped=$(catch2_count skipped)
  # A program that was killed, timed out or does not exist has no count of its own.
  if [ "$status" != 0 ] && [ "$suite_failed" = 0 ]; then suite_failed=1; fi
  if grep --quiet '\*\*\*Skipped' "$log" && [ "$suite_skipped" = 0 ]; then suite_skipped=1; fi
  passed=$((passed + $(catch2_count passed)))
  failed=$((failed + suite_failed))
  skipped=$((skipped + suite_skipped))
  say "tests of $label: $(catch2_count passed) passed, $suite_failed failed, $suite_skipped skipped"
}

sanitized_unit_tests() {
  scripts/build.sh --directory build-sanitize --sanitize --tests unit_tests &&
    build-sanitize/tests/unit_tests
}

check build scripts/build.sh --tests
if [ "${1:-}" = --quick ]; then
  check lint scripts/lint.sh
else
  check lint scripts/lint.sh --all
  check sanitizers sanitized_unit_tests
fi
suite unit
scripts/fetch_trixie_libc.sh build/trixie_libc || say "no glibc of Debian 13: its test is skipped"
for label in bpf e2e; do
  if [ "$(id -u)" = 0 ]; then
    suite "$label"
  elif command -v sudo >/dev/null; then
    suite "$label" sudo
  else
    say "tests of $label skipped: they need root, and there is no sudo"
    skipped=$((skipped + 1))
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
