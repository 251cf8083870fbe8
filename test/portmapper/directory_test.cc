// The central side: announcements and who may make them, balance, failover, pools, access.
#include "portmapper/engine/directory.h"

#include <map>

#include "portmapper/engine/siphash.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Ms;
using namespace std::chrono_literals;

constexpr HashKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

Registry Read(std::string_view text) {
  auto registry = ParseRegistry(text);
  REQUIRE(registry.has_value());
  return *std::move(registry);
}

Announcement Announce(std::string_view conventional, std::string_view sdp, uint8_t lifetime = 6,
                      uint16_t weight = 1) {
  Announcement announcement;
  announcement.lifetime = lifetime;
  announcement.weight = weight;
  announcement.conventional = At(conventional);
  announcement.sdp = At(sdp);
  return announcement;
}

struct Pmsp {
  explicit Pmsp(std::string_view registry) { directory.Configure(Read(registry)); }

  // Announces as a host does: takes the challenge, says it again. What the last answer was, if there was one.
  std::optional<AnnouncementType> Hear(Announcement announcement, std::string_view source, Time now = Ms(0)) {
    const auto challenge = directory.HandleAnnouncement(announcement, At(source), now);
    if (!challenge) return std::nullopt;
    const auto parsed = ParseAnnouncement(*challenge);
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->type == AnnouncementType::kChallenge);
    announcement.cookie = parsed->cookie;
    const auto answer = directory.HandleAnnouncement(announcement, At(source), now);
    if (!answer) return std::nullopt;
    return ParseAnnouncement(*answer)->type;
  }
  std::optional<Endpoint> Ask(std::string_view asked, uint64_t handle = 1, Time now = Ms(0),
                              const std::optional<Endpoint>& prior = std::nullopt) {
    const auto nobody = [](const Endpoint&) { return std::optional<Endpoint>(); };
    if (directory.IsConfigured(At(asked)))
      return directory.FindConfigured(At(asked), handle, prior, nobody, now);
    return directory.FindAnnounced(At(asked), handle, now);
  }
  // How often each answer is given to 12,000 clients.
  std::map<std::string, int> Share(std::string_view asked, Time now = Ms(0)) {
    std::map<std::string, int> share;
    for (uint64_t handle = 0; handle < 12000; ++handle) {
      const auto sdp = Ask(asked, handle, now);
      ++share[sdp ? sdp->ToString() : "nobody"];
    }
    return share;
  }

  Directory directory{kKey, 5s};
};

TEST_CASE("an announcement is written as the picture says", "[announcement]") {
  Announcement announcement = Announce("10.0.0.2:80", "10.0.0.2:7000", 6, 0x0102);
  announcement.cookie = 0x1122334455667788;
  const Datagram datagram = Serialize(announcement);
  const std::array<uint8_t, 48> expected = {
      0x44, 6, 0x01, 0x02, 0x1b, 0x58, 0x00, 80, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
      10,   0, 0,    2,    0,    0,    0,    0,  0,    0,    0,    0,    0,    0,    0,    0,
      10,   0, 0,    2,    0,    0,    0,    0,  0,    0,    0,    0,    0,    0,    0,    0};
  for (size_t i = 0; i < datagram.size(); ++i) CHECK(std::to_integer<int>(datagram[i]) == expected[i]);
  CHECK(ParseAnnouncement(datagram) == announcement);
  const Announcement v6 = Announce("[2001:db8::1]:80", "[2001:db8::1]:7000");
  CHECK(ParseAnnouncement(Serialize(v6)) == v6);
  // A port mapper that knows nothing of announcements discards it.
  CHECK(Parse(datagram).error() == PmWireError::kBadVersion);
}

TEST_CASE("what is no announcement is not taken for one", "[announcement]") {
  const Datagram good = Serialize(Announce("10.0.0.2:80", "10.0.0.2:7000"));
  for (size_t length = 0; length < good.size(); ++length)
    CHECK_FALSE(ParseAnnouncement(Bytes(good).first(length)));
  const auto with = [&](size_t at, uint8_t value) {
    Datagram changed = good;
    changed[at] = std::byte{value};
    return ParseAnnouncement(changed).has_value();
  };
  CHECK(with(0, 0x44));
  for (const uint8_t first : {0x04, 0x84, 0xc4, 0x64, 0x45, 0x40}) CHECK_FALSE(with(0, first));
  CHECK_FALSE(with(16, 224));
  CHECK_FALSE(with(32, 239));
  Datagram zero_port = good;
  zero_port[4] = zero_port[5] = std::byte{0};
  CHECK_FALSE(ParseAnnouncement(zero_port));
}

