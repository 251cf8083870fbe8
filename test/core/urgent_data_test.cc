// Out-Of-Band data (SDP 9.5.3, 6.1.2, 14.2).
#include "core/engine/urgent_data.h"

#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

constexpr SendFlags kOob{.out_of_band = true};

}  // namespace

TEST_CASE("Urgent: the last byte of the write is the last byte of its message, solicited") {
  ScriptedPeer peer;
  CHECK(peer.end.Send("abc!", kOob) == 4);
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "Data OOB_PRES OOB_PEND payload=4");
  CHECK(peer.end.Send("plain") == 5);
  CHECK(peer.Hear() == "Data payload=5");
}

TEST_CASE("Urgent: announced once, in a message of its own when data has to wait") {
  ScriptedPeer peer({.options = {.send_limit = 100000}, .bufs = 4});
  peer.repost = false;
  CHECK(peer.end.Send(std::string(2000, 'x')) == 2000);
  CHECK(peer.end.Send(std::string(300, 'y')) == 300);
  CHECK(peer.HearAll() == "Data payload=1000, Data payload=1000");
  CHECK(peer.end.Send("!", kOob) == 1);
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "Data OOB_PEND");
  CHECK(peer.end.Send(std::string(100, 'z')) == 100);
  peer.repost = true;
  peer.bufs = 24;
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data OOB_PRES payload=301, Data payload=100");
}

TEST_CASE("Urgent: never announced more than 65535 bytes ahead") {
  UrgentSource source;
  source.Mark(200000);
  CHECK_FALSE(source.announcement_due(0));
  CHECK(source.Limit(0, 1 << 20) == 200000 - 65535);
  CHECK(source.TakeFlags(0, 200000 - 65535) == 0);
  CHECK(source.announcement_due(200000 - 65535));
  CHECK(source.Limit(200000 - 65535, 1 << 20) == 65536);
  CHECK(source.TakeFlags(200000 - 65535, 1000) == wire::kOobPend);
  CHECK(source.TakeFlags(200000 - 64535, 64536) == wire::kOobPres);
  CHECK(source.Limit(200001, 77) == 77);
}

TEST_CASE("Urgent: a large write with few credits keeps the rule") {
  ScriptedPeer peer({.options = {.send_limit = 1000}, .bufs = 24, .buffer_size = 100016});
  const std::string text(250000, 'x');
  CHECK(peer.end.Send(text, kOob) == 250000);
  uint64_t position = 0;
  std::optional<uint64_t> announced;
  while (!peer.end.flights.empty()) {
    const auto message = peer.Take();
    if (message.bsdh.flags & wire::kOobPend) {
      CHECK_FALSE(announced.has_value());
      announced = position;
    }
    position += message.payload_size();
    if (message.bsdh.flags & wire::kOobPres) CHECK(position == 250000);
  }
  REQUIRE(announced.has_value());
  CHECK(250000 - 1 - *announced <= 65535);

  // With credit for a single message the byte is left for the next call.
  ScriptedPeer one({.options = {.send_limit = 1000}, .bufs = 3, .buffer_size = 100016});
  CHECK(one.end.Send(std::string(80000, 'x'), kOob) == 79999);
  CHECK_FALSE(one.engine().writable());
}

TEST_CASE("Urgent: several bytes, each with its own announcement") {
  ScriptedPeer peer({.bufs = 3});
  peer.repost = false;
  CHECK(peer.end.Send("first") == 5);
  CHECK(peer.end.Send("a!", kOob) == 2);
  CHECK(peer.end.Send("b?", kOob) == 2);
  CHECK(peer.end.Send("tail") == 4);
  CHECK(peer.HearAll() == "Data payload=5, Data OOB_PEND");
  peer.repost = true;
  peer.bufs = 24;
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data OOB_PRES OOB_PEND payload=2, Data OOB_PRES payload=2, Data payload=4");
}

TEST_CASE("Urgent: the receiver takes the byte out of the stream and stops at the mark") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "ab");
  const uint64_t edge = peer.engine().read_edge();
  peer.Say(wire::Data{}, "", wire::kOobPend);
  CHECK(peer.engine().read_edge() == edge + 1);
  CHECK(peer.engine().oob_pending());
  CHECK_FALSE(peer.engine().oob_available());
  peer.Say(wire::Data{}, "cd!", wire::kOobPres);
  CHECK_FALSE(peer.engine().oob_pending());
  CHECK(peer.engine().oob_available());
  peer.Say(wire::Data{}, "ef");
  CHECK(peer.engine().readable_bytes() == 6);
  CHECK_FALSE(peer.engine().at_mark());
  CHECK(peer.end.Read(100) == "abcd");
  CHECK(peer.engine().at_mark());
  CHECK(peer.engine().TakeOob({.peek = true}) == std::byte{'!'});
  CHECK(peer.engine().TakeOob({}) == std::byte{'!'});
  CHECK_FALSE(peer.engine().TakeOob({}).has_value());
  CHECK(peer.end.Read(100) == "ef");
  CHECK_FALSE(peer.engine().at_mark());
}

