#!/bin/sh
# core/wire and core/engine are pure: nothing in their archives may reach for I/O, a clock, the environment or
# a thread. The one exception is the report of a broken invariant (core/base/check.h): fprintf to stderr and
# abort. Usage: pure_archives_test.sh NM ARCHIVE...
nm=$1
shift
# Extended regular expressions, each of a whole name.
forbidden=$(tr -s ' \n' '|' <<'NAMES'
open openat creat close read write pread pwrite readv writev send sendto sendmsg recv recvfrom recvmsg
socket connect accept accept4 bind listen poll ppoll select pselect epoll_.* ioctl fcntl fcntl64 dup dup2
dup3 pipe pipe2 fork exec.* syscall mmap mmap64 munmap mprotect fopen fopen64 fclose fread fwrite fputs
puts printf vprintf perror time times clock clock_.* gettimeofday nanosleep usleep sleep timer_.*
timerfd_.* getenv secure_getenv setenv putenv environ rand random srand getrandom getentropy pthread_.*
thrd_.* mtx_.* sem_.* signal sigaction kill raise exit _exit _ZNSt6chrono.*now.* _ZNSt6thread.*
_ZNSt5mutex.* _ZNSt18condition_variable.* _ZNSt13random_device.* _ZSt4cout _ZSt4cerr _ZNSt8ios_base.*
NAMES
)
forbidden="^(${forbidden%|})\$"
status=0
for archive; do
  symbols=$("$nm" -u "$archive") || exit 1
  [ -n "$symbols" ] || { echo "$archive: no symbols"; exit 1; }
  bad=$(printf '%s\n' "$symbols" | awk 'NF == 2 { sub(/@.*/, "", $2); print $2 }' | sort -u |
    grep -E "$forbidden")
  if [ -n "$bad" ]; then
    echo "$archive reaches outside:" $bad
    status=1
  fi
done
exit $status
