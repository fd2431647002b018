#!/usr/bin/env bash
# machine.sh COMMAND: the first process of the virtual machine of nfs.sh, with the files of the real machine. Runs the
# command in a file, tells its status, and ends the machine.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/shm /dev/pts /run/rpc_pipefs
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
hostname machine
ip link set lo up

# The kernel loads what it needs by a program of this name.
ln -s "$(command -v busybox)" /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
modules=$(sed -n 's/^modules=//p' "$1")
mkdir -p /lib/modules
mount --bind "$modules" /lib/modules
for module in fuse loop ext4 crc32c_generic veth bridge nfsv4 nfsd; do
    /run/modprobe "$module"
done

for port in /dev/ttyS0 /dev/ttyS1; do
    busybox stty -F $port -onlcr
done
bash "$1" </dev/null >/dev/ttyS0 2>&1
echo $? >/dev/ttyS1
echo 0 >/proc/sys/kernel/printk
# Without writing what is in memory: a file server may be gone.
busybox poweroff -n -f
