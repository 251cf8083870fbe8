#include "portmapper/engine/pm_client.h"

#include <optional>

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Message;
using test::Ms;
using namespace std::chrono_literals;

constexpr uint64_t kHandle = 0x1122334455667788;
const char* const kLocal = "10.0.0.1:40000";
const char* const kTarget = "10.0.0.2:80";
const char* const kSdp = "10.0.0.2:33333";

PmClient NewClient(const PmClientOptions& options = {}) {
  return PmClient({AssocHandle(kHandle), At(kLocal), At(kTarget)}, options, Ms(0));
}

PmMessage Request() { return Message(MessageType::kReq, kHandle, kLocal, kTarget); }
PmMessage Accept(uint8_t pm_time = 20) {
  return Message(MessageType::kAccept, kHandle, kLocal, kSdp, pm_time);
}
PmMessage Deny() { return Message(MessageType::kDeny, kHandle, kLocal, kTarget); }
PmMessage Ack() { return Message(MessageType::kAck, kHandle, kLocal, kSdp); }

std::optional<PmMessage> Poll(PmClient& client) {
  const auto datagram = client.PollTransmit();
  if (!datagram) return std::nullopt;
  return test::Parsed(*datagram);
}

void Give(PmClient& client, const PmMessage& message, Time now) {
  client.HandleDatagram(Serialize(message), now);
}

TEST_CASE("a query asks, is accepted and acknowledges", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());  // A -> PMReq -> Z
  CHECK(Poll(a) == std::nullopt);
  CHECK(a.NextTimeout() == Ms(40));
  Give(a, Accept(), Ms(5));  // A <- PMAccept <- Z
  CHECK(a.state() == QueryState::kAccepted);
  CHECK(a.sdp_address() == At(kSdp));
  CHECK(a.cache_time() == 5s);
  CHECK(Poll(a) == Ack());  // A -> PMAck -> Z
  CHECK(Poll(a) == std::nullopt);
  CHECK(a.NextTimeout() == kNever);
  CHECK(a.IsConsistent());
}

TEST_CASE("a denied query is complete and sends no PMAck", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  PmMessage deny = Deny();
  deny.ap = At("0.0.0.0:0");  // ApPort and PmTime are ignored in a PMDeny, whatever the mapper put there
  deny.pm_time = PmTime(255);
  Give(a, deny, Ms(5));
  CHECK(a.state() == QueryState::kDenied);
  CHECK(a.cache_time() == 0s);
  CHECK(Poll(a) == std::nullopt);
  CHECK(a.NextTimeout() == kNever);
}

TEST_CASE("lost requests are repeated, the same five values, at doubled intervals", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  for (const int at : {40, 120, 280}) {
    CHECK(a.NextTimeout() == Ms(at));
    a.HandleTimeout(Ms(at - 1));  // early: nothing happens
    CHECK(Poll(a) == std::nullopt);
    a.HandleTimeout(Ms(at));
    CHECK(Poll(a) == Request());
  }
  CHECK(a.requests_sent() == 4);
  CHECK(a.NextTimeout() == Ms(300));
  a.HandleTimeout(Ms(300));
  CHECK(a.state() == QueryState::kSilent);
  CHECK(Poll(a) == std::nullopt);
}

TEST_CASE("the loss of each message in turn", "[pm_client]") {
  SECTION("the first PMReq or its reply: a retransmission is answered") {
    PmClient a = NewClient();
    CHECK(Poll(a) == Request());
    a.HandleTimeout(Ms(40));
    CHECK(Poll(a) == Request());
    Give(a, Accept(), Ms(41));
    CHECK(Poll(a) == Ack());
  }
  SECTION("the PMAck: the mapper asks again, the client discards") {
    PmClient a = NewClient();
    CHECK(Poll(a) == Request());
    Give(a, Accept(), Ms(1));
    CHECK(Poll(a) == Ack());
    Give(a, Accept(), Ms(50));
    CHECK(Poll(a) == std::nullopt);
    CHECK(a.discarded() == 1);
  }
}

TEST_CASE("the number of retransmissions ends the query before its limit", "[pm_client]") {
  PmClientOptions options;
  options.first_timeout = 10ms;
  options.retransmissions = 1;
  PmClient a = NewClient(options);
  a.HandleTimeout(Ms(10));
  CHECK(a.NextTimeout() == Ms(30));
  a.HandleTimeout(Ms(30));
  CHECK(a.state() == QueryState::kSilent);
}

TEST_CASE("a limit shorter than the first time-out holds", "[pm_client]") {
  PmClientOptions options;
  options.overall_limit = 15ms;
  PmClient a = NewClient(options);
  CHECK(a.NextTimeout() == Ms(15));
  a.HandleTimeout(Ms(15));
  CHECK(a.state() == QueryState::kSilent);
}

TEST_CASE("a late wake-up past the limit is silence, not another request", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  a.HandleTimeout(Ms(5000));
  CHECK(a.state() == QueryState::kSilent);
  CHECK(Poll(a) == std::nullopt);
}

TEST_CASE("the first reply wins, in either order", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  SECTION("accept, then deny") {
    Give(a, Accept(), Ms(1));
    Give(a, Deny(), Ms(2));
    CHECK(a.state() == QueryState::kAccepted);
    CHECK(Poll(a) == Ack());
  }
  SECTION("deny, then accept") {
    Give(a, Deny(), Ms(1));
    Give(a, Accept(), Ms(2));
    CHECK(a.state() == QueryState::kDenied);
    CHECK(Poll(a) == std::nullopt);
  }
  SECTION("two different accepts") {
    Give(a, Accept(), Ms(1));
    Give(a, Message(MessageType::kAccept, kHandle, kLocal, "10.0.0.3:1", 255), Ms(2));
    CHECK(a.sdp_address() == At(kSdp));
    CHECK(Poll(a) == Ack());
  }
  CHECK(a.discarded() == 1);
}

