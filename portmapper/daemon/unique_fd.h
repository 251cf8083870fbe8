#ifndef SDP_PORTMAPPER_DAEMON_UNIQUE_FD_H_
#define SDP_PORTMAPPER_DAEMON_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace sdp::pm {

// Owns a descriptor of the daemon's own making; see ForeignDescriptors for those that strangers passed.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  ~UniqueFd() { Reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_UNIQUE_FD_H_
