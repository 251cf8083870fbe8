#include "preload/config_file.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <cstring>

namespace sdp::preload {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress At(const std::string& ip, uint16_t port) {
  SocketAddress out;
  auto* in = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, ip.c_str(), &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    out.length = sizeof *in;
  } else {
    REQUIRE(inet_pton(AF_INET6, ip.c_str(), &in6->sin6_addr) == 1);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    out.length = sizeof *in6;
  }
  return out;
}

int MatchingLine(const ConfigFile& file, RuleRole role, const std::string& ip, uint16_t port) {
  const SocketAddress address = At(ip, port);
  const Rule* rule = FindRule(file.rules, role, address.get(), address.length);
  return rule == nullptr ? 0 : rule->line;
}

TEST_CASE("The file that OFED shipped") {
  const ConfigFile file = ParseConfigFile(
      "# libsdp.conf - configuration file for libsdp\n"
      "\n"
      "   # indented\n"
      "log min-level 9 destination file libsdp.log\n"
      "use sdp    connect *         192.168.1.0/24:* \n"
      "use sdp    connect *         1234:5678::0/64:* \n"
      "use sdp    listen  ttcp      *:5001 \n"
      "use tcp    server  ttcp*     *:22-25\n"
      "use both   server  *         *:8080\t# the proxy\n"
      "use both   connect *         11.4.8.0/24:22\r\n"
      "use both   client * * : *");
  CHECK(file.problems.empty());
  REQUIRE(file.rules.size() == 7);
  CHECK(ToString(file.rules[0]) == "use sdp client * 192.168.1.0/24:*");
  CHECK(ToString(file.rules[1]) == "use sdp client * 1234:5678::/64:*");
  CHECK(ToString(file.rules[2]) == "use sdp server ttcp *:5001");
  CHECK(ToString(file.rules[3]) == "use tcp server ttcp* *:22-25");
  CHECK(ToString(file.rules[5]) == "use both client * 11.4.8.0/24:22");
  CHECK(file.rules[6].line == 11);
}

TEST_CASE("The first match wins") {
  const ConfigFile file = ParseConfigFile(
      "use tcp client * 10.0.0.0/8:22\n"
      "use sdp client * 10.1.0.0/15:*\n"
      "use both client * *:1000-2000\n"
      "use tcp server * 10.0.0.1:80\n"
      "use tcp client * [2001:db8::]/33:*\n"
      "use sdp client * [2001:db8::1/128]:5\n");
  CHECK(MatchingLine(file, RuleRole::kClient, "10.1.2.3", 22) == 1);
  CHECK(MatchingLine(file, RuleRole::kClient, "10.1.2.3", 23) == 2);
  CHECK(MatchingLine(file, RuleRole::kClient, "10.0.255.255", 23) == 2);
  CHECK(MatchingLine(file, RuleRole::kClient, "10.2.0.0", 23) == 0);
  CHECK(MatchingLine(file, RuleRole::kClient, "::ffff:10.1.2.3", 22) == 1);
  CHECK(MatchingLine(file, RuleRole::kClient, "::1", 1000) == 3);
  CHECK(MatchingLine(file, RuleRole::kClient, "::1", 2001) == 0);
  CHECK(MatchingLine(file, RuleRole::kServer, "10.0.0.1", 80) == 4);
  CHECK(MatchingLine(file, RuleRole::kServer, "10.0.0.2", 80) == 0);
  CHECK(MatchingLine(file, RuleRole::kServer, "0.0.0.0", 80) == 0);
  CHECK(MatchingLine(file, RuleRole::kClient, "2001:db8:7fff::1", 9) == 5);
  CHECK(MatchingLine(file, RuleRole::kClient, "2001:db8:8000::1", 9) == 0);
  // Of the two for one host, the wider one comes first.
  REQUIRE(file.problems.size() == 1);
  CHECK(file.problems[0].kind == ConfigProblem::Kind::kWarning);
  CHECK(file.problems[0].line == 6);
  CHECK(file.problems[0].text.find("line 5 (use tcp client * 2001:db8::/33:*)") != std::string::npos);
  sockaddr local{};
  local.sa_family = AF_UNIX;
  CHECK(FindRule(file.rules, RuleRole::kClient, &local, sizeof local) == nullptr);
}