TEST_CASE("a reply of another transaction is discarded", "[pm_client]") {
  const auto stray =
      GENERATE(Message(MessageType::kAccept, kHandle + 1, kLocal, kSdp),
               Message(MessageType::kDeny, kHandle ^ (1ull << 63), kLocal, kTarget),
               Message(MessageType::kAccept, kHandle, "10.0.0.1:40001", kSdp),
               Message(MessageType::kAccept, kHandle, "10.0.0.9:40000", kSdp),
               Message(MessageType::kAccept, kHandle, "[::ffff:10.0.0.1]:40000", "[::ffff:10.0.0.2]:33333"),
               Message(MessageType::kReq, kHandle, kLocal, kTarget),
               Message(MessageType::kAck, kHandle, kLocal, kSdp));
  CAPTURE(stray);
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  Give(a, stray, Ms(1));
  CHECK(a.state() == QueryState::kAsking);
  CHECK(a.discarded() == 1);
  Give(a, Accept(), Ms(2));
  CHECK(a.state() == QueryState::kAccepted);
}

TEST_CASE("malformed datagrams are discarded, reserved bits are not looked at", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  Datagram reply = Serialize(Accept());
  a.HandleDatagram(Bytes(reply).first(47), Ms(1));
  a.HandleDatagram({}, Ms(1));
  CHECK(a.discarded() == 2);
  reply[2] = reply[3] = std::byte{0xff};
  a.HandleDatagram(reply, Ms(2));
  CHECK(a.state() == QueryState::kAccepted);
}

TEST_CASE("a reply after the limit is discarded, even before the time-out was handled", "[pm_client]") {
  PmClient a = NewClient();
  Give(a, Accept(), Ms(300));
  CHECK(a.state() == QueryState::kAsking);
  a.HandleTimeout(Ms(300));
  CHECK(a.state() == QueryState::kSilent);
  Give(a, Accept(), Ms(301));
  CHECK(a.state() == QueryState::kSilent);
  CHECK(a.discarded() == 2);
}

TEST_CASE("unreachable ends a query that asks, and only that", "[pm_client]") {
  PmClient a = NewClient();
  CHECK(Poll(a) == Request());
  SECTION("asking") {
    a.HandleUnreachable(Ms(1));
    CHECK(a.state() == QueryState::kUnreachable);
    CHECK(a.NextTimeout() == kNever);
    CHECK(Poll(a) == std::nullopt);
    a.HandleTimeout(Ms(40));
    CHECK(a.state() == QueryState::kUnreachable);
  }
  SECTION("accepted") {
    Give(a, Accept(), Ms(1));
    a.HandleUnreachable(Ms(2));
    CHECK(a.state() == QueryState::kAccepted);
    CHECK(Poll(a) == Ack());
  }
}

TEST_CASE("an accept that leads nowhere is acknowledged and counts as denied", "[pm_client]") {
  const auto bad =
      GENERATE("0.0.0.0:33333", "10.0.0.2:0", "127.0.0.1:33333", "224.0.0.1:5", "255.255.255.255:5");
  CAPTURE(bad);
  PmClient a = NewClient();
  Give(a, Message(MessageType::kAccept, kHandle, kLocal, bad), Ms(1));
  CHECK(a.state() == QueryState::kDenied);
  CHECK(Poll(a) == Message(MessageType::kAck, kHandle, kLocal, bad));
}

TEST_CASE("a mapper may redirect, on loopback too if loopback was asked", "[pm_client]") {
  PmClient a = NewClient();
  Give(a, Message(MessageType::kAccept, kHandle, kLocal, "10.7.7.7:1"), Ms(1));
  CHECK(a.sdp_address() == At("10.7.7.7:1"));
  PmClient on_loopback({AssocHandle(1), At("127.0.0.1:5"), At("127.0.0.1:80")}, {}, Ms(0));
  Give(on_loopback, Message(MessageType::kAccept, 1, "127.0.0.1:5", "127.0.0.1:81"), Ms(1));
  CHECK(on_loopback.state() == QueryState::kAccepted);
}

TEST_CASE("PmTime of the accept becomes the cache time", "[pm_client]") {
  const auto [pm_time, expected] =
      GENERATE(table<int, Duration>({{0, 0s}, {1, 250ms}, {128, 128s}, {255, kForever}}));
  PmClient a = NewClient();
  Give(a, Accept(static_cast<uint8_t>(pm_time)), Ms(1));
  CHECK(a.cache_time() == expected);
}

TEST_CASE("IPv6 queries speak IPv6", "[pm_client]") {
  PmClient a({AssocHandle(7), At("[2001:db8::1]:1000"), At("[2001:db8::2]:80")}, {}, Ms(0));
  CHECK(Poll(a) == Message(MessageType::kReq, 7, "[2001:db8::1]:1000", "[2001:db8::2]:80"));
  Give(a, Message(MessageType::kAccept, 7, "[2001:db8::1]:1000", "[2001:db8::3]:81"), Ms(1));
  CHECK(a.sdp_address() == At("[2001:db8::3]:81"));
}

}  // namespace
}  // namespace sdp::pm
