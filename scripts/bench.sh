#!/usr/bin/env bash
# scripts/bench.sh [--rounds N] [--attach session|multi|perf] [--json FILE] [--program NAME]: nanoseconds for one malloc and its free
# without a tracer, with empty probes, under memtrace and sampled, real programs, links, as a table and as JSON; then what a stack costs: walks beside
# the kernel's own, and unwind tables. Takes 15 minutes where a trap costs
# microseconds, and wants a quiet machine; --program measures one real program alone. Installs and builds what is missing. Needs root
# or sudo.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

scripts/build.sh --tests bench unwind_bench
as_root build/tests/bench/bench "$@"
as_root build/tests/bench/unwind/unwind_bench
