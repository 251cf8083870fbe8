#include "portmapper/engine/registration_table.h"

#include <map>

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;

std::optional<Endpoint> Answer(const RegistrationTable& table, std::string_view asked, uint64_t spread = 0) {
  const auto id = table.Find(At(asked), spread);
  if (!id) return std::nullopt;
  return RegistrationTable::SdpAddressFor(table.Get(*id), At(asked));
}

TEST_CASE("an address is answered by its own registration", "[registrations]") {
  RegistrationTable table;
  table.Add({At("10.0.0.2:80"), At("10.0.0.2:33333")});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.0.0.2:33333"));
  CHECK(Answer(table, "10.0.0.2:81") == std::nullopt);
  CHECK(Answer(table, "10.0.0.3:80") == std::nullopt);
  CHECK(Answer(table, "[::1]:80") == std::nullopt);
}

TEST_CASE("a wildcard answers with the address that was asked", "[registrations]") {
  RegistrationTable table;
  table.Add({At("0.0.0.0:80"), At("0.0.0.0:33333")});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.0.0.2:33333"));
  CHECK(Answer(table, "127.0.0.1:80") == At("127.0.0.1:33333"));
  CHECK(Answer(table, "[::1]:80") == std::nullopt);
}

TEST_CASE("a dual-stack [::] serves IPv4 too, a v6-only one does not", "[registrations]") {
  RegistrationTable table;
  table.Add({At("[::]:80"), At("[::]:33333"), false});
  table.Add({At("[::]:81"), At("[::]:33334"), true});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.0.0.2:33333"));
  CHECK(Answer(table, "[::1]:80") == At("[::1]:33333"));
  CHECK(Answer(table, "10.0.0.2:81") == std::nullopt);
  CHECK(Answer(table, "[::1]:81") == At("[::1]:33334"));
}

TEST_CASE("a kernel RNIC serves its own address of a wildcard, and that before others", "[registrations]") {
  RegistrationTable table;
  table.Add({At("0.0.0.0:80"), At("0.0.0.0:33333")});
  const RegistrationId rnic = table.Add({At("0.0.0.0:80"), At("10.0.0.2:44444"), false, true});
  for (const uint64_t spread : {0, 1, 2, 3}) {
    CHECK(Answer(table, "10.0.0.2:80", spread) == At("10.0.0.2:44444"));
    CHECK(Answer(table, "10.0.0.3:80", spread) == At("10.0.0.3:33333"));
    CHECK(Answer(table, "127.0.0.1:80", spread) == At("127.0.0.1:33333"));
  }
  // Several processes' listeners share the clients evenly.
  table.Add({At("0.0.0.0:80"), At("10.0.0.2:44445"), false, true});
  CHECK(Answer(table, "10.0.0.2:80", 2) == At("10.0.0.2:44444"));
  CHECK(Answer(table, "10.0.0.2:80", 3) == At("10.0.0.2:44445"));
  table.Remove(rnic);
  CHECK(Answer(table, "10.0.0.2:80", 2) == At("10.0.0.2:44445"));
}

TEST_CASE("a kernel RNIC at the very address of a listener", "[registrations]") {
  RegistrationTable table;
  table.Add({At("10.0.0.2:80"), At("10.0.0.2:44444"), false, true});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.0.0.2:44444"));
  table.Add({At("10.0.0.2:80"), At("10.0.0.2:33333")});
  CHECK(Answer(table, "10.0.0.2:80", 1) == At("10.0.0.2:44444"));
  // Under [::] an IPv4 address's RNIC, where the socket takes IPv4.
  table.Add({At("[::]:81"), At("10.0.0.2:44446"), false, true});
  table.Add({At("[::]:82"), At("10.0.0.2:44446"), true, true});
  CHECK(Answer(table, "10.0.0.2:81") == At("10.0.0.2:44446"));
  CHECK(Answer(table, "[::ffff:10.0.0.2]:81") == At("[::ffff:10.0.0.2]:44446"));
  CHECK(Answer(table, "10.0.0.2:82") == std::nullopt);
}

TEST_CASE("v4-mapped addresses are IPv4, asked and registered", "[registrations]") {
  RegistrationTable table;
  table.Add({At("[::ffff:10.0.0.2]:80"), At("[::ffff:10.0.0.2]:33333")});
  table.Add({At("0.0.0.0:81"), At("0.0.0.0:33334")});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.0.0.2:33333"));
  // In the IP version that was asked in.
  CHECK(Answer(table, "[::ffff:10.0.0.2]:80") == At("[::ffff:10.0.0.2]:33333"));
  CHECK(Answer(table, "[::ffff:10.0.0.9]:81") == At("[::ffff:10.0.0.9]:33334"));
}

