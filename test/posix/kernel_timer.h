// What the kernel knows of the connection beneath a socket.
#ifndef SDP_TEST_POSIX_KERNEL_TIMER_H_
#define SDP_TEST_POSIX_KERNEL_TIMER_H_

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "test/posix/support.h"

namespace posix_test {

// As /proc/net/tcp has them. Others retransmit, probe, or wait in TIME_WAIT.
inline constexpr int kNoTimer = 0, kKeepaliveTimer = 2;

inline constexpr int kEstablished = 1, kListen = 10;

// -1: there is no such socket.
struct KernelSocket {
  int port = -1;
  int state = -1;
  int timer = -1;
  uint64_t inode = 0;
};

// Returns all IPv4 sockets of TCP.
inline std::vector<KernelSocket> KernelSockets() {
  std::vector<KernelSocket> sockets;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string skipped, local, state, timer;
    uint64_t inode = 0;
    fields >> skipped >> local >> skipped >> state >> skipped >> timer >> skipped >> skipped >> skipped >>
        inode;
    sockets.push_back({.port = std::stoi(local.substr(local.find(':') + 1), nullptr, 16),
                       .state = std::stoi(state, nullptr, 16),
                       .timer = std::stoi(timer.substr(0, 2), nullptr, 16),
                       .inode = inode});
  }
  return sockets;
}

// Of an IPv4 socket.
inline KernelSocket KernelSocketOf(int fd) {
  struct stat status {};
  REQUIRE(fstat(fd, &status) == 0);
  for (const KernelSocket& each : KernelSockets()) {
    if (each.inode == status.st_ino) return each;
  }
  return {};
}

inline int KernelTimerOf(int fd) { return KernelSocketOf(fd).timer; }

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_KERNEL_TIMER_H_
