// Kernel RNICs, through librdmacm and libibverbs: the only folder that knows these libraries. They are loaded
// when first needed.
//
// What differs from the embedded RNIC, beyond rnic.h's words:
//   * a completion's `solicited` stays false, and `invalidated` is empty where the device's provider does not
//   say (siw's does not);
//   * an STag may be that of ordinary verbs: unpredictable as far as the device makes it so;
//   * the accepting side's HelloAck always travels in the reply (may_send_first() is false).
#ifndef SDP_VERBS_IBV_IBV_RNIC_H_
#define SDP_VERBS_IBV_IBV_RNIC_H_

#include <sys/socket.h>

#include <memory>
#include <string>

#include "verbs/rnic.h"

namespace sdp::ibv {

// True when the libraries and a usable device file are there; else *why, one line for the log.
bool Available(std::string* why);

// The name of the RDMA device that a local address belongs to ("siw0"); empty: none. Any port.
std::string DeviceOf(const sockaddr* local);

// Starts a connection to `target` from `local` (null: the route decides). Never null; a failure shows in
// Step(). `private_data`: at most 255 bytes. Available() has said yes.
std::unique_ptr<verbs::Connector> Connect(const sockaddr* local, const sockaddr* target, Bytes private_data,
                                          const verbs::QpOptions& qp, Duration timeout, Time now);

class Listener {
 public:
  virtual ~Listener() = default;

  // Listens at an address of an RDMA device; port 0: any. Null: *why.
  static std::unique_ptr<Listener> Open(const sockaddr* local, int backlog, std::string* why);

  // Readable when Accept may have something.
  [[nodiscard]] virtual int event_fd() const = 0;
  [[nodiscard]] virtual uint16_t port() const = 0;
  [[nodiscard]] virtual const std::string& device() const = 0;
  // The device was removed: nobody comes any more.
  [[nodiscard]] virtual bool gone() const = 0;
  // A connection that asks, in ConnectState::kRequested (or kFailed); null if there is none now. `timeout`:
  // for its set-up.
  virtual std::unique_ptr<verbs::Connector> Accept(Duration timeout, Time now) = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_RNIC_H_
