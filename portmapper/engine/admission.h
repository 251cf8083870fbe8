// Who is heard at all: the bounds on what a source, and all sources together, may send (SDP 15.2.1). A fixed
// number of sources is remembered; nothing grows with what strangers send.
#ifndef SDP_PORTMAPPER_ENGINE_ADMISSION_H_
#define SDP_PORTMAPPER_ENGINE_ADMISSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/keyed_hash.h"

namespace sdp::pm {

struct AdmissionOptions {
  uint32_t source_rate = 20'000;  // datagrams a second from one IPv4 address or one IPv6 /64; 0: unbounded
  uint32_t total_rate = 500'000;  // from all together; 0: unbounded
  // An answer to such a port would hit a service, if the question's source is forged: DNS, NTP and the like.
  bool privileged_ports = false;  // hear questions from ports below 1024
  size_t sources = 16384;         // remembered at a time
};

enum class Verdict : uint8_t { kHear, kPrivilegedPort, kSourceLimit, kTotalLimit };

struct AdmissionCounters {
  uint64_t privileged_port = 0;
  uint64_t source_limit = 0;
  uint64_t total_limit = 0;
};

// A token bucket as one instant: when the bucket will be full again. It holds half a second's worth, 64 at
// least.
class TokenBucket {
 public:
  // Takes a token, if there is one, of a bucket that fills with one in every `interval` up to `burst`.
  [[nodiscard]] bool Take(Duration interval, Duration burst, Time now);
  [[nodiscard]] Time full_at() const { return full_at_; }

 private:
  Time full_at_{};
};

class Admission {
 public:
  Admission(const AdmissionOptions& options, const HashKey& key);

  // One datagram came from `source`. Time does not go back.
  [[nodiscard]] Verdict Judge(const Endpoint& source, Time now);

  // New rates from now on; what is remembered stays.
  void Reconfigure(const AdmissionOptions& options);

  [[nodiscard]] const AdmissionCounters& counters() const { return counters_; }

 private:
  // Sources that share a place. One whose bucket is full is as good as forgotten.
  static constexpr size_t kWays = 4;
  struct Source {
    uint64_t prefix = 0;
    TokenBucket bucket;
  };
  using Set = std::array<Source, kWays>;
  struct Rate {
    Duration interval{};  // 0: unbounded
    Duration burst{};
  };
  static Rate ToRate(uint32_t per_second);

  [[nodiscard]] Source& SourceOf(const Endpoint& source);

  HashKey key_;
  Rate source_rate_;
  Rate total_rate_;
  bool privileged_ports_ = false;
  std::vector<Set> sets_;  // a power of two
  TokenBucket total_;
  AdmissionCounters counters_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_ADMISSION_H_
