// What the kernel knows of the connection beneath a socket.
#ifndef SDP_TEST_POSIX_KERNEL_TIMER_H_
#define SDP_TEST_POSIX_KERNEL_TIMER_H_

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "test/posix/support.h"

namespace posix_test {

// As /proc/net/tcp has them. Others retransmit, probe, or wait in TIME_WAIT.
inline constexpr int kNoTimer = 0, kKeepaliveTimer = 2;

inline constexpr int kEstablished = 1;

// -1: there is no such connection.
struct KernelConnection {
  int state = -1;
  int timer = -1;
};

// Of an IPv4 socket.
inline KernelConnection KernelConnectionOf(int fd) {
  struct stat status {};
  REQUIRE(fstat(fd, &status) == 0);
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string skipped, state, timer;
    uint64_t inode = 0;
    fields >> skipped >> skipped >> skipped >> state >> skipped >> timer >> skipped >> skipped >> skipped >>
        inode;
    if (inode == status.st_ino)
      return {std::stoi(state, nullptr, 16), std::stoi(timer.substr(0, 2), nullptr, 16)};
  }
  return {};
}

inline int KernelTimerOf(int fd) { return KernelConnectionOf(fd).timer; }

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_KERNEL_TIMER_H_
