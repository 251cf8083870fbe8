// A process that has shut itself off from most system calls with a seccomp filter, as the OpenSSH server's
// network child does. The filter is made for what the program does with TCP: it reads, writes, waits, sleeps,
// and closes, each by one call perhaps. The library asks for no more than that then: no fcntl, eventfd, clone
// or unlink. What cannot be had so, is not done: others that share a connection pass for alive, no helper
// thread starts, stats files stay until somebody finds them stale. A socket that is made, or not connected
// yet, stays TCP: to find a way by SDP takes calls that no filter expects.
//
// Filters are seen that are set by prctl() or by syscall(), as libseccomp does. They are read: one that
// allows what is listed in confinement.cc confines nobody. One that is there before the program begins is its
// surroundings', as a container's, and has to allow that.
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

// The socket room's: what has to be known or mapped before. In the thread that is about to set the filter.
void PrepareConfinement();
// The filter was refused after all.
void ConfinementRefused();

// A filter that this process is about to set.
class ComingFilter {
 public:
  // `program`: null for what allows nothing but read and write (SECCOMP_SET_MODE_STRICT).
  explicit ComingFilter(const sock_fprog* program);
  // It forbids something that the library may need.
  [[nodiscard]] bool confines() const { return confines_; }
  // The same, and as far as can be seen before the kernel will take it: what is prepared for it cannot be
  // undone.
  [[nodiscard]] bool will_confine() const;
  void Note() const;

 private:
  uint32_t forbidden_ = 0;  // a bit for each Call
  bool confines_ = false;
  bool needs_right_ = false;  // to set it takes a right of the process's
  bool refused_ = false;      // its program is none
};

// Around the call by which this thread sets a filter. `most`: the largest result that says it has.
template <typename Set>
auto Confine(const sock_fprog* program, Set set, long most = LONG_MAX) {
  if (!OwnsProcess()) return set();  // a child of vfork: its filter is not its parent's
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

// The same for prctl(PR_SET_SECCOMP, mode, program).
template <typename Set>
auto ConfineByPrctl(unsigned long mode, unsigned long program, Set set) {
  if (mode == SECCOMP_MODE_STRICT) return Confine(nullptr, set);
  if (mode != SECCOMP_MODE_FILTER || program == 0) return set();
  return Confine(reinterpret_cast<const sock_fprog*>(program), set);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFINEMENT_H_
