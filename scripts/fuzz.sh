#!/usr/bin/env bash
# scripts/fuzz.sh [--seconds N] [NAME...]: feeds each parser of what is not ours (tests/fuzz/NAME_fuzz.cpp) with inputs that
# libFuzzer makes, for N (120) seconds each, under AddressSanitizer and UndefinedBehaviorSanitizer. What makes one fail is
# left in build-fuzz/NAME; it belongs in tests/fuzz/NAME_corpus with the mend. Installs and builds what is missing.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

seconds=120
if [ "${1:-}" = --seconds ]; then seconds=$2; shift 2; fi
scripts/install_packages.sh fuzz
mkdir -p build-fuzz
cmake -S . -B build-fuzz -G Ninja -DMEMTRACE_FUZZ=ON >build-fuzz/configure.log 2>&1 || { cat build-fuzz/configure.log >&2; exit 1; }

names=("$@")
if [ $# = 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" _fuzz.cpp)"); done
fi
failed=0
for name in "${names[@]}"; do
  ninja -C build-fuzz --quiet "fuzz_$name"
  mkdir -p "build-fuzz/$name"
  log=build-fuzz/$name.log
  if build-fuzz/tests/fuzz/"${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="build-fuzz/$name/failure-" "build-fuzz/$name" "tests/fuzz/${name}_corpus" >"$log" 2>&1; then
    say "$name: $(grep --only-matching 'Done [0-9]* runs' "$log") and nothing found"
  else
    tail -n 40 "$log" >&2
    say "$name: FAILED, see $log"
    failed=$((failed + 1))
  fi
done
[ "$failed" = 0 ]
