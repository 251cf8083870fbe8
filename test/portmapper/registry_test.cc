// Prefixes, and the registry file: what it understands, and what it says about the rest.
#include "portmapper/engine/registry.h"

#include "portmapper/prefix.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;

bool Contains(std::string_view prefix, std::string_view address) {
  const auto parsed = ParsePrefix(prefix);
  REQUIRE(parsed.has_value());
  CHECK(ParsePrefix(parsed->ToString()) == parsed);
  return parsed->Contains(At(address));
}

TEST_CASE("prefixes contain what they should", "[registry]") {
  CHECK(Contains("10.0.0.0/8", "10.255.0.1:1"));
  CHECK_FALSE(Contains("10.0.0.0/8", "11.0.0.1:1"));
  CHECK(Contains("10.0.0.128/25", "10.0.0.200:1"));
  CHECK_FALSE(Contains("10.0.0.128/25", "10.0.0.127:1"));
  CHECK(Contains("10.0.0.1", "10.0.0.1:1"));
  CHECK_FALSE(Contains("10.0.0.1", "10.0.0.2:1"));
  CHECK(Contains("0.0.0.0/0", "1.2.3.4:1"));
  CHECK_FALSE(Contains("0.0.0.0/0", "[2001:db8::1]:1"));
  CHECK(Contains("10.0.0.0/8", "[::ffff:10.1.1.1]:1"));
  CHECK(Contains("::ffff:10.0.0.0/104", "10.1.1.1:1"));
  CHECK(Contains("::ffff:10.0.0.4", "[::ffff:10.0.0.4]:1"));
  CHECK_FALSE(Contains("::ffff:10.0.0.4", "10.0.0.5:1"));
  CHECK(ParsePrefix("::ffff:0.0.0.0/96") == ParsePrefix("0.0.0.0/0"));
  CHECK(Contains("2001:db8::/33", "[2001:db8:7fff::1]:1"));
  CHECK_FALSE(Contains("2001:db8::/33", "[2001:db8:8000::1]:1"));
  CHECK(Contains("*", "[2001:db8::1]:1"));
  CHECK(Contains("*", "1.2.3.4:1"));
}

TEST_CASE("what is no prefix is refused", "[registry]") {
  for (const char* text : {"", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "10.0.0/8", "::/129", "::1/64",
                           "[::]/0", "10.0.0.0/-1", "10.0.0.0/8x", "host", "10.0.0.0:80"}) {
    CAPTURE(text);
    CHECK_FALSE(ParsePrefix(text).has_value());
  }
}

TEST_CASE("services are a prefix and ports", "[registry]") {
  const auto contains = [](std::string_view services, std::string_view address) {
    const auto parsed = ParseServices(services);
    REQUIRE(parsed.has_value());
    return parsed->Contains(At(address));
  };
  CHECK(contains("10.0.0.0/8:80-90", "10.1.1.1:85"));
  CHECK_FALSE(contains("10.0.0.0/8:80-90", "10.1.1.1:91"));
  CHECK(contains("10.0.0.0/8", "10.1.1.1:65535"));
  CHECK(contains("*:80", "[::1]:80"));
  CHECK(contains("[2001:db8::/32]:80", "[2001:db8::1]:80"));
  CHECK(contains("2001:db8::/32", "[2001:db8::1]:81"));
  CHECK(contains("[2001:db8::/32]", "[2001:db8::1]:81"));
  for (const char* text : {"", ":80", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:90-80", "10.0.0.1:80-",
                           "[10.0.0.1]:80", "[::1", "[::1]80", "10.0.0.1:65536"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseServices(text).has_value());
  }
}

TEST_CASE("a registry with one of everything", "[registry]") {
  const auto registry = ParseRegistry(
      "# the rack\n"
      "serve 10.0.0.0/24\t# all of it\n"
      "host 10.0.0.2 10.0.1.2\r\n"
      "\n"
      "map 10.0.0.9:80 to 10.0.0.9:7000\n"
      "map 10.0.0.9:81 to 10.0.0.9:7100-7199 weight 3 priority 1\n"
      "balance 10.0.0.100:80 over 10.0.0.2:80 weight 2\n"
      "balance 10.0.0.100:80 over 10.0.0.3:80 priority 1\n"
      "map [2001:db8::1]:80 to [2001:db8::1]:7000\n"
      "deny 10.0.0.66\n"
      "allow 10.0.0.0/8 to 10.0.0.0/24:80-443\n"
      "deny *\n"
      "pmtime 0 for 10.0.0.100\n"
      "pmtime 255");
  REQUIRE(registry.has_value());
  CHECK(registry->serve.size() == 1);
  CHECK(registry->hosts.at(0) == std::vector<Endpoint>{At("10.0.0.2:0"), At("10.0.1.2:0")});
  CHECK(registry->access.size() == 3);
  CHECK(registry->pm_times.size() == 2);
  const auto& pool = registry->services.at(At("10.0.0.9:81")).at(0);
  CHECK(pool.IsPool());
  CHECK(pool.last_port == 7199);
  CHECK(pool.weight == 3);
  CHECK(pool.priority == 1);
  CHECK_FALSE(registry->services.at(At("10.0.0.9:80")).at(0).IsPool());
  const auto& balanced = registry->services.at(At("10.0.0.100:80"));
  REQUIRE(balanced.size() == 2);
  CHECK(balanced[0].kind == BackendKind::kService);
  CHECK(balanced[0].weight == 2);
  CHECK(balanced[1].priority == 1);
}

