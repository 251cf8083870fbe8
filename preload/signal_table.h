// The program's action for each signal, as the program gave it; the kernel may have the library's handler in
// its place (critical.h). A handler may read and change the table. So a change blocks signals, and a reader
// takes no lock.
#ifndef SDP_PRELOAD_SIGNAL_TABLE_H_
#define SDP_PRELOAD_SIGNAL_TABLE_H_

#include <signal.h>

namespace sdp::preload {

class SignalTable {
 public:
  // Removes the signals that report an error of the thread itself. Their handlers cannot wait, and blocked
  // such a signal would end the process.
  static void RemoveErrors(sigset_t* set);
  // Returns whether the library may hold off the signal's handler.
  static bool MayBeHeldOff(int number);

  // Returns whether this process may change the table. A child of vfork has handlers of its own, but no
  // table.
  static bool IsOwn();
  // Call in the child of a fork: the table is its own.
  static void Adopt();

  static const struct sigaction& ActionOf(int number);
  // The caller has a Lock, or no other thread uses the table. Note() does not touch what ActionOf() has
  // returned last. TakeBack() undoes the last Note().
  static void Note(int number, const struct sigaction& action);
  static void TakeBack(int number);

  class Lock {
   public:
    Lock();
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    sigset_t mask_;
  };
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SIGNAL_TABLE_H_
