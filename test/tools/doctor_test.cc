#include "tools/sdpstat/doctor.h"

#include <catch2/catch.hpp>

namespace sdp::sdpstat {
namespace {

using Grade = Finding::Grade;

TEST_CASE("doctor reads ld.so.preload as the loader does") {
  CHECK(ExaminePreloadFile("").empty());
  CHECK(ExaminePreloadFile("/usr/lib/other.so # not libsdp.so\n").empty());

  const auto bare = ExaminePreloadFile("/lib/a.so:libsdp.so\n");
  REQUIRE(bare.size() == 1);
  CHECK(bare[0].grade == Grade::kWarning);
  CHECK(bare[0].text.find("setuid programs print an error") != std::string::npos);

  const auto missing = ExaminePreloadFile("# ours\n/no/such/libsdp.so\n");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].grade == Grade::kFailure);

  const auto fine = ExaminePreloadFile("/usr/$LIB/libsdp.so");
  REQUIRE(fine.size() == 1);
  CHECK(fine[0].grade == Grade::kFine);
}

}  // namespace
}  // namespace sdp::sdpstat
