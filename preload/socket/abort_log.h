// The log's account of an aborted connection: one line, and the connection's last messages.
//
// The level depends on whether an operator has to know. Errors, which the log has by default: a broken rule
// of SDP or iWARP, a failed RNIC, a lost network or host, a peer that died in the middle of a message. A
// reset, an AbortConn or a link that just ends is info: programs leave so when they no longer care (SO_LINGER
// of zero, unread data, Ctrl-C). The log has nothing of an abort by the application.
//
// Any peer that can connect can cause such errors. So when the log has errors alone, a process writes about
// kAbortBurst of them at once, and then about one in kAbortInterval. The next line counts the others. At
// level info the log has them all. Processes made by fork count as one with their parent, since a server may
// have one for each connection.
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

// `reason` is neither kNone nor kLocal. `cause`: how the RNIC's link ended, if it did.
LogLevel AbortLevel(engine::AbortReason reason, const verbs::LinkCause& cause);

// The rest of a burst, which fills up again with time. Any thread may take from it.
class AbortAllowance {
 public:
  // Returns true if one more line may be written. Then *left_out is how many lines were left out since the
  // last one.
  bool Take(Time now, uint64_t* left_out);

 private:
  std::atomic<Duration::rep> full_at_{INT64_MIN};  // when the whole burst is available again
  std::atomic<uint64_t> left_out_{0};
};

// Returns the allowance of this process, or the one that it shares with its relatives.
AbortAllowance& TheAbortAllowance();
// Before a fork: lets the child take from the parent's allowance. Does nothing if there is no memory for
// that.
void ShareAbortAllowance();

// Takes from the allowance for an error that a stranger can cause. Returns true if it may be written now.
bool MayLogError();
// Writes to the log as described above. Does nothing if the log's level is lower.
void LogAbort(const Address& peer, engine::AbortReason reason, const verbs::LinkCause& cause,
              const stats::MessageRecorder& recorder);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ABORT_LOG_H_
