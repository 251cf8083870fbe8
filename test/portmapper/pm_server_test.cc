// The port mapper's service: one test for each rule of SDP 7.4 and 7.5.2.
#include "portmapper/engine/pm_server.h"

#include <optional>

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Message;
using test::Ms;
using namespace std::chrono_literals;

const char* const kClient = "10.0.0.1:40000";
const char* const kService = "10.0.0.2:80";
const char* const kSdp = "10.0.0.2:33333";

struct Service {
  PmServer z;
  RegistrationId id = z.Register({At(kService), At(kSdp)});
};

std::optional<PmMessage> Give(PmServer& z, const PmMessage& message, Time now) {
  const auto answer = z.HandleDatagram(Serialize(message), now);
  CHECK(z.IsConsistent());
  if (!answer) return std::nullopt;
  return test::Parsed(*answer);
}

PmMessage Req(uint64_t handle, std::string_view service = kService) {
  return Message(MessageType::kReq, handle, kClient, service);
}
PmMessage Accept(uint64_t handle, uint8_t pm_time = 20) {
  return Message(MessageType::kAccept, handle, kClient, kSdp, pm_time);
}
PmMessage Deny(uint64_t handle, std::string_view service = kService) {
  return Message(MessageType::kDeny, handle, kClient, service);
}
PmMessage Ack(uint64_t handle) { return Message(MessageType::kAck, handle, kClient, kSdp); }

TEST_CASE("7.4: a mapped service is accepted, and the PMAck ends the transaction", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(s.z.waiting() == 1);
  CHECK(Give(s.z, Ack(1), Ms(1)) == std::nullopt);
  CHECK(s.z.waiting() == 0);
  CHECK(s.z.NextTimeout() == kNever);
  CHECK(s.z.counters().acks == 1);
}

TEST_CASE("7.4: a service that is not mapped is denied, with the fields of the request, and keeps no state",
          "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1, "10.0.0.2:81"), Ms(0)) == Deny(1, "10.0.0.2:81"));
  CHECK(s.z.waiting() == 0);
  CHECK(s.z.counters().denies == 1);
}

TEST_CASE("7.4: PmTime of a request is ignored, of an accept it is the policy's", "[pm_server]") {
  PmServerOptions options;
  options.pm_time = PmTime(255);
  PmServer z(options);
  z.Register({At(kService), At(kSdp)});
  PmMessage req = Req(1);
  req.pm_time = PmTime(77);
  CHECK(Give(z, req, Ms(0)) == Accept(1, 255));
}

TEST_CASE("7.4: IPv6 is answered in IPv6", "[pm_server]") {
  PmServer z;
  z.Register({At("[::]:80"), At("[::]:33333"), false});
  CHECK(Give(z, Message(MessageType::kReq, 1, "[2001:db8::1]:4", "[2001:db8::2]:80"), Ms(0)) ==
        Message(MessageType::kAccept, 1, "[2001:db8::1]:4", "[2001:db8::2]:33333", 20));
  CHECK(Give(z, Message(MessageType::kAck, 1, "[2001:db8::1]:4", "[2001:db8::2]:33333"), Ms(1)) ==
        std::nullopt);
  CHECK(z.waiting() == 0);
}

TEST_CASE("7.4: PmTime of a PMAck is ignored", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  PmMessage ack = Ack(1);
  ack.pm_time = PmTime(200);
  CHECK(Give(s.z, ack, Ms(1)) == std::nullopt);
  CHECK(s.z.waiting() == 0);
  CHECK(s.z.counters().acks == 1);
}

