#!/usr/bin/env bash
# dist-slurm.sh: jobs of ordinary users in a Slurm of one node, which it starts, read logs: by the prolog and epilog of packaging/slurm,
# by `h5logfs run`, and by the task prolog where each job has a /tmp of its own. However a job ends, neither a mount nor a process is
# left. A part of scripts/dist-test.sh, which runs it as root
# in a system and namespaces of its own; the files are in /given.
set -euo pipefail

fail() {
    echo "dist-slurm.sh: $*" >&2
    tail -n 30 /var/log/slurm/* /home/*/*.out >&2
    exit 1
}

# within SECONDS COMMAND...: waits until the command succeeds.
within() {
    local deadline=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $deadline ] || fail "not within $1 seconds: ${*:2}" "$(left)"
        sleep 0.2
    done
}

is_idle() {
    # A node whose prolog or epilog fails is drained.
    [ "$(sinfo --noheader --format %T 2>/dev/null)" = idle ] && [ -z "$(squeue --noheader)" ]
}

left() {
    pgrep --list-full --exact h5logfs || true
    pgrep --list-full --euid anna,bert,cora || true
    grep ' fuse' /proc/mounts || true
    ls -A /run/h5logfs-job
}

is_clean() {
    [ -z "$(left)" ]
}

is_gone() {
    [ ! -e "$1" ] && [ ! -h "$1" ]
}

# submit USER SCRIPT [OPTION...]: submits a job of a script of bash. Prints the file of what it says.
submit() {
    local user=$1 job
    job=$(printf '#!/bin/bash\n%s\n' "$2" |
        runuser -u "$user" -- sbatch --parsable --chdir="/home/$user" --output="/home/$user/%j.out" "${@:3}")
    echo "/home/$user/$job.out"
}

says() {
    grep -q -x -s "$1" "$2"
}

number() {
    basename "$1" .out
}

prepare() {
    ip link set lo up
    # Names are not looked up where there is no address but those of a loopback.
    ip address add 10.11.12.13/32 dev lo
    hostname node
    printf '127.0.0.1 localhost\n10.11.12.13 node\n' >/etc/hosts
    mkdir -p /run/munge /var/log/munge /var/lib/munge /var/spool/slurmctld /var/spool/slurmd /var/log/slurm
    chown -R munge: /run/munge /var/log/munge /var/lib/munge /etc/munge
    chmod 755 /run/munge
    runuser -u munge -- munged
    # Nothing uses cgroups but proctrack/cgroup. slurmd looks which kind there is, unless it is told.
    echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
}

# start_slurm PROCTRACK LINE...: with these lines in its configuration.
start_slurm() {
    cat >/etc/slurm/slurm.conf <<EOF
ClusterName=test
SlurmctldHost=node
SlurmUser=root
ProctrackType=proctrack/$1
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld
SlurmdLogFile=/var/log/slurm/slurmd
SlurmdParameters=config_overrides
KillWait=3
MailProg=/bin/true
NodeName=node CPUs=16
PartitionName=main Nodes=ALL Default=YES State=UP
EOF
    printf '%s\n' "${@:2}" >>/etc/slurm/slurm.conf
    slurmctld
    slurmd
    within 60 is_idle
}

stop_slurm() {
    kill $(pidof slurmctld slurmd)
    while pidof slurmctld slurmd >/dev/null; do sleep 0.1; done
}

# Jobs have the variables of those who submit them.
export PATH=/usr/local/bin:$PATH
for user in anna bert cora; do
    useradd --create-home --shell /bin/bash "$user"
    cp -r /given/sample "/home/$user/run42"
    echo "/home/$user/run42" >"/home/$user/.h5logfs-job"
    chown -R "$user:" "/home/$user"
done
mkdir /run/h5logfs-job
h5logfs export /given/sample/steps.h5 /srv/plain.h5
h5dump -d /field /srv/plain.h5 | tail -n +2 >/srv/field
prepare

