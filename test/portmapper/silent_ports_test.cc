#include "portmapper/engine/silent_ports.h"

#include <string>

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Ms;
using namespace std::chrono_literals;

const char* const kPort = "10.0.0.2:45000";

TEST_CASE("a port that did not answer is left alone for a minute", "[silent_ports]") {
  SilentPorts ports;
  CHECK_FALSE(ports.Lookup(At(kPort), Ms(0)));
  CHECK(ports.RecordSilence(At(kPort), Ms(0)).lasts == 60s);
  CHECK(ports.Lookup(At(kPort), Ms(59'999)));
  CHECK_FALSE(ports.Lookup(At(kPort), Ms(60'000)));
  CHECK_FALSE(ports.Lookup(At("10.0.0.2:45001"), Ms(0)));
  CHECK_FALSE(ports.Lookup(At("10.0.0.3:45000"), Ms(0)));
}

TEST_CASE("each further silence is twice as long, up to an hour", "[silent_ports]") {
  SilentPorts ports;
  Time now = Ms(0);
  for (const Duration wanted : {60s, 120s, 240s, 480s, 960s, 1920s, 3600s, 3600s}) {
    const Silence silence = ports.RecordSilence(At(kPort), now);
    CHECK(silence.lasts == wanted);
    CHECK(silence.until == now + wanted);
    now = silence.until;
  }
}

TEST_CASE("connects that were under way together count as one silence", "[silent_ports]") {
  SilentPorts ports;
  ports.RecordSilence(At(kPort), Ms(0));
  const Silence second = ports.RecordSilence(At(kPort), Ms(30'000));
  CHECK(second.since == Ms(0));
  CHECK(second.lasts == 60s);
}

TEST_CASE("an answer clears the port, and so does a long time without a try", "[silent_ports]") {
  SilentPorts ports;
  ports.RecordSilence(At(kPort), Ms(0));
  ports.RecordAnswer(At(kPort));
  CHECK_FALSE(ports.Lookup(At(kPort), Ms(1)));
  CHECK(ports.RecordSilence(At(kPort), Ms(2)).lasts == 60s);
  CHECK(ports.RecordSilence(At(kPort), Ms(2) + 2h).lasts == 60s);
}

TEST_CASE("the table is bounded: what ends first makes room", "[silent_ports]") {
  SilentPorts ports({.max_ports = 2});
  ports.RecordSilence(At("10.0.0.2:1"), Ms(0));
  ports.RecordSilence(At("10.0.0.2:2"), Ms(1));
  ports.RecordSilence(At("10.0.0.2:3"), Ms(2));
  CHECK(ports.size() == 2);
  CHECK_FALSE(ports.Lookup(At("10.0.0.2:1"), Ms(3)));
  CHECK(ports.Lookup(At("10.0.0.2:2"), Ms(3)));
  CHECK(ports.Lookup(At("10.0.0.2:3"), Ms(3)));
  SilentPorts none({.max_ports = 0});
  none.RecordSilence(At(kPort), Ms(0));
  CHECK(none.size() == 0);
}

}  // namespace
}  // namespace sdp::pm
