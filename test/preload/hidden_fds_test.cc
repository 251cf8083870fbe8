#include "preload/hidden_fds.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <climits>

#include "test/support/in_child.h"

namespace sdp::preload {
namespace {

int LowestHiddenNumber() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536)) / 4 * 3;
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }
int OpenNull() { return open("/dev/null", O_RDWR); }

TEST_CASE("A hidden descriptor has a high number and is closed on exec") {
  const int fd = OpenNull();
  const int hidden = HiddenFds::Hide(fd);
  CHECK(hidden >= LowestHiddenNumber());
  CHECK_FALSE(IsOpen(fd));
  CHECK(fcntl(hidden, F_GETFD) == FD_CLOEXEC);
  CHECK(HiddenFds::Contains(hidden));
  CHECK_FALSE(HiddenFds::Contains(fd));
  CHECK(HiddenFds::Next(0, INT_MAX) == hidden);
  CHECK(HiddenFds::Next(0, hidden - 1) == -1);
  CHECK(HiddenFds::Next(hidden + 1, INT_MAX) == -1);
  HiddenFds::Close(hidden);
  CHECK_FALSE(IsOpen(hidden));
  CHECK_FALSE(HiddenFds::Contains(hidden));
}

TEST_CASE("Where high numbers are few, hidden descriptors leave the low ones to the program") {
  const int lowest = test::InChild([] {
    const rlimit limit{.rlim_cur = 20, .rlim_max = 20};
    if (close_range(3, ~0U, 0) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 100;
    int lowest = 100;
    for (int i = 0; i < 8; ++i) {
      const int hidden = HiddenFds::Hide(OpenNull());
      if (hidden < 0) return 101;
      lowest = std::min(lowest, hidden);
    }
    return lowest;
  });
  CHECK(lowest == 12);
}

TEST_CASE("Hiding what is no descriptor fails") {
  errno = 0;
  CHECK(HiddenFds::Hide(-1) == -1);
  CHECK(errno == EBADF);
}

TEST_CASE("A tracked descriptor makes room and its owner learns of it") {
  std::atomic<int> slot{-1};
  const int number = HiddenFds::HideTracked(OpenNull(), &slot);
  REQUIRE(slot == number);
  HiddenFds::MakeRoom(number);
  CHECK(slot != number);
  CHECK(HiddenFds::Contains(slot));
  CHECK_FALSE(HiddenFds::Contains(number));
  CHECK(IsOpen(slot));
  CHECK(IsOpen(number));  // for dup2 to replace
  close(number);

  SECTION("closed by its new number") {
    const int moved = slot;
    HiddenFds::Close(moved);
    CHECK_FALSE(IsOpen(moved));
  }
  SECTION("closed by an owner that still had the old number, which is the application's now") {
    REQUIRE(dup2(STDIN_FILENO, number) == number);
    const int moved = slot;
    HiddenFds::Close(number);
    CHECK_FALSE(IsOpen(moved));
    CHECK_FALSE(HiddenFds::Contains(moved));
    CHECK(IsOpen(number));
    close(number);
  }
}

TEST_CASE("An untracked descriptor stays where it is") {
  const int number = HiddenFds::Hide(OpenNull());
  HiddenFds::MakeRoom(number);
  CHECK(HiddenFds::Contains(number));
  HiddenFds::Close(number);
}

}  // namespace
}  // namespace sdp::preload
