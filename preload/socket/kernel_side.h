// A listener's side on kernel RNICs: a KernelListener for each address that an RDMA device has. Empty where
// there is no such device. The owner's lock guards it.
#ifndef SDP_PRELOAD_SOCKET_KERNEL_SIDE_H_
#define SDP_PRELOAD_SOCKET_KERNEL_SIDE_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "preload/critical.h"
#include "preload/socket/kernel_listener.h"

namespace sdp::preload {

class KernelSide {
 public:
  explicit KernelSide(KernelListenerOwner* owner) : owner_(owner) {}

  // Opens and registers what is not open and registered yet. `lock` is the owner's, and is not held while
  // this waits, which takes `limit` at most for each registration. Returns false if none is registered, where
  // *why says what failed, or if Close() came meanwhile. One thread at a time calls it.
  bool Open(std::unique_lock<Mutex>* lock, int conventional_fd, int domain, size_t backlog, Duration limit,
            std::string* why);
  // Has the helper answer at what is registered, which the statistics show as serving `conventional_fd`. From
  // then on the object has to live as long as the helper has its listeners.
  void Start(int conventional_fd);
  // Open() may open it again.
  void Close();
  // In the child of a fork: the devices' sides are the parent's, and stay.
  void Disown();
  // A connection that came in at `address` was accepted.
  void CountAccepted(const pm::Endpoint& address);

 private:
  void DropGone();
  void Register(const pm::Endpoint& address, int conventional_fd, int registration);

  KernelListenerOwner* const owner_;
  std::vector<std::unique_ptr<KernelListener>> open_;
  std::vector<std::unique_ptr<KernelListener>> closed_;  // the helper may still have them
  bool looked_ = false;  // for addresses of kernel RNICs, since the last Close()
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KERNEL_SIDE_H_
