#include "preload/socket/report.h"

#include <atomic>

#include "preload/socket/tcp_info.h"

namespace sdp::preload {
namespace {

void Fill(const Standing& standing, stats::ConnectionRecord* record) {
  const bool registered = standing.since_ns != 0;
  record->counters.state = registered ? stats::State::kListening : stats::State::kUnregistered;
  record->counters.registered_at_ns = standing.since_ns;
  stats::SetText(record->reason, registered ? "" : ToString(stats::FallbackReason::kNotRegistered));
  stats::SetText(record->reason_text, standing.text.c_str());
}

}  // namespace

void Report::Begin(stats::Role role) {
  role_ = role;
  opened_at_ns_ = stats::WallClock();
}

void Report::Open(stats::StatsSegment* segment, Session& session, const Names& names) {
  static std::atomic<uint32_t> connections{0};
  if (number_ == 0) number_ = connections.fetch_add(1, std::memory_order_relaxed) + 1;
  if (segment == nullptr) return session.recorder().Detach();
  const stats::ConnectionRecord record = Describe(session, names);
  slot_ = segment->AcquireSlot(record);
  if (slot_ != nullptr) session.recorder().Attach(segment, slot_, record);
}

void Report::OpenListener(stats::StatsSegment* segment, int fd, const Address& local,
                          const Address& sdp_local, const Standing& standing) {
  if (segment == nullptr) return;
  stats::ConnectionRecord record = DescribeListener(fd, local, sdp_local);
  Fill(standing, &record);
  slot_ = segment->AcquireSlot(record);
}

void Report::PublishAll(const Session& session, const Names& names) {
  if (slot_ != nullptr) stats::StatsSegment::Publish(slot_, Describe(session, names));
}

void Report::PublishBacklog(int fd) {
  if (slot_ == nullptr) return;
  stats::Counters counters = stats::StatsSegment::LastPublished(slot_).counters;
  counters.send_queue = BacklogInForce(fd);
  stats::StatsSegment::Publish(slot_, counters);
}

void Report::NoteStanding(const Standing& standing) {
  if (slot_ == nullptr) return;
  stats::ConnectionRecord record = stats::StatsSegment::LastPublished(slot_);
  Fill(standing, &record);
  stats::StatsSegment::Publish(slot_, record);
}

void Report::CountAcceptedSdp() {
  ++accepted_sdp_;
  PublishAccepted();
}

void Report::CountAcceptedTcp() {
  ++accepted_tcp_;
  PublishAccepted();
}

void Report::PublishAccepted() {
  stats::Counters counters = stats::StatsSegment::LastPublished(slot_).counters;
  counters.accepted_sdp = accepted_sdp_;
  counters.accepted_tcp = accepted_tcp_;
  stats::StatsSegment::Publish(slot_, counters);
}

void Report::Close(stats::StatsSegment* segment, Session* session, const Names& names) {
  if (slot_ == nullptr) return;
  if (session != nullptr) {
    Publish(*session, names);
    session->recorder().Detach();
  }
  if (segment != nullptr) segment->ReleaseSlot(slot_);
  slot_ = nullptr;
}

stats::ConnectionRecord Report::Describe(const Session& session, const Names& names) {
  published_sizes_ = Sizes(session);
  stats::ConnectionRecord record =
      DescribeConnection(session, role_, names.fd, names.local, names.peer, names.sdp_peer);
  record.opened_at_ns = opened_at_ns_;
  record.connection = number_;
  return record;
}

}  // namespace sdp::preload
