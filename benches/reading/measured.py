"""measured.py COMMAND...: runs it; prints its seconds, its processor time, and its peak memory in bytes. Loads little: a program
begins with the peak of the one that starts it."""

import os
import sys
import time

begun = time.perf_counter()
quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
print(time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss << 10)
sys.exit(os.waitstatus_to_exitcode(status))
