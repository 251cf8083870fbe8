// A listening socket's side on kernel RNICs: a librdmacm listener at an address that an RDMA device has, on a
// port that the kernel chose. Owns its registration with the port mapper.
//
// The helper thread alone answers requests. A queue pair does not survive a fork, so these listeners belong
// to one process: see Listener::NoteFork.
#ifndef SDP_PRELOAD_SOCKET_KERNEL_LISTENER_H_
#define SDP_PRELOAD_SOCKET_KERNEL_LISTENER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "portmapper/registrar.h"
#include "preload/critical.h"
#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/stats_segment.h"
#include "verbs/ibv/ibv_rnic.h"

namespace sdp::preload {

// Owns the KernelListener and takes its connections. The owner's lock guards the KernelListener.
class KernelListenerOwner {
 public:
  virtual Mutex& kernel_listener_mutex() = 0;
  // With the lock held. HasRoom: true if one may be taken on. TakeOnFromRnic: its request is complete.
  virtual bool HasRoom() const = 0;
  virtual void TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) = 0;
  virtual Socket* owning_socket() = 0;

 protected:
  ~KernelListenerOwner() = default;
};

class KernelListener final : public Background::Task {
 public:
  // Opens one for each kernel RNIC's address that `conventional`, a listener's name, stands for. Returns none
  // with *why on failure. `owner` outlives them, and keeps each as long as the helper has it.
  static std::vector<std::unique_ptr<KernelListener>> OpenAll(KernelListenerOwner* owner,
                                                              const Address& conventional, bool v6only,
                                                              int backlog, std::string* why);

  // Return its address and its device.
  [[nodiscard]] const pm::Endpoint& address() const { return address_; }
  [[nodiscard]] const std::string& device() const { return rnic_->device(); }

  // `registered`: false without a registration, or if the daemon is gone. `fd`: of the registration, taken
  // over, and not hidden yet.
  [[nodiscard]] bool registered() const;
  void SetRegistration(int fd);
  // Returns true if its device was removed and the helper has given it up. The owner takes it off its list.
  [[nodiscard]] bool gone() const { return gone_; }
  // Has the helper answer requests. The statistics show it as serving the conventional listener `fd`.
  void Start(int fd);
  // One of its connections was accepted.
  void CountAccepted();
  void Close();
  // In the child of a fork, where the helper has forgotten it: the device's side is the parent's, and stays.
  void Disown();

  Background::Wait Run(Time now) override;
  Socket* owner() override { return owner_->owning_socket(); }

 private:
  void Hide();
  KernelListener(KernelListenerOwner* owner, std::unique_ptr<ibv::Listener> rnic,
                 const pm::Endpoint& address);

  KernelListenerOwner* const owner_;
  std::unique_ptr<ibv::Listener> rnic_;
  const pm::Endpoint address_;
  std::atomic<int> registration_fd_{-1};
  stats::Slot* slot_ = nullptr;
  bool closed_ = false;
  bool gone_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KERNEL_LISTENER_H_
