// The addresses of this host, looked up again now and then.
#ifndef SDP_PORTMAPPER_DAEMON_OWN_ADDRESSES_H_
#define SDP_PORTMAPPER_DAEMON_OWN_ADDRESSES_H_

#include <optional>

#include "absl/container/flat_hash_set.h"
#include "core/base/types.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {

class OwnAddresses {
 public:
  // Whether `address` (its port does not matter) belongs to an interface of this host. The kernel is asked
  // once in five seconds at most; all of 127.0.0.0/8 is ours.
  [[nodiscard]] bool Contains(const Endpoint& address, Time now);

 private:
  absl::flat_hash_set<Endpoint> addresses_;
  std::optional<Time> looked_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_OWN_ADDRESSES_H_
