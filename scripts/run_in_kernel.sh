#!/usr/bin/env bash
# scripts/run_in_kernel.sh [--seconds N] SERIES COMMAND: runs COMMAND by bash, as root, in this directory and environment, under
# the newest Debian kernel of SERIES (5.10, 6.1, 6.12, 7.3), on this machine's own files, which it can read only; /tmp is its own. Its
# output and its exit status are the script's own; 124: ended after N (600) seconds, 125: there is no such kernel, 126:
# the guest died. QEMU emulates the processor (no KVM), which makes programs about ten times slower.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"
source scripts/kernels/prepare.sh

limit_seconds=600
if [ "${1:-}" = --seconds ]; then limit_seconds=$2; shift 2; fi
[ $# = 2 ] || { say "write a series of kernels and a command; --help shows how"; exit 2; }
series=$1
command=$2

kernel_of_series() {
  local lists_age_minutes=720 name
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9
  [ -n "$(find "$cache/apt/sources.list" -mmin -"$lists_age_minutes" 2>/dev/null)" ] || update_kernel_lists
  name=$(newest_kernel "$series")
  [ -n "$name" ] || { say "Debian has no kernel $series"; return 1; }
  [ "$cache/$name/initrd" -nt scripts/kernels/guest_init.sh ] && [ "$cache/$name/initrd" -nt scripts/kernels/guest_command.sh ] ||
    prepare_kernel "$name" || return 1
  exec 9>&-
  echo "$cache/$name"
}

kernel=$(kernel_of_series) || exit 125
job=$(mktemp -d "$cache/job.XXXXXX")
trap 'rm -rf "$job"' EXIT
{ export -p; printf 'cd %q\n' "$PWD"; printf '%s\n' "$command"; } >"$job/command"
# no_timer_check: on a busy host the guest misses the ticks that it counts at its start, and gives up.
timeout --foreground --kill-after=5 "$limit_seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu qemu64 -smp 1 -m 4096 \
  -nodefaults -no-user-config -display none -no-reboot -kernel "$kernel/vmlinux" -initrd "$kernel/initrd" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check memtrace_repository=$PWD memtrace_job=$job" \
  -serial "file:$job/console" -serial stdio \
  -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
  -device virtio-9p-pci,fsdev=root,mount_tag=root </dev/null 2>"$job/qemu" || qemu_status=$?
status=$(tr -d '\r' <"$job/console" | sed -n "s|^$job status ||p" | tail -n 1)
if [ -n "$status" ]; then exit "$status"; fi
cat "$job/qemu" >&2
tail -n 30 "$job/console" >&2
if [ "${qemu_status:-0}" = 124 ]; then say "ended after $limit_seconds s"; exit 124; fi
say "the guest (${kernel##*/}) died"
exit 126