compare='tail -n +2 | cmp - /srv/field && echo read'
mounted="mnt=/run/h5logfs-job/\$SLURM_JOB_ID; h5dump -d /field \$mnt/steps.h5 | $compare"
# It holds a file of the mount open, and waits without a child: proctrack/linuxproc may miss one that begins while it kills.
waiting='exec 3<$mnt/groups.h5 4<> <(:); trap "echo term" TERM; echo ready; while :; do read -r -t 1000 -u 4; done'
run='exec srun h5logfs run -o index_dir=none run42 run42 -- bash -c'
run_reading="$run 'h5dump -d /field run42/steps.h5 | $compare'"
run_waiting="$run 'exec 3<run42/groups.h5; echo ready; sleep 1000'"

start_slurm linuxproc Prolog=/given/slurm/slurm-prolog Epilog=/given/slurm/slurm-epilog
ended=$(submit anna "$mounted") run_ended=$(submit cora "$run_reading")
cancelled=$(submit anna "$mounted; $waiting") run_cancelled=$(submit cora "$run_waiting")
late=$(submit anna "$mounted; $waiting" --time=1) run_late=$(submit cora "$run_waiting" --time=1)
within 60 says read "$ended"
within 60 says read "$run_ended"
for file in "$cancelled" "$run_cancelled" "$late" "$run_late"; do
    within 60 says ready "$file"
done
scancel "$(number "$cancelled")" "$(number "$run_cancelled")"

# A user who kills all own processes kills the daemon of the mount, too.
killed=$(submit bert "$mounted; kill -9 -1")
within 60 says read "$killed"
within 60 is_gone "/run/h5logfs-job/$(number "$killed")"
run_killed=$(submit bert "$run_waiting")
within 60 says ready "$run_killed"
kill -9 "$(pgrep --euid bert --full '^[^ ]*h5logfs run' | head -n 1)"

# Neither who wants no mount, nor one that cannot be made, stops a job.
rm /home/cora/.h5logfs-job
none=$(submit cora '[ ! -e /run/h5logfs-job/$SLURM_JOB_ID ] && echo runs')
echo /nowhere >/home/bert/.h5logfs-job
nowhere=$(submit bert 'echo runs')
within 60 says runs "$none"
within 60 says runs "$nowhere"

# The shortest time limit is a minute, and Slurm looks twice a minute.
within 180 is_idle
within 20 is_clean
# SIGTERM comes first, to the script, too, and SIGKILL when KillWait has passed.
says term "$late" || fail "no SIGTERM at the time limit"
says term "$cancelled" || fail "no SIGTERM by scancel"
stop_slurm

# proctrack/cgroup ends what job_container/tmpfs leaves.
freezer=/sys/fs/cgroup/freezer
mount -t tmpfs tmpfs /sys
mkdir -p /sys/fs/cgroup
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir $freezer
if mount -t cgroup -o freezer cgroup $freezer; then
    mkdir /var/spool/tmp
    mount -t tmpfs tmpfs /var/spool/tmp
    printf 'AutoBasePath=true\nBasePath=/var/spool/tmp\n' >/etc/slurm/job_container.conf
    for user in bert cora; do
        echo "/home/$user/run42" >"/home/$user/.h5logfs-job"
    done
    start_slurm cgroup JobContainerType=job_container/tmpfs PrologFlags=Contain TaskProlog=/given/slurm/slurm-task-prolog
    mounted="h5dump -d /field \$H5LOGFS_VIEW/steps.h5 | $compare; mnt=\$H5LOGFS_VIEW"
    ended=$(submit anna "srun --ntasks=1 sh -c 'h5dump -d /field \$H5LOGFS_VIEW/steps.h5 | $compare'")
    cancelled=$(submit anna "$mounted; $waiting")
    killed=$(submit bert "$mounted; kill -9 -1")
    rm /home/cora/.h5logfs-job
    none=$(submit cora '[ -z "$H5LOGFS_VIEW" ] && echo runs')
    within 60 says read "$ended"
    within 60 says read "$killed"
    within 60 says runs "$none"
    within 60 says ready "$cancelled"
    scancel "$(number "$cancelled")"
    within 60 is_idle
    within 20 is_clean
    stop_slurm
    # They are those of the machine.
    find $freezer -depth -type d -path '*slurm_node*' -exec rmdir {} +
else
    echo "skipped: slurm: the task prolog: no freezer of cgroup v1 can be mounted here"
fi
kill $(pidof munged)
