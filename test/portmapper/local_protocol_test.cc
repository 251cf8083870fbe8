#include "portmapper/local_protocol.h"

#include <vector>

#include "portmapper/registrar.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

TEST_CASE("a registration request, byte for byte", "[local_protocol]") {
  const auto bytes = Serialize(RegisterRequest{});
  const uint8_t expected[16] = {'S', 'D', 'P', 'L', 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  CHECK(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const std::byte*>(expected)));
  CHECK(ParseRegisterRequest(bytes)->version == 1);
}

TEST_CASE("only a whole request of this version is one", "[local_protocol]") {
  auto bytes = Serialize(RegisterRequest{});
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back({});
  CHECK(ParseRegisterRequest(longer).error() == LocalError::kWrongLength);
  for (size_t length = 0; length < bytes.size(); ++length) {
    CHECK(ParseRegisterRequest(Bytes(bytes).first(length)).error() == LocalError::kWrongLength);
  }
  bytes[5] = std::byte{2};
  CHECK(ParseRegisterRequest(bytes).error() == LocalError::kBadVersion);
  bytes[0] = std::byte{'X'};
  CHECK(ParseRegisterRequest(bytes).error() == LocalError::kBadMagic);
}

TEST_CASE("a greeting, byte for byte", "[local_protocol]") {
  auto bytes = Serialize(Greeting{});
  const uint8_t expected[16] = {'S', 'D', 'P', 'L', 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  CHECK(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const std::byte*>(expected)));
  CHECK(ParseGreeting(bytes).has_value());
  CHECK(ParseRegisterRequest(bytes).error() == LocalError::kBadVersion);
  CHECK(ParseGreeting(Bytes(bytes).first(15)).error() == LocalError::kWrongLength);
  CHECK(ParseGreeting(Serialize(RegisterRequest{})).error() == LocalError::kBadVersion);
  bytes[0] = std::byte{'X'};
  CHECK(ParseGreeting(bytes).error() == LocalError::kBadMagic);
}

TEST_CASE("a kernel RNIC's registration, byte for byte", "[local_protocol]") {
  const auto v4 = Serialize(RnicRequest{test::At("10.0.0.2:258")});
  const uint8_t expected[28] = {'S', 'D', 'P', 'L', 0, 2, 0, 4, 10, 0, 0, 2, 0, 0,
                                0,   0,   0,   0,   0, 0, 0, 0, 0,  0, 1, 2, 0, 0};
  CHECK(std::equal(v4.begin(), v4.end(), reinterpret_cast<const std::byte*>(expected)));
  CHECK(ParseRnicRequest(v4)->sdp == test::At("10.0.0.2:258"));
  auto v6 = Serialize(RnicRequest{test::At("[2001:db8::9]:65535")});
  CHECK(ParseRnicRequest(v6)->sdp == test::At("[2001:db8::9]:65535"));
  CHECK(ParseRegisterRequest(v6).error() == LocalError::kWrongLength);
  for (size_t length = 0; length < v6.size(); ++length) {
    CHECK(ParseRnicRequest(Bytes(v6).first(length)).error() == LocalError::kWrongLength);
  }
  v6[7] = std::byte{5};
  CHECK(ParseRnicRequest(v6).error() == LocalError::kBadAddress);
  v6[5] = std::byte{1};
  CHECK(ParseRnicRequest(v6).error() == LocalError::kBadVersion);
  v6[0] = std::byte{'X'};
  CHECK(ParseRnicRequest(v6).error() == LocalError::kBadMagic);
}

TEST_CASE("a reply goes both ways, its text cut and made printable", "[local_protocol]") {
  std::array<std::byte, kMaxReplySize> out;
  const size_t size = Serialize({1, Refusal::kAddressMismatch, "a\nb\x1b[31m"}, out);
  const auto reply = ParseRegisterReply(Bytes(out).first(size));
  REQUIRE(reply);
  CHECK(reply->refusal == Refusal::kAddressMismatch);
  CHECK(reply->text == "a?b?[31m");
  CHECK(Serialize({1, Refusal::kInternal, std::string(500, 'x')}, out) == kMaxReplySize);
  CHECK(ParseRegisterReply(out)->text == std::string(kMaxReplyText, 'x'));
}

TEST_CASE("a reply that is none is refused", "[local_protocol]") {
  std::array<std::byte, kMaxReplySize> out{};
  const size_t size = Serialize(RegisterReply{}, out);
  for (size_t length = 0; length < kReplyHeaderSize; ++length) {
    CHECK(ParseRegisterReply(Bytes(out).first(length)).error() == LocalError::kWrongLength);
  }
  out[7] = std::byte{9};
  CHECK(ParseRegisterReply(Bytes(out).first(size)).error() == LocalError::kBadRefusal);
  out[4] = std::byte{1};
  CHECK(ParseRegisterReply(Bytes(out).first(size)).error() == LocalError::kBadVersion);
  out[0] = std::byte{0};
  CHECK(ParseRegisterReply(Bytes(out).first(size)).error() == LocalError::kBadMagic);
}

const char* g_override = nullptr;
const char* g_runtime = nullptr;
char* Environment(const char* name) {
  if (std::string_view(name) == "SDP_PMD_SOCKET") return const_cast<char*>(g_override);
  if (std::string_view(name) == "XDG_RUNTIME_DIR") return const_cast<char*>(g_runtime);
  return nullptr;
}

TEST_CASE("the socket's path follows user and environment", "[registrar]") {
  g_override = g_runtime = nullptr;
  CHECK(DefaultSocketPath(0, Environment) == "/run/sdp/pmd.sock");
  CHECK(DefaultSocketPath(1000, Environment) == "/tmp/sdp-pmd-1000.sock");
  g_override = g_runtime = "";
  CHECK(DefaultSocketPath(1000, Environment) == "/tmp/sdp-pmd-1000.sock");
  g_runtime = "/run/user/1000";
  CHECK(DefaultSocketPath(1000, Environment) == "/run/user/1000/sdp-pmd.sock");
  CHECK(RegistrationPaths(1000, Environment) ==
        std::vector<std::string>{"/run/user/1000/sdp-pmd.sock", "/run/sdp/pmd.sock"});
  CHECK(RegistrationPaths(0, Environment) == std::vector<std::string>{"/run/sdp/pmd.sock"});
  CHECK(DefaultSocketPath(0, Environment) == "/run/sdp/pmd.sock");
  g_override = "/x/y";
  CHECK(DefaultSocketPath(0, Environment) == "/x/y");
  CHECK(RegistrationPaths(1000, Environment) == std::vector<std::string>{"/x/y"});
}

}  // namespace
}  // namespace sdp::pm
