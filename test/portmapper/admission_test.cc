// Who is heard: what a source may send, what all may, and how little is remembered of them.
#include "portmapper/engine/admission.h"

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::At;
using test::Ms;

constexpr HashKey kKey = {0x0123456789abcdef, 0xfedcba9876543210};

AdmissionOptions Limits(uint32_t source, uint32_t total) {
  AdmissionOptions options;
  options.source_rate = source;
  options.total_rate = total;
  return options;
}

// How many of `tries` datagrams at one moment are heard.
int Heard(Admission& admission, const Endpoint& source, int tries, Time now) {
  int heard = 0;
  for (int i = 0; i < tries; ++i) heard += admission.Judge(source, now) == Verdict::kHear ? 1 : 0;
  return heard;
}

TEST_CASE("a source has its burst, then its rate", "[admission]") {
  Admission admission(Limits(1000, 0), kKey);
  const Endpoint source = At("10.0.0.1:4000");
  CHECK(Heard(admission, source, 1000, Ms(5000)) == 500);
  CHECK(Heard(admission, source, 1000, Ms(5000)) == 0);
  CHECK(Heard(admission, source, 1000, Ms(5010)) == 10);
  CHECK(Heard(admission, source, 1000, Ms(6000)) == 500);
  CHECK(admission.counters().source_limit == 500 + 1000 + 990 + 500);
  CHECK(admission.counters().total_limit == 0);
}

TEST_CASE("a small rate has a burst of 64 all the same", "[admission]") {
  Admission admission(Limits(1, 0), kKey);
  CHECK(Heard(admission, At("10.0.0.1:4000"), 100, Ms(100000)) == 64);
  CHECK(Heard(admission, At("10.0.0.1:4000"), 100, Ms(102000)) == 2);
}

TEST_CASE("one source does not spend another's tokens, its own ports do", "[admission]") {
  Admission admission(Limits(1000, 0), kKey);
  CHECK(Heard(admission, At("10.0.0.1:4000"), 600, Ms(0)) == 500);
  CHECK(Heard(admission, At("10.0.0.1:4001"), 600, Ms(0)) == 0);
  CHECK(Heard(admission, At("[::ffff:10.0.0.1]:4002"), 600, Ms(0)) == 0);
  CHECK(Heard(admission, At("10.0.0.2:4000"), 600, Ms(0)) == 500);
}

TEST_CASE("an IPv6 network is one source", "[admission]") {
  Admission admission(Limits(1000, 0), kKey);
  CHECK(Heard(admission, At("[2001:db8::1]:4000"), 600, Ms(0)) == 500);
  CHECK(Heard(admission, At("[2001:db8::ffff:2]:4000"), 600, Ms(0)) == 0);
  CHECK(Heard(admission, At("[2001:db8:0:1::1]:4000"), 600, Ms(0)) == 500);
}

TEST_CASE("all together have a bound too", "[admission]") {
  Admission admission(Limits(0, 1000), kKey);
  int heard = 0;
  for (int i = 0; i < 250; ++i) {
    heard += Heard(admission, At("10.0.0." + std::to_string(i) + ":4000"), 10, Ms(0));
  }
  CHECK(heard == 500);
  CHECK(admission.counters().total_limit == 2000);
  CHECK(admission.counters().source_limit == 0);
}

TEST_CASE("zero is no limit", "[admission]") {
  Admission admission(Limits(0, 0), kKey);
  CHECK(Heard(admission, At("10.0.0.1:4000"), 100000, Ms(0)) == 100000);
}

TEST_CASE("ports below 1024 are not answered unless asked for", "[admission]") {
  AdmissionOptions options;
  Admission admission(options, kKey);
  CHECK(admission.Judge(At("10.0.0.1:53"), Ms(0)) == Verdict::kPrivilegedPort);
  CHECK(admission.Judge(At("10.0.0.1:0"), Ms(0)) == Verdict::kPrivilegedPort);
  CHECK(admission.Judge(At("10.0.0.1:1023"), Ms(0)) == Verdict::kPrivilegedPort);
  CHECK(admission.Judge(At("10.0.0.1:1024"), Ms(0)) == Verdict::kHear);
  CHECK(admission.counters().privileged_port == 3);
  options.privileged_ports = true;
  admission.Reconfigure(options);
  CHECK(admission.Judge(At("10.0.0.1:53"), Ms(0)) == Verdict::kHear);
}

TEST_CASE("more sources than places do not free the one that floods", "[admission]") {
  AdmissionOptions options = Limits(1000, 0);
  options.sources = 64;
  Admission admission(options, kKey);
  const Endpoint flooder = At("10.0.0.1:4000");
  REQUIRE(Heard(admission, flooder, 1000, Ms(0)) == 500);
  // Each stranger says one word: the flooder's bucket is the emptiest of its place and stays.
  for (int i = 0; i < 10000; ++i) {
    const std::string address =
        "10." + std::to_string(1 + i / 250) + ".0." + std::to_string(i % 250) + ":4000";
    CHECK(admission.Judge(At(address), Ms(1)) == Verdict::kHear);
  }
  CHECK(Heard(admission, flooder, 1000, Ms(2)) <= 2);
}

TEST_CASE("a new rate holds from its moment on", "[admission]") {
  Admission admission(Limits(1000, 0), kKey);
  const Endpoint source = At("10.0.0.1:4000");
  REQUIRE(Heard(admission, source, 1000, Ms(0)) == 500);
  admission.Reconfigure(Limits(100000, 0));
  CHECK(Heard(admission, source, 1000, Ms(0)) == 0);  // its bucket is empty for the time it was empty before
  CHECK(Heard(admission, source, 100000, Ms(1000)) == 50000);
}

}  // namespace
}  // namespace sdp::pm
