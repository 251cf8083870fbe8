#include "preload/socket/lingering.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

namespace sdp::preload {
namespace {

constexpr Time kNow{std::chrono::seconds(1000)};

TEST_CASE("A connection lingers by its hidden descriptor until that is taken back") {
  Lingering lingering;
  CHECK(lingering.fd() == -1);
  CHECK(lingering.until() == kNever);
  CHECK_FALSE(Lingering::Any());
  lingering.Begin(-1);  // no descriptor was left
  CHECK_FALSE(Lingering::Any());
  lingering.Begin(7);
  CHECK(lingering.fd() == 7);
  CHECK(Lingering::Any());
  CHECK(lingering.End() == 7);
  CHECK(lingering.End() == -1);
  CHECK_FALSE(Lingering::Any());
}

TEST_CASE("Two connections may always linger, and of the process's descriptors an eighth") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto limit_to = [&](rlim_t count) {
    const rlimit limit{.rlim_cur = count, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  };
  std::vector<Lingering> all(5);
  limit_to(32);
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(Lingering::TooMany() == (i >= 4));
    all[i].Begin(static_cast<int>(i));
  }
  limit_to(8);
  for (Lingering& one : all) one.End();
  CHECK_FALSE(Lingering::TooMany());
  all[0].Begin(0);
  CHECK_FALSE(Lingering::TooMany());
  all[1].Begin(1);
  CHECK(Lingering::TooMany());
  all[0].End();
  all[1].End();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("TCP_LINGER2 bounds the wait for the peer once, and no more than once") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  int seconds = 5;
  REQUIRE(setsockopt(fd, IPPROTO_TCP, TCP_LINGER2, &seconds, sizeof seconds) == 0);
  CHECK(Lingering::FinWait(fd) == std::chrono::seconds(5));
  Lingering lingering;
  lingering.Begin(fd);
  lingering.SetUntil(kNow + Lingering::kFinWait);
  CHECK_FALSE(lingering.fin_wait_bounded());
  lingering.BoundFinWait(kNow);
  CHECK(lingering.fin_wait_bounded());
  CHECK(lingering.until() == kNow + std::chrono::seconds(5));
  lingering.BoundFinWait(kNow + std::chrono::seconds(3));
  CHECK(lingering.until() == kNow + std::chrono::seconds(5));
  seconds = -1;  // not at all
  REQUIRE(setsockopt(fd, IPPROTO_TCP, TCP_LINGER2, &seconds, sizeof seconds) == 0);
  CHECK(Lingering::FinWait(fd) < Duration::zero());
  close(lingering.End());
}

}  // namespace
}  // namespace sdp::preload
