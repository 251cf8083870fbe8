#define CATCH_CONFIG_MAIN
#include <unistd.h>

#include <catch2/catch.hpp>

#include "test/support/in_child.h"

namespace {

// A child that a case has forked and that comes back here, by a failed REQUIRE for one, would run the cases
// that follow, perhaps as another user. It ends instead.
class RunnerAlone : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  // The signal ends the child behind Catch's report.
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    dies_ = stats.assertionResult.getResultType() == Catch::ResultWas::FatalErrorCondition;
    return false;
  }
  void sectionEnded(const Catch::SectionStats& /*stats*/) override {
    if (getpid() == runner_ || dies_) return;
    constexpr char kText[] = "a child of a test has come back into the test runner\n";
    (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(sdp::test::kThrew);
  }

 private:
  const pid_t runner_ = getpid();
  bool dies_ = false;
};
CATCH_REGISTER_LISTENER(RunnerAlone)

}  // namespace
