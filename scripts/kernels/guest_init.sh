#!/bin/busybox sh
# In the guest, first: from the initramfs to the host's files, read-only, with memory at /tmp and /run. No overlay on top:
# /proc/PID/maps would show other numbers for a file than the kernel itself knows it by.
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
exec >/dev/console 2>&1 </dev/null
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
for module in /modules/*.ko; do $busybox insmod "$module"; done
share=trans=virtio,version=9p2000.L,msize=512000
$busybox mount -t 9p -o $share,ro,cache=loose root /root || $busybox poweroff -f
$busybox mount -t tmpfs run /root/run
# The repository may be below the host's /tmp.
repository=$($busybox sed 's/.*memtrace_repository=\([^ ]*\).*/\1/' /proc/cmdline)
$busybox mount --bind "/root$repository" /repository
$busybox mount -t tmpfs tmp /root/tmp
$busybox mkdir -p "/root$repository"
$busybox mount --move /repository "/root$repository"
$busybox cp /bin/busybox /guest_command.sh /root/run
for directory in dev proc sys; do $busybox mount --move /$directory /root/$directory; done
exec $busybox switch_root /root /run/busybox sh /run/guest_command.sh
