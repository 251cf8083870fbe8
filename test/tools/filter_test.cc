#include "tools/sdpstat/filter.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <catch2/catch.hpp>

#include "test/support/skipped.h"
#include "test/tools/stats_fixture.h"

namespace sdp::sdpstat {
namespace {

stats::ProcessStats Nginx() {
  stats::ProcessStats process;
  process.pid = 77;
  process.program = "nginx";
  return process;
}

bool Matches(const std::vector<std::string>& words, const stats::ConnectionRecord& record) {
  const auto filter = ParseFilter(words);
  INFO((filter ? "" : filter.error()));
  REQUIRE(filter);
  return (*filter)(Nginx(), record);
}
// 10.0.0.1:40000 to 10.0.0.2:80, established.
bool Matches(const std::string& text) { return Matches({text}, stats::EstablishedConnection()); }

TEST_CASE("Names of services") {
  if (getservbyname("http", "tcp") == nullptr) {
    sdp::test::Skipped("/etc/services is not there, or does not know http");
    return;
  }
  CHECK(Matches("dport = :http"));
  CHECK_FALSE(Matches("dport = :https"));
  CHECK(Matches("dst 10.0.0.2:http"));
}

TEST_CASE("Terms") {
  const auto [text, matches] = GENERATE(table<const char*, bool>({
      {"", true},
      {"state established", true},
      {"state connected", true},
      {"state all", true},
      {"state sdp", true},
      {"state listen", false},
      {"state send-closed", false},
      {"exclude established", false},
      {"exclude tcp", true},
      {"sport = :40000", true},
      {"sport=40000", true},
      {"sport eq 40001", false},
      {"dport :80", true},
      {"dport neq :80", false},
      {"dport = :*", true},
      {"sport = *", true},
      {"dport = 10.0.0.2:80", true},
      {"dport = 10.0.0.3:80", false},
      {"dport != 10.0.0.3:80", true},
      {"state close-wait", false},
      {"state syn-sent", false},
      {"exclude fin-wait-1", true},
      {"dport != :80", false},
      {"dport < 81", true},
      {"dport<=80", true},
      {"dport gt 80", false},
      {"dport>=80", true},
      {"src 10.0.0.1", true},
      {"src 10.0.0.2", false},
      {"dst = 10.0.0.0/30", true},
      {"dst 10.0.0.0/31", false},
      {"dst 10.0.0.2:80", true},
      {"dst 10.0.0.2:81", false},
      {"dst *:80", true},
      {"dst [::1]:80", false},
      {"dst ::1", false},
      {"process nginx", true},
      {"process = ngi*", true},
      {"process 77", true},
      {"process redis", false},
      {"reason rule", false},
  }));
  CAPTURE(text);
  CHECK(Matches(text) == matches);
}

TEST_CASE("Joined terms: not binds tightest, or loosest") {
  CHECK(Matches("state established and dport 80"));
  CHECK(Matches("state established dport 80"));
  CHECK_FALSE(Matches("state listen dport 80 or dport 81"));
  CHECK(Matches("state listen dport 80 or dport 80"));
  CHECK_FALSE(Matches("state listen and (dport 81 or dport 80)"));
  CHECK(Matches("( dport = :80 or sport = :80 ) and not process redis"));
  CHECK(Matches("!state listen && !(sport 1 || sport 2)"));
  CHECK(Matches({"(", "sport", "=", ":40000", ")"}, stats::EstablishedConnection()));
}

TEST_CASE("IPv6 prefixes") {
  stats::ConnectionRecord record = stats::EstablishedConnection();
  record.peer = {};
  record.peer.family = 6;
  record.peer.port = 443;
  inet_pton(AF_INET6, "2001:db8::5", record.peer.ip);
  CHECK(Matches({"dst 2001:db8::/32"}, record));
  CHECK(Matches({"dst [2001:db8::]/32"}, record));
  CHECK(Matches({"dst [2001:db8::5]:443"}, record));
  CHECK_FALSE(Matches({"dst [2001:db8::5]:80"}, record));
  CHECK_FALSE(Matches({"dst 2001:db9::/32"}, record));
}

TEST_CASE("Mistakes say what was expected") {
  const auto [text, message] = GENERATE(table<const char*, const char*>({
      {"stat established",
       "expected state, exclude, sport, dport, src, dst, process, reason, not or a bracket, but there is "
       "'stat'"},
      {"state open", "expected a state (established"},
      {"state", "but there is nothing"},
      {"sport = :99999", "expected a port, as in sport = :80 or dport = :ssh, but there is ':99999'"},
      {"sport = nosuchservice", "expected a port"},
      {"dst 10.0.0", "expected an address"},
      {"dst 10.0.0.0/33", "expected an address"},
      {"dst", "expected an address"},
      {"dst [::1", "expected an address"},
      {"(state listen", "expected a closing bracket, but there is nothing"},
      {"state listen)", "the filter ends before ')'"},
      {"not", "but there is nothing"},
      {"process", "expected a program's name"},
  }));
  CAPTURE(text);
  const auto filter = ParseFilter({text});
  REQUIRE_FALSE(filter);
  CHECK_THAT(filter.error(), Catch::Contains(message));
  std::string deep(1000, '(');
  CHECK_FALSE(ParseFilter({deep}));
}

}  // namespace
}  // namespace sdp::sdpstat
