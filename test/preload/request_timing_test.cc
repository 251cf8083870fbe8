// When a request may wait for the read of its answer.
#include "preload/socket/request_timing.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

constexpr Duration kLate = RequestTiming::kAtOnce + std::chrono::nanoseconds(1);

// A request, which waits if it may, and the read that follows it.
void Turn(RequestTiming* timing, Time* now, Duration gap) {
  timing->Asked(*now, timing->expects_read());
  *now += gap;
  timing->Read(*now);
}
// So many reads that come at once before a request waits again.
uint32_t Distance(RequestTiming* timing, Time* now) {
  uint32_t turns = 0;
  for (; !timing->expects_read(); ++turns) Turn(timing, now, RequestTiming::kAtOnce);
  return turns;
}

}  // namespace

TEST_CASE("requests: none waits before reads have followed at once, again and again") {
  RequestTiming timing;
  Time now{};
  CHECK_FALSE(timing.expects_read());
  CHECK(Distance(&timing, &now) == RequestTiming::kFewest);
  Turn(&timing, &now, RequestTiming::kAtOnce);
  CHECK(timing.expects_read());
}

TEST_CASE("requests: a late read that nothing waited for costs the reads counted so far, and no more") {
  RequestTiming timing;
  Time now{};
  for (uint32_t i = 1; i < RequestTiming::kFewest; ++i) Turn(&timing, &now, Duration::zero());
  Turn(&timing, &now, kLate);
  CHECK(Distance(&timing, &now) == RequestTiming::kFewest);
}

TEST_CASE("requests: who has waited in vain does not wait for twice as many each time") {
  RequestTiming timing;
  Time now{};
  uint32_t wanted = Distance(&timing, &now);
  const bool reads = GENERATE(true, false);  // late, or not at all
  while (wanted < RequestTiming::kMost) {
    if (reads) {
      Turn(&timing, &now, kLate);
    } else {
      timing.Asked(now, true);
      timing.Missed();
    }
    CHECK_FALSE(timing.expects_read());
    const uint32_t next = Distance(&timing, &now);
    CHECK(next == 2 * wanted);
    wanted = next;
  }
  Turn(&timing, &now, kLate);
  CHECK(Distance(&timing, &now) == RequestTiming::kMost);
}

TEST_CASE("requests: many reads at once make good for a late one") {
  RequestTiming timing;
  Time now{};
  Distance(&timing, &now);
  Turn(&timing, &now, kLate);
  CHECK(Distance(&timing, &now) == 2 * RequestTiming::kFewest);
  for (uint32_t i = 0; i < RequestTiming::kMakeGood; ++i) Turn(&timing, &now, Duration::zero());
  CHECK(timing.expects_read());
  Turn(&timing, &now, kLate);
  CHECK(Distance(&timing, &now) == 2 * RequestTiming::kFewest);
}

TEST_CASE("requests: a read without a request, or a second one, says nothing") {
  RequestTiming timing;
  Time now{};
  for (uint32_t i = 0; i < 2 * RequestTiming::kFewest; ++i) timing.Read(now);
  CHECK_FALSE(timing.expects_read());
  Distance(&timing, &now);
  timing.Missed();
  now += kLate;
  timing.Read(now);
  CHECK(timing.expects_read());
}

}  // namespace sdp::preload
