// Receive Private Buffers that a stream has enlarged (SDP 10.6): when the Data Source asks, and what the Data
// Sink makes of it.
#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

constexpr uint32_t kWanted = 5016;

Options Asking() { return {.enlarge_remote = true, .desired_remote_size = kWanted}; }

// What the engine says while it sends `writes` writes of `size` bytes, for which the peer's credit never
// ends.
std::string Stream(ScriptedPeer* peer, int writes, size_t size) {
  std::string all;
  const std::string data(size, 'x');
  for (int i = 0; i < writes; ++i) {
    for (size_t at = 0; at < size;) {
      at += peer->end.Send(data.substr(at), {.buffering = Buffering::kNone});
      all += peer->HearAll() + ", ";
      peer->Say(wire::Data{});
    }
  }
  return all;
}

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_CASE("Enlargement: a stream that fills the peer's buffers asks for larger ones, after a window, once") {
  ScriptedPeer peer({.options = Asking()});
  const std::string first = Stream(&peer, 20, 10'000);
  INFO(first);
  REQUIRE(Count(first, "ChRcvBuf des_sz=5016") == 1);
  // 24 more messages that were filled than not, the last of each write left out: nothing waits behind it.
  CHECK(Count(first.substr(0, first.find("ChRcvBuf")), "Data payload=1000") >= 24);
  CHECK(Count(first.substr(first.find("ChRcvBuf")), "Data payload=1000") >
        100);  // no larger ones before the answer
  peer.Say(wire::ChRcvBufAck{kWanted});
  CHECK(peer.engine().stats().remote_buffer_size == kWanted);
  const std::string second = Stream(&peer, 100, 10'000);
  CHECK(Count(second, "Data payload=5000") == 200);
  CHECK(Count(second, "ChRcvBuf") == 0);
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Enlargement: what the peer gives is taken, and nothing more is asked for") {
  const uint32_t given = GENERATE(1016u, 2016u, 9016u);
  ScriptedPeer peer({.options = Asking()});
  REQUIRE(Count(Stream(&peer, 20, 10'000), "ChRcvBuf") == 1);
  peer.Say(wire::ChRcvBufAck{given});
  CHECK(peer.engine().stats().remote_buffer_size == given);
  CHECK(Count(Stream(&peer, 100, 30'000), "ChRcvBuf") == 0);
}

TEST_CASE("Enlargement: requests, answers and sizes that suit ask for nothing") {
  SECTION("messages that are not filled") {
    ScriptedPeer peer({.options = Asking()});
    CHECK(Count(Stream(&peer, 500, 999), "ChRcvBuf") == 0);
  }
  SECTION("filled, with nothing behind them") {
    ScriptedPeer peer({.options = Asking()});
    CHECK(Count(Stream(&peer, 500, 1000), "ChRcvBuf") == 0);
  }
  SECTION("as many that are not filled as are") {
    ScriptedPeer peer({.options = Asking()});
    CHECK(Count(Stream(&peer, 500, 1001), "ChRcvBuf") == 0);
  }
  SECTION("hardly more than there is") {
    Options options = Asking();
    options.desired_remote_size = 1016 + 127;
    ScriptedPeer peer({.options = options});
    CHECK(Count(Stream(&peer, 100, 10'000), "ChRcvBuf") == 0);
  }
  SECTION("an owner that does not want it") {
    Options options = Asking();
    options.enlarge_remote = false;
    ScriptedPeer peer({.options = options});
    CHECK(Count(Stream(&peer, 100, 10'000), "ChRcvBuf") == 0);
  }
}

TEST_CASE("Enlargement: it goes along to another process") {
  ScriptedPeer peer({.options = Asking()});
  std::string all = Stream(&peer, 2, 10'000);
  REQUIRE(peer.end.Refreeze());
  all += Stream(&peer, 18, 10'000);
  CHECK(Count(all, "ChRcvBuf des_sz=5016") == 1);
  CHECK(Count(all.substr(0, all.find("ChRcvBuf")), "Data payload=1000") <
        60);  // what was counted before counts
  REQUIRE(peer.end.Refreeze());
  peer.Say(wire::ChRcvBufAck{1016});
  REQUIRE(peer.end.Refreeze());
  CHECK(Count(Stream(&peer, 20, 10'000), "ChRcvBuf") == 0);
}

TEST_CASE("Enlargement: an offered buffer that goes by Bcopy counts, too") {
  ScriptedPeer peer({.options = Asking()});
  std::vector<std::byte> data(60'000);
  REQUIRE(peer.end.OfferSource(data));
  std::string all;
  while (peer.engine().source_offered()) {
    all += peer.HearAll();
    peer.Say(wire::Data{});
    if (peer.end.SourceResult()) break;
  }
  CHECK(Count(all, "ChRcvBuf des_sz=5016") == 1);
}

TEST_CASE("Enlargement: larger buffers are fewer, a dozen at least, within the limit") {
  struct Case {
    uint32_t size, limit, asked, given, posted;
  };
  // 24 buffers each. Memory for a dozen is found where it was less; where it was enough it stays the same.
  const auto c = GENERATE(Case{1000, 64 * 1024, 4000, 4000, 12}, Case{1000, 2500, 4000, 2500, 12},
                          Case{1000, 500, 4000, 1000, 24}, Case{1000, 64 * 1024, 1500, 1500, 16});
  ScriptedPeer peer({.options = {.receive_buffers = 24,
                                 .receive_buffer_size = c.size,
                                 .receive_buffer_limit = c.limit,
                                 .receive_limit = 24 * c.size}});
  peer.Say(wire::ChRcvBuf{c.asked});
  std::string all;
  for (int i = 0; i < 40; ++i) {
    peer.Say(wire::Data{}, "x");
    CHECK(peer.end.Read(10) == "x");
    all += peer.HearAll() + ", ";
  }
  CHECK(Count(all, "ChRcvBufAck act_sz=" + std::to_string(c.given)) == 1);
  CHECK(peer.engine().stats().local_buffer_size == c.given);
  CHECK(peer.engine().stats().posted_receives == c.posted);
  CHECK(peer.engine().receive_buffers() == 24);
  CHECK(peer.reason() == AbortReason::kNone);

  // Credit comes back twice in each window of what there is now, not when the last of them is gone.
  uint32_t messages = 0;
  do {
    REQUIRE(++messages < c.posted);
    peer.Say(wire::Data{}, "x");
    CHECK(peer.end.Read(10) == "x");
  } while (peer.HearAll() == "nothing");
  messages = 0;
  do {
    REQUIRE(++messages <= c.posted / 2 + 1);
    peer.Say(wire::Data{}, "x");
    CHECK(peer.end.Read(10) == "x");
  } while (peer.HearAll() == "nothing");
}

TEST_CASE("Enlargement: the size for SinkAvail is the old one until the answer has left") {
  ScriptedPeer peer({.options = {.receive_buffers = 4,
                                 .receive_buffer_size = 1000,
                                 .receive_buffer_limit = 2000,
                                 .receive_limit = 8000,
                                 .sink_threshold = 1}});
  peer.Say(wire::ModeChange{.mode = wire::ModeChange::kPipelined, .receivers_source = false});
  CHECK(peer.engine().sink_wish(1000) == SinkWish::kNothing);
  CHECK(peer.engine().sink_wish(1001) == SinkWish::kAdvertise);
  peer.Say(wire::ChRcvBuf{2000});
  int messages = 0;
  while (peer.HearAll().find("ChRcvBufAck act_sz=2000") == std::string::npos) {
    CHECK(peer.engine().sink_wish(1001) == SinkWish::kAdvertise);
    REQUIRE(++messages < 10);
    peer.Say(wire::Data{});
  }
  CHECK(messages >= 3);
  CHECK(peer.engine().sink_wish(2000) == SinkWish::kNothing);
  CHECK(peer.engine().sink_wish(2001) == SinkWish::kAdvertise);
}

TEST_CASE("Enlargement: without memory the answer names the original size") {
  ScriptedPeer peer(
      {.options = {.receive_buffers = 24, .receive_buffer_size = 1000, .receive_limit = 24'000}});
  peer.end.no_memory_for_sizes = true;
  peer.Say(wire::ChRcvBuf{4000});
  CHECK(peer.Hear() == "ChRcvBufAck act_sz=1000");
  CHECK(peer.engine().stats().local_buffer_size == 1000);
  CHECK(peer.engine().stats().posted_receives == 24);
  CHECK(peer.end.Refreeze());
  peer.end.no_memory_for_sizes = false;
  peer.Say(wire::ChRcvBuf{500});
  CHECK(peer.Hear() == "ChRcvBufAck act_sz=500");
}

TEST_CASE("Enlargement: two streams that ask at once both get it") {
  Options options = Asking();
  options.receive_buffers = 4;
  options.receive_buffer_size = 1016;
  options.receive_limit = 4 * 1016;
  EnginePair pair(options, options);
  for (int round = 0; round < 400; ++round) {
    for (End* end : {&pair.a, &pair.z}) end->Send(std::string(3000, 'x'), {.buffering = Buffering::kNone});
    pair.Settle();
    for (End* end : {&pair.a, &pair.z}) end->Read(100'000);
    pair.Settle();
  }
  for (End* end : {&pair.a, &pair.z}) {
    CHECK(end->engine.stats().local_buffer_size == kWanted);
    CHECK(end->engine.stats().remote_buffer_size == kWanted);
    CHECK(end->engine.state() == State::kEstablished);
  }
}

}  // namespace
}  // namespace sdp::engine
