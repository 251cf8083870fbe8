#include "portmapper/endpoint.h"

#include <netinet/in.h>

#include <unordered_set>

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;

TEST_CASE("an endpoint's text is what it was parsed from", "[endpoint]") {
  const auto text =
      GENERATE("10.0.0.1:80", "0.0.0.0:65535", "[::1]:80", "[::]:3935", "[fe80::1]:1", "[::ffff:10.0.0.1]:2");
  CHECK(At(text).ToString() == text);
}

TEST_CASE("a port may be left out where there is a default", "[endpoint]") {
  CHECK(ParseEndpoint("10.0.0.1", 3935) == At("10.0.0.1:3935"));
  CHECK(ParseEndpoint("[::1]", 3935) == At("[::1]:3935"));
  CHECK(ParseEndpoint("::1", 3935) == At("[::1]:3935"));
  CHECK(ParseEndpoint("::", 3935) == At("[::]:3935"));
  CHECK(ParseEndpoint("10.0.0.1:7", 3935) == At("10.0.0.1:7"));
  CHECK(ParseEndpoint("10.0.0.1:0", 3935)->port == 0);
}

TEST_CASE("what is no endpoint is not parsed", "[endpoint]") {
  const auto text =
      GENERATE("", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1: 1", "10.0.0:1",
               "host:80", "[::1]", "[::1", "[::1]80", "[::1]:", "[10.0.0.1]:80", "::1", "[::1]:80x",
               "1.2.3.4.5:6", "[]:80", "[00000000000000000000000000000000000000000000000000000001]:80");
  CAPTURE(text);
  CHECK_FALSE(ParseEndpoint(text).has_value());
}

TEST_CASE("an embedded zero does not end an address", "[endpoint]") {
  CHECK_FALSE(ParseEndpoint(std::string_view("10.0.0.1\0x:80", 13)).has_value());
}

TEST_CASE("socket addresses go both ways", "[endpoint]") {
  const auto text = GENERATE("10.1.2.3:4567", "[2001:db8::1]:80");
  sockaddr_storage storage;
  const socklen_t length = ToSockaddr(At(text), &storage);
  CHECK(FromSockaddr(reinterpret_cast<const sockaddr*>(&storage), length) == At(text));
  CHECK(FromSockaddr(storage) == At(text));
}

TEST_CASE("a socket address too short for its family is refused", "[endpoint]") {
  sockaddr_storage storage;
  ToSockaddr(At("10.1.2.3:4567"), &storage);
  const auto* address = reinterpret_cast<const sockaddr*>(&storage);
  for (socklen_t length = 0; length < sizeof(sockaddr_in); ++length)
    CHECK_FALSE(FromSockaddr(address, length));
  ToSockaddr(At("[::1]:1"), &storage);
  for (socklen_t length = 0; length < 24; ++length) CHECK_FALSE(FromSockaddr(address, length));
  CHECK(FromSockaddr(address, 24) == At("[::1]:1"));
  storage.ss_family = AF_UNIX;
  CHECK_FALSE(FromSockaddr(storage));
}

TEST_CASE("the scope of a link-local address goes into the socket address only", "[endpoint]") {
  sockaddr_storage storage;
  ToSockaddr(At("[fe80::1]:80"), &storage, 7);
  CHECK(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_scope_id == 7);
  CHECK(FromSockaddr(storage) == At("[fe80::1]:80"));
}

TEST_CASE("v4-mapped addresses are normalised by name", "[endpoint]") {
  CHECK(NormalizeMapped(At("[::ffff:10.0.0.1]:80")) == At("10.0.0.1:80"));
  CHECK(NormalizeMapped(At("[::1]:80")) == At("[::1]:80"));
  CHECK(NormalizeMapped(At("10.0.0.1:80")) == At("10.0.0.1:80"));
  CHECK(ToMapped(At("10.0.0.1:80")) == At("[::ffff:10.0.0.1]:80"));
  CHECK(ToMapped(At("[::1]:80")) == At("[::1]:80"));
}

TEST_CASE("addresses are known by their kind", "[endpoint]") {
  CHECK(At("0.0.0.0:1").IsWildcard());
  CHECK(At("[::]:1").IsWildcard());
  CHECK_FALSE(At("[::1]:1").IsWildcard());
  CHECK(At("127.9.9.9:1").IsLoopback());
  CHECK(At("[::1]:1").IsLoopback());
  CHECK_FALSE(At("[::2]:1").IsLoopback());
  CHECK_FALSE(At("[100::1]:1").IsLoopback());
  CHECK_FALSE(At("128.0.0.1:1").IsLoopback());
  CHECK(At("224.0.0.1:1").IsMulticastOrBroadcast());
  CHECK(At("255.255.255.255:1").IsMulticastOrBroadcast());
  CHECK(At("[ff02::1]:1").IsMulticastOrBroadcast());
  CHECK_FALSE(At("10.255.255.255:1").IsMulticastOrBroadcast());
}

TEST_CASE("equal endpoints hash alike, others differ", "[endpoint]") {
  std::unordered_set<Endpoint> set;
  for (uint16_t port = 1; port <= 1000; ++port) {
    set.insert({IpVersion::kV4, {10, 0, 0, 1}, port});
    set.insert({IpVersion::kV6, {10, 0, 0, 1}, port});
    set.insert({IpVersion::kV4, {10, 0, 0, 1}, port});
  }
  CHECK(set.size() == 2000);
  CHECK(set.count(At("10.0.0.1:17")) == 1);
  CHECK(HostOf(At("10.0.0.1:17")) == At("10.0.0.1:0"));
}

}  // namespace
}  // namespace sdp::pm
