"""Loaded when an interpreter starts: takes away what macOS does not have, and adds F_FULLFSYNC.

With HOCKET_FULL_SYNCS set, each full sync adds a byte to the file of that name.
"""

import fcntl
import os
from importlib import import_module

# In this order: `socket` loads `selectors`, which looks for epoll at once.
GONE = {
    "os": (
        "EFD_", "RWF_", "POSIX_FADV_", "O_TMPFILE", "O_DIRECT", "O_PATH", "O_NOATIME", "SCHED_",
        "copy_file_range", "eventfd", "fdatasync", "getrandom", "memfd_create", "pidfd_open",
        "pipe2", "posix_fadvise", "posix_fallocate", "preadv", "pwritev", "sched_", "splice",
    ),
    "select": ("epoll", "EPOLL"),
    "signal": ("sigtimedwait", "sigwaitinfo", "pidfd_send_signal", "SIGSTKFLT", "SIGPWR"),
    "socket": (
        "MSG_CMSG_CLOEXEC", "MSG_ERRQUEUE", "MSG_MORE", "MSG_NOSIGNAL", "SOCK_CLOEXEC",
        "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_INCOMING_CPU", "SO_MARK", "SO_PEERCRED",
        "SO_PRIORITY", "TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_KEEPIDLE", "TCP_QUICKACK",
        "TCP_USER_TIMEOUT",
    ),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI"),
}  # fmt: skip

for module, beginnings in ((import_module(name), names) for name, names in GONE.items()):
    for name in [each for each in vars(module) if each.startswith(beginnings)]:
        if name != "O_DIRECTORY":
            delattr(module, name)

fcntl.F_FULLFSYNC = 51
_fcntl, _fsync = fcntl.fcntl, os.fsync


def _full_sync(descriptor, what, *more):
    if what != fcntl.F_FULLFSYNC:
        return _fcntl(descriptor, what, *more)
    _fsync(descriptor)
    if "HOCKET_FULL_SYNCS" in os.environ:
        with open(os.environ["HOCKET_FULL_SYNCS"], "ab") as counted:
            counted.write(b"!")
    return 0


fcntl.fcntl = _full_sync