TEST_CASE("an SDP address of its own is told as it is, if the client's IP version can say it",
          "[registrations]") {
  RegistrationTable table;
  table.Add({At("0.0.0.0:80"), At("10.9.9.9:33333")});
  table.Add({At("[::]:81"), At("[2001:db8::9]:33334"), false});
  table.Add({At("[::]:82"), At("10.9.9.9:33335"), false});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.9.9.9:33333"));
  CHECK(Answer(table, "[::1]:81") == At("[2001:db8::9]:33334"));
  CHECK(Answer(table, "10.0.0.2:81") == std::nullopt);
  CHECK(Answer(table, "10.0.0.2:82") == At("10.9.9.9:33335"));
  CHECK(Answer(table, "[::1]:82") == std::nullopt);
}

TEST_CASE("the address itself comes before the wildcard, IPv4's before the dual one", "[registrations]") {
  RegistrationTable table;
  table.Add({At("10.0.0.2:80"), At("10.0.0.2:1")});
  const RegistrationId v4 = table.Add({At("0.0.0.0:80"), At("0.0.0.0:2")});
  table.Add({At("[::]:80"), At("[::]:3"), false});
  CHECK(Answer(table, "10.0.0.2:80") == At("10.0.0.2:1"));
  CHECK(Answer(table, "10.0.0.3:80") == At("10.0.0.3:2"));
  CHECK(Answer(table, "[::1]:80") == At("[::1]:3"));
  CHECK(table.Remove(v4));
  CHECK_FALSE(table.Remove(v4));
  CHECK(Answer(table, "10.0.0.3:80") == At("10.0.0.3:3"));
}

TEST_CASE("of several listeners on one address each gets its share, the same client always the same",
          "[registrations]") {
  RegistrationTable table;
  std::vector<RegistrationId> ids;
  for (uint16_t port = 1; port <= 4; ++port)
    ids.push_back(table.Add({At("0.0.0.0:80"), {IpVersion::kV4, {}, port}}));
  std::map<RegistrationId, int> picked;
  for (uint64_t spread = 0; spread < 400; ++spread) {
    const auto id = table.Find(At("10.0.0.2:80"), spread);
    REQUIRE(id);
    CHECK(id == table.Find(At("10.0.0.2:80"), spread));
    ++picked[*id];
  }
  for (const RegistrationId id : ids) CHECK(picked[id] == 100);
  for (const RegistrationId id : ids) CHECK(table.Remove(id));
  CHECK_FALSE(table.Find(At("10.0.0.2:80"), 0));
  CHECK(table.size() == 0);
  CHECK(table.IsConsistent());
}

TEST_CASE("a dual-stack listener is found among v6-only ones", "[registrations]") {
  RegistrationTable table;
  table.Add({At("[::]:80"), At("[::]:1"), true});
  table.Add({At("[::]:80"), At("[::]:2"), false});
  for (uint64_t spread = 0; spread < 4; ++spread)
    CHECK(Answer(table, "10.0.0.2:80", spread) == At("10.0.0.2:2"));
}

TEST_CASE("nobody can ask for a wildcard or a multicast address", "[registrations]") {
  RegistrationTable table;
  table.Add({At("0.0.0.0:80"), At("0.0.0.0:1")});
  table.Add({At("[::]:80"), At("[::]:2"), false});
  const auto asked = GENERATE("0.0.0.0:80", "[::]:80", "224.0.0.1:80", "255.255.255.255:80", "[ff02::1]:80",
                              "[::ffff:0.0.0.0]:80");
  CHECK(Answer(table, asked) == std::nullopt);
}

TEST_CASE("registrations are listed in their order", "[registrations]") {
  RegistrationTable table;
  for (uint16_t port = 1; port <= 20; ++port)
    table.Add({{IpVersion::kV4, {}, port}, {IpVersion::kV4, {}, 99}});
  const auto list = table.List();
  REQUIRE(list.size() == 20);
  for (size_t i = 0; i < list.size(); ++i) CHECK(list[i].second.conventional.port == i + 1);
}

}  // namespace
}  // namespace sdp::pm
