// The timer that the kernel runs for a connection.
#ifndef SDP_TEST_POSIX_KERNEL_TIMER_H_
#define SDP_TEST_POSIX_KERNEL_TIMER_H_

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "test/posix/support.h"

namespace posix_test {

// As /proc/net/tcp has them. Others retransmit, probe, or wait in TIME_WAIT.
inline constexpr int kNoTimer = 0, kKeepaliveTimer = 2;

// Of an IPv4 connection; -1: there is no such connection.
inline int KernelTimerOf(int fd) {
  struct stat status {};
  REQUIRE(fstat(fd, &status) == 0);
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string skipped, timer;
    uint64_t inode = 0;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> timer >> skipped >> skipped >> skipped >> inode;
    if (inode == status.st_ino) return std::stoi(timer.substr(0, 2), nullptr, 16);
  }
  return -1;
}

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_KERNEL_TIMER_H_
