# The verbs of the project. Each is a script that runs alone and prints its usage with -h.
.DEFAULT_GOAL := build
.PHONY: build test test-kernels fuzz soak demo bench format lint clean help

build:  ## build/memtrace
	@scripts/build.sh
test:  ## install what is missing, build, check, run every test; ends with a count
	@scripts/test.sh
test-kernels:  ## the tests of the kernel side under other kernels, in QEMU; ends with a count
	@scripts/test_kernels.sh
fuzz:  ## feed every parser of what is not ours with made-up input, two minutes each
	@scripts/fuzz.sh
soak:  ## an hour of tracing: memory, descriptors and mappings of memtrace stay, figures stay exact
	@scripts/soak.sh
demo:  ## find the leak of a small server with memtrace
	@scripts/demo.sh
bench:  ## what tracing costs per malloc and free, beside empty probes
	@scripts/bench.sh
format:  ## put the sources in the house's format
	@scripts/format.sh
lint:  ## house laws, format and clang-tidy
	@scripts/lint.sh --all
clean:  ## remove what was built
	@rm -rf build build-sanitize build-fuzz
help:  ## this list
	@sed -n 's/^\([a-z-]*\):  ## /make \1\t/p' Makefile | expand -t 20
