#!/usr/bin/env bash
# scripts/soak.sh [SECONDS]: traces a server whose workers come and go for SECONDS (3600), and threads at full speed; fails
# when memtrace's memory, descriptors or mappings grow, or a figure is not exact. Needs root or sudo. Builds what is missing.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

scripts/build.sh --tests memtrace e2e_tests
as_root env MEMTRACE_TEST_SOAK_SECONDS="${1:-3600}" build/tests/e2e_tests '[.soak]'
