#include <catch2/catch.hpp>
#include <map>

#include "preload/config_reader.h"

namespace sdp::preload {
namespace {

std::map<std::string, std::string> environment;

const char* Lookup(const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second.c_str() : nullptr;
}

Config Read(std::map<std::string, std::string> variables, std::vector<std::string>* problems) {
  environment = std::move(variables);
  return ReadConfig(Lookup, {}, "", problems);
}

TEST_CASE("An empty environment gives the defaults") {
  std::vector<std::string> problems;
  const Config config = Read({{"SDP_MODE", ""}}, &problems);
  CHECK(problems.empty());
  CHECK(config.mode == Mode::kBoth);
  CHECK(config.pm_port == 3935);
  CHECK(config.pm_timeout == std::chrono::milliseconds(300));
  CHECK(config.mpa_peer_to_peer);
}

TEST_CASE("Every variable has its effect") {
  std::vector<std::string> problems;
  const Config config = Read({{"SDP_MODE", "sdp"},
                              {"SDP_RNIC", "verbs"},
                              {"SDP_LINK", "local"},
                              {"SDP_LOG", "debug"},
                              {"SDP_LOG_FILE", "/tmp/x"},
                              {"SDP_PM_PORT", "4000"},
                              {"SDP_PM_SERVER", "10.0.0.1"},
                              {"SDP_PMD_SOCKET", "/tmp/y"},
                              {"SDP_PM_TIMEOUT_MS", "25"},
                              {"SDP_PM_NEGATIVE_S", "0"},
                              {"SDP_PM_REDIRECT", "1"},
                              {"SDP_ANY_PRIVILEGED_PORT", "1"},
                              {"SDP_PORTS", "45000-45099"},
                              {"SDP_PORT_OFFSET", "20000"},
                              {"SDP_CONNECT_BUDGET_MS", "70"},
                              {"SDP_HANDSHAKE_TIMEOUT_MS", "1500"},
                              {"SDP_MPA_CRC", "1"},
                              {"SDP_MPA_MARKERS", "1"},
                              {"SDP_MPA_P2P", "0"},
                              {"SDP_PRIVATE_BUFFERS", "3"},
                              {"SDP_PRIVATE_BUFFER_SIZE", "1048576"},
                              {"SDP_PRIVATE_BUFFER_LIMIT", "128"},
                              {"SDP_SEND_BUFFER", "0"},
                              {"SDP_POLL_US", "20"},
                              {"SDP_IO_URING", "allow"},
                              {"SDP_STATS_DIR", "/tmp/z"}},
                             &problems);
  CHECK(problems.empty());
  CHECK(config.mode == Mode::kSdp);
  CHECK(config.rnic == RnicChoice::kVerbs);
  CHECK(config.io_uring == IoUringUse::kAllow);
  CHECK(config.log_level == LogLevel::kDebug);
  CHECK(config.log_file == "/tmp/x");
  CHECK(config.pm_port == 4000);
  CHECK(config.pm_redirect);
  CHECK(config.any_privileged_port);
  REQUIRE(config.sdp_ports);
  CHECK(config.sdp_ports->first == 45000);
  CHECK(config.sdp_ports->last == 45099);
  CHECK(config.sdp_port_offset == 20000);
  CHECK(config.connect_budget == std::chrono::milliseconds(70));
  CHECK(config.pm_server == pm::ParseEndpoint("10.0.0.1:4000"));
  CHECK(config.pmd_socket == "/tmp/y");
  CHECK(config.pm_timeout == std::chrono::milliseconds(25));
  CHECK(config.pm_negative == Duration::zero());
  CHECK(config.handshake_timeout == std::chrono::milliseconds(1500));
  CHECK(config.mpa_crc);
  CHECK(config.mpa_markers);
  CHECK_FALSE(config.mpa_peer_to_peer);
  CHECK(config.receive_buffers == 3);
  CHECK(config.receive_buffer_size == 1 << 20);
  CHECK(config.receive_buffer_limit == 128);
  CHECK(config.send_buffer == 0);
  CHECK(config.poll == std::chrono::microseconds(20));
  CHECK(config.link == LinkChoice::kLocal);
  CHECK(config.stats_dir == "/tmp/z");
}

TEST_CASE("A value that cannot be used is reported and ignored") {
  const auto [name, value] =
      GENERATE(table<const char*, const char*>({{"SDP_MODE", "SDP"},
                                                {"SDP_RNIC", "hard"},
                                                {"SDP_LINK", "rdma"},
                                                {"SDP_LOG", "7"},
                                                {"SDP_PM_PORT", "0"},
                                                {"SDP_PM_PORT", "65536"},
                                                {"SDP_PM_PORT", "12x"},
                                                {"SDP_PM_PORT", " 12"},
                                                {"SDP_PM_SERVER", "pm.example"},
                                                {"SDP_PM_SERVER", "0.0.0.0"},
                                                {"SDP_PM_SERVER", "10.0.0.1:"},
                                                {"SDP_PM_TIMEOUT_MS", "-1"},
                                                {"SDP_MPA_CRC", "yes"},
                                                {"SDP_PRIVATE_BUFFERS", "2"},
                                                {"SDP_PRIVATE_BUFFERS", "4097"},
                                                {"SDP_PRIVATE_BUFFER_SIZE", "127"},
                                                {"SDP_PRIVATE_BUFFER_LIMIT", "1048577"},
                                                {"SDP_SEND_BUFFER", "99999999999999999999"},
                                                {"SDP_BCOPY_THRESHOLD", "512K"},
                                                {"SDP_POLL_US", "10001"},
                                                {"SDP_CQ_POLL_US", "10001"}}));
  std::vector<std::string> problems;
  const Config config = Read({{name, value}}, &problems);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].find(std::string(name) + "=" + value) == 0);
  const Config defaults;
  CHECK(config.mode == defaults.mode);
  CHECK(config.rnic == defaults.rnic);
  CHECK(config.log_level == defaults.log_level);
  CHECK(config.pm_port == defaults.pm_port);
  CHECK(config.pm_timeout == defaults.pm_timeout);
  CHECK(config.mpa_crc == defaults.mpa_crc);
  CHECK(config.receive_buffers == defaults.receive_buffers);
  CHECK(config.receive_buffer_size == defaults.receive_buffer_size);
  CHECK(config.receive_buffer_limit == defaults.receive_buffer_limit);
  CHECK(config.bcopy_threshold == defaults.bcopy_threshold);
  CHECK(config.send_buffer == defaults.send_buffer);
  CHECK(config.poll == defaults.poll);
  CHECK(config.link == defaults.link);
  CHECK_FALSE(defaults.poll);
}