TEST_CASE("Urgent: inline the byte stays, and reading stops before it") {
  ScriptedPeer peer;
  peer.engine().SetOutOfBandInline(true);
  peer.Say(wire::Data{}, "ab!", wire::kOobPend | wire::kOobPres);
  peer.Say(wire::Data{}, "cd");
  CHECK_FALSE(peer.engine().oob_available());
  CHECK(peer.end.Read(100) == "ab");
  CHECK(peer.engine().at_mark());
  CHECK(peer.end.Read(100) == "!cd");
}

TEST_CASE("Urgent: a byte that is here when inline is asked for takes its place in the stream") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "xy");
  const std::string before = GENERATE("", "ab");
  peer.Say(wire::Data{}, before + "!", wire::kOobPend | wire::kOobPres);
  const std::string behind = GENERATE("", "cd");
  if (!behind.empty()) peer.Say(wire::Data{}, behind);
  const size_t read_first = GENERATE(0, 1, 2);
  CHECK(peer.end.Read(read_first) == std::string("xy").substr(0, read_first));
  peer.engine().SetOutOfBandInline(true);
  CHECK_FALSE(peer.engine().oob_available());
  const std::string rest = std::string("xy").substr(read_first) + before;
  CHECK(peer.engine().readable_bytes() == rest.size() + 1 + behind.size());
  if (!rest.empty()) CHECK(peer.end.Read(100) == rest);
  CHECK(peer.engine().at_mark());
  CHECK(peer.end.Read(100) == "!" + behind);
  CHECK(peer.engine().stats().posted_receives == 24);
}

TEST_CASE("Urgent: a byte that was taken, or read past, does not come back inline") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "ab!", wire::kOobPend | wire::kOobPres);
  peer.Say(wire::Data{}, "cd");
  const bool taken = GENERATE(false, true);
  if (taken) {
    CHECK(peer.engine().TakeOob({}) == std::byte{'!'});
    peer.engine().SetOutOfBandInline(true);
    CHECK(peer.end.Read(100) == "ab");
    CHECK(peer.end.Read(100) == "cd");
  } else {
    CHECK(peer.end.Read(100) == "ab");
    CHECK(peer.end.Read(1) == "c");
    peer.engine().SetOutOfBandInline(true);
    CHECK(peer.end.Read(100) == "d");
  }
}

TEST_CASE("Urgent: a byte alone is no data, and its memory comes back") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "!", wire::kOobPend | wire::kOobPres);
  CHECK(peer.engine().readable_bytes() == 0);
  CHECK(peer.engine().at_mark());
  CHECK(peer.engine().TakeOob({}) == std::byte{'!'});
  CHECK(peer.engine().stats().posted_receives == 24);
}

TEST_CASE("Urgent: flags where they may not be") {
  const auto with = [](const wire::Body& body, const std::string& payload, uint8_t flags) {
    ScriptedPeer peer;
    peer.Say(body, payload, flags);
    return peer.reason();
  };
  CHECK(with(wire::Data{}, "x", wire::kOobPend) == AbortReason::kNone);
  CHECK(with(wire::ModeChange{.mode = 2}, "", wire::kOobPend) == AbortReason::kNone);
  CHECK(with(wire::Data{}, "x", wire::kOobPres) == AbortReason::kBadFlags);
  CHECK(with(wire::Data{}, "", wire::kOobPres | wire::kOobPend) == AbortReason::kBadFlags);
  CHECK(with(wire::SrcAvail{.len = 5}, "x", wire::kOobPres | wire::kOobPend) == AbortReason::kBadFlags);
  CHECK(with(wire::DisConn{}, "", wire::kOobPres | wire::kOobPend) == AbortReason::kBadFlags);
  CHECK(with(wire::Data{}, "x", wire::kReqPipe) == AbortReason::kNone);
  CHECK(with(wire::Data{}, "x", 0xf8) == AbortReason::kNone);
}

}  // namespace sdp::engine
