// Publishes a socket in the process's statistics: the slot of its connection, or of its listener, in the
// segment that sdpstat reads. Owns what the slot needs and the session does not know: the connection's
// number, role and age, the sizes of Private Buffers as last published, and a listener's accept counts. The
// session counts messages and bytes; the socket knows the names. Guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_REPORT_H_
#define SDP_PRELOAD_SOCKET_REPORT_H_

#include <cstdint>
#include <utility>

#include "preload/socket/address.h"
#include "preload/socket/registration.h"
#include "preload/socket/session.h"
#include "preload/socket/stats.h"
#include "preload/stats_segment.h"

namespace sdp::preload {

class Report {
 public:
  // The connection's names, as the socket knows them. `fd`: one of its descriptors, or -1.
  struct Names {
    int fd;
    const Address& local;
    const Address& peer;
    const Address& sdp_peer;
  };

  // A connection begins, in which this end has `role`.
  void Begin(stats::Role role);
  [[nodiscard]] stats::Role role() const { return role_; }
  [[nodiscard]] bool open() const { return slot_ != nullptr; }

  // Takes a slot of `segment`, also for the messages that the session records. Without a segment, or a free
  // slot, nothing is published.
  void Open(stats::StatsSegment* segment, Session& session, const Names& names);
  void OpenListener(stats::StatsSegment* segment, int fd, const Address& local, const Address& sdp_local,
                    const Standing& standing);
  // After progress: publishes the counters. Publishes the whole record if the size of Private Buffers has
  // changed, which happens once or twice (SDP 10.6).
  void Publish(const Session& session, const Names& names) {
    if (slot_ == nullptr) return;
    if (Sizes(session) != published_sizes_) return PublishAll(session, names);
    PublishCounters(slot_, session);
  }
  // After usual traffic: publishes once a clock tick (`now`: of the coarse clock). What is not published then
  // waits for the next traffic, or for PublishLate(), which the helper's looks call.
  void PublishTraffic(const Session& session, const Names& names, Time now) {
    if (slot_ == nullptr) return;
    late_ = now == published_at_;
    if (late_) return;
    published_at_ = now;
    Publish(session, names);
  }
  // Notes usual traffic, which the next PublishTraffic() or PublishLate() publishes. Reads no clock.
  void NoteTraffic() { late_ = slot_ != nullptr; }
  void PublishLate(const Session& session, const Names& names) {
    if (std::exchange(late_, false)) Publish(session, names);
  }
  void PublishAll(const Session& session, const Names& names);
  // For a listener: a port mapper knows it now, or does not.
  void NoteStanding(const Standing& standing);
  // For a listener: publishes the backlog that the kernel has for `fd`, or another accepted connection.
  void PublishBacklog(int fd);
  void CountAcceptedSdp();
  void CountAcceptedTcp();
  // The connection, or the listener, is over: its counters become history. `session`: null if there is none.
  void Close(stats::StatsSegment* segment, Session* session, const Names& names);
  // In the child of fork: the slot is the parent's, and a listener counts anew.
  void ForgetSlot() { slot_ = nullptr; }
  void ForgetAccepted() { accepted_sdp_ = accepted_tcp_ = 0; }

  // Reads or writes what another process needs to continue the connection.
  template <typename Archive>
  void Visit(Archive& ar) {
    ar.Enum(role_, stats::Role::kAccepting);
    ar.Number(opened_at_ns_);
  }

 private:
  [[nodiscard]] static uint64_t Sizes(const Session& session) {
    const engine::Stats& s = session.engine().stats();
    return uint64_t{s.local_buffer_size} << 32 | s.remote_buffer_size;
  }
  [[nodiscard]] stats::ConnectionRecord Describe(const Session& session, const Names& names);
  void PublishAccepted();

  stats::Slot* slot_ = nullptr;
  Time published_at_{};           // by PublishTraffic()
  bool late_ = false;             // something has come since
  uint64_t published_sizes_ = 0;  // of Private Buffers, as the slot has them
  stats::Role role_ = stats::Role::kNone;
  uint32_t number_ = 0;        // of the connection, in this process
  uint64_t opened_at_ns_ = 0;  // CLOCK_REALTIME
  uint64_t accepted_sdp_ = 0;
  uint64_t accepted_tcp_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_REPORT_H_