TEST_CASE("7.5: each of the five values makes another transaction", "[pm_server]") {
  Service s;
  s.z.Register({At("10.0.0.3:80"), At("10.0.0.3:33333")});
  s.z.Register({At("10.0.0.2:81"), At("10.0.0.2:33334")});
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  const auto [request, replaces] = GENERATE(table<PmMessage, bool>({
      {Message(MessageType::kReq, 2, kClient, kService),
       true},  // AssocHandle: the client has given up the first
      {Message(MessageType::kReq, 1, kClient, "10.0.0.2:81"), false},
      {Message(MessageType::kReq, 1, kClient, "10.0.0.3:80"), false},
      {Message(MessageType::kReq, 1, "10.0.0.1:40001", kService), false},
      {Message(MessageType::kReq, 1, "10.0.0.4:40000", kService), false},
  }));
  CAPTURE(request);
  const auto answer = Give(s.z, request, Ms(1000));
  REQUIRE(answer);
  CHECK(answer->type == MessageType::kAccept);
  CHECK(s.z.counters().duplicates == 0);
  CHECK(s.z.waiting() == (replaces ? 1 : 2));
  CHECK(s.z.NextTimeout() == (replaces ? Ms(6000) : Ms(5000)));
}

TEST_CASE("7.5.2: without a PMAck the transaction is deleted at the end of its time-out", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(s.z.NextTimeout() == Ms(5000));
  s.z.HandleTimeout(Ms(4999));
  CHECK(s.z.waiting() == 1);
  s.z.HandleTimeout(Ms(5000));
  CHECK(s.z.waiting() == 0);
  CHECK(s.z.counters().timeouts == 1);
}

TEST_CASE("7.5.2: a duplicate request is replied to and resets the timer", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(Give(s.z, Req(1), Ms(1000)) == Accept(1));
  CHECK(s.z.waiting() == 1);
  CHECK(s.z.NextTimeout() == Ms(6000));
  CHECK(s.z.counters().duplicates == 1);
  CHECK(s.z.counters().superseded == 0);
}

TEST_CASE("7.5.2: a PMAck of no known state is discarded", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Ack(1), Ms(0)) == std::nullopt);
  CHECK(Give(s.z, Req(1), Ms(1)) == Accept(1));
  const auto stray = GENERATE(Message(MessageType::kAck, 2, kClient, kSdp),
                              Message(MessageType::kAck, 1, "10.0.0.1:40001", kSdp),
                              Message(MessageType::kAck, 1, "10.0.0.3:40000", kSdp),
                              Message(MessageType::kAck, 1, kClient, "10.0.0.2:80"),
                              Message(MessageType::kAck, 1, kClient, "10.0.0.9:33333"));
  CAPTURE(stray);
  CHECK(Give(s.z, stray, Ms(2)) == std::nullopt);
  CHECK(s.z.waiting() == 1);
  CHECK(s.z.counters().unknown_acks == 2);
}

TEST_CASE("7.5.2: a second PMAck of one transaction is discarded", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(Give(s.z, Ack(1), Ms(1)) == std::nullopt);
  CHECK(Give(s.z, Ack(1), Ms(1)) == std::nullopt);
  CHECK(s.z.counters().acks == 1);
  CHECK(s.z.counters().unknown_acks == 1);
}

TEST_CASE("7.5.2: a PMAck after the time-out is discarded", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(Give(s.z, Ack(1), Ms(5000)) == std::nullopt);
  CHECK(s.z.counters().timeouts == 1);
  CHECK(s.z.counters().unknown_acks == 1);
}

TEST_CASE("7.5.2: a duplicate is answered by the service's most recent state", "[pm_server]") {
  Service s;
  SECTION("accept becomes deny, and the state goes") {
    CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
    s.z.Unregister(s.id);
    CHECK(Give(s.z, Req(1), Ms(10)) == Deny(1));
    CHECK(s.z.waiting() == 0);
  }
  SECTION("deny becomes accept") {
    s.z.Unregister(s.id);
    CHECK(Give(s.z, Req(1), Ms(0)) == Deny(1));
    s.z.Register({At(kService), At(kSdp)});
    CHECK(Give(s.z, Req(1), Ms(10)) == Accept(1));
    CHECK(s.z.waiting() == 1);
  }
  SECTION("another SDP address: its PMAck counts") {
    CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
    s.z.Unregister(s.id);
    s.z.Register({At(kService), At("10.0.0.2:44444")});
    CHECK(Give(s.z, Req(1), Ms(10)) == Message(MessageType::kAccept, 1, kClient, "10.0.0.2:44444", 20));
    CHECK(s.z.waiting() == 1);
    CHECK(Give(s.z, Message(MessageType::kAck, 1, kClient, "10.0.0.2:44444"), Ms(11)) == std::nullopt);
    CHECK(s.z.waiting() == 0);
  }
}

