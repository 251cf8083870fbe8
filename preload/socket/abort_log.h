// What the log says of a connection that was aborted: a line, and the connection's last messages.
//
// How loud it is depends on whether somebody has to hear of it. The peer broke SDP's or iWARP's rules, the
// RNIC failed, the network or the peer's host is gone, the peer died in the middle of a message: an error,
// which the log has unless told otherwise. A reset, an AbortConn, or a link that just ends is how programs
// leave that do not care any more (SO_LINGER of zero, unread data, Ctrl-C): info. What the application aborts
// itself it knows.
//
// Whoever can connect can cause such errors. So where the log has errors alone, a process writes about
// kAbortBurst of them at once, and then about one in kAbortInterval; the next line counts the others. With
// info the log has them all. Processes made by fork count as one with their parent: a server may have one for
// each connection.
#ifndef SDP_PRELOAD_SOCKET_ABORT_LOG_H_
#define SDP_PRELOAD_SOCKET_ABORT_LOG_H_

#include <atomic>
#include <cstdint>

#include "core/base/types.h"
#include "core/engine/status.h"
#include "preload/log.h"
#include "preload/socket/address.h"
#include "preload/stats_recorder.h"
#include "verbs/rnic.h"

namespace sdp::preload {

inline constexpr int kAbortBurst = 5;
inline constexpr Duration kAbortInterval = std::chrono::seconds(10);

// `reason` is neither kNone nor kLocal; `cause`: how the RNIC's link ended, if it did.
LogLevel AbortLevel(engine::AbortReason reason, const verbs::LinkCause& cause);

// What is left of a burst that fills up with the time. Any thread may take from it.
class AbortAllowance {
 public:
  // True if one more may be written; then *left_out is how many were not since the last that was.
  bool Take(Time now, uint64_t* left_out);

 private:
  std::atomic<Duration::rep> full_at_{INT64_MIN};  // when the whole burst is there again
  std::atomic<uint64_t> left_out_{0};
};

// This process's, or what it has together with its relatives.
AbortAllowance& TheAbortAllowance();
// Before a fork: the child is to take from the same. Nothing happens if there is no memory for it.
void ShareAbortAllowance();

// To the log, as said above; nothing if its level is lower.
void LogAbort(const Address& peer, engine::AbortReason reason, const verbs::LinkCause& cause,
              const stats::MessageRecorder& recorder);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ABORT_LOG_H_
