#include "portmapper/wire/pm_message.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "portmapper/engine/assoc_handle.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Message;
using namespace std::chrono_literals;

// Written out by hand from figure 17.
constexpr uint8_t kReqV4[48] = {
    0x04, 0x00, 0x00, 0x00,                          // Ver 0, MT 0 (PMReq), IPV 4; PmTime; Reserved
    0x00, 0x50, 0x9c, 0x40,                          // ApPort 80, CpPort 40000
    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,  // AssocHandle
    0x0a, 0x00, 0x00, 0x01, 0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0,  // CpIPAddr 10.0.0.1
    0x0a, 0x00, 0x00, 0x02, 0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0,  // ApIPAddr 10.0.0.2
};
constexpr uint8_t kAcceptV6[48] = {
    0x16, 0x14, 0x00, 0x00,                          // MT 1 (PMAccept), IPV 6; PmTime 20
    0x82, 0x35, 0xff, 0xff,                          // ApPort 33333, CpPort 65535
    0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88,  // AssocHandle
    0x20, 0x01, 0x0d, 0xb8, 0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0x01,  // CpIPAddr 2001:db8::1
    0x20, 0x01, 0x0d, 0xb8, 0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0x02,  // ApIPAddr 2001:db8::2
};

Datagram FromBytes(const uint8_t (&bytes)[48]) {
  Datagram datagram;
  std::memcpy(datagram.data(), bytes, sizeof bytes);
  return datagram;
}

TEST_CASE("PMReq over IPv4, byte for byte", "[pm_message]") {
  const PmMessage message = Message(MessageType::kReq, 0x0123456789abcdef, "10.0.0.1:40000", "10.0.0.2:80");
  CHECK(test::Parsed(FromBytes(kReqV4)) == message);
  CHECK(Serialize(message) == FromBytes(kReqV4));
  CHECK(ToString(message) == "PMReq 0123456789abcdef 10.0.0.1:40000 -> 10.0.0.2:80");
}

TEST_CASE("PMAccept over IPv6, byte for byte", "[pm_message]") {
  const PmMessage message =
      Message(MessageType::kAccept, 0xffeeddccbbaa9988, "[2001:db8::1]:65535", "[2001:db8::2]:33333", 20);
  CHECK(test::Parsed(FromBytes(kAcceptV6)) == message);
  CHECK(Serialize(message) == FromBytes(kAcceptV6));
  CHECK(ToString(message) ==
        "PMAccept ffeeddccbbaa9988 [2001:db8::1]:65535 -> [2001:db8::2]:33333 PmTime 20");
}

TEST_CASE("the message type stands in bits 2 and 3", "[pm_message]") {
  const auto [type, first_byte] = GENERATE(table<MessageType, int>({{MessageType::kReq, 0x04},
                                                                    {MessageType::kAccept, 0x14},
                                                                    {MessageType::kAck, 0x24},
                                                                    {MessageType::kDeny, 0x34}}));
  PmMessage message = Message(type, 1, "10.0.0.1:1", "10.0.0.2:2");
  CHECK(static_cast<int>(Serialize(message)[0]) == first_byte);
  CHECK(test::Parsed(Serialize(message)) == message);
}

TEST_CASE("every other length is refused", "[pm_message]") {
  std::vector<std::byte> bytes(120);
  const Datagram whole = FromBytes(kReqV4);
  std::copy(whole.begin(), whole.end(), bytes.begin());
  for (size_t length = 0; length <= bytes.size(); ++length) {
    const auto message = Parse(Bytes(bytes).first(length));
    CHECK(message.has_value() == (length == 48));
    if (!message) CHECK(message.error() == PmWireError::kWrongLength);
  }
}

TEST_CASE("other protocol versions are refused", "[pm_message]") {
  const int version = GENERATE(1, 2, 3);
  Datagram datagram = FromBytes(kReqV4);
  datagram[0] |= static_cast<std::byte>(version << 6);
  REQUIRE_FALSE(Parse(datagram));
  CHECK(Parse(datagram).error() == PmWireError::kBadVersion);
}

TEST_CASE("only 4 and 6 are IP versions", "[pm_message]") {
  for (int ipv = 0; ipv < 16; ++ipv) {
    Datagram datagram = FromBytes(kReqV4);
    datagram[0] = static_cast<std::byte>(ipv);
    const auto message = Parse(datagram);
    CHECK(message.has_value() == (ipv == 4 || ipv == 6));
    if (!message) CHECK(message.error() == PmWireError::kBadIpVersion);
  }
}

TEST_CASE("reserved bits and the unused part of IPv4 addresses are ignored", "[pm_message]") {
  Datagram datagram = FromBytes(kReqV4);
  datagram[2] = datagram[3] = std::byte{0xff};
  std::fill(datagram.begin() + 20, datagram.begin() + 32, std::byte{0xaa});
  std::fill(datagram.begin() + 36, datagram.end(), std::byte{0xbb});
  const PmMessage message = test::Parsed(datagram);
  CHECK(message == test::Parsed(FromBytes(kReqV4)));
  CHECK(Serialize(message) == FromBytes(kReqV4));
}

TEST_CASE("PmTime counts quarter seconds, then seconds, then for ever", "[pm_message]") {
  CHECK(ToDuration(PmTime(0)) == 0ms);
  CHECK(ToDuration(PmTime(1)) == 250ms);
  CHECK(ToDuration(PmTime(127)) == 31750ms);
  CHECK(ToDuration(PmTime(128)) == 128s);
  CHECK(ToDuration(PmTime(254)) == 254s);
  CHECK(ToDuration(PmTime(255)) == kForever);
}

TEST_CASE("the port mapper's UDP port is 3935", "[pm_message]") { CHECK(kPmUdpPort == 3935); }

TEST_CASE("handles do not repeat and depend on the key", "[assoc_handle]") {
  AssocHandleGenerator a({1, 2});
  AssocHandleGenerator again({1, 2});
  AssocHandleGenerator other({1, 3});
  std::vector<uint64_t> handles;
  int same = 0;
  for (int i = 0; i < 100000; ++i) {
    handles.push_back(a.Next().value());
    if (again.Next().value() != handles.back()) FAIL("one key, two sequences");
    same += other.Next().value() == handles.back() ? 1 : 0;
  }
  CHECK(same == 0);
  std::sort(handles.begin(), handles.end());
  CHECK(std::adjacent_find(handles.begin(), handles.end()) == handles.end());
  // Spread over the whole range: an eighth of them in each eighth, give or take a tenth.
  for (uint64_t eighth = 0; eighth < 8; ++eighth) {
    const auto count =
        std::count_if(handles.begin(), handles.end(), [&](uint64_t h) { return h >> 61 == eighth; });
    CHECK(count == Approx(12500).epsilon(0.1));
  }
}

}  // namespace
}  // namespace sdp::pm
