// The application's descriptors of a socket, and what the library keeps of their open file's flags. All of a
// socket's descriptors share one open file. Other processes may have it, too, and change its flags. A value;
// guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_NUMBERS_H_
#define SDP_PRELOAD_SOCKET_NUMBERS_H_

#include <algorithm>
#include <optional>
#include <vector>

namespace sdp::preload {

class Numbers {
 public:
  Numbers();

  // Adds a descriptor. Needs no memory in a signal handler: the program may call dup2 there.
  void Add(int fd);
  // Adds the descriptors that another program has handed over.
  void Add(const std::vector<int>& fds) {
    for (const int fd : fds) Add(fd);
  }
  void AddUnlessKnown(int fd) {
    if (!Has(fd)) Add(fd);
  }
  void Remove(int fd) { std::erase(fds_, fd); }
  void Replace(int from, int to) { std::replace(fds_.begin(), fds_.end(), from, to); }
  void Clear() { fds_.clear(); }

  [[nodiscard]] bool none() const { return fds_.empty(); }
  [[nodiscard]] bool Has(int fd) const { return std::find(fds_.begin(), fds_.end(), fd) != fds_.end(); }
  // Return one of the descriptors, and one that is not `fd`; -1 if there is none.
  [[nodiscard]] int any() const { return fds_.empty() ? -1 : fds_.front(); }
  [[nodiscard]] int OtherThan(int fd) const;
  [[nodiscard]] const std::vector<int>& all() const { return fds_; }
  // Returns true if an exec leaves one of them open.
  [[nodiscard]] bool SurvivesExec() const;

  // Return O_NONBLOCK and O_APPEND as the application has set them. Ask the kernel by `fd` if the flags are
  // not known. A socket that cannot be asked blocks.
  bool IsNonblocking(int fd);
  bool Appends(int fd);
  // Returns O_NONBLOCK as last known; false if it is not known.
  [[nodiscard]] bool nonblocking() const { return nonblocking_.value_or(false); }
  // The application sets the flags. Returns the flags that the kernel is to have.
  int Set(int flags);
  void SetNonblocking(bool on) { nonblocking_ = on; }
  // Another process may have changed the flags.
  void ForgetFlags() { nonblocking_.reset(); }

  // Makes a listener's file non-blocking: two listeners are waited for together. The application still sees
  // its own wish.
  void ForceNonblocking(int fd);
  // Makes the file block again if the application wants that. Comes before the kernel answers for it.
  void EndForce(int fd) const;
  [[nodiscard]] bool forced() const { return forced_; }
  void SetForced(bool forced) { forced_ = forced; }
  // Returns what fcntl(F_GETFL) answers, from the kernel's answer.
  [[nodiscard]] int Visible(int kernel_flags) const;

 private:
  std::vector<int> fds_;
  std::optional<bool> nonblocking_;
  bool appends_ = false;  // known with nonblocking_
  bool forced_ = false;
};

// Puts `fresh`, a socket of no other use, in place of what `fd` stands for. The flags of `fd` stay. Returns
// false, with nothing changed at `fd`, if the kernel refuses.
bool PutInPlace(int fresh, int fd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_NUMBERS_H_
