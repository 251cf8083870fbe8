// One UDP socket of the service. Questions come in batches; each answer leaves from the very address that was
// asked.
#ifndef SDP_PORTMAPPER_DAEMON_UDP_PORT_H_
#define SDP_PORTMAPPER_DAEMON_UDP_PORT_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/types.h"
#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

// Whether datagrams of wire/announcement.h are let through to `serve`.
enum class Announcements : uint8_t { kDropped, kHeard };

class UdpPort {
 public:
  // Binds `address`; port 0 lets the kernel choose. An IPv6 socket takes no IPv4: that has its own.
  // Unavailable if the host does not have the address family; AlreadyExists, with advice, if the port is
  // taken. The kernel drops what cannot be a question or a PMAck before it takes a place in the queue.
  [[nodiscard]] static absl::StatusOr<UdpPort> Open(const Endpoint& address);

  // One for `address`, which is of this socket's family and port, beside this one, which is for all
  // addresses. The two share the port for the moment in which it is bound; from then on nobody else gets in.
  [[nodiscard]] absl::StatusOr<UdpPort> OpenBeside(const Endpoint& address) const;

  // A new filter in place of the one Open made, which drops announcements.
  [[nodiscard]] absl::Status SetFilter(Announcements announcements) const;

  [[nodiscard]] int fd() const { return fd_.get(); }
  // With the port the kernel chose.
  [[nodiscard]] const Endpoint& local() const { return local_; }
  // Answers the kernel did not take, and questions to a multicast or broadcast address, which are not
  // answered.
  [[nodiscard]] uint64_t unsent() const { return unsent_; }
  [[nodiscard]] uint64_t not_unicast() const { return not_unicast_; }
  // Datagrams the kernel dropped: no message of the protocol, or the queue was full. Wraps.
  [[nodiscard]] uint32_t dropped_by_kernel() const;

  // Call when fd() is readable: gives each waiting datagram, with the address it came from, to `serve`, up to
  // a bound, and sends the answers.
  using Serve = absl::FunctionRef<std::optional<Datagram>(Bytes, const Endpoint&)>;
  void HandleReadable(Serve serve);

 private:
  struct Batch;

  static absl::StatusOr<UdpPort> Bind(UniqueFd fd, const Endpoint& address);
  UdpPort(UniqueFd fd, const Endpoint& local);
  [[nodiscard]] bool Answerable(msghdr* question);
  [[nodiscard]] int ReceiveBatch();
  void SendAnswers(int count);

  UniqueFd fd_;
  Endpoint local_;
  uint64_t unsent_ = 0;
  uint64_t not_unicast_ = 0;
  // Large, pointing into itself, and nobody's between two calls: all sockets share one.
  std::shared_ptr<Batch> batch_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_UDP_PORT_H_