TEST_CASE("SipHash gives its authors' value", "[announcement]") {
  std::array<std::byte, 15> input;
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::byte>(i);
  CHECK(SipHash(input, kKey) == 0xa129ca6149be45e5);
}

TEST_CASE("a host announces itself, once it has its cookie", "[directory]") {
  Pmsp z("serve 10.0.0.0/24");
  const Announcement announcement = Announce("10.0.0.2:80", "10.0.0.2:7000");
  const auto challenge = z.directory.HandleAnnouncement(announcement, At("10.0.0.2:4000"), Ms(0));
  REQUIRE(challenge.has_value());
  CHECK(z.Ask("10.0.0.2:80") == std::nullopt);
  CHECK(z.Hear(announcement, "10.0.0.2:4000") == std::nullopt);
  CHECK(z.Ask("10.0.0.2:80") == At("10.0.0.2:7000"));
  CHECK(z.Ask("10.0.0.2:81") == std::nullopt);
  // Another address, or another port, has another cookie.
  Announcement stolen = announcement;
  stolen.cookie = ParseAnnouncement(*challenge)->cookie;
  CHECK(z.directory.HandleAnnouncement(stolen, At("10.0.0.3:4000"), Ms(0)).has_value());
  CHECK(z.directory.HandleAnnouncement(stolen, At("10.0.0.2:4001"), Ms(0)).has_value());
  CHECK(z.directory.counters().announcements == 1);
}

TEST_CASE("nobody announces for others, to others, or for hosts that are not served", "[directory]") {
  Pmsp z("serve 10.0.0.0/24\nhost 10.0.0.2 10.0.0.22 192.168.1.2");
  const auto refused = AnnouncementType::kRefuse;
  CHECK(z.Hear(Announce("10.0.0.3:80", "10.0.0.3:7000"), "10.0.0.2:4000") == refused);
  CHECK(z.Hear(Announce("10.0.0.2:80", "10.0.0.3:7000"), "10.0.0.2:4000") == refused);
  CHECK(z.Hear(Announce("10.0.0.3:80", "10.0.0.2:7000"), "10.0.0.2:4000") == refused);
  CHECK(z.Hear(Announce("10.0.1.2:80", "10.0.1.2:7000"), "10.0.1.2:4000") == refused);
  CHECK(z.Hear(Announce("192.168.1.2:80", "192.168.1.2:7000"), "10.0.0.2:4000") == refused);
  CHECK(z.directory.announcements().size() == 0);
  // Of one host's addresses each speaks for the others.
  CHECK(z.Hear(Announce("10.0.0.22:80", "192.168.1.2:7000"), "10.0.0.2:4000") == std::nullopt);
  CHECK(z.Ask("10.0.0.22:80") == At("192.168.1.2:7000"));
}

TEST_CASE("a PMSP that serves nobody hears no announcement", "[directory]") {
  Pmsp z("map 10.0.0.2:80 to 10.0.0.2:7000");
  CHECK(z.directory.HandleAnnouncement(Announce("10.0.0.2:80", "10.0.0.2:7000"), At("10.0.0.2:4000"),
                                       Ms(0)) == std::nullopt);
  CHECK(z.directory.counters().challenged == 0);
}

TEST_CASE("what is not renewed ends; what is taken back ends at once", "[directory]") {
  Pmsp z("serve 10.0.0.0/24");
  CHECK(z.Hear(Announce("10.0.0.2:80", "10.0.0.2:7000"), "10.0.0.2:4000", Ms(0)) == std::nullopt);
  CHECK(z.Hear(Announce("10.0.0.2:81", "10.0.0.2:7001"), "10.0.0.2:4000", Ms(0)) == std::nullopt);
  CHECK(z.Hear(Announce("10.0.0.2:81", "10.0.0.2:7001"), "10.0.0.2:4000", Ms(4000)) == std::nullopt);
  CHECK(z.Ask("10.0.0.2:80", 1, Ms(5999)) == At("10.0.0.2:7000"));
  CHECK(z.Ask("10.0.0.2:80", 1, Ms(6000)) == std::nullopt);
  CHECK(z.Ask("10.0.0.2:81", 1, Ms(6000)) == At("10.0.0.2:7001"));
  z.directory.HandleTimeout(Ms(6000));
  CHECK(z.directory.announcements().size() == 1);
  CHECK(z.directory.counters().expired == 1);
  CHECK(z.Hear(Announce("10.0.0.2:81", "10.0.0.2:7001", 0), "10.0.0.2:4000", Ms(6001)) == std::nullopt);
  CHECK(z.Ask("10.0.0.2:81", 1, Ms(6001)) == std::nullopt);
  CHECK(z.directory.NextTimeout() == kNever);
}

