// connect() of one socket: asks the port mapper, connects TCP to the SDP address, and does the handshake;
// otherwise connects to the conventional address.
//
//    kAsking ──accepted──> kLink ──connected──> kHandshake ──> established (SDP)
//       │ no SDP there       │ refused │ silent    │ failed
//       │                    │         │           │
//       │                    │    kRace (TCP and a probe of the SDP port) ──the probe is first──> kLink
//       │                    │         │ TCP is first: plain TCP
//       └────────────────────┴─────────────────────┴──> kConventional ──> plain TCP
//
// connection_race.h has the rules of the race. Its loser is closed. A silent SDP port is remembered.
//
// Of the processes that share a listener, one may end in the middle of our handshake, as children of fork do.
// Such a link is made again, a few times, before its loss counts as a denial (SDP 7.5.1). A listener that
// began a handshake was there: on TCP the connection would have been made. If then no process listens at the
// conventional address, the listener has gone since, and the program gets a reset, not a refusal.
//
// All of it happens on the application's own descriptor, which keeps its number, options and epoll
// registrations. Passive: the owner calls Step when what wait() names has come. Unlocked: the StreamSocket's
// lock guards it.
#ifndef SDP_PRELOAD_SOCKET_CONNECT_ATTEMPT_H_
#define SDP_PRELOAD_SOCKET_CONNECT_ATTEMPT_H_

#include <memory>
#include <optional>
#include <string>

#include "preload/config.h"
#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/connection_race.h"
#include "preload/socket/kept_options.h"
#include "preload/socket/pm_lookup.h"
#include "preload/socket/port_probe.h"
#include "preload/socket/session.h"
#include "preload/stats_layout.h"

namespace sdp::preload {

// connect() that never sleeps, whatever the descriptor's mode: for callers that hold a lock, and for the
// helper thread.
int ConnectWithoutBlocking(int fd, const Address& address);
// Ends the descriptor's connection, so that the socket is ready for another address. Turns SO_LINGER off: an
// RNIC that has aborted its link leaves it on, and it would reset the next connection at close. KeptOptions
// has the application's own setting.
void Unconnect(int fd);

// Returns 0, or the error of a connect that was begun. Returns nothing while it is in progress.
std::optional<int> ConnectResult(int fd);

// While it lasts, the kernel drops what comes for the socket `fd`, unless the program has a filter of its own
// there. So a connect that is not answered when it begins stays without an answer. -1: no socket.
class DeafMoment {
 public:
  explicit DeafMoment(int fd);
  ~DeafMoment() { End(); }
  DeafMoment(const DeafMoment&) = delete;
  DeafMoment& operator=(const DeafMoment&) = delete;
  void End();

 private:
  int fd_ = -1;
};

class ConnectAttempt {
 public:
  enum class Outcome : uint8_t {
    kPending,       // see wait()
    kSdp,           // TakeSession()
    kConventional,  // no SDP: the caller connects to the conventional address, see reason()
    kFailed,        // neither: error() (mode "sdp", or an error that TCP would report as well)
    kPlain,         // ConnectConventionally() has connected
  };

  // `domain`: AF_INET, AF_INET6, or kFamilySdp, for which no rule is asked. `target`: the conventional
  // address as the application gave it. `kept`: the socket's; outlives this object.
  ConnectAttempt(int fd, int domain, const Address& target, KeptOptions* kept);
  ~ConnectAttempt() { NoteGivenUp(); }
  // The program waits no longer. If the peer has been silent so far, that is remembered.
  void NoteGivenUp() const noexcept;

  Outcome Step(Time now);
  // Stops the attempt over SDP for this reason, also without memory. Returns the outcome, as Step does.
  Outcome ForgoSdp(stats::FallbackReason reason, const char* text);
  [[nodiscard]] bool may_forgo_sdp() const { return ruling_.mode != Mode::kSdp; }
  // Returns true if the outcome is kConventional and the peer has ended a handshake.
  [[nodiscard]] bool was_reset() const { return was_reset_; }
  // After that, connects in the caller's place, once the caller has prepared the descriptor.
  Outcome ConnectConventionally();
  [[nodiscard]] Background::Wait wait() const;

  std::unique_ptr<Session> TakeSession() { return std::move(session_); }
  [[nodiscard]] int error() const { return why_.error; }
  [[nodiscard]] stats::FallbackReason reason() const { return why_.reason; }
  [[nodiscard]] const std::string& reason_text() const { return why_.text; }
  [[nodiscard]] const Address& target() const { return target_; }
  [[nodiscard]] const Address& sdp_address() const { return sdp_address_; }
  void SetFd(int fd);
  // In the child of a fork: a device's side of the attempt is the parent's, and stays.
  void Disown();

 private:
  enum class Phase : uint8_t { kStart, kAsking, kLink, kRace, kHandshake, kConventional };
  // Why the attempt ended without SDP.
  struct Why {
    int error = 0;
    stats::FallbackReason reason = stats::FallbackReason::kOther;
    std::string text;
  };
  // The port mapper's answer.
  struct Answer {
    bool cached = false;
    Time doubt_at = kNever;  // kHandshake: when to ask whether what was cached still holds
    Duration round_trip{};
  };

  Outcome Start(Time now);
  Outcome HandleAnswer(pm::QueryState state, const pm::Endpoint& sdp_address, Time now);
  Outcome ConnectLink(Time now);
  Outcome HandleLink(int error, Time now);
  // connect_attempt_race.cc. WasSilent: the SDP port did not answer lately, and why_.text says so.
  bool WasSilent(Time now);
  [[nodiscard]] Duration WithinPatience(Duration limit) const;
  // Returns true if the program's own time-out ends a late set-up. That says nothing of the peer.
  [[nodiscard]] bool hurried() const {
    return WithinPatience(config().handshake_timeout) < config().handshake_timeout;
  }
  void StartRace(Time now);
  Outcome StepLink(Time now);
  Outcome BeginRace(Time now);
  Outcome StepRace(Time now);
  Outcome StepHandshake(Time now);
  // What a remembered answer names is gone, or was never meant: asks the port mapper.
  Outcome AskAnew(Time now);
  // The handshake by a remembered answer gets no answer for kSilence: asks the port mapper meanwhile. Returns
  // true once the port mapper says something else.
  bool IsOutdated(Time now);
  bool MayTryAgain();
  Outcome TryAgain(Time now);
  Outcome FinishConventional(int error);
  Outcome GiveUp(stats::FallbackReason reason, std::string text);
  void LogGivenUp() const;

  int fd_;
  int domain_;
  Address target_;
  KeptOptions& kept_;
  const Ruling ruling_;
  const pm::Endpoint target_endpoint_;
  uint32_t scope_id_ = 0;
  bool kernel_rnic_tried_ = false;
  int lost_ = 0;  // links that ended in the middle of the handshake
  bool was_reset_ = false;
  bool kernel_rnic_ = false;  // connector_, later session_, belong to a kernel RNIC
  Phase phase_ = Phase::kStart;
  Address sdp_address_;
  std::unique_ptr<PmLookup> lookup_;
  Answer answer_;
  ConnectionRace race_;
  Duration budget_{};
  std::unique_ptr<PortProbe> probe_;  // kRace
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<verbs::Connector> connector_;
  std::unique_ptr<Session> session_;
  Time deadline_ = kNever;
  Time requested_ = kNever;  // the MPA Request's time, if its silence counts
  Why why_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CONNECT_ATTEMPT_H_