TEST_CASE("7.5.2: a new handle for the same four-tuple discards the prior state", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(Give(s.z, Req(2), Ms(10)) == Accept(2));
  CHECK(s.z.waiting() == 1);
  CHECK(s.z.counters().superseded == 1);
  CHECK(s.z.counters().duplicates == 0);
  CHECK(Give(s.z, Ack(1), Ms(11)) == std::nullopt);  // the discarded one
  CHECK(s.z.counters().unknown_acks == 1);
  CHECK(Give(s.z, Ack(2), Ms(12)) == std::nullopt);
  CHECK(s.z.waiting() == 0);
}

TEST_CASE("7.5.2: a new handle is processed normally when the service has gone meanwhile", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  s.z.Unregister(s.id);
  CHECK(Give(s.z, Req(2), Ms(10)) == Deny(2));
  CHECK(s.z.waiting() == 0);
}

TEST_CASE("7.5.2: a duplicate after the state is gone is a new request, recovered by time-out",
          "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(Give(s.z, Ack(1), Ms(1)) == std::nullopt);
  CHECK(Give(s.z, Req(1), Ms(2)) == Accept(1));  // delayed in the network; the client discards the answer
  CHECK(s.z.counters().duplicates == 0);
  CHECK(s.z.waiting() == 1);
  s.z.HandleTimeout(s.z.NextTimeout());
  CHECK(s.z.waiting() == 0);
}

TEST_CASE("one handle for two services is two transactions", "[pm_server]") {
  Service s;
  s.z.Register({At("10.0.0.2:81"), At("10.0.0.2:33334")});
  CHECK(Give(s.z, Req(1), Ms(0)) == Accept(1));
  CHECK(Give(s.z, Req(1, "10.0.0.2:81"), Ms(0)) ==
        Message(MessageType::kAccept, 1, kClient, "10.0.0.2:33334", 20));
  CHECK(s.z.waiting() == 2);
  CHECK(Give(s.z, Ack(1), Ms(1)) == std::nullopt);
  CHECK(s.z.waiting() == 1);
}

TEST_CASE("15.2.1: a flood is bounded, the transaction that waits longest goes", "[pm_server]") {
  PmServerOptions options;
  options.max_transactions = 4;
  PmServer z(options);
  z.Register({At(kService), At(kSdp)});
  for (uint16_t i = 0; i < 6; ++i) {
    PmMessage req = Req(i);
    req.cp.port = static_cast<uint16_t>(1000 + i);
    CHECK(Give(z, req, Ms(i))->type == MessageType::kAccept);
  }
  CHECK(z.waiting() == 4);
  CHECK(z.counters().evicted == 2);
  CHECK(z.NextTimeout() == Ms(5002));
  PmMessage ack = Ack(5);
  ack.cp.port = 1005;
  CHECK(Give(z, ack, Ms(10)) == std::nullopt);
  CHECK(z.counters().acks == 1);
}

TEST_CASE("what is not for a server has no answer", "[pm_server]") {
  Service s;
  CHECK(Give(s.z, Accept(1), Ms(0)) == std::nullopt);
  CHECK(Give(s.z, Deny(1), Ms(0)) == std::nullopt);
  CHECK(s.z.counters().misdirected == 2);
  const Datagram req = Serialize(Req(1));
  for (size_t length = 0; length < req.size(); ++length)
    CHECK_FALSE(s.z.HandleDatagram(Bytes(req).first(length), Ms(0)));
  CHECK(s.z.counters().malformed == 48);
  CHECK(s.z.waiting() == 0);
}

TEST_CASE("the registration that would answer can be asked for beforehand", "[pm_server]") {
  Service s;
  CHECK(s.z.FindLocal(Req(1))->registration == s.id);
  CHECK(s.z.FindLocal(Req(1))->sdp == At(kSdp));
  CHECK_FALSE(s.z.FindLocal(Req(1, "10.0.0.2:81")).has_value());
  CHECK(s.z.waiting() == 0);
}

}  // namespace
}  // namespace sdp::pm
