#include "portmapper/engine/pm_cache.h"

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Message;
using test::Ms;
using namespace std::chrono_literals;

const char* const kLocal = "10.0.0.1:40000";

PmClient Asking(std::string_view target, Time now) {
  return PmClient({AssocHandle(1), At(kLocal), At(target)}, {}, now);
}

PmClient Accepted(std::string_view target, std::string_view sdp, uint8_t pm_time, Time now) {
  PmClient client = Asking(target, now);
  client.HandleDatagram(Serialize(Message(MessageType::kAccept, 1, kLocal, sdp, pm_time)), now);
  REQUIRE(client.state() == QueryState::kAccepted);
  return client;
}

PmClient Denied(std::string_view target, Time now) {
  PmClient client = Asking(target, now);
  client.HandleDatagram(Serialize(Message(MessageType::kDeny, 1, kLocal, target)), now);
  REQUIRE(client.state() == QueryState::kDenied);
  return client;
}

PmClient Unreachable(std::string_view target, Time now) {
  PmClient client = Asking(target, now);
  client.HandleUnreachable(now);
  return client;
}

PmClient Silent(std::string_view target, Time now) {
  PmClient client = Asking(target, now - 1s);
  client.HandleTimeout(now);
  REQUIRE(client.state() == QueryState::kSilent);
  return client;
}

TEST_CASE("an answer is kept for its PmTime and flushed then", "[pm_cache]") {
  PmCache cache;
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:81", 4, Ms(0)), Ms(0));
  const auto answer = cache.Lookup(At("10.0.0.2:80"), Ms(999));
  REQUIRE(answer);
  CHECK(answer->state == QueryState::kAccepted);
  CHECK(answer->sdp_address == At("10.0.0.2:81"));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(1000)));
  CHECK(cache.targets() == 0);
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:8080"), Ms(0)));
}

TEST_CASE("a link-local address of one device is not that of another", "[pm_cache]") {
  const char* const sdp = "[fe80::2]:81";
  Endpoint target = At("[fe80::2]:80");
  target.scope = 3;
  PmClient client({AssocHandle(1), At("[fe80::1]:40000"), target}, {}, Ms(0));
  client.HandleDatagram(Serialize(Message(MessageType::kAccept, 1, "[fe80::1]:40000", sdp, 4)), Ms(0));
  REQUIRE(client.state() == QueryState::kAccepted);
  PmCache cache;
  cache.Record(client, Ms(0));
  const auto answer = cache.Lookup(target, Ms(1));
  REQUIRE(answer);
  CHECK(answer->sdp_address.scope == 3);
  target.scope = 4;
  CHECK_FALSE(cache.Lookup(target, Ms(1)));
}

TEST_CASE("PmTime 0 is not kept and ends what was kept before", "[pm_cache]") {
  PmCache cache;
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:81", 4, Ms(0)), Ms(0));
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:82", 0, Ms(1)), Ms(1));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(1)));
}

TEST_CASE("PmTime 255 is kept for ever", "[pm_cache]") {
  PmCache cache;
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:81", 255, Ms(5)), Ms(5));
  const auto answer = cache.Lookup(At("10.0.0.2:80"), kNever - 1ns);
  REQUIRE(answer);
  CHECK(answer->expires == kNever);
}

TEST_CASE("a denial holds for its target and a moment", "[pm_cache]") {
  PmCache cache;
  cache.Record(Denied("10.0.0.2:80", Ms(0)), Ms(0));
  CHECK(cache.Lookup(At("10.0.0.2:80"), Ms(999))->state == QueryState::kDenied);
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:81"), Ms(0)));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(1000)));
}

TEST_CASE("a host without a mapper is remembered by host, for a minute", "[pm_cache]") {
  PmCache cache;
  SECTION("unreachable") {
    cache.Record(Unreachable("10.0.0.2:80", Ms(0)), Ms(0));
    CHECK(cache.Lookup(At("10.0.0.2:443"), Ms(59999))->state == QueryState::kUnreachable);
  }
  SECTION("silent") {
    cache.Record(Silent("10.0.0.2:80", Ms(0)), Ms(0));
    CHECK(cache.Lookup(At("10.0.0.2:443"), Ms(59999))->state == QueryState::kSilent);
  }
  CHECK_FALSE(cache.Lookup(At("10.0.0.3:443"), Ms(0)));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:443"), Ms(60000)));
  CHECK(cache.hosts() == 0);
}