TEST_CASE("Programs are matched as files are") {
  const ConfigFile file =
      ParseConfigFile("use tcp client db2* *:*\nuse tcp client t?cp *:*\nuse tcp client #odd *:*\n");
  REQUIRE(file.rules.size() == 3);
  CHECK(MatchesProgram(file.rules[0], "db2sysc"));
  CHECK_FALSE(MatchesProgram(file.rules[0], "xdb2"));
  CHECK(MatchesProgram(file.rules[1], "ttcp"));
  CHECK_FALSE(MatchesProgram(file.rules[1], "tcp"));
  CHECK(MatchesProgram(file.rules[2], "#odd"));
}

TEST_CASE("A line of libsdp before OFED 1.4 is answered with what it is now") {
  const ConfigFile file = ParseConfigFile(
      "use sdp client * 10.0.0.0/8:*\n"
      "  match destination 192.168.1.0/24:* program *\n"
      "match listen *:5001 program ttcp\n"
      "matches\n");
  CHECK(file.rules.size() == 1);
  REQUIRE(file.problems.size() == 3);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    CHECK(file.problems[i].kind == ConfigProblem::Kind::kError);
    CHECK(file.problems[i].text ==
          "'match' is of libsdp before OFED 1.4; write use sdp, then client for destination or server for "
          "listen, then PROGRAM ADDRESS:PORT");
  }
  CHECK(file.problems[0].line == 2);
  CHECK(file.problems[0].column == 3);
  CHECK(file.problems[1].line == 3);
  CHECK_THAT(file.problems[2].text, Catch::Contains("expected use, log or set, but there is 'matches'"));
}

TEST_CASE("What is wrong is said with its place and what was expected") {
  struct Wrong {
    const char* line;
    int column;
    const char* text;
  };
  const Wrong wrong = GENERATE(values<Wrong>({
      {"usr tcp server * *:*", 1, "expected use, log or set, but there is 'usr'"},
      {"use udp server * *:*", 5, "expected tcp, sdp or both, but there is 'udp'"},
      {"use tcp", 8, "expected server, listen, client or connect, but there is nothing"},
      {"use tcp server", 15, "expected a program's name, or a pattern for it, but there is nothing"},
      {"use tcp server *", 17,
       "expected ADDRESS[/LENGTH]:PORT[-PORT], each part may be *, but there is nothing"},
      {"use tcp server * 10.0.0.1", 18, "expected ADDRESS[/LENGTH]:PORT[-PORT]"},
      {"use tcp server * 10.0.0:80", 18,
       "expected an IPv4 or IPv6 address, or *, ahead of the port, but there is '10.0.0'"},
      {"use tcp server * host:80", 18, "expected an IPv4 or IPv6 address"},
      {"use tcp server * :80", 18, "expected an IPv4 or IPv6 address"},
      {"use tcp server * 10.0.0.0/33:80", 27, "expected a prefix length from 0 to 32, but there is '33'"},
      {"use tcp server * 10.0.0.0/:80", 27, "expected a prefix length from 0 to 32, but there is nothing"},
      {"use tcp server * ::/129:80", 21, "expected a prefix length from 0 to 128"},
      {"use tcp server * *:0", 20, "expected a port from 1 to 65535, or *, but there is '0'"},
      {"use tcp server * *:65536", 20, "expected a port from 1 to 65535, or *, but there is '65536'"},
      {"use tcp server * *:080", 20, "expected a port"},
      {"use tcp server * *:", 20, "expected a port"},
      {"use tcp server * *:90-80", 23, "expected a port from 90 to 65535, but there is '80'"},
      {"use tcp server * *:80 extra", 20, "expected a port from 1 to 65535, or *, but there is '80extra'"},
      {"log level 3", 5, "expected destination or min-level, but there is 'level'"},
      {"log min-level 10", 15, "expected a level from 1 (everything) to 9 (errors), but there is '10'"},
      {"log min-level", 14, "expected a level"},
      {"log destination mail", 17, "expected stderr, syslog or file, but there is 'mail'"},
      {"log destination file", 21, "expected the log file's path, but there is nothing"},
      {"set", 4, "expected a setting's name, but there is nothing"},
      {"set X 3", 5, "expected a setting's name, but there is 'X'"},
      {"set rnic", 9, "expected a value, but there is nothing"},
      {"set rnic soft hard", 15, "expected the end of the line, but there is 'hard'"},
      {"use \x1b[2J", 5, "but there is '?[2J'"},
  }));
  const ConfigFile file =
      ParseConfigFile("use both client ok *:1\n" + std::string(wrong.line) + "\nuse both client ok *:2\n");
  CAPTURE(wrong.line);
  REQUIRE(file.problems.size() == 1);
  CHECK(file.problems[0].kind == ConfigProblem::Kind::kError);
  CHECK(file.problems[0].line == 2);
  CHECK(file.problems[0].column == wrong.column);
  CHECK_THAT(file.problems[0].text, Catch::Contains(wrong.text));
  CHECK(file.rules.size() == 2);
  CHECK(file.settings.empty());
}

