// The tasks of the helper thread (background.h), and what each of them waits for. A TaskList is a plain list
// without thread or lock. Background owns the lists and holds the lock that the methods require.
#ifndef SDP_PRELOAD_SOCKET_HELPER_TASKS_H_
#define SDP_PRELOAD_SOCKET_HELPER_TASKS_H_

#include <poll.h>

#include <cstdint>
#include <new>
#include <vector>

#include "core/base/types.h"
#include "preload/socket/socket.h"

namespace sdp::preload {

// What a task waits for next.
struct HelperWait {
  bool done = false;  // the helper drops the task
  int fd = -1;        // -1: only the deadline
  short events = 0;   // of poll
  Time deadline = kNever;
  int also_fd = -1;  // a second descriptor, waited for with POLLOUT
};

class HelperTask {
 public:
  virtual ~HelperTask() = default;
  // Runs on the helper's thread when what the task waited for has come. Must not block.
  virtual HelperWait Run(Time now) = 0;
  // Returns the socket that owns the task; the helper holds a reference while it has the task. Returns
  // nullptr if the task is the library's own: then only a helper thread runs it.
  virtual Socket* owner() = 0;

 private:
  friend class Background;
  friend class TaskList;
  uint32_t queued_in_ = 0;  // the process generation whose helper has it; 0: none. Guarded by Background.
  Time again_ = kNever;     // added again while the helper had it: due then. Guarded by Background
};

class TaskList {
 public:
  // Returns false if there is no memory.
  bool Add(HelperTask* task, Time due) {
    try {
      items_.push_back({.task = task, .wait = {.deadline = due}});
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  // Moves all of `others` to the end of this list.
  void Append(TaskList* others);
  // Takes out the tasks that sockets own.
  TaskList TakeOwned();
  void Clear() { items_.clear(); }
  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] bool AnyOwned() const;
  [[nodiscard]] bool AnyAddedAgain() const;
  // Adds a counted reference of each task's owner to `out`.
  void AppendOwners(std::vector<SocketRef>* out) const;

  // Appends what the tasks wait for to `fds`, in their order; returns the first deadline.
  Time AppendPolled(std::vector<pollfd>* fds) const;
  // Returns when a caller that does not poll looks again: at a task's deadline, or after `descriptors` if a
  // task waits for a descriptor. kNever: no socket's task is here.
  [[nodiscard]] Time NextLook(Time now, Duration descriptors) const;
  // Runs the tasks that are due at `now`, or whose descriptor is ready. `fds`: from AppendPolled(), with
  // poll's answer. Tasks added since then come after those in `fds`.
  void RunReady(const std::vector<pollfd>& fds, Time now);
  // Makes each task due at `now`: it runs, and says anew what it waits for.
  void MakeAllDue(Time now);
  // Takes out the tasks that are done; returns their owners, with references that are the caller's from here
  // on. The lock is held. Throws std::bad_alloc with the list as it was.
  std::vector<Socket*> TakeDone();

 private:
  struct Item {
    HelperTask* task;
    HelperWait wait;
  };

  std::vector<Item> items_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_HELPER_TASKS_H_
