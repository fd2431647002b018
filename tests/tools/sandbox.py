"""Tries actions that a daemon does not need, and writes the outcomes as JSON: "done", or the name of the error.

Where success would change the machine, system calls get invalid arguments, which the kernel refuses with other errors than a
filter does.
"""

import ctypes
import errno
import json
import mmap
import os
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number, *arguments):
    """A system call of x86-64."""
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")


def in_child(act):
    """Runs actions that would change this process in another one."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise OSError(status, "")


def write(path):
    with open(path, "w") as file:
        file.write("text")


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def set_hostname():
    socket.sethostname(socket.gethostname())


NAME = os.path.basename(sys.argv[1])
write("/run/own-" + NAME)

TRIED = {
    "read a private file of another user": lambda: read("/data/other/secret"),
    "write into a directory of another user": lambda: write("/data/other/new-" + NAME),
    "give a file away": lambda: in_child(lambda: os.chown("/run/own-" + NAME, 1000, 1000)),
    "open an IP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
    "open a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close(),
    "open a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "open a netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "open a Unix socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close(),
    "make a device": lambda: os.mknod("/run/device-" + NAME, 0o20600, os.makedev(1, 3)),
    "open another device": lambda: os.close(os.open("/data/device", os.O_WRONLY)),
    "open the device of fuse": lambda: os.close(os.open("/dev/fuse", os.O_RDWR)),
    "read the memory of process 1": lambda: read("/proc/1/mem"),
    "trace a process": lambda: in_child(lambda: call(101, 0, 0, 0, 0)),
    "load a module": lambda: call(175, 0, 0, 0),
    "load a kernel": lambda: call(246, 0, 1 << 20, 0, 0),
    "run a BPF program": lambda: call(321, 0, 0, 0),
    "watch performance": lambda: call(298, 0, 0, -1, -1, 0),
    "swap": lambda: call(167, 0, 0),
    "use the keyring": lambda: call(250, 0, -3, 0),
    "set the clock": lambda: call(227, 99, 0),
    "set the host name": lambda: in_child(set_hostname),
    "make a user namespace": lambda: in_child(lambda: call(272, 0x10000000)),
    "make a mount namespace": lambda: in_child(lambda: call(272, 0x00020000)),
    "enter a namespace": lambda: call(308, os.open("/proc/self/ns/mnt", os.O_RDONLY), 0),
    "change the personality": lambda: in_child(lambda: call(135, 0x0040000)),
    "run in real time": lambda: in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
    "run before others": lambda: in_child(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)),
    "write code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close(),
    "mount": lambda: call(165, 0, 0, 0, 0, 0),
}


def outcome(act):
    try:
        act()
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


outcomes = {what: outcome(act) for what, act in TRIED.items()}
with open(sys.argv[1], "w") as file:
    json.dump(outcomes, file)