TEST_CASE("announcements are bounded, for a source and in all", "[directory]") {
  AnnouncementTable table(5, 3);
  const auto put = [&](int host, int port, uint8_t lifetime = 6) {
    const std::string address = "10.0.0." + std::to_string(host);
    const bool stored = table.Put(Announce(address + ":" + std::to_string(port), address + ":7000", lifetime),
                                  At(address + ":4000"), Ms(0));
    CHECK(table.IsConsistent());
    return stored;
  };
  CHECK((put(1, 1) && put(1, 2) && put(1, 3)));
  CHECK_FALSE(put(1, 4));
  CHECK(put(1, 3));  // a renewal
  CHECK((put(2, 1) && put(2, 2)));
  CHECK_FALSE(put(2, 3));
  CHECK_FALSE(put(3, 1));
  CHECK(put(1, 1, 0));
  CHECK(put(3, 1));
  CHECK(table.size() == 5);
  CHECK(table.RemoveExpired(Ms(6000)) == 5);
  CHECK(table.IsConsistent());
}

TEST_CASE("several hosts with one address share its clients by weight", "[directory]") {
  Pmsp z("serve 10.0.0.0/24\nhost 10.0.0.100 10.0.0.2\nhost 10.0.0.3 10.0.0.4");
  // An address two hosts of a cluster carry: each announces it with an SDP address of its own.
  CHECK(z.Hear(Announce("10.0.0.100:80", "10.0.0.2:7000", 6, 1), "10.0.0.2:4000") == std::nullopt);
  CHECK(z.Hear(Announce("10.0.0.100:80", "10.0.0.100:7001", 6, 3), "10.0.0.100:4000") == std::nullopt);
  auto share = z.Share("10.0.0.100:80");
  CHECK(share["10.0.0.2:7000"] == Approx(3000).epsilon(0.1));
  CHECK(share["10.0.0.100:7001"] == Approx(9000).epsilon(0.1));
  // Weight 0: only in need.
  CHECK(z.Hear(Announce("10.0.0.100:80", "10.0.0.2:7000", 6, 0), "10.0.0.2:4000") == std::nullopt);
  CHECK(z.Share("10.0.0.100:80")["10.0.0.100:7001"] == 12000);
  CHECK(z.Hear(Announce("10.0.0.100:80", "10.0.0.100:7001", 0), "10.0.0.100:4000") == std::nullopt);
  CHECK(z.Share("10.0.0.100:80")["10.0.0.2:7000"] == 12000);
}

TEST_CASE("a service is balanced over others by weight, as long as they live", "[directory]") {
  Pmsp z(
      "serve 10.0.0.0/24\n"
      "balance 10.0.0.100:80 over 10.0.0.2:80 weight 1\n"
      "balance 10.0.0.100:80 over 10.0.0.3:80 weight 2\n"
      "balance 10.0.0.100:80 over 10.0.0.4:80 priority 1\n");
  CHECK(z.Ask("10.0.0.100:80") == std::nullopt);
  for (const char* host : {"10.0.0.2", "10.0.0.3", "10.0.0.4"}) {
    const std::string address = host;
    CHECK(z.Hear(Announce(address + ":80", address + ":7000"), address + ":4000") == std::nullopt);
  }
  auto share = z.Share("10.0.0.100:80");
  CHECK(share["10.0.0.2:7000"] == Approx(4000).epsilon(0.1));
  CHECK(share["10.0.0.3:7000"] == Approx(8000).epsilon(0.1));
  CHECK(share.size() == 2);
  CHECK(z.directory.counters().failovers == 0);

  // One dies: the other has them all. Both die: the one that stands by.
  CHECK(z.Hear(Announce("10.0.0.3:80", "10.0.0.3:7000"), "10.0.0.3:4000", Ms(3000)) == std::nullopt);
  CHECK(z.Hear(Announce("10.0.0.4:80", "10.0.0.4:7000"), "10.0.0.4:4000", Ms(8000)) == std::nullopt);
  CHECK(z.Share("10.0.0.100:80", Ms(7000)) == std::map<std::string, int>{{"10.0.0.3:7000", 12000}});
  CHECK(z.Share("10.0.0.100:80", Ms(9500)) == std::map<std::string, int>{{"10.0.0.4:7000", 12000}});
  CHECK(z.directory.counters().failovers == 12000);
  CHECK(z.Ask("10.0.0.100:80", 1, Ms(20000)) == std::nullopt);
}

