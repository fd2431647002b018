# Makes the root of a container, and runs systemd in it as process 1. Called in its own namespaces: mounts, processes,
# host name, IPC, network, cgroups. The system's /usr is there, read-only; everything else is made here, and
# disappears with the container.
#
# $1: an empty directory, $2: files to put there, $3: the program h5logfs, $4: a directory for the journal.
set -eu
root=$1 files=$2 program=$3 journal=$4

mount --make-rprivate /
mount -t tmpfs -o mode=755 container "$root"
cd "$root"
mkdir -p usr proc sys dev run tmp var/log/journal var/lib var/cache etc/systemd/system-generators root home old
chmod 1777 tmp
for dir in bin lib lib64; do ln -s usr/$dir $dir; done

# The program, and the helper of mount(8), which is looked up in /sbin, not in /usr.
mount --rbind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs -o mode=755 local usr/local
mkdir usr/local/bin sbin
touch usr/local/bin/h5logfs
mount --bind "$program" usr/local/bin/h5logfs
ln -s /usr/sbin/* sbin/
ln -s /usr/local/bin/h5logfs sbin/mount.h5logfs

# The system's libraries and PAM, but no services.
for name in alternatives ld.so.cache ld.so.conf ld.so.conf.d nsswitch.conf login.defs pam.d security fuse.conf; do
    test ! -e /etc/$name || cp -a /etc/$name etc/
done
printf '%s\n' root:x:0:0::/root:/bin/sh messagebus:x:100:100::/:/bin/false user:x:1000:1000::/home/user:/bin/sh \
    nobody:x:65534:65534::/:/bin/false >etc/passwd
printf '%s\n' root:x:0: tty:x:5: messagebus:x:100: systemd-journal:x:101: utmp:x:102: user:x:1000: nogroup:x:65534: >etc/group
printf '%s\n' root:*:1:::::: user:*:1:::::: >etc/shadow
chmod 600 etc/shadow
echo ID=debian >etc/os-release
echo 0123456789abcdef0123456789abcdef >etc/machine-id
touch etc/fstab etc/.updated var/.updated
for generator in sysv getty; do ln -s /dev/null etc/systemd/system-generators/systemd-$generator-generator; done
# Debian's presets.
mkdir -p etc/systemd/system/multi-user.target.wants
ln -s /lib/systemd/system/remote-fs.target etc/systemd/system/multi-user.target.wants/
cp -a "$files/." .

# Kernel settings are those of the machine, and read-only.
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755,dev dev dev
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229 autofs:10:235; do
    numbers=${node#*:}
    mknod -m 666 "dev/${node%%:*}" c "${numbers%:*}" "${numbers#*:}"
done
mkdir dev/pts dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount --bind "$journal" var/log/journal

pivot_root . old
cd /
umount -l old
rmdir old
# As systemd does on a machine: services with their own mounts see unmounts.
mount --make-rshared /
exec env -i container=h5logfs-test PATH=/usr/local/bin:/usr/bin:/sbin /lib/systemd/systemd \
    --system --unit=multi-user.target
