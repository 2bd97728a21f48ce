#!/usr/bin/env bash
# scripts/test_kernels.sh [SERIES...]: the bpf tests and some of the e2e tests under other kernels (6.1, 6.12 and the newest
# of the backports), in QEMU; and that 5.10 is refused in one clear line. The last line is `N passed, N failed, N skipped`,
# in which each Catch2 test case of each kernel counts one. A kernel that Debian does not have any more is skipped.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"
scripts/install_packages.sh kernels
scripts/build.sh --tests

series_to_test=("$@")
[ $# -gt 0 ] || series_to_test=(5.10 6.1 6.12 7.3)
# e2e cases that say most about a kernel in little time: emulation makes programs ten times slower.
e2e_tags="[kernels]"
passed=0
failed=0
skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# WORD: the number before it in Catch2's last lines of all programs that ran.
count_of() {
  local from_all=0 from_parts
  if [ "$1" = passed ]; then
    from_all=$(sed -n 's/.*All tests passed (.* in \([0-9]*\) test case.*/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')
  fi
  from_parts=$(sed -n "s/.*test cases:.*| *\([0-9]*\) $1 *\(|.*\)\{0,1\}$/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }')
  echo $((from_all + from_parts))
}

# Linux 5.10 lacks what memtrace needs, and it says so with status 69.
refuse_old_kernel() {
  local status=0
  scripts/run_in_kernel.sh "$1" 'build/memtrace -p 1 1s 1' >"$log" 2>&1 || status=$?
  if [ "$status" = 125 ]; then skipped=$((skipped + 1)); say "$1: skipped, it could not be had"; return; fi
  if [ "$status" = 69 ] && grep --quiet 'Linux 6.1 or newer' "$log"; then
    passed=$((passed + 1))
    say "$1: refused, as it should be"
  else
    failed=$((failed + 1))
    cat "$log" >&2
    say "$1: FAILED, status $status in place of 69"
  fi
}

# SERIES: the ways to attach that it has (Linux 6.6: multi, 6.13: session); e2e cases of one way take the first.
rungs_of() {
  case $1 in
    6.1) echo perf ;;
    6.12) echo multi perf ;;
    *) echo session multi perf ;;
  esac
}

test_kernel() {
  local begin=$SECONDS status=0
  MEMTRACE_TEST_RUNGS=$(rungs_of "$1") scripts/run_in_kernel.sh --seconds 1500 "$1" \
    "build/tests/bpf_tests --use-colour no; a=\$?; build/tests/e2e_tests '$e2e_tags' --use-colour no; b=\$?; exit \$((a | b))" \
    >"$log" 2>&1 || status=$?
  if [ "$status" = 125 ]; then skipped=$((skipped + 1)); say "$1: skipped, it could not be had"; return; fi
  [ "$status" = 0 ] || cat "$log" >&2
  local kernel_failed
  kernel_failed=$(count_of failed)
  if [ "$status" != 0 ] && [ "$kernel_failed" = 0 ]; then kernel_failed=1; fi
  passed=$((passed + $(count_of passed)))
  skipped=$((skipped + $(count_of skipped)))
  failed=$((failed + kernel_failed))
  say "$1: $(count_of passed) passed, $kernel_failed failed in $((SECONDS - begin)) s"
}

for series in "${series_to_test[@]}"; do
  case $series in
    5.*) refuse_old_kernel "$series" ;;
    *) test_kernel "$series" ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
