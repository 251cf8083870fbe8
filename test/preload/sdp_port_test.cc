#include "preload/socket/sdp_port.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

using Ports = std::vector<uint16_t>;

TEST_CASE("without a setting the kernel chooses the SDP port", "[sdp_port]") {
  CHECK(CandidatePorts(6379, {}, {}).ports == Ports{0});
  CHECK(CandidatePorts(1024, {}, {}).ports == Ports{0});
}

TEST_CASE("a port below 1024 has an SDP port below 1024 where one is free", "[sdp_port]") {
  for (const uint16_t conventional : {1, 22, 80, 443, 1023}) {
    const Ports ports = CandidatePorts(conventional, {}, {}).ports;
    REQUIRE(ports.size() == 39 + 35 + 1);
    CHECK(std::all_of(ports.begin(), ports.end() - 1,
                      [](uint16_t port) { return port >= 914 && port <= 988 && port != 953; }));
    CHECK(ports.back() == 0);
    CHECK(CandidatePorts(conventional, {}, {}).ports == ports);
  }
  CHECK(CandidatePorts(80, {}, {}).ports.front() != CandidatePorts(443, {}, {}).ports.front());
}

TEST_CASE("a range is tried in full, and nothing else", "[sdp_port]") {
  const SdpPorts found = CandidatePorts(6379, PortRange{45000, 45099}, {});
  CHECK(found.name == "ports 45000-45099");
  REQUIRE(found.ports.size() == 100);
  CHECK(found.ports.front() == 45079);  // 6379 mod 100
  Ports sorted = found.ports;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted.front() == 45000);
  CHECK(sorted.back() == 45099);
  CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  CHECK(CandidatePorts(80, PortRange{45000, 45000}, {}).ports == Ports{45000});
  CHECK(CandidatePorts(80, PortRange{65535, 65535}, {}).ports == Ports{65535});
  CHECK(CandidatePorts(80, PortRange{1, 65535}, {}).ports.size() == 65535);
}

TEST_CASE("an offset leaves one port", "[sdp_port]") {
  CHECK(CandidatePorts(6379, {}, 20000).ports == Ports{26379});
  CHECK(CandidatePorts(6379, PortRange{45000, 45099}, 20000).ports == Ports{26379});
  CHECK(CandidatePorts(65535, {}, 1).ports.empty());
  CHECK(CandidatePorts(60000, PortRange{45000, 45001}, 20000).ports == Ports{45000, 45001});
}

pm::Endpoint At(const char* text) { return *pm::ParseEndpoint(text, 0); }

TEST_CASE("a port below 1024 counts only with an SDP port below 1024", "[sdp_port]") {
  Config settings;
  CHECK(Distrust(settings, At("10.0.0.2:80"), At("10.0.0.2:980")) == nullptr);
  CHECK(Distrust(settings, At("10.0.0.2:80"), At("10.0.0.2:1024")) != nullptr);
  CHECK(Distrust(settings, At("10.0.0.2:1023"), At("10.0.0.2:45000")) != nullptr);
  CHECK(Distrust(settings, At("10.0.0.2:1024"), At("10.0.0.2:45000")) == nullptr);
  CHECK(Distrust(settings, At("[::1]:22"), At("[::1]:45000")) != nullptr);
  settings.any_privileged_port = true;
  CHECK(Distrust(settings, At("10.0.0.2:80"), At("10.0.0.2:45000")) == nullptr);
  CHECK(Distrust(settings, At("10.0.0.2:80"), At("10.0.0.3:980")) != nullptr);
}

TEST_CASE("another host counts only where the configuration allows it", "[sdp_port]") {
  Config settings;
  CHECK(Distrust(settings, At("10.0.0.2:6379"), At("10.0.0.3:45000")) != nullptr);
  settings.pm_redirect = true;
  CHECK(Distrust(settings, At("10.0.0.2:6379"), At("10.0.0.3:45000")) == nullptr);
  CHECK(Distrust(settings, At("10.0.0.2:80"), At("10.0.0.3:45000")) != nullptr);
}

TEST_CASE("a central port mapper of the administrator's is believed", "[sdp_port]") {
  Config settings;
  settings.pm_server = At("10.0.0.1:3935");
  CHECK(Distrust(settings, At("10.0.0.2:80"), At("10.0.0.3:45000")) == nullptr);
}

}  // namespace
}  // namespace sdp::preload
