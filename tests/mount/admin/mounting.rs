//! The ways in which administrators mount: mount(8), /etc/fstab, autofs. Each is really used.
//!
//! Every test runs a shell script as root in its own mount and process namespaces. There the system's directories are
//! covered: /sbin has the helper, /usr/local/bin the program, and /etc/fstab belongs to the test. Nothing outside
//! changes, and all mounts and processes disappear with the namespaces, even after a failure. Where this is
//! impossible a test says so and passes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{PROGRAM, User, can_act, can_mount, is_root, source};

/// The start of every script. $W is the test's own directory, $SRC and $MNT are source and mount point; `as_user`
/// runs a command as an ordinary user.
const PREPARATION: &str = r#"
set -u
# Those of other tests would not end as long as they are here, too.
umount -l -a -t fuse.h5logfs
mount -t tmpfs -o mode=755 scratch "$W/scratch"
cd "$W/scratch"
mkdir sbin sbin.real bin
mount --bind /usr/sbin sbin.real
ln -s "$PWD"/sbin.real/* sbin/
ln -sf "$PROGRAM" sbin/mount.h5logfs
ln -s "$PROGRAM" bin/h5logfs
# What mount(8) notes, and the system's log: none.
mount -t tmpfs run /run
touch fstab
mount --bind fstab /etc/fstab
mount --bind bin /usr/local/bin
mount --bind sbin /usr/sbin
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

fail() { echo "FAILED: $*"; exit 1; }
fstab() { echo "$@" >/etc/fstab; }
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
as_other() { setpriv --reuid=65533 --regid=65533 --clear-groups -- "$@"; }
is_mounted() { [ "$(findmnt -n -o SOURCE -t fuse.h5logfs --mountpoint "$MNT")" = "$SRC" ]; }
expect_mounted() { is_mounted || fail "$1: not mounted"; }
expect_unmounted() { ! mountpoint -q "$MNT" || fail "$1: still mounted"; }
expect_text() { [ "$("$@" cat "$MNT/file")" = "some text" ] || fail "cannot read"; }
# The command must fail with this status and these words.
expect_failure() {
    local status words said
    status=$1 words=$2
    shift 2
    said=$("$@" 2>&1) && fail "$* did not fail"
    local found=$?
    [ $found -eq "$status" ] || fail "$*: status $found, not $status: $said"
    case $said in *"$words"*) ;; *) fail "$* said: $said" ;; esac
}
fails() { ! "$@" >/dev/null 2>&1; }
# Whether a mount of this type lies here; without going there, which autofs would count as use.
mounts_are() { grep -q " $2 .* - $1 " /proc/self/mountinfo; }
wait_until() {
    for _ in $(seq 100); do "$@" && return; sleep 0.1; done
    fail "waited in vain: $*"
}
"#;

struct Place {
    source: TempDir,
    work: TempDir,
}

/// A place for scripts; prints the reason if there is none.
fn place() -> Option<Place> {
    if !is_root() {
        eprintln!("skipped: only root has these ways to mount");
        return None;
    }
    if !can_mount(User::Caller) {
        return None;
    }
    if !namespaces(
        Path::new("/"),
        "mount -t tmpfs test /run && test -f /etc/fstab",
    )
    .status()
    .unwrap()
    .success()
    {
        eprintln!("skipped: no mount namespace with an /etc/fstab to cover can be had");
        return None;
    }
    let (source, work) = (source(User::Nobody), User::Caller.dir());
    fs::set_permissions(work.path(), Permissions::from_mode(0o755)).unwrap();
    for dir in ["scratch", "mnt"] {
        fs::create_dir(work.path().join(dir)).unwrap();
    }
    std::os::unix::fs::chown(work.path().join("mnt"), Some(65534), Some(65534)).unwrap();
    Some(Place { source, work })
}

/// A command that runs a script in its own namespaces.
fn namespaces(work: &Path, script: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args([
            "--kill-after=5",
            "100",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
        ])
        .args(["--kill-child", "--mount-proc", "--propagation=private"])
        .args(["bash", "-c", script])
        .current_dir(work)
        .env("W", work)
        .env("PROGRAM", PROGRAM)
        .env("EXAMPLES", concat!(env!("CARGO_MANIFEST_DIR"), "/mount"))
        .env("XDG_CACHE_HOME", work);
    command
}

impl Place {
    /// Runs a script, which must succeed.
    fn run(&self, script: &str) -> String {
        let script = format!("{PREPARATION}{script}\nexit 0");
        let output = namespaces(self.work.path(), &script)
            .env("SRC", self.source.path())
            .env("MNT", self.work.path().join("mnt"))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{}: {said}", output.status);
        said
    }
}

fn run(script: &str) {
    if let Some(place) = place() {
        place.run(script);
    }
}

fn run_with_user(script: &str) {
    if can_mount(User::Nobody) && can_act(User::Nobody) {
        run(script);
    }
}

#[test]
fn mount_with_either_type() {
    run_with_user(
        r#"
        for type in h5logfs fuse.h5logfs; do
            mount -t $type "$SRC" "$MNT" -o allow_other,cache_size=16M || fail "mount -t $type"
            expect_mounted $type
            expect_text as_user
            umount "$MNT" || fail "umount after $type"
            expect_unmounted $type
        done
        "#,
    );
}

/// Paths with characters special to a shell reach the program unchanged.
#[test]
fn paths_may_have_any_name() {
    run(r#"
        SRC=$W/"a b,c'\$(d)" MNT=$W/"mount, \"here\""
        mkdir "$SRC" "$MNT"
        echo "some text" >"$SRC/file"
        mount -t h5logfs "$SRC" "$MNT" || fail mount
        expect_text env
        umount "$MNT" || fail umount
        "#);
}

#[test]
fn the_flags_of_a_helper() {
    run(r#"
        mount -f -t h5logfs "$SRC" "$MNT" || fail "-f"
        expect_unmounted "-f"
        expect_failure 32 missing mount -f -t h5logfs "$SRC" "$MNT/missing"
        said=$(mount -v -t h5logfs "$SRC" "$MNT" 2>&1) || fail "-v"
        case $said in *"$SRC at $MNT"*) ;; *) fail "-v said: $said" ;; esac
        umount "$MNT"
        expect_failure 32 frobnicate mount -t h5logfs "$SRC" "$MNT" -o frobnicate
        expect_failure 32 "did you mean cache_size" mount -t h5logfs "$SRC" "$MNT" -o cache_sise=1G
        fstab "$SRC $MNT h5logfs allow_others 0 0"
        expect_failure 32 "did you mean allow_other" mount "$MNT"
        said=$(mount -s -n -t h5logfs "$SRC" "$MNT" -o frobnicate 2>&1) || fail "-s: $said"
        case $said in *frobnicate*) ;; *) fail "-s said: $said" ;; esac
        expect_mounted "-s"
        umount "$MNT"
        mount -t h5logfs.sub "$SRC" "$MNT" || fail "-t with a subtype"
        umount "$MNT"
        /sbin/mount.h5logfs "$SRC"
        [ $? -eq 1 ] || fail "no mount point"
        "#);
}

#[test]
fn a_mount_in_another_namespace() {
    run(r#"
        unshare --mount --propagation=private sh -c 'touch there; exec sleep 60' &
        other=$!
        wait_until test -e there
        mount -N /proc/$other/ns/mnt -t h5logfs "$SRC" "$MNT" || fail "-N"
        expect_unmounted "-N: here"
        nsenter --mount --target=$other cat "$MNT/file" || fail "-N: not there"
        "#);
}

#[test]
fn what_is_wrong_is_told_with_a_status() {
    run(r#"
        mount_it() { mount -t h5logfs "$@"; }
        expect_failure 32 "cache_size=3: less than 16M" mount_it "$SRC" "$MNT" -o cache_size=3
        expect_failure 32 "nosource: No such file" mount_it "$SRC/nosource" "$MNT"
        expect_failure 32 "must be a directory" mount_it "$SRC" "$SRC/file"
        mount_it "$SRC" "$MNT"
        expect_failure 32 "mounted here already" mount_it "$SRC" "$MNT"
        expect_failure 1 "cannot change the options" mount -o remount,cache_size=16M "$MNT"
        expect_mounted "after remount"
        expect_text env
        umount "$MNT"
        mount -t fuse.h5logfs "$SRC" "$MNT" -o cache_size=3 && fail "fuse.h5logfs with a bad option"
        expect_unmounted "after failures"
        "#);
}

#[test]
fn a_mistyped_command_is_no_mount() {
    run(r#"
        cd "$SRC"
        expect_failure 2 "'inspect'" h5logfs insepct file "$MNT"
        expect_failure 2 "'inspect'" h5logfs insepct file
        expect_failure 1 "frobnicate: No such file" h5logfs frobnicate file
        # What is there is mounted, whatever it is called.
        mkdir insepct
        h5logfs insepct "$MNT" || fail "a directory with the name of a command, almost"
        is_mounted && fail "another source"
        mountpoint -q "$MNT" || fail "not mounted"
        umount "$MNT"
        "#);
}

#[test]
fn fstab_lines() {
    run(r#"
        for type in h5logfs fuse.h5logfs; do
            options=noauto,nofail,_netdev,x-systemd.automount,user,nosuid,cache_size=16M,comment=mine
            fstab "$SRC $MNT $type $options 0 0"
            mount -a || fail "mount -a with noauto"
            expect_unmounted "noauto"
            mount "$MNT" || fail "mount MNT as $type"
            expect_mounted "fstab, $type"
            expect_text env
            umount "$MNT" || fail "umount MNT"
            expect_unmounted "fstab, $type"
            fstab "$SRC $MNT $type defaults,cache_size=16M 0 0"
            mount -a || fail "mount -a"
            expect_mounted "mount -a"
            mount -a || fail "mount -a once more"
            [ "$(findmnt -n -t fuse.h5logfs | wc -l)" -eq 1 ] || fail "mounted twice"
            umount -a -t fuse.h5logfs || fail "umount -a"
            expect_unmounted "umount -a"
        done
        "#);
}

#[test]
fn users_mount_and_unmount_what_fstab_lets_them() {
    run_with_user(
        r#"
        for type in h5logfs fuse.h5logfs; do
            fstab "$SRC $MNT $type noauto,user,cache_size=16M 0 0"
            as_user mount "$MNT" || fail "mount by a user as $type"
            expect_mounted "user, $type"
            findmnt -n -o OPTIONS "$MNT" | grep -q user_id=65534 || fail "not the user's own mount"
            expect_text as_user
            as_other umount "$MNT" 2>/dev/null && fail "umount by another user"
            as_user umount "$MNT" || fail "umount by the user"
            expect_unmounted "user, $type"
            as_user mount "$MNT" || fail "mount by a user again"
            umount "$MNT" || fail "umount by root"
            expect_unmounted "root, $type"
        done
        # fusermount3 lets users mount on what is theirs only, whatever fstab says.
        chown root "$MNT"
        fstab "$SRC $MNT h5logfs noauto,user 0 0"
        expect_failure 32 "no write access" as_user mount "$MNT"
        expect_unmounted "another one's mount point"
        "#,
    );
}

/// mount(8) clears the environment for ordinary users. The home directory comes from the user database.
#[test]
fn users_without_an_environment_have_their_files() {
    run_with_user(
        r#"
        home=$W/scratch/home
        mkdir -p "$home/.config" && chown -R 65534:65534 "$home"
        sed "s|^\(nobody:.*\):[^:]*:\([^:]*\)$|\1:$home:\2|" /etc/passwd >passwd
        mount --bind passwd /etc/passwd
        [ "$(getent passwd 65534 | cut -d: -f6)" = "$home" ] || fail "no home in the user database"
        cat >"$home/.config/h5logfs.toml" <<-EOF
		[defaults]
		log_file = "$home/messages"
		EOF
        chown 65534 "$home/.config/h5logfs.toml"
        cleared() { as_user env -i PATH="$PATH" "$@"; }
        fstab "$SRC $MNT h5logfs noauto,user 0 0"
        for command in "mount $MNT" "h5logfs mount $SRC $MNT"; do
            rm -rf "$home/messages" "$home/.cache"
            cleared $command || fail "$command"
            expect_text as_user
            grep -q "mounted at" "$home/messages" || fail "$command: the configuration file was not read"
            [ "$(stat -c %a "$home/.cache/h5logfs")" = 700 ] || fail "$command: no index directory in the home"
            cleared fusermount3 -u "$MNT"
            wait_until grep -q unmounted "$home/messages"
        done
        # The environment comes first.
        rm -rf "$home/.cache"
        cleared env XDG_CACHE_HOME="$home/other" h5logfs mount "$SRC" "$MNT"
        [ -d "$home/other/h5logfs" ] || fail "XDG_CACHE_HOME does not count"
        [ ! -e "$home/.cache" ] || fail "the home is used, too"
        cleared fusermount3 -u "$MNT"
        "#,
    );
}

#[test]
fn the_configuration_file_of_root_holds() {
    run(r#"
        config=$W/scratch/h5logfs.toml
        cat >$config <<-EOF
		[defaults]
		cache_size = "32M"
		[[mount]]
		source = "$SRC"
		point = "$MNT"
		allow_other = true
		log_file = "$W/scratch/messages, all of them"
		EOF
        h5logfs config --check $config | grep -qx "$config: ok" || fail "config --check"
        h5logfs config --config $config "$MNT" | grep -q "^cache_size=32M  # $config:2$" || fail config
        h5logfs mount --config $config "$MNT" || fail "mount by the mount point alone"
        expect_mounted "configured"
        findmnt -n -o OPTIONS "$MNT" | grep -q allow_other || fail "allow_other is not on"
        umount "$MNT"
        wait_until grep -q unmounted "$W/scratch/messages, all of them"
        h5logfs mount --config $config "$SRC" "$MNT" -o noallow_other
        findmnt -n -o OPTIONS "$MNT" | grep -q allow_other && fail "-o does not win"
        umount "$MNT"
        echo 'cache_sise = "1G"' >>$config
        meant="cache_sise: unknown key; did you mean cache_size?"
        expect_failure 1 "$config:8: $meant" h5logfs config --check $config
        expect_failure 1 "$config:8: cache_sise" h5logfs mount --config $config "$SRC" "$MNT"
        chown 65534 $config
        expect_failure 1 "not trusted" h5logfs mount --config $config "$SRC" "$MNT"
        expect_unmounted "bad configuration"
        expect_failure 1 "no source was given" h5logfs mount "$MNT"
        "#);
}

/// The system's file, which the helper uses, too; ordinary users have their own.
#[test]
fn the_usual_configuration_files() {
    run_with_user(
        r#"
        # A private copy of /etc: the file may not be there to be covered.
        mkdir etc && cp -a /etc/fstab /etc/passwd /etc/group /etc/fuse.conf etc/ 2>/dev/null
        ln -s ../proc/self/mounts etc/mtab
        cp -a /etc/ld.so.cache /etc/nsswitch.conf etc/ 2>/dev/null
        [ -d /etc/alternatives ] && cp -a /etc/alternatives etc/
        mount --bind etc /etc
        printf '[defaults]\nallow_other = true\n' >/etc/h5logfs.toml
        mount -t h5logfs "$SRC" "$MNT" || fail "mount with /etc/h5logfs.toml"
        findmnt -n -o OPTIONS "$MNT" | grep -q allow_other || fail "not read by the helper"
        umount "$MNT"
        echo frobnicate = 1 >>/etc/h5logfs.toml
        expect_failure 32 "/etc/h5logfs.toml:3: frobnicate" mount -t h5logfs "$SRC" "$MNT"
        expect_failure 1 "/etc/h5logfs.toml:3: frobnicate" h5logfs config --check
        mkdir -m 755 config && echo '[defaults]
threads = 0' >config/h5logfs.toml
        as_user h5logfs mount "$SRC" "$MNT" || fail "root's file concerns a user"
        as_user fusermount3 -u "$MNT"
        expect_failure 1 "config/h5logfs.toml:2: threads" \
            as_user env XDG_CONFIG_HOME="$PWD/config" "$PROGRAM" mount "$SRC" "$MNT"
        "#,
    );
}

#[test]
fn a_dead_mount_is_cleared_and_nothing_else() {
    run(r#"
        h5logfs unmount-dead "$MNT" || fail "nothing to do is no failure"
        h5logfs mount "$SRC" "$MNT"
        h5logfs unmount-dead "$MNT" || fail "alive"
        expect_mounted "alive"
        for process in /proc/[0-9]*; do
            ! grep -qsze --daemon-child $process/cmdline || kill -KILL ${process#/proc/}
        done
        wait_until fails ls "$MNT"
        h5logfs unmount-dead "$MNT" || fail "dead"
        expect_unmounted "dead"
        mount -t tmpfs other "$MNT"
        h5logfs unmount-dead "$MNT" || fail "another type"
        findmnt -n -t tmpfs "$MNT" >/dev/null || fail "another type was unmounted"
        "#);
}

#[test]
fn a_mount_is_unmounted_unless_it_is_in_use() {
    run(r#"
        expect_failure 1 "no h5logfs is mounted here" h5logfs umount "$MNT"
        h5logfs mount "$SRC" "$MNT"
        tail -f "$MNT/file" >/dev/null &
        reader=$!
        wait_until test -e /proc/$reader/fd/3
        expect_failure 1 "$MNT: it is in use: process $reader (tail); --lazy" h5logfs umount "$MNT"
        expect_mounted "in use"
        h5logfs umount --lazy "$MNT" || fail "lazily"
        expect_unmounted "lazily"
        kill $reader
        h5logfs mount "$SRC" "$MNT"
        said=$(cd "$MNT" && h5logfs umount . 2>&1) && fail "from inside"
        case $said in *"(h5logfs)"*) fail "it names itself: $said" ;; esac
        mkdir other
        h5logfs mount "$SRC" other
        expect_failure 1 "bin: no h5logfs is mounted here" h5logfs umount bin "$MNT" other
        expect_unmounted "after a failure"
        ! mountpoint -q other || fail "the last one"
        mount -t tmpfs other "$MNT"
        expect_failure 1 "no h5logfs is mounted here" h5logfs umount --lazy "$MNT"
        umount "$MNT"
        "#);
}

#[test]
fn a_user_unmounts_what_the_user_has_mounted() {
    run_with_user(
        r#"
        as_user h5logfs mount "$SRC" "$MNT"
        as_user tail -f "$MNT/file" >/dev/null &
        wait_until pgrep -x tail
        expect_failure 1 "it is in use: process $(pgrep -x tail) (tail)" as_user h5logfs umount "$MNT"
        expect_mounted "in use"
        pkill -x tail
        wait_until fails pgrep -x tail
        expect_failure 1 "" as_other h5logfs umount "$MNT"
        expect_mounted "another user's"
        as_user h5logfs umount "$MNT" || fail "by its user"
        expect_unmounted "by its user"
        "#,
    );
}

/// The map shipped as an example, with the paths of the test.
#[test]
fn autofs_mounts_when_somebody_enters() {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known
        .lines()
        .any(|line| line.split('\t').nth(1) == Some("autofs"))
    {
        eprintln!("skipped: the kernel has no autofs");
        return;
    }
    if !Path::new("/usr/sbin/automount").exists() {
        eprintln!("skipped: automount (package autofs) is not installed");
        return;
    }
    run(r#"
        sed -e "s|/data/logs|$SRC|" "$EXAMPLES/auto.h5logfs.example" >map
        grep -q "$SRC" map || fail "the example has no /data/logs"
        echo "$MNT file:$PWD/map --timeout=2" >master
        # Members of its process group would see the directory as it is without it.
        setsid automount --foreground --verbose "$PWD/master" >automount.log 2>&1 &
        daemon=$!
        wait_until mounts_are autofs "$MNT"
        [ "$(timeout 20 cat "$MNT/logs/file")" = "some text" ] || { cat automount.log; fail "cannot read"; }
        mounts_are fuse.h5logfs "$MNT/logs" || fail "not mounted"
        wait_until fails mounts_are fuse.h5logfs "$MNT/logs"
        [ "$(timeout 20 cat "$MNT/logs/file")" = "some text" ] || fail "cannot read again"
        kill -TERM $daemon
        wait $daemon
        "#);
}
