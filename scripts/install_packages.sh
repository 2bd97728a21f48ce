#!/usr/bin/env bash
# scripts/install_packages.sh [build|test|kernels|fuzz]: installs the Debian packages that are missing for building (default),
# for building and testing, for other kernels, or for fuzzing. Needs root or sudo only if something is missing.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

packages=(
  g++ make cmake ninja-build pkg-config ca-certificates git
  clang bpftool libbpf-dev
  libelf-dev libdw-dev libdebuginfod-dev zlib1g-dev libzydis-dev libzycore-dev libiberty-dev libmd-dev
  libcli11-dev libfmt-dev nlohmann-json3-dev libjemalloc-dev
)
case "${1:-build}" in
  build) ;;
  test)
    packages+=(
      catch2 clang-format clang-tidy gdb binutils python3 procps
      elfutils dwz xz-utils llvm-14 libdebuginfod1 debuginfod nodejs
      libgoogle-perftools-dev libmimalloc-dev musl-tools dietlibc-dev redis-server redis-tools nginx-light
      debian-archive-keyring libgc-dev strace util-linux libcap2-bin postgresql
    )
    command -v rustc >/dev/null || packages+=(rustc)
    command -v go >/dev/null || packages+=(golang-go)
    # Not every release has it: without it a few tests are skipped.
    if ! command -v crystal >/dev/null && apt-cache show crystal >/dev/null 2>&1; then packages+=(crystal); fi
    ;;
  fuzz) packages+=(libclang-rt-14-dev catch2) ;;
  kernels) packages=(qemu-system-x86 busybox-static cpio xz-utils zstd lz4 debian-archive-keyring) ;;
  *) say "no such group: $1; write build, test, kernels or fuzz"; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || { say "missing: ${missing[*]}; there is no apt-get to install them"; exit 1; }
say "installing ${missing[*]}"
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq)
as_root "${apt[@]}" update
as_root "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null >/dev/null
