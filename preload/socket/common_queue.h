// Connections of a listener that several processes hold, shaken hands with and not accepted yet: whichever of
// the processes comes first has the next one, whoever took it on. What the kernel's accept queue is for TCP.
//
// It is a pair of Unix sockets that all holders of the listener have, by fork, exec or in a message. A
// connection in it is a record of fixed size, its frozen session, with its link as a passed descriptor. So
// the kernel says when one is there, gives each to one process, keeps them when the process dies that put
// them there, and ends them with the last holder.
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
  // The longest state, in bytes: more than a session has that nobody has used yet. The kernel rounds a record
  // of this size up to 2 KiB.
  static constexpr size_t kMostState = 1600;

  CommonQueue() = default;
  CommonQueue(const CommonQueue&) = delete;
  CommonQueue& operator=(const CommonQueue&) = delete;
  ~CommonQueue() { Close(); }

  // A new one. False, errno says why: no descriptor is left.
  bool Open();
  // Another process's, by its two descriptors, which are taken over in any case. False: no descriptor is
  // left.
  bool TakeUp(int out, int in);
  // This process has no part in it any more.
  void Close();
  [[nodiscard]] bool open() const { return out_.load() >= 0; }
  // Both, in the order of TakeUp; they stay the queue's.
  void AppendDescriptors(std::vector<int>* descriptors) const;

  // Connections can be put in.
  [[nodiscard]] bool usable() const;
  // Readable while a connection waits; -1: this process can take none.
  [[nodiscard]] int fd() const;
  // Connections that wait. 0 where fd() is -1.
  [[nodiscard]] size_t size() const;

  // This process takes connections on that any may accept: until EndWork() whoever bars the queue waits for
  // them, and they may be put in all the same. False: it is not usable, and what is taken on from here on is
  // this process's own. The kernel ends the work of a process that dies.
  bool BeginWork();
  void EndWork();
  [[nodiscard]] bool at_work() const { return at_work_; }
  // In the child of a fork: the work is the parent's.
  void ForgetWork() { at_work_ = false; }
  // Another process has begun and not ended.
  [[nodiscard]] bool OthersAtWork() const;

  // `link` stays the caller's; `peer`: its address, of which the link tells no more once the peer has reset
  // it; `since`: when it began to wait; `begun`: it was taken on at work. False: the queue is full, the state
  // too long (EMSGSIZE), or the queue not usable.
  bool Put(Bytes state, int link, const Address& peer, Time since, bool begun);
  // The first of them: its link, with `flags` (SOCK_CLOEXEC, SOCK_NONBLOCK) applied, is the caller's. False:
  // errno says why; EAGAIN: there is none. With EMFILE, say, it stays where it is.
  bool Take(int flags, int* link, Address* peer, Time* since, std::vector<std::byte>* state);
  // When that one began to wait; kNever: there is none.
  [[nodiscard]] Time FirstSince() const;

  // For a process that is about to be confined (preload/confinement.h) and will not be able to take
  // connections out: from here on no process begins to take any on for it.
  void Bar();

 private:
  std::atomic<int> out_{-1};  // hidden; where connections come out
  std::atomic<int> in_{-1};   // hidden; where they are put in
  bool at_work_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_COMMON_QUEUE_H_
