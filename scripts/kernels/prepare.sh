# Sourced by run_in_kernel.sh: a Debian kernel as QEMU boots it, vmlinux and an initrd, in a cache.
source scripts/debian_packages.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/memtrace-kernels

# The newest kernel of each series is in the security suites and the backports, whose lists are small.
update_kernel_lists() {
  update_lists "$cache/apt" "debian-security bullseye-security" "debian-security bookworm-security" \
    "debian-security trixie-security" "debian trixie-backports" || say "some of Debian's lists could not be had"
}

# SERIES, as 6.1: the name of its newest kernel, as 6.1.0-57-amd64.
newest_kernel() {
  apt_of "$cache/apt" apt-cache search --names-only "^linux-image-${1//./\\.}([.-][0-9.]+)*([+]deb[0-9]+)?(-[0-9]+)?-amd64\$" |
    sed 's/^linux-image-\([^ ]*\) .*/\1/' | sort -V | tail -n 1
}

number_at() {
  od -An -tu"$3" -j"$2" -N"$3" "$1" | tr -d ' '
}

# BZIMAGE VMLINUX: unpacked here, which the guest would do slowly (Documentation/arch/x86/boot.rst: setup_sects, payload).
unpack_vmlinux() {
  local offset length magic unpack
  offset=$((($(number_at "$1" 0x1f1 1) + 1) * 512 + $(number_at "$1" 0x248 4)))
  length=$(($(number_at "$1" 0x24c 4) - 4))
  magic=$(od -An -tx1 -j"$offset" -N4 "$1" | tr -d ' ')
  case $magic in
    fd377a58) unpack="xz -dc" ;;
    28b52ffd) unpack="zstd -dcq" ;;
    02214c18) unpack="lz4 -dcq" ;;
    1f8b*) unpack="gzip -dc" ;;
    *) say "unknown compression $magic of $1"; return 1 ;;
  esac
  dd if="$1" iflag=skip_bytes,count_bytes,fullblock skip="$offset" count="$length" bs=1M status=none | $unpack >"$2"
}

# TREE STAGE NAME: the module's file after those that it depends on, numbered in the order of loading.
add_module() {
  local file dependency
  case " ${loaded_modules-} " in *" $3 "*) return ;; esac
  loaded_modules="${loaded_modules-} $3"
  file=$(find "$1" -name "${3//[-_]/[-_]}.ko*" | head -n 1)
  [ -n "$file" ] || return 0 # built in
  case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -dcq "$file" ;;
    *.gz) gzip -dc "$file" ;;
    *) cat "$file" ;;
  esac >"$2/module.$3"
  for dependency in $(tr '\0' '\n' <"$2/module.$3" | sed -n 's/^depends=//p' | tr , ' '); do
    add_module "$1" "$2" "$dependency"
  done
  mv "$2/module.$3" "$2/modules/$(printf %03d "$(find "$2/modules" -type f | wc -l)")-$3.ko"
}

# KERNEL DIRECTORY: downloads the packages of the kernel into the directory and unpacks what is needed in DIRECTORY/tree.
download_kernel() {
  local part packages=() package
  for part in image binary modules; do # from 7.x on the files are in three packages
    [ -z "$(apt_of "$cache/apt" apt-cache search --names-only "^linux-$part-${1//+/[+]}\$")" ] || packages+=("linux-$part-$1")
  done
  [ ${#packages[@]} -gt 0 ] || { say "no package has the kernel $1"; return 1; }
  (cd "$2" && apt_of "$cache/apt" apt-get download "${packages[@]}") >&2 || { say "cannot download ${packages[*]}"; return 1; }
  mkdir -p "$2/tree"
  for package in "$2"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$2/tree" --wildcards --no-wildcards-match-slash \
      './boot/vmlinuz-*' './lib/modules/*/vmlinuz' './usr/lib/modules/*/vmlinuz' --wildcards-match-slash \
      '*/kernel/fs/*' '*/kernel/net/9p/*' '*/kernel/drivers/virtio/*' '*/kernel/lib/*' 2>/dev/null || true
  done
}

# KERNEL: makes CACHE/KERNEL/vmlinux and initrd.
prepare_kernel() {
  local work image module
  work=$(mktemp -d "$cache/new.XXXXXX")
  download_kernel "$1" "$work" || return 1
  image=$(find "$work/tree" -name 'vmlinuz*' | head -n 1)
  [ -n "$image" ] || { say "the packages of $1 have no vmlinuz"; return 1; }
  unpack_vmlinux "$image" "$work/vmlinux" || return 1
  mkdir -p "$work/stage"/{bin,dev,proc,sys,root,repository,modules}
  cp "$(command -v busybox)" "$work/stage/bin/busybox"
  for module in virtio_pci 9pnet_virtio 9p; do add_module "$work/tree" "$work/stage" "$module"; done
  install -m 755 scripts/kernels/guest_init.sh "$work/stage/init"
  cp scripts/kernels/guest_command.sh "$work/stage/guest_command.sh"
  (cd "$work/stage" && find . | cpio -o -H newc --quiet -R 0:0) >"$work/initrd"
  rm -rf "$work/tree" "$work/stage" "$work"/*.deb "${cache:?}/$1"
  mv "$work" "$cache/$1"
}