TEST_CASE("any reply clears what was held against the host", "[pm_cache]") {
  PmCache cache;
  cache.Record(Silent("10.0.0.2:80", Ms(0)), Ms(0));
  SECTION("accept") { cache.Record(Accepted("10.0.0.2:81", "10.0.0.2:82", 0, Ms(1)), Ms(1)); }
  SECTION("deny") { cache.Record(Denied("10.0.0.2:81", Ms(1)), Ms(1)); }
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(2)));
}

TEST_CASE("what is known of a target comes before what is known of its host", "[pm_cache]") {
  PmCache cache;
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:81", 255, Ms(0)), Ms(0));
  cache.Record(Silent("10.0.0.2:443", Ms(1)), Ms(1));
  CHECK(cache.Lookup(At("10.0.0.2:80"), Ms(2))->state == QueryState::kAccepted);
  CHECK(cache.Lookup(At("10.0.0.2:443"), Ms(2))->state == QueryState::kSilent);
}

TEST_CASE("a reset from the SDP address is as good as a denial", "[pm_cache]") {
  PmCache cache;
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:81", 255, Ms(0)), Ms(0));
  cache.RecordReset(At("10.0.0.2:80"), Ms(10));
  CHECK(cache.Lookup(At("10.0.0.2:80"), Ms(11))->state == QueryState::kDenied);
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(1010)));
}

TEST_CASE("forgetting drops target and host", "[pm_cache]") {
  PmCache cache;
  cache.Record(Accepted("10.0.0.2:80", "10.0.0.2:81", 255, Ms(0)), Ms(0));
  cache.Record(Silent("10.0.0.2:443", Ms(0)), Ms(0));
  cache.Forget(At("10.0.0.2:80"));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(1)));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:443"), Ms(1)));
}

TEST_CASE("times of zero switch the negative caches off", "[pm_cache]") {
  PmCache cache({16, 16, 0s, 0s});
  cache.Record(Silent("10.0.0.2:80", Ms(0)), Ms(0));
  cache.Record(Denied("10.0.0.3:80", Ms(0)), Ms(0));
  CHECK(cache.hosts() == 0);
  CHECK(cache.targets() == 0);
}

TEST_CASE("an unfinished query leaves no trace", "[pm_cache]") {
  PmCache cache;
  cache.Record(Asking("10.0.0.2:80", Ms(0)), Ms(0));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:80"), Ms(0)));
}

TEST_CASE("the cache is bounded: the expired go first, then what expires soonest", "[pm_cache]") {
  PmCache cache({3, 2, 60s, 1s});
  cache.Record(Accepted("10.0.0.2:1", "10.0.0.2:81", 1, Ms(0)), Ms(0));    // until 250 ms
  cache.Record(Accepted("10.0.0.2:2", "10.0.0.2:81", 2, Ms(0)), Ms(0));    // until 500 ms
  cache.Record(Accepted("10.0.0.2:3", "10.0.0.2:81", 255, Ms(0)), Ms(0));  // for ever
  cache.Record(Accepted("10.0.0.2:4", "10.0.0.2:81", 8, Ms(300)), Ms(300));
  CHECK(cache.targets() == 3);
  CHECK(cache.Lookup(At("10.0.0.2:2"), Ms(301)));
  cache.Record(Accepted("10.0.0.2:5", "10.0.0.2:81", 8, Ms(310)), Ms(310));
  CHECK_FALSE(cache.Lookup(At("10.0.0.2:2"), Ms(311)));
  CHECK(cache.Lookup(At("10.0.0.2:3"), Ms(311)));
  for (const char* host : {"10.0.1.1:1", "10.0.1.2:1", "10.0.1.3:1"})
    cache.Record(Silent(host, Ms(400)), Ms(400));
  CHECK(cache.hosts() == 2);
  CHECK(cache.IsConsistent());
}

TEST_CASE("a central port mapper that is silent is silent for all hosts", "[pm_cache]") {
  PmCacheOptions options;
  options.server = At("10.0.0.99:3935");
  PmCache cache(options);
  cache.Record(Silent("10.0.0.2:80", Ms(0)), Ms(0));
  CHECK(cache.Lookup(At("10.0.0.3:443"), Ms(1))->state == QueryState::kSilent);
  cache.Record(Accepted("10.0.0.4:80", "10.0.0.4:81", 0, Ms(2)), Ms(2));
  CHECK_FALSE(cache.Lookup(At("10.0.0.3:443"), Ms(3)));
}

}  // namespace
}  // namespace sdp::pm
