// How loud the log is about an aborted connection.
#include "preload/socket/abort_log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>
#include <vector>

namespace sdp::preload {
namespace {

using engine::AbortReason;
using verbs::LinkCause;
using verbs::LinkEnd;

LogLevel LevelOf(AbortReason reason, LinkEnd end, int os_error = 0) {
  LinkCause cause;
  cause.end = end;
  cause.os_error = os_error;
  return AbortLevel(reason, cause);
}

TEST_CASE("what somebody has to hear of is an error") {
  for (const AbortReason reason :
       {AbortReason::kShortMessage, AbortReason::kUnknownMid, AbortReason::kBadSequence,
        AbortReason::kCreditOverrun, AbortReason::kBadCompletion}) {
    CHECK(LevelOf(reason, LinkEnd::kOpen) == LogLevel::kError);
    CHECK(LevelOf(reason, LinkEnd::kReset, ECONNRESET) == LogLevel::kError);
  }
  CHECK(LevelOf(AbortReason::kLinkLost, LinkEnd::kTerminated) == LogLevel::kError);
  CHECK(LevelOf(AbortReason::kPeerAborted, LinkEnd::kTerminated) == LogLevel::kError);
  CHECK(LevelOf(AbortReason::kLinkLost, LinkEnd::kFailed) == LogLevel::kError);
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, 0})
    CHECK(LevelOf(AbortReason::kLinkLost, LinkEnd::kReset, error) == LogLevel::kError);
}

TEST_CASE("a program that resets or aborts its connection is no error") {
  for (const int error : {ECONNRESET, EPIPE})
    CHECK(LevelOf(AbortReason::kLinkLost, LinkEnd::kReset, error) == LogLevel::kInfo);
  for (const LinkEnd end : {LinkEnd::kOpen, LinkEnd::kClosedByPeer, LinkEnd::kReset})
    CHECK(LevelOf(AbortReason::kPeerAborted, end) == LogLevel::kInfo);
  // Ctrl-C, say; and a kernel RNIC tells of a reset so.
  CHECK(LevelOf(AbortReason::kLinkLost, LinkEnd::kClosedByPeer) == LogLevel::kInfo);
}

TEST_CASE("a burst of aborted connections is logged, then one now and then, and the others are counted") {
  AbortAllowance allowance;
  Time now(std::chrono::hours(1));
  uint64_t left_out = 99;
  for (int i = 0; i < kAbortBurst; ++i) {
    CHECK(allowance.Take(now, &left_out));
    CHECK(left_out == 0);
  }
  for (int i = 0; i < 7; ++i) CHECK_FALSE(allowance.Take(now, &left_out));
  now += kAbortInterval;
  REQUIRE(allowance.Take(now, &left_out));
  CHECK(left_out == 7);
  CHECK_FALSE(allowance.Take(now, &left_out));
  now += kAbortInterval * 1000;
  for (int i = 0; i < kAbortBurst; ++i) CHECK(allowance.Take(now, &left_out) == true);
  CHECK_FALSE(allowance.Take(now, &left_out));
}

TEST_CASE("threads share what may be logged") {
  AbortAllowance allowance;
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      uint64_t left_out = 0;
      for (int n = 0; n < 1000; ++n) taken += allowance.Take(Time(std::chrono::hours(1)), &left_out) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(taken == kAbortBurst);
}

TEST_CASE("a process for each connection has no burst of its own") {
  ShareAbortAllowance();
  ShareAbortAllowance();  // the second fork
  const Time now(std::chrono::hours(2));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    uint64_t left_out;
    bool all = true;
    for (int i = 0; i < kAbortBurst; ++i) all = TheAbortAllowance().Take(now, &left_out) && all;
    _exit(all ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  uint64_t left_out = 0;
  CHECK_FALSE(TheAbortAllowance().Take(now, &left_out));
}

}  // namespace
}  // namespace sdp::preload
