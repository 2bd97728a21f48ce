# In the guest, then: the mounts that a tracer needs, the command, its status on the console, and off.
exec >/dev/console 2>&1 </dev/null
busybox=/run/busybox
job=$($busybox sed 's/.*memtrace_job=\([^ ]*\).*/\1/' /proc/cmdline)
$busybox mount -t tracefs tracefs /sys/kernel/tracing
$busybox mount -t debugfs debugfs /sys/kernel/debug
$busybox mount -t bpf bpf /sys/fs/bpf
$busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
$busybox mkdir -p /dev/pts /dev/shm
$busybox mount -t devpts -o ptmxmode=666 devpts /dev/pts
$busybox mount -t tmpfs shm /dev/shm
$busybox ln -sf /proc/self/fd /dev/fd
$busybox ip link set lo up
$busybox stty -F /dev/ttyS1 raw -echo
ulimit -l unlimited
/bin/bash "$job/command" >/dev/ttyS1 2>&1 </dev/null
status=$?
$busybox sync
# Waits until all is out.
$busybox stty -F /dev/ttyS1 raw -echo
echo
echo "$job status $status"
exec $busybox poweroff -f
