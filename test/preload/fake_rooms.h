// A socket room and a readiness room that note what the entry points ask of them and answer as told.
#ifndef SDP_TEST_PRELOAD_FAKE_ROOMS_H_
#define SDP_TEST_PRELOAD_FAKE_ROOMS_H_

#include <fcntl.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "preload/fd_table.h"
#include "preload/socket/socket.h"

namespace sdp::preload {

class FakeSocket final : public Socket {
 public:
  FakeSocket() { ++alive; }

  // Each Send or Receive takes the next of these; with none left, everything asked for is taken.
  std::deque<ssize_t> results;
  int error = 0;      // errno with a result of -1
  int out_flags = 0;  // of Receive
  // What was asked, in order: "Send 5 flags 0", "Close 7".
  std::vector<std::string> calls;
  std::string sent;                         // the bytes Send took
  std::function<void()> meanwhile = [] {};  // in the middle of each

  ssize_t Send(int fd, const iovec* iov, size_t count, int flags) override;
  ssize_t Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) override;
  int Bind(int, const sockaddr*, socklen_t) override { return Note("Bind"); }
  int Listen(int, int) override { return Note("Listen"); }
  int Connect(int, const sockaddr*, socklen_t) override { return Note("Connect"); }
  int Accept(int, sockaddr*, socklen_t*, int flags, SocketRef*) override {
    return Note("Accept flags " + std::to_string(flags));
  }
  int Shutdown(int, int) override { return Note("Shutdown"); }
  int GetSockName(int, sockaddr*, socklen_t*) override { return Note("GetSockName"); }
  int GetPeerName(int, sockaddr*, socklen_t*) override { return Note("GetPeerName"); }
  int GetSockOpt(int, int, int, void*, socklen_t*) override { return Note("GetSockOpt"); }
  int SetSockOpt(int, int, int, const void*, socklen_t) override { return Note("SetSockOpt"); }
  int Ioctl(int fd, unsigned long request, void* argument) override;
  int Close(int fd) override;
  void AddDescriptor(int fd) override { Note("AddDescriptor " + std::to_string(fd)); }
  bool MoveDescriptor(int from, int to) override;
  int VisibleStatusFlags(int kernel_flags) override { return kernel_flags | O_NONBLOCK; }
  int ChangeStatusFlags(int flags) override { return flags & ~O_NONBLOCK; }

  bool moves = true;  // what MoveDescriptor answers

  static std::atomic<int> alive;

 private:
  ~FakeSocket() override { --alive; }
  int Note(const std::string& call);
  ssize_t NextResult(ssize_t wanted);
};

struct FakeReadiness {
  bool concerns_us = false;
  std::vector<std::string> calls;
  std::function<void()> meanwhile = [] {};  // in EpollForget
};
FakeReadiness& fake_readiness();

}  // namespace sdp::preload

#endif  // SDP_TEST_PRELOAD_FAKE_ROOMS_H_