TEST_CASE("the same question has the same answer", "[directory]") {
  Pmsp z(
      "map 10.0.0.2:80 to 10.0.0.2:7000\nmap 10.0.0.2:80 to 10.0.0.2:7001\nmap 10.0.0.2:80 to 10.0.0.2:7002");
  for (uint64_t handle = 0; handle < 100; ++handle) {
    CHECK(z.Ask("10.0.0.2:80", handle) == z.Ask("10.0.0.2:80", handle));
  }
  CHECK(z.Share("10.0.0.2:80").size() == 3);
  CHECK(z.Ask("[::ffff:10.0.0.2]:80", 1) == ToMapped(*z.Ask("10.0.0.2:80", 1)));
}

TEST_CASE("a pool gives each client a port of its own, until its PMAck", "[directory]") {
  Pmsp z("map 10.0.0.2:80 to 10.0.0.2:7000-7002");
  std::map<uint16_t, int> ports;
  for (uint64_t handle = 0; handle < 3; ++handle) ++ports[z.Ask("10.0.0.2:80", handle)->port];
  CHECK(ports == std::map<uint16_t, int>{{7000, 1}, {7001, 1}, {7002, 1}});
  CHECK(z.Ask("10.0.0.2:80", 4) == std::nullopt);
  CHECK(z.directory.counters().pool_exhausted == 1);
  z.directory.HandleAck(At("10.0.0.2:7001"));
  CHECK(z.Ask("10.0.0.2:80", 5) == At("10.0.0.2:7001"));
  // A duplicate keeps its port, and has it for longer.
  CHECK(z.Ask("10.0.0.2:80", 5, Ms(4000), At("10.0.0.2:7001")) == At("10.0.0.2:7001"));
  CHECK(z.Ask("10.0.0.2:80", 6, Ms(4999)) == std::nullopt);
  CHECK(z.Ask("10.0.0.2:80", 6, Ms(5000))->port != 7001);
  CHECK(z.Ask("10.0.0.2:80", 7, Ms(5000))->port != 7001);
  CHECK(z.Ask("10.0.0.2:80", 8, Ms(5000)) == std::nullopt);
  CHECK(z.Ask("10.0.0.2:80", 8, Ms(9000)) == At("10.0.0.2:7001"));
}

TEST_CASE("an exhausted pool gives way to the next priority", "[directory]") {
  Pmsp z("map 10.0.0.2:80 to 10.0.0.2:7000-7001\nmap 10.0.0.2:80 to 10.0.0.3:7000 priority 1");
  CHECK(z.Ask("10.0.0.2:80", 1)->port != 0);
  CHECK(z.Ask("10.0.0.2:80", 2)->port != 0);
  CHECK(z.Ask("10.0.0.2:80", 3) == At("10.0.0.3:7000"));
  CHECK(z.directory.counters().failovers == 1);
}

TEST_CASE("the first access rule that matches decides", "[directory]") {
  Pmsp z("deny 10.0.0.66\nallow 10.0.0.0/8 to 10.0.0.0/24:80-90\nallow * to *:443\ndeny *");
  CHECK(z.directory.Allows(At("10.0.0.1:4000"), At("10.0.0.2:80")));
  CHECK_FALSE(z.directory.Allows(At("10.0.0.66:4000"), At("10.0.0.2:80")));
  CHECK_FALSE(z.directory.Allows(At("10.0.0.1:4000"), At("10.0.0.2:91")));
  CHECK(z.directory.Allows(At("[2001:db8::1]:4000"), At("[2001:db8::2]:443")));
  CHECK_FALSE(z.directory.Allows(At("[2001:db8::1]:4000"), At("[2001:db8::2]:80")));
  CHECK(z.directory.counters().denied_by_access == 3);
  CHECK(Pmsp("").directory.Allows(At("10.0.0.66:4000"), At("10.0.0.2:80")));
}