TEST_CASE("A variable that looks like ours and is not is reported") {
  std::vector<std::string> problems;
  environment = {};
  const char* const names[] = {"PATH=/bin",      "SDP_PM_PORT=4000", "SDP_PRIVAT_BUFFERS=7", "SDP_CONFIG=/x",
                               "SDP_TEST_SEED=", "SDP_BUILD_DIR=/b", "SDP_ZZZZZZZZZZZZZZZZ", nullptr};
  ReadConfig(Lookup, {}, "", &problems, names);
  CHECK(problems == std::vector<std::string>{
                        "there is no variable SDP_PRIVAT_BUFFERS, perhaps SDP_PRIVATE_BUFFERS: ignored",
                        "there is no variable SDP_ZZZZZZZZZZZZZZZZ: ignored"});
}

TEST_CASE("Statistics are not kept in the root directory") {
  std::vector<std::string> problems;
  CHECK(Read({{"SDP_STATS_DIR", "//"}}, &problems).stats_dir.empty());
  CHECK(problems == std::vector<std::string>{"SDP_STATS_DIR=// is not a directory of its own: ignored"});
}

Config ReadBoth(std::map<std::string, std::string> variables, const char* text,
                std::vector<std::string>* problems) {
  environment = std::move(variables);
  return ReadConfig(Lookup, ParseConfigFile(text), "/etc/x.conf", problems);
}

TEST_CASE("The environment stands above the file") {
  std::vector<std::string> problems;
  const Config config = ReadBoth({{"SDP_PM_PORT", "4000"}},
                                 "set pm-port 5000\nset private-buffers 7\nset mode sdp\n", &problems);
  CHECK(problems.empty());
  CHECK(config.pm_port == 4000);
  CHECK(config.receive_buffers == 7);
  CHECK(config.mode == Mode::kSdp);
  CHECK_FALSE(config.mode_is_forced);
  CHECK(ReadBoth({{"SDP_MODE", "both"}}, "set mode sdp\n", &problems).mode_is_forced);
}

TEST_CASE("Ports are a range or one, and the prefix of a variable's name may stay") {
  std::vector<std::string> problems;
  const auto ports = [&](const char* text) { return ReadBoth({}, text, &problems).sdp_ports; };
  REQUIRE(ports("set sdp-ports 45000-45099\n"));
  CHECK(ports("set ports 45000\n")->last == 45000);
  CHECK(problems.empty());
  for (const char* text : {"set ports 0\n", "set ports 9-8\n", "set ports 1-65536\n", "set ports 1-\n",
                           "set ports -9\n", "set ports 1-2-3\n"}) {
    INFO(text);
    problems.clear();
    CHECK_FALSE(ports(text));
    CHECK(problems.size() == 1);
  }
}

TEST_CASE("A setting that cannot be used is reported where it stands") {
  std::vector<std::string> problems;
  const Config config =
      ReadBoth({}, "# buffers\nset private-buffers  many\nset no-such-thing 1\nset send-buffer 5 # bytes\n",
               &problems);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == "/etc/x.conf:2:22: private-buffers many is not a number from 3 to 4096: ignored");
  CHECK(problems[1] == "/etc/x.conf:3:19: there is no setting 'no-such-thing': ignored");
  CHECK(config.receive_buffers == 0);
  CHECK(config.send_buffer == 5);
  // A wrong value in the environment hides the file's, too.
  problems.clear();
  CHECK(ReadBoth({{"SDP_PRIVATE_BUFFERS", "x"}}, "set private-buffers 9\n", &problems).receive_buffers == 0);
  CHECK(problems.at(0).starts_with("SDP_PRIVATE_BUFFERS=x"));
}

TEST_CASE("OFED's log statement") {
  std::vector<std::string> problems;
  Config config = ReadBoth({}, "log min-level 7 destination file libsdp.log\n", &problems);
  CHECK(config.log_level == LogLevel::kInfo);
  CHECK(config.log_destination == LogDestination::kFile);
  CHECK(config.log_file == "libsdp.log");
  config = ReadBoth({}, "log destination syslog min-level 9\n", &problems);
  CHECK(config.log_level == LogLevel::kError);
  CHECK(config.log_destination == LogDestination::kSyslog);
  CHECK(ReadBoth({}, "log min-level 1\n", &problems).log_level == LogLevel::kDebug);
  // The last destination counts.
  CHECK(ReadBoth({}, "log destination file /x\nlog destination stderr\n", &problems).log_destination ==
        LogDestination::kStandardError);
  config = ReadBoth({{"SDP_LOG_FILE", "/tmp/mine"}}, "log destination syslog\n", &problems);
  CHECK(config.log_destination == LogDestination::kFile);
  CHECK(config.log_file == "/tmp/mine");
  CHECK(problems.empty());
}

}  // namespace
}  // namespace sdp::preload