TEST_CASE("Rules that can never match are warned of") {
  auto warnings = [](const char* text) {
    std::vector<int> lines;
    for (const ConfigProblem& problem : ParseConfigFile(text).problems) {
      CHECK(problem.kind == ConfigProblem::Kind::kWarning);
      lines.push_back(problem.line);
    }
    return lines;
  };
  using Lines = std::vector<int>;
  CHECK(warnings("use both server * *:*\nuse tcp server sshd *:22\n") == Lines{2});
  CHECK(warnings("use both server * *:*\nuse tcp client sshd *:22\n").empty());
  CHECK(warnings("use both server sshd *:*\nuse tcp server * *:22\n").empty());
  CHECK(warnings("use tcp client a 10.0.0.0/8:1-10\nuse tcp client a 10.9.0.0/16:10\nuse tcp client a "
                 "10.9.0.0/16:11\n") == Lines{2});
  CHECK(warnings("use tcp client a 10.0.0.0/8:*\nuse tcp client a *:*\nuse tcp client a ::1:*\n") ==
        Lines{3});
  CHECK(warnings("use tcp client p* *:80\nuse sdp client psql *:80\n") == Lines{2});
  CHECK(warnings("use tcp client p* *:80\nuse sdp client ps* *:80\nuse sdp client redis *:80\n").empty());
  CHECK(warnings("use tcp client a ::ffff:10.0.0.0/104:*\nuse tcp client a 10.9.0.0/16:*\n") == Lines{2});
}

TEST_CASE("A rule that several before it shadow together is warned of") {
  const auto warning_of = [](const std::string& rules) -> std::string {
    const ConfigFile file = ParseConfigFile(rules);
    INFO(rules);
    REQUIRE(file.problems.size() <= 1);
    if (file.problems.empty()) return "";
    CHECK(file.problems[0].kind == ConfigProblem::Kind::kWarning);
    return std::to_string(file.problems[0].line) + " " + file.problems[0].text;
  };
  // Ports in pieces, in any order, overlapping or not.
  CHECK(warning_of("use tcp client * *:1-99\nuse sdp client * *:100-200\nuse both client * *:50-150\n") ==
        "3 never matches: lines 1 and 2 come first and take all of it; put the narrower rule above");
  CHECK(warning_of("use tcp client * *:100-200\nuse sdp client * *:1-120\nuse both client x *:1-200\n") !=
        "");
  CHECK(warning_of("use tcp client * *:1-99\nuse sdp client * *:101-200\nuse both client * *:50-150\n") ==
        "");
  CHECK(warning_of("use tcp client * *:1-99\nuse sdp server * *:100-200\nuse both client * *:50-150\n") ==
        "");
  CHECK(warning_of("use tcp client a *:1-99\nuse sdp client b *:100-200\nuse both client * *:50-150\n") ==
        "");
  // Addresses in pieces.
  CHECK(warning_of("use tcp client * 10.0.0.0/9:*\nuse sdp client * 10.128.0.0/9:*\nuse both client * "
                   "10.0.0.0/8:80\n") != "");
  CHECK(warning_of("use tcp client * 10.0.0.0/9:*\nuse sdp client * 10.192.0.0/10:*\nuse both client * "
                   "10.0.0.0/8:80\n") == "");
  CHECK(warning_of("use tcp client * 10.0.0.0/9:*\nuse sdp client * 10.192.0.0/10:*\nuse sdp client * "
                   "10.128.0.0/10:*\n"
                   "use both client * 10.0.0.0/8:80\n")
            .find("4 never matches: lines 1, 2 and 3 come first") == 0);
  CHECK(warning_of("use tcp client * 0.0.0.0/0:*\nuse sdp client * [::]/0:*\nuse both client * *:*\n") != "");
  CHECK(warning_of("use tcp client * 0.0.0.0/0:*\nuse sdp client * [8000::]/1:*\nuse both client * *:*\n") ==
        "");
  CHECK(
      warning_of("use tcp client * [::]/1:*\nuse sdp client * [8000::]/1:*\nuse both client * [::1]/127:5\n")
          .find("line 1 (") != std::string::npos);
  // Both: each address has its own ports.
  CHECK(warning_of("use tcp client * 10.0.0.0/9:1-50\nuse tcp client * 10.128.0.0/9:1-70\nuse sdp client * "
                   "10.0.0.0/9:51-100\n"
                   "use sdp client * 10.128.0.0/9:71-100\nuse both client * 10.0.0.0/8:10-90\n") != "");
  CHECK(warning_of("use tcp client * 10.0.0.0/9:1-50\nuse tcp client * 10.128.0.0/9:1-70\nuse sdp client * "
                   "10.0.0.0/9:52-100\n"
                   "use sdp client * 10.128.0.0/9:71-100\nuse both client * 10.0.0.0/8:10-90\n") == "");
}