TEST_CASE("PmTime follows the first rule that matches", "[directory]") {
  Pmsp z("pmtime 0 for 10.0.0.100:80\npmtime 8 for 10.0.0.0/24");
  CHECK(z.directory.PmTimeFor(At("10.0.0.100:80"), PmTime(20)) == PmTime(0));
  CHECK(z.directory.PmTimeFor(At("10.0.0.100:81"), PmTime(20)) == PmTime(8));
  CHECK(z.directory.PmTimeFor(At("10.0.1.1:80"), PmTime(20)) == PmTime(20));
}

TEST_CASE("a new registry keeps what is still right", "[directory]") {
  Pmsp z("serve 10.0.0.0/23\nmap 10.0.0.9:80 to 10.0.0.9:7000-7001");
  CHECK(z.Hear(Announce("10.0.0.2:80", "10.0.0.2:7000"), "10.0.0.2:4000") == std::nullopt);
  CHECK(z.Hear(Announce("10.0.1.2:80", "10.0.1.2:7000"), "10.0.1.2:4000") == std::nullopt);
  CHECK(z.Ask("10.0.0.9:80", 1).has_value());
  CHECK(z.Ask("10.0.0.9:80", 2).has_value());
  z.directory.Configure(Read("serve 10.0.0.0/24\nmap 10.0.0.9:81 to 10.0.0.9:7000-7001"));
  CHECK(z.Ask("10.0.0.2:80", 1, Ms(5999)) == At("10.0.0.2:7000"));
  CHECK(z.Ask("10.0.0.2:80", 1, Ms(6000)) == std::nullopt);
  CHECK(z.Ask("10.0.1.2:80") == std::nullopt);
  CHECK(z.Ask("10.0.0.9:80", 3) == std::nullopt);
  CHECK(z.Ask("10.0.0.9:81", 3) == std::nullopt);  // the same ports, still leased
  z.directory.HandleAck(At("10.0.0.9:7000"));
  CHECK(z.Ask("10.0.0.9:81", 3) == At("10.0.0.9:7000"));
}

TEST_CASE("hosts stand for all services of other addresses", "[directory]") {
  Pmsp z(
      "serve 10.0.0.0/24\n"
      "balance 10.9.0.0/16 over 10.0.0.2 weight 3\n"
      "balance 10.9.0.0/16 over 10.0.0.3\n"
      "balance * over 10.0.0.4 priority 1\n"
      "balance 10.9.0.0/16 over 10.0.0.4 priority 1\n"
      "map 10.9.9.9:99 to 10.0.0.9:9999\n"
      "balance ::/0 over 2001:db8::1\n");
  for (const char* host : {"2", "3", "4"}) {
    const std::string address = "10.0.0." + std::string(host);
    CHECK(z.Hear(Announce(address + ":80", address + ":7000", 255), address + ":5") == std::nullopt);
  }
  CHECK(z.Hear(Announce("10.0.0.3:81", "10.0.0.3:7001"), "10.0.0.3:5") == std::nullopt);
  CHECK(z.Hear(Announce("10.0.0.4:82", "10.0.0.4:7002"), "10.0.0.4:5") == std::nullopt);

  auto share = z.Share("10.9.9.9:80");
  CHECK(share["10.0.0.2:7000"] == Approx(9000).epsilon(0.1));
  CHECK(share["10.0.0.3:7000"] == Approx(3000).epsilon(0.1));
  CHECK(share.size() == 2);
  CHECK(z.Ask("10.9.1.1:81") == At("10.0.0.3:7001"));  // who has it
  CHECK(z.Ask("10.9.1.1:82") == At("10.0.0.4:7002"));  // the next priority
  CHECK(z.Ask("10.9.1.1:83") == std::nullopt);
  CHECK(z.Ask("10.9.9.9:99") == At("10.0.0.9:9999"));  // a line for the service itself comes first
  CHECK(z.Ask("10.8.0.1:80") == At("10.0.0.4:7000"));  // the first line that matches
  CHECK(z.Ask("10.8.0.1:81") == std::nullopt);
  CHECK(z.Ask("[::ffff:10.9.1.1]:81") == At("[::ffff:10.0.0.3]:7001"));
  CHECK(z.Ask("[2001:db8::9]:80") == std::nullopt);
  // One that falls silent is left out.
  CHECK(z.Share("10.9.9.9:81", Ms(300'000)).count("nobody") == 1);
}

}  // namespace
}  // namespace sdp::pm
