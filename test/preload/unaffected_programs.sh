#!/bin/bash
# unaffected_programs.sh LIBRARY FOREIGN_PROGRAM PLAIN_CALLS: programs that open no socket work as ever, and
# get no thread, no memory and no descriptor.
set -euo pipefail
library=$1 foreign=$2 plain_calls=$3
run() { LD_PRELOAD=$library timeout 60 "$@"; }
expect() {
  local wanted=$1 got
  shift
  got=$(run "$@" 2>&1) || { echo "failed: $*: $got" >&2; exit 1; }
  [[ $got == "$wanted" ]] || { echo "$*: '$got' instead of '$wanted'" >&2; exit 1; }
}

expect "" /bin/true
expect /bin/sh ls /bin/sh
expect "3 piped" bash -c '
x=$(echo a b c | wc -w); exec 5>&1; echo "$x piped" >&5; exec 5>&-; (exit 0) & wait $!'
expect "perl sub" perl -e '
print "perl ", `echo -n sub`; system("true") == 0 or die; close(STDIN); open(F, "<", "/dev/null") or die'
expect "1 ok" python3 -c '
import os, subprocess
out = subprocess.run(["echo", "ok"], stdout=subprocess.PIPE, close_fds=True).stdout.decode().strip()
pid = os.fork()
if pid == 0: os.closerange(3, 4096); os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(len(os.listdir("/proc/self/task")), out)'
expect "abseil 1000 libstdc++ 3" "$foreign"
expect "0 allocations, 1 threads, 0 descriptors more" "$plain_calls" count
