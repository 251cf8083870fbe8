// Connections that are past the handshake and await accept(), of a listener that several processes hold. The
// first process to accept gets the next one, whichever process did the handshake. For TCP, the kernel's
// accept queue does this.
//
// The queue is a pair of Unix sockets that all holders of the listener have, by fork, exec or in a message. A
// connection is a record of fixed size, its frozen session, with its link as a passed descriptor. So the
// kernel tells when one is there and gives each to one process. The kernel also keeps them when the process
// that put them there dies, and ends them with the last holder.
#ifndef SDP_PRELOAD_SOCKET_COMMON_QUEUE_H_
#define SDP_PRELOAD_SOCKET_COMMON_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <vector>

#include "core/base/types.h"
#include "preload/socket/address.h"

namespace sdp::preload {

class CommonQueue {
 public:
  // The longest state, in bytes: more than an unused session has. The kernel rounds a record of this size up
  // to 2 KiB.
  static constexpr size_t kMostState = 1600;

  CommonQueue() = default;
  CommonQueue(const CommonQueue&) = delete;
  CommonQueue& operator=(const CommonQueue&) = delete;
  ~CommonQueue() { Close(); }

  // Makes a new queue. Returns false if no descriptor is left; errno says why.
  bool Open();
  // Takes up another process's queue by its two descriptors, which become the queue's in any case. Returns
  // false if no descriptor is left.
  bool TakeUp(int out, int in);
  // Ends this process's part in the queue.
  void Close();
  [[nodiscard]] bool open() const { return out_.load() >= 0; }
  // Appends both descriptors, in the order of TakeUp; they stay the queue's.
  void AppendDescriptors(std::vector<int>* descriptors) const;

  // Returns true if connections can be put in.
  [[nodiscard]] bool usable() const;
  // Returns a descriptor that is readable while a connection waits; -1: this process can take none.
  [[nodiscard]] int fd() const;
  // Returns the number of waiting connections; 0 where fd() is -1.
  [[nodiscard]] size_t size() const;

  // Notes that this process starts handshakes for all holders. Until EndWork() a process that bars the queue
  // waits for those connections, and they may still be put in. Returns false if the queue is not usable: then
  // what this process accepts is its own. The kernel ends the work of a process that dies.
  bool BeginWork();
  void EndWork();
  [[nodiscard]] bool at_work() const { return at_work_; }
  // In the child of a fork: the work is the parent's.
  void ForgetWork() { at_work_ = false; }
  // Returns true if another process has begun work and not ended it.
  [[nodiscard]] bool OthersAtWork() const;

  // `link` and `memory` stay the caller's; `memory`: that of a local link, or -1. `peer`: the address, which
  // the link no longer tells after a reset. `since`: when the wait began. `begun`: taken on at work. Returns
  // false if the queue is full, the state too long (EMSGSIZE), or the queue not usable.
  bool Put(Bytes state, int link, int memory, const Address& peer, Time since, bool begun);
  // Takes the first connection. Its link becomes the caller's, with `flags` (SOCK_CLOEXEC, SOCK_NONBLOCK)
  // applied, and so does *memory. Returns false with errno; EAGAIN: the queue is empty. After EMFILE, say,
  // the connection is still there.
  bool Take(int flags, int* link, int* memory, Address* peer, Time* since, std::vector<std::byte>* state);
  // Returns when the first connection began to wait; kNever: the queue is empty.
  [[nodiscard]] Time FirstSince() const;

  // For a process that is about to be confined (preload/confinement.h) and then cannot take connections out:
  // from here on no process puts in new work for it.
  void Bar();

 private:
  std::atomic<int> out_{-1};  // hidden; where connections come out
  std::atomic<int> in_{-1};   // hidden; where connections go in
  bool at_work_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_COMMON_QUEUE_H_
