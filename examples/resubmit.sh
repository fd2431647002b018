#!/bin/sh
# A batch script that may be submitted any number of times: after its job was killed, or while it still runs. Each
# attempt writes a log of its own: DIR/heat-1.h5, DIR/heat-2.h5, …
#
#     sbatch resubmit.sh DIR        # without a batch system: sh resubmit.sh DIR
#
#SBATCH --ntasks=4
dir=${1:?the directory of the logs is missing}

# Close the logs that earlier attempts left. `recover` refuses a log whose job still runs; then this one ends.
for log in "$dir"/heat-*.h5; do
    if [ -e "$log.h5logfs-journal" ]; then
        h5logfs recover "$log" || exit
    fi
done
# A job that was killed while it created its log may have left the journal alone.
attempt=1
while [ -e "$dir/heat-$attempt.h5" ] || [ -e "$dir/heat-$attempt.h5.h5logfs-journal" ]; do
    attempt=$((attempt + 1))
done

# A program that can go on where an earlier attempt ended would read that from the last log.
exec mpirun -n 4 heat "$dir/heat-$attempt.h5"
