// Seccomp filters that the program sets on itself, as the OpenSSH server's network child does. Such a filter
// is made for what the program does with TCP: read, write, wait, sleep and close, perhaps each by one call.
// In a confined process the library makes no other calls: no fcntl, eventfd, clone or unlink. What those
// calls would do is left out. Other processes that share a connection count as alive, no helper thread
// starts, and stats files stay until another process finds them stale. A new or unconnected socket stays TCP,
// because SDP set-up needs calls that no filter expects.
//
// The library sees filters that the program sets by prctl() or by syscall(), as libseccomp does. The library
// reads the filter: one that allows everything listed in confinement.cc confines nothing. A filter from
// before the program's start belongs to its surroundings, such as a container, and has to allow that list.
#ifndef SDP_PRELOAD_CONFINEMENT_H_
#define SDP_PRELOAD_CONFINEMENT_H_

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <climits>
#include <cstdint>

#include "preload/allowed_calls.h"
#include "preload/guard.h"
#include "preload/startup.h"

namespace sdp::preload {

// Implemented by the socket room: looks up and maps beforehand what the filter may forbid. Call in the thread
// that is about to set the filter.
void PrepareConfinement();
// The kernel refused the filter after all.
void ConfinementRefused();

// A filter that this process is about to set.
class ComingFilter {
 public:
  // `program`: null for the filter that allows only read and write (SECCOMP_SET_MODE_STRICT).
  explicit ComingFilter(const sock_fprog* program);
  // Returns whether the filter forbids something that the library may need.
  [[nodiscard]] bool confines() const { return confines_; }
  // Returns whether the filter confines and, as far as can be seen beforehand, the kernel will accept it.
  // Preparations for a filter cannot be undone.
  [[nodiscard]] bool will_confine() const;
  void Note() const;

 private:
  uint32_t forbidden_ = 0;  // a bit for each Call
  bool confines_ = false;
  bool needs_right_ = false;  // to set the filter takes a privilege
  bool refused_ = false;      // the kernel will not accept the program
};

// Wraps the call by which this thread sets a filter. `most` is the largest result that means success.
template <typename Set>
auto Confine(const sock_fprog* program, Set set, long most = LONG_MAX) {
  if (!OwnsProcess()) return set();  // a child of vfork: its filter does not bind the parent
  const NoCancellation no_cancellation;
  const int error = errno;
  const ComingFilter filter(program);
  const bool prepares = filter.confines() && Started() && !Confined() && filter.will_confine();
  if (prepares) PrepareConfinement();
  errno = error;
  const auto result = set();
  const int result_error = errno;
  const bool is_set = result >= 0 && result <= most;
  if (is_set && filter.confines()) filter.Note();
  if (!is_set && prepares) ConfinementRefused();
  errno = result_error;
  return result;
}

// Confine() for prctl(PR_SET_SECCOMP, mode, program).
template <typename Set>
auto ConfineByPrctl(unsigned long mode, unsigned long program, Set set) {
  if (mode == SECCOMP_MODE_STRICT) return Confine(nullptr, set);
  if (mode != SECCOMP_MODE_FILTER || program == 0) return set();
  return Confine(reinterpret_cast<const sock_fprog*>(program), set);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFINEMENT_H_
