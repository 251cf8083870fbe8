// What a connection and a listener publish, and when.
#include "preload/socket/report.h"

#include <catch2/catch.hpp>
#include <string>

#include "core/base/archive.h"
#include "test/preload/scripted_session.h"
#include "test/tools/stats_fixture.h"
#include "tools/stats/stats_reader.h"

namespace sdp::preload {
namespace {

struct Reported {
  Reported() {
    std::string error;
    segment = stats::StatsSegment::Open(directory.path(), stats::PlainSystemCalls(), &error);
    REQUIRE(segment != nullptr);
    report.Begin(stats::Role::kConnecting);
  }
  [[nodiscard]] Report::Names names() const {
    return {.fd = -1, .local = local, .peer = peer, .sdp_peer = sdp_peer};
  }

  stats::TemporaryDirectory directory;
  std::unique_ptr<stats::StatsSegment> segment;
  Connected connected{10};
  Address local, peer, sdp_peer;
  Report report;
};

std::vector<std::byte> Frozen(Report& report) {
  Writer ar;
  report.Visit(ar);
  return ar.Take();
}

TEST_CASE("report: a connection has a slot from Open to Close, and none without a segment") {
  Reported r;
  r.report.Open(nullptr, *r.connected.session, r.names());
  CHECK_FALSE(r.report.open());
  r.report.Publish(*r.connected.session, r.names());
  r.report.PublishAll(*r.connected.session, r.names());
  r.report.Open(r.segment.get(), *r.connected.session, r.names());
  CHECK(r.report.open());
  r.report.Close(r.segment.get(), r.connected.session.get(), r.names());
  CHECK_FALSE(r.report.open());
}

TEST_CASE("report: traffic is published once a clock tick, and what is left by the helper's look") {
  Reported r;
  r.report.Open(r.segment.get(), *r.connected.session, r.names());
  const auto published = [&] {
    const stats::Snapshot snapshot = stats::ReadAll({r.directory.path()});
    REQUIRE(snapshot.processes.size() == 1);
    return snapshot.processes[0].records.at(0).counters.messages_out;
  };
  const auto send = [&](Time now) {
    r.connected.Send(1);
    r.report.PublishTraffic(*r.connected.session, r.names(), now);
  };
  const Time tick = Time{} + std::chrono::milliseconds(4);
  const Time next_tick = tick + std::chrono::milliseconds(4);
  const uint64_t before = published();
  send(tick);
  CHECK(published() == before + 1);
  send(tick);
  send(tick);
  CHECK(published() == before + 1);
  r.report.PublishLate(*r.connected.session, r.names());
  CHECK(published() == before + 3);
  send(tick);
  send(next_tick);
  CHECK(published() == before + 5);
  send(next_tick);
  r.report.Publish(*r.connected.session, r.names());
  CHECK(published() == before + 6);
}

TEST_CASE("report: a peer that closed and left is no abort, and one that only left is") {
  Reported r;
  r.report.Open(r.segment.get(), *r.connected.session, r.names());
  const auto published = [&] {
    r.report.PublishAll(*r.connected.session, r.names());
    return stats::ReadAll({r.directory.path()}).processes.at(0).records.at(0);
  };
  const bool closes = GENERATE(true, false);
  if (closes) {
    std::vector<std::byte> bytes(wire::Bsdh::kSize);
    wire::SerializeTo(wire::Message{{.bufs = 10, .len = wire::Bsdh::kSize}, wire::DisConn{}}, bytes);
    r.connected.queue_pair->ready.push_back(bytes);
  }
  r.connected.queue_pair->ended = true;
  r.connected.queue_pair->facts.cause.end = verbs::LinkEnd::kClosedByPeer;
  r.connected.session->Read();
  REQUIRE(r.connected.session->link_ended());
  const stats::ConnectionRecord record = published();
  CHECK(record.counters.state == (closes ? stats::State::kReceiveClosed : stats::State::kAborted));
  CHECK(std::string(record.reason) == (closes ? "" : "link-lost"));
}

TEST_CASE("report: the child of a fork takes a slot of its own") {
  Reported r;
  r.report.Open(r.segment.get(), *r.connected.session, r.names());
  r.report.ForgetSlot();
  CHECK_FALSE(r.report.open());
  r.report.Open(r.segment.get(), *r.connected.session, r.names());
  CHECK(r.report.open());
}

TEST_CASE("report: a listener says whether a port mapper knows it, where and since when") {
  Reported r;
  const auto published = [&] {
    const stats::Snapshot snapshot = stats::ReadAll({r.directory.path()});
    REQUIRE(snapshot.processes.size() == 1);
    REQUIRE(snapshot.processes[0].records.size() == 1);
    return snapshot.processes[0].records[0];
  };
  r.report.OpenListener(r.segment.get(), -1, r.local, r.sdp_peer, {.since_ns = 0, .text = "no sdp-pmd (/a)"});
  stats::ConnectionRecord record = published();
  CHECK(stats::IsUnregisteredListener(record));
  CHECK(record.reason == std::string("not-registered"));
  CHECK(record.reason_text == std::string("no sdp-pmd (/a)"));
  r.report.CountAcceptedTcp();
  r.report.NoteStanding({.since_ns = 7, .text = "/a"});
  record = published();
  CHECK_FALSE(stats::IsUnregisteredListener(record));
  CHECK(record.counters.registered_at_ns == 7);
  CHECK(record.counters.accepted_tcp == 1);
  CHECK(record.reason == std::string());
  CHECK(record.reason_text == std::string("/a"));
  r.report.NoteStanding({.since_ns = 0, .text = "no sdp-pmd (/a)"});  // its port mapper has ended
  record = published();
  CHECK(stats::IsUnregisteredListener(record));
  CHECK(record.counters.registered_at_ns == 0);
}

TEST_CASE("report: role and age go with the connection to another process") {
  Reported r;
  const std::vector<std::byte> frozen = Frozen(r.report);
  Report other;
  CHECK(other.role() == stats::Role::kNone);
  CHECK(Frozen(other) != frozen);
  Reader ar(frozen);
  other.Visit(ar);
  CHECK(ar.ok());
  CHECK(other.role() == stats::Role::kConnecting);
  CHECK(Frozen(other) == frozen);
}

}  // namespace
}  // namespace sdp::preload
