// Kernel RNICs, through librdmacm and libibverbs. Only verbs/ibv uses these libraries, and loads them when
// they are first needed.
//
// Differences from the embedded RNIC, beyond abilities.h:
//   * a completion's `solicited` stays false, and `invalidated` is empty where the device's provider does not
//     set it (siw's does not);
//   * STags are the device's, and as unpredictable as the device makes them;
//   * the accepting side's HelloAck always travels in the reply (may_send_first() is false).
#ifndef SDP_VERBS_IBV_IBV_RNIC_H_
#define SDP_VERBS_IBV_IBV_RNIC_H_

#include <sys/socket.h>

#include <memory>
#include <string>

#include "verbs/rnic.h"

namespace sdp::ibv {

// Returns true if the libraries and a usable device file are there; else sets *why to one line for the log.
bool Available(std::string* why);

// Returns the name of the RDMA device that has a local address ("siw0"), or an empty string. Ignores the
// port.
std::string DeviceOf(const sockaddr* local);

// Begins a connection to `target` from `local` (null: the route decides). Never returns null; Step() reports
// a failure. `private_data`: at most 255 bytes. Call it only after Available() has returned true.
std::unique_ptr<verbs::Connector> Connect(const sockaddr* local, const sockaddr* target, Bytes private_data,
                                          const verbs::QpOptions& qp, Duration timeout, Time now);

class Listener {
 public:
  virtual ~Listener() = default;

  // Listens at an address of an RDMA device; port 0: any port. Returns null on failure and sets *why.
  static std::unique_ptr<Listener> Open(const sockaddr* local, int backlog, std::string* why);

  // Readable when Accept may have a connection.
  [[nodiscard]] virtual int event_fd() const = 0;
  [[nodiscard]] virtual uint16_t port() const = 0;
  [[nodiscard]] virtual const std::string& device() const = 0;
  // Returns true if the device was removed: no connection comes any more.
  [[nodiscard]] virtual bool gone() const = 0;
  // Returns a connection request in ConnectState::kRequested (or kFailed), or null. `timeout` is for its
  // set-up.
  virtual std::unique_ptr<verbs::Connector> Accept(Duration timeout, Time now) = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_RNIC_H_