TEST_CASE("A file of very many overlapping rules is read in a moment, and may go without a warning") {
  std::string rules;
  for (int i = 0; i < 2000; ++i) {
    const std::string low = std::to_string(1 + i), high = std::to_string(30'000 + i);
    rules += "use tcp client * 10." + std::to_string(i % 256) + "." + std::to_string(i / 8) + ".0/24:" + low +
             "-" + high + "\n";
  }
  rules += "use tcp client * 10.0.0.0/8:*\nuse sdp client * 10.0.0.0/8:*\n";
  const ConfigFile file = ParseConfigFile(rules);
  REQUIRE(file.rules.size() == 2002);
  REQUIRE_FALSE(file.problems.empty());
  CHECK(file.problems.back().line == 2002);
}

TEST_CASE("A program that can only be TCP") {
  auto always = [](const char* text, Mode otherwise) {
    return AlwaysTcp(ParseConfigFile(text).rules, RuleRole::kClient, otherwise);
  };
  CHECK(always("use tcp client * *:*\n", Mode::kBoth));
  CHECK(always("use tcp client * *:80\nuse tcp client * *:*\nuse sdp client * *:*\n", Mode::kBoth));
  CHECK_FALSE(always("use both client * *:80\nuse tcp client * *:*\n", Mode::kBoth));
  CHECK_FALSE(always("use tcp client * *:80\n", Mode::kBoth));
  CHECK(always("use tcp client * *:80\n", Mode::kTcp));
  CHECK_FALSE(always("use tcp server * *:*\n", Mode::kBoth));
}

TEST_CASE("Where the file is") {
  static const char* first;
  static const char* second;
  auto lookup = [](const char* name) { return std::strcmp(name, "SDP_CONFIG") == 0 ? first : second; };
  bool named = true;
  first = "";
  CHECK(ConfigFilePath(lookup, &named) == "/etc/sdp/libsdp.conf");
  CHECK_FALSE(named);
  second = "/b";
  CHECK(ConfigFilePath(lookup, &named) == "/b");
  CHECK(named);
  first = "/a";
  CHECK(ConfigFilePath(lookup, &named) == "/a");
}

TEST_CASE("A file without end is cut off") {
  std::string text;
  while (text.size() < 2 * kLargestConfigFile)
    text += "use both client x" + std::to_string(text.size()) + " *:*\n";
  const ConfigFile file = ParseConfigFile(text);
  CHECK(file.rules.size() == kMostRules);
  CHECK_FALSE(file.problems.empty());
}

}  // namespace
}  // namespace sdp::preload
