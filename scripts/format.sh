#!/usr/bin/env bash
# scripts/format.sh [--check]: formats every C and C++ source with clang-format; with --check changes nothing and fails
# if something would change.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run --Werror)
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h' '*.cpp' '*.hpp' |
  xargs -0 --no-run-if-empty clang-format "${mode[@]}"
