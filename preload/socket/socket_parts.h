// Small parts of a StreamSocket that have no rules of their own. Values; guarded by the socket's lock, except
// where an atomic says otherwise.
#ifndef SDP_PRELOAD_SOCKET_SOCKET_PARTS_H_
#define SDP_PRELOAD_SOCKET_SOCKET_PARTS_H_

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "preload/config.h"
#include "preload/native_family.h"
#include "preload/socket/address.h"
#include "preload/socket/clock.h"
#include "preload/socket/connect_attempt.h"
#include "preload/socket/kept_options.h"
#include "preload/socket/listener.h"
#include "preload/socket/option_log.h"
#include "preload/socket/poll_budget.h"

namespace sdp::preload {

// The family that the program has asked for.
struct SocketFamily {
  // `asked`: AF_INET, AF_INET6, or kFamilySdp, which means SDP or nothing.
  explicit SocketFamily(int asked)
      : domain(asked == kFamilySdp ? AF_INET : asked), native(asked == kFamilySdp) {}
  [[nodiscard]] int asked() const { return native ? kFamilySdp : domain; }
  const int domain;  // of the descriptor
  const bool native;
};

struct SocketOptions {
  KeptOptions kept;
  OptionLog log;                           // what was set before the socket was connected, or listened
  std::atomic<bool> gives_control{false};  // recvmsg has control messages to give: follows `kept`
  std::optional<int> v6only;  // as it was before the look-up bound the socket to a port, which changes it
  void Set(const KeptOptions& options) {
    kept = options;
    NoteKept();
  }
  // After a change of `kept`.
  void NoteKept() { gives_control.store(kept.gives_control(), std::memory_order_relaxed); }
};

struct ConnectionNames {
  Address local;  // conventional
  Address peer;
  Address sdp_peer;
};

// A socket that listens, or will.
struct Listening {
  std::unique_ptr<Listener> listener;
  bool plain_clients_allowed = true;
  bool for_others = false;         // Socket::ListensForOthers
  uint32_t accepted_in_a_row = 0;  // over SDP, without a look for others
};

// A connect that is under way.
struct Connecting {
  std::unique_ptr<ConnectAttempt> attempt;
  bool in_call = false;       // the caller of connect() goes on with it, not the helper
  bool fork_gave_up = false;  // a fork has waited for the connect, in vain
};

// Tells a stream of small writes: many in a short time, and nothing comes back. The program has not asked for
// its writes to leave at once (TCP_NODELAY), so they may wait for each other. Nagle's algorithm has them wait
// until the peer acknowledges. Here they wait until a message is full, the program waits for the connection,
// or kLongestWait has passed.
class WriteStream {
 public:
  static constexpr Duration kLongestWait = std::chrono::milliseconds(1);

  // Before a write. `received`: what has come over the connection. Returns true if the write may wait.
  bool Note(Time coarse_now, uint64_t received) {
    if (coarse_now != tick_ || received != received_) {
      tick_ = coarse_now;
      received_ = received;
      writes_ = 0;
    }
    return ++writes_ > needed_;
  }
  // A write waits. `first`: no other does.
  void NoteKept(bool first) { kept_ = first ? 1 : kept_ + 1; }
  // What has waited has filled a message.
  void NoteFull() { needed_ = std::max(needed_ / 2, kFewest); }
  // The helper sends what has waited: its time is up. A wait that few writes have shared was in vain.
  void NoteLate() {
    if (kept_ < kWorthIt) needed_ = std::min(needed_ * 4, kMost);
  }

 private:
  // So many writes make a stream, in one tick of the coarse clock: 1 to 10 ms.
  static constexpr uint32_t kFewest = 16;
  static constexpr uint32_t kMost = 256;
  static constexpr uint32_t kWorthIt = 8;

  Time tick_{};
  uint64_t received_ = 0;
  uint32_t writes_ = 0;
  uint32_t kept_ = 0;
  uint32_t needed_ = kFewest;
};

// How the program uses a connection: what need not be asked yet, or again.
struct ConnectionUse {
  uint64_t calls = 0;            // the application's calls: tell whether it is active
  uint64_t calls_seen = 0;       // by the helper
  uint64_t calls_at_glance = 0;  // at the last GlanceAtLink
  uint64_t told_readable = 0;    // by FIONREAD
  uint64_t told_in_call = 0;     // `calls` when CountWhereItIs told of much
  Time look_for_refusal{};       // when a sender looks for the peer's refusal again
  Time look_for_credit{};        // likewise for credit
  Time found_nothing{};          // by CoarseNow(): when a receive that does not wait last looked in vain
  WriteStream writes;
  PollBudget poll_budget{config().poll};  // for looks before a sleep
  uint8_t not_by_futex = 0;               // so many of the next sleeps are in poll
  bool trimming = false;                  // the helper looks whether the send buffer is used
  // The helper's alone: its last look found a connection that the application's calls move as well.
  std::atomic<bool> helper_yields{false};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SOCKET_PARTS_H_
