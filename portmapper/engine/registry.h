// What an administrator writes down for a PMSP: for which hosts it answers, who may ask for what, services
// with fixed SDP addresses, services that are spread over several hosts, and how long answers may be kept.
//
//   serve PREFIX                                  answer for these hosts, from what they announce
//   host ADDR ADDR...                             addresses of one host: each may announce for the others
//   map HOST:PORT to HOST:PORT[-PORT] [weight N] [priority N]
//                                                 an SDP address by hand; of a range, each port is given to
//                                                 one client at a time, until its PMAck or time-out
//   balance HOST:PORT over HOST:PORT [weight N] [priority N]
//                                                 send clients where that other service is, while it is
//                                                 announced
//   balance PREFIX over HOST [weight N] [priority N]
//                                                 the same for each service of these addresses: where HOST
//                                                 has announced the same port. The first such line whose
//                                                 PREFIX matches decides, with all others of that PREFIX
//   allow PREFIX [to SERVICES]                    who may ask for what; the first line that matches decides,
//   deny PREFIX [to SERVICES]                     and without one it is allowed
//   pmtime N [for SERVICES]                       as --pmtime, for some services; the first line that matches
//
// One statement a line; '#' begins a comment. PREFIX is ADDR/LENGTH, ADDR or *; SERVICES is PREFIX or
// PREFIX:PORT[-PORT], with the prefix in brackets for IPv6. Weight is 1 to 65535, the default 1; of several
// answers those with the lowest priority (0 to 255, the default 0) that can be given share the clients by
// weight.
#ifndef SDP_PORTMAPPER_ENGINE_REGISTRY_H_
#define SDP_PORTMAPPER_ENGINE_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/result.h"
#include "portmapper/endpoint.h"
#include "portmapper/prefix.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

struct AccessRule {
  bool allow = true;
  Prefix from;
  Services to;
};

struct PmTimeRule {
  PmTime pm_time;
  Services services;
};

enum class BackendKind : uint8_t {
  kSdpAddress,  // `address` is where SDP clients connect; with last_port, a pool
  kService,     // `address` is another conventional address; its SDP address is what its host announces
};

struct Backend {
  BackendKind kind = BackendKind::kSdpAddress;
  Endpoint address;
  uint16_t last_port = 0;  // at least address.port
  uint16_t weight = 1;
  uint8_t priority = 0;

  [[nodiscard]] bool IsPool() const { return last_port > address.port; }
};

// Whoever asks for a service of `asked` is sent where `over` has it: a kService of port 0, which stands for
// each port.
struct HostBalance {
  Prefix asked;
  Backend over;
};

struct Registry {
  std::vector<Prefix> serve;
  std::vector<std::vector<Endpoint>> hosts;  // ports 0
  std::vector<AccessRule> access;
  std::vector<PmTimeRule> pm_times;
  absl::flat_hash_map<Endpoint, std::vector<Backend>> services;  // by conventional address
  std::vector<HostBalance> host_balances;                        // for services that are not in `services`
};

struct RegistryError {
  size_t line = 0;    // from 1
  size_t column = 0;  // from 1
  std::string text;   // what was expected there
};

inline constexpr size_t kMaxRegistrySize = 4 << 20;  // bytes
inline constexpr size_t kMaxBackends = 256;          // of one service
inline constexpr int kMaxPoolPorts = 4096;           // of one pool

// All statements, or all errors (100 at most).
[[nodiscard]] Result<Registry, std::vector<RegistryError>> ParseRegistry(std::string_view text);

// What --serve says is added to *registry: PREFIX as in "serve PREFIX"; PREFIX=HOST[,HOST]... as in "serve
// HOST" and "balance PREFIX over HOST" for each. False, and nothing is added, if it is neither.
[[nodiscard]] bool ParseServe(std::string_view text, Registry* registry);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_REGISTRY_H_
