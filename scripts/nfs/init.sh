#!/bin/busybox sh
# The first process of the virtual machine of nfs.sh, on its first root file system. The second one has the files of the real
# machine below a file system in memory, which takes what is written.
/bin/busybox mkdir -p /proc /sys /dev /files /written /all
/bin/busybox --install -s /bin
PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe $module
done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose root /files
mount -t tmpfs -o mode=755,size=80% tmpfs /written
mkdir /written/upper /written/work
mount -t overlay -o lowerdir=/files,upperdir=/written/upper,workdir=/written/work overlay /all
command=$(sed 's/.*command=\([^ ]*\).*/\1/' /proc/cmdline)
script=$(sed -n 's/^cd //p' "/all$command")/scripts/nfs/machine.sh
for dir in proc sys dev; do
    mount --move /$dir /all/$dir
done
exec switch_root /all /bin/bash "$script" "$command"