TEST_CASE("mistakes are told with their place and what was expected", "[registry]") {
  struct Row {
    const char* text;
    size_t column;
    const char* expected;
  };
  const Row row =
      GENERATE(Row{"serv 10.0.0.0/8", 1, "\"serve\""}, Row{"serve", 6, "a prefix"},
               Row{"serve 10.0.0.1/8", 7, "a prefix"}, Row{"serve 10.0.0.0/8 now", 18, "the end of the line"},
               Row{"host 10.0.0.1", 14, "an address"}, Row{"host 10.0.0.1 10.0.0.0/8", 15, "an address"},
               Row{"map 10.0.0.1 to 10.0.0.1:7000", 5, "with a port"},
               Row{"map 0.0.0.0:80 to 10.0.0.1:7000", 5, "with a port"},
               Row{"map 10.0.0.1:80 10.0.0.1:7000", 17, "\"to\""},
               Row{"map 10.0.0.1:80 to 10.0.0.1:7000-6000", 20, "ports"},
               Row{"map 10.0.0.1:80 to 10.0.0.1:1000-9000", 20, "4096"},
               Row{"map 10.0.0.1:80 to 10.0.0.1:7000 weight 0", 41, "weight"},
               Row{"map 10.0.0.1:80 to 10.0.0.1:7000 priority 256", 43, "priority"},
               Row{"map 10.0.0.1:80 to [2001:db8::1]:7000", 38, "one IP version"},
               Row{"balance 10.0.0.1:80 to 10.0.0.2:80", 21, "\"over\""},
               Row{"balance 10.0.0.1:80 over 10.0.0.2:80-90", 26, "with a port"},
               Row{"balance 10.0.0.0/24 over 10.0.0.2:80", 26, "an address"},
               Row{"balance 10.0.0.0/24 over 2001:db8::1", 37, "one IP version"},
               Row{"balance 10.0.0.1/24 over 10.0.0.2", 9, "with a port"},
               Row{"balance 10.0.0.0/24 10.0.0.2", 21, "\"over\""},
               Row{"balance * over 10.0.0.2 weight x", 32, "weight"}, Row{"allow", 6, "a prefix"},
               Row{"deny * to nowhere", 11, "services"}, Row{"pmtime 256", 8, "PmTime"},
               Row{"  pmtime 1 to *", 12, "the end of the line"});
  CAPTURE(row.text);
  const auto registry = ParseRegistry("# first\n" + std::string(row.text) + "\nserve *\n");
  REQUIRE_FALSE(registry.has_value());
  REQUIRE(registry.error().size() == 1);
  const RegistryError& error = registry.error().front();
  CAPTURE(error.text);
  CHECK(error.line == 2);
  CHECK(error.column == row.column);
  CHECK(error.text.find("expected ") == 0);
  CHECK(error.text.find(row.expected) != std::string::npos);
}

TEST_CASE("all mistakes are told, but not without end", "[registry]") {
  CHECK(ParseRegistry("x\ny\nserve *\nz").error().size() == 3);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "x\n";
  CHECK(ParseRegistry(many).error().size() == 100);
  CHECK(ParseRegistry(std::string(kMaxRegistrySize + 1, '\n')).error().size() == 1);
  CHECK(ParseRegistry("").has_value());
}

TEST_CASE("one service has a bounded number of answers", "[registry]") {
  std::string text;
  for (size_t i = 0; i <= kMaxBackends; ++i)
    text += "map 10.0.0.1:80 to 10.0.0.1:" + std::to_string(7000 + i) + "\n";
  const auto registry = ParseRegistry(text);
  REQUIRE_FALSE(registry.has_value());
  CHECK(registry.error().at(0).line == kMaxBackends + 1);
}

TEST_CASE("--serve is a prefix, or a prefix and the hosts that stand for it", "[registry]") {
  Registry registry;
  CHECK(ParseServe("10.0.0.0/24", &registry));
  CHECK(ParseServe("*", &registry));
  CHECK(registry.serve.size() == 2);
  CHECK(registry.host_balances.empty());
  CHECK(ParseServe("10.0.9.0/24=10.0.0.1,10.0.0.2", &registry));
  CHECK(ParseServe("2001:db8::9=2001:db8::1", &registry));
  CHECK(ParseServe("*=10.0.0.3", &registry));
  REQUIRE(registry.serve.size() == 6);
  CHECK(registry.serve[3].ToString() == "10.0.0.2/32");
  CHECK(registry.serve[4].ToString() == "2001:db8::1/128");
  REQUIRE(registry.host_balances.size() == 4);
  CHECK(registry.host_balances[1].asked.ToString() == "10.0.9.0/24");
  CHECK(registry.host_balances[1].over.address == At("10.0.0.2:0"));
  CHECK(registry.host_balances[3].asked.any);
  for (const char* wrong :
       {"", "=", "10.0.0.1/8", "10.0.0.0/24=", "=10.0.0.1", "10.0.0.0/24=10.0.0.1,", "10.0.0.0/24=,10.0.0.1",
        "10.0.0.0/24=10.0.0.1:80", "10.0.0.0/24=10.0.0.0/25", "10.0.0.0/24=2001:db8::1",
        "10.0.0.0/24=0.0.0.0", "10.0.0.0/24=10.0.0.1=10.0.0.2", "10.0.0.0/24=host"}) {
    CAPTURE(wrong);
    CHECK_FALSE(ParseServe(wrong, &registry));
  }
  CHECK(registry.serve.size() == 6);
  CHECK(registry.host_balances.size() == 4);
}

}  // namespace
}  // namespace sdp::pm
