#!/bin/busybox sh
# In the guest, first: from the initramfs to the host's files, read-only below an overlay in memory.
busybox=/bin/busybox
$busybox mount -t devtmpfs dev /dev
exec >/dev/console 2>&1 </dev/null
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
for module in /modules/*.ko; do $busybox insmod "$module"; done
share=trans=virtio,version=9p2000.L,msize=512000
$busybox mount -t 9p -o $share,ro,cache=loose host /host || $busybox poweroff -f
$busybox mount -t tmpfs memory /memory && $busybox mkdir /memory/upper /memory/work
$busybox mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /root || $busybox poweroff -f
$busybox mount -t tmpfs run /root/run
$busybox cp /bin/busybox /guest_command.sh /root/run
for directory in dev proc sys; do $busybox mount --move /$directory /root/$directory; done
exec $busybox switch_root /root /run/busybox sh /run/guest_command.sh
