"""How many system calls programs make, counted by the kernel itself: a counter slows none of them down."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import struct

TRACING = pathlib.Path("/sys/kernel/tracing")
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
SENDMSG = {"x86_64": 46, "aarch64": 211}
PERF_EVENT_IOC_SET_FILTER = 0x40082406
TRACEPOINT, SIZE = 2, 64  # of struct perf_event_attr: PERF_TYPE_TRACEPOINT, PERF_ATTR_SIZE_VER0
INHERIT = 1 << 1  # processes and threads that begin later count, too


class Unavailable(Exception):
    """Says why this process may not count."""


def tracepoint():
    number = TRACING / "events" / "raw_syscalls" / "sys_enter" / "id"
    try:
        return int(number.read_text())
    except OSError as error:
        raise Unavailable(f"the kernel's tracepoints are out of reach: {error}")


class KernelEntries:
    """A counter for each thread that `pids` have by now, and for all that come from them; close() ends it.
    `only`: a table of the one call that counts."""

    def __init__(self, *pids, only=None):
        libc = ctypes.CDLL(None, use_errno=True)
        number = PERF_EVENT_OPEN.get(os.uname().machine)
        if number is None:
            raise Unavailable(f"the number of perf_event_open is not known on {os.uname().machine}")
        # type, size, config, sample_period, sample_type, read_format, flags
        attributes = struct.pack("=IIQQQQQ", TRACEPOINT, SIZE, tracepoint(), 0, 0, 0, INHERIT).ljust(
            SIZE, b"\0"
        )
        self.counters = []
        for pid in pids:
            for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
                fd = libc.syscall(number, attributes, int(thread.name), -1, -1, ctypes.c_ulong(0))
                if fd < 0:
                    self.close()
                    raise Unavailable(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
                self.counters.append(fd)
                if only is not None:
                    fcntl.ioctl(fd, PERF_EVENT_IOC_SET_FILTER, b"id == %d\0" % only[os.uname().machine])

    def count(self):
        return sum(int.from_bytes(os.read(counter, 8), "little") for counter in self.counters)

    def close(self):
        for counter in self.counters:
            with contextlib.suppress(OSError):
                os.close(counter)
        self.counters = []
