"""What programs take of the machine: processor time and memory, as /proc has them."""

import collections
import os
import pathlib
import re
import resource


def proportional_set(pid):
    """KiB of memory of a process, shared pages by halves."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s*(\d+) kB", text, re.M)[1])


def kernel_tcp_memory():
    """KiB of socket buffers of all TCP connections of this host (or network namespace)."""
    return int(re.search(r"^TCP:.* mem (\d+)", pathlib.Path("/proc/net/sockstat").read_text(), re.M)[1]) * 4


def processor_times(stat):
    """(parent's pid, seconds of a process and of its children that it has waited for): /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    """The processor time of all processes that descend from this one, since they began."""
    children, seconds = collections.defaultdict(list), {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent, seconds[int(stat.parent.name)] = processor_times(stat.read_text())
        except OSError:
            continue  # it has ended meanwhile
        children[parent].append(int(stat.parent.name))
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    below = list(children[os.getpid()])
    while below:
        pid = below.pop()
        total += seconds[pid]
        below += children[pid]
    return total
