// Which SDP address belongs to which conventional address on this host. Wildcards included; no I/O, no time.
#ifndef SDP_PORTMAPPER_ENGINE_REGISTRATION_TABLE_H_
#define SDP_PORTMAPPER_ENGINE_REGISTRATION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/types.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {

// Never used twice while a table lives.
using RegistrationId = StrongInt<struct RegistrationIdTag, uint64_t>;

struct Registration {
  Endpoint conventional;  // where plain TCP clients connect; 0.0.0.0 and [::] are wildcards
  Endpoint sdp;           // where SDP clients connect; a wildcard means: the address the client asked for
  bool v6_only = false;   // [::] does not take IPv4 (IPV6_V6ONLY)
  // `sdp` is where a kernel RNIC listens: it serves those alone who ask for that very address of the host,
  // and before any other.
  bool of_rnic = false;

  friend bool operator==(const Registration&, const Registration&) = default;
};

class RegistrationTable {
 public:
  // Both ports are set (our own mistake otherwise). The same conventional address may be registered many
  // times (SO_REUSEPORT): all are kept. v4-mapped addresses are taken as IPv4.
  RegistrationId Add(const Registration& registration);
  // False if there is no such registration.
  bool Remove(RegistrationId id);

  // The registration that serves `asked`: one of that very address before one of the wildcard, IPv4's
  // wildcard before a dual [::]; among these a kernel RNIC's before others. Of several with the same address
  // `spread` picks one, the same for the same set: a client's retransmission gets the same answer, and
  // clients are spread over the listeners as SO_REUSEPORT does it. Empty for an address nobody can connect to
  // (wildcard, multicast).
  [[nodiscard]] std::optional<RegistrationId> Find(const Endpoint& asked, uint64_t spread) const;

  // Several may be found.
  [[nodiscard]] bool IsSpread(const Endpoint& asked) const { return Find(asked, 0) != Find(asked, 1); }

  // `id` is in the table.
  [[nodiscard]] const Registration& Get(RegistrationId id) const;

  // What to answer to a client that asked for `asked`, in asked's IP version; empty if that cannot be said in
  // it.
  [[nodiscard]] static std::optional<Endpoint> SdpAddressFor(const Registration& registration,
                                                             const Endpoint& asked);

  [[nodiscard]] size_t size() const { return by_id_.size(); }
  // Changes with every change of the table.
  [[nodiscard]] uint64_t generation() const { return generation_; }
  // In the order of registration.
  [[nodiscard]] std::vector<std::pair<RegistrationId, Registration>> List() const;
  [[nodiscard]] bool IsConsistent() const;

 private:
  // Of those registered for `conventional` one that serves `asked`.
  [[nodiscard]] std::optional<RegistrationId> Pick(const Endpoint& conventional, const Endpoint& asked,
                                                   uint64_t spread) const;

  using Entry = std::pair<RegistrationId, Registration>;

  absl::flat_hash_map<RegistrationId, Registration> by_id_;
  // The same, so that an answer costs one look-up; no empty vectors.
  absl::flat_hash_map<Endpoint, std::vector<Entry>> by_conventional_;
  uint64_t next_id_ = 1;
  uint64_t generation_ = 0;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_REGISTRATION_TABLE_H_
