// Which of the two ways a connect takes where the SDP port may be silent. A firewall may let the port
// mapper's datagrams through and drop TCP to the SDP port. As RFC 8305 does for IPv6 and IPv4, the first way
// has a head start, the budget; then both are tried, and the first to answer is used.
//
//                ┌── the SDP port answers ─────────────────────────────┐
//                │                                                     v
//    kSdpAlone ──┤                        ┌── the SDP port answers ──> kSdp
//                └── the budget is over ──> kBoth                       (once)
//                                         └── TCP answers, or fails ──> kConventional
//
// The program's server never accepts two connections. Its SDP side hands a connection to accept() only after
// the client's first message behind the MPA Reply. In a race nothing is sent to the SDP port but a SYN. Its
// conventional side has a connection once the client's kernel has acknowledged the SYN-ACK. So the owner
// keeps that acknowledgement back (TCP_QUICKACK off: 200 ms at most) until Look() has been told of the
// answer, and Look() never takes the SDP way then. Where the SDP port has answered, no answer of TCP comes
// between Look() and the end of the attempt over TCP (DeafMoment).
//
// A value: no socket, no clock.
#ifndef SDP_PRELOAD_SOCKET_CONNECTION_RACE_H_
#define SDP_PRELOAD_SOCKET_CONNECTION_RACE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/types.h"

namespace sdp::preload {

class ConnectionRace {
 public:
  static constexpr Duration kLeastBudget = std::chrono::milliseconds(50);
  static constexpr Duration kMostBudget = std::chrono::milliseconds(300);

  enum class Way : uint8_t { kSdpAlone, kBoth, kSdp, kConventional };

  // How long the SDP port may be silent before TCP is tried, too. `configured`: what libsdp.conf says.
  // `round_trip`: the port mapper's, as measured. `patience`: the program's own time-out; zero: none is
  // known.
  static Duration Budget(std::optional<Duration> configured, Duration round_trip, Duration patience) {
    Duration budget = configured.value_or(std::clamp(3 * round_trip, kLeastBudget, kMostBudget));
    if (patience > Duration::zero()) budget = std::min(budget, patience / 2);
    return budget;
  }

  // A SYN leaves for the SDP port at `now`. The first call gives the port its head start. A later one, behind
  // a race that the SDP port has won, gives it another, and behind that TCP alone is tried.
  void Begin(Time now, Duration budget) {
    way_ = Way::kSdpAlone;
    deadline_ = budget >= kNever - now ? kNever : now + budget;
  }
  // kSdpAlone: when to look again.
  [[nodiscard]] Time deadline() const { return way_ == Way::kSdpAlone ? deadline_ : kNever; }

  // Says how to go on. `sdp` and `conventional`: the port has answered; for `conventional`, or has failed.
  Way Look(bool sdp, bool conventional, Time now) {
    switch (way_) {
      case Way::kSdpAlone:
        if (sdp) {
          way_ = Way::kSdp;
        } else if (now >= deadline_) {
          way_ = raced_ ? Way::kConventional : Way::kBoth;
          raced_ = true;
        }
        break;
      case Way::kBoth:
        if (conventional) {
          way_ = Way::kConventional;
        } else if (sdp) {
          way_ = Way::kSdp;
        }
        break;
      case Way::kSdp:
      case Way::kConventional:
        break;
    }
    return way_;
  }

 private:
  Way way_ = Way::kSdpAlone;
  bool raced_ = false;
  Time deadline_ = kNever;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CONNECTION_RACE_H_
