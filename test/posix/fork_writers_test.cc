// Several processes write to one connection, and nobody reads what its peer has sent.
#include <sys/prctl.h>

#include <vector>

#include "test/posix/support.h"

namespace posix_test {
namespace {

TEST_CASE("fork: three blocked writers go on, although nobody reads what has come") {
  constexpr size_t kUnread = 128 << 10, kMuch = 4 << 20;
  constexpr int kWriters = 3;
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, std::string(kUnread, 'u')));
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(Child([&] {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pair.client.reset();
      // It is seen, and stays unread.
      std::string unread(kUnread, 0);
      if (recv(pair.server, unread.data(), unread.size(), MSG_PEEK) <= 0) return 1;
      return SendAll(pair.server, std::string(kMuch, static_cast<char>('a' + i))) ? 0 : 2;
    }));
  }
  size_t got[kWriters] = {};
  for (size_t left = kWriters * kMuch; left > 0;) {
    const std::string some = ReceiveExactly(pair.client, std::min<size_t>(left, 256 << 10));
    REQUIRE(!some.empty());
    for (const char c : some) {
      REQUIRE((c >= 'a' && c < 'a' + kWriters));
      ++got[c - 'a'];
    }
    left -= some.size();
  }
  for (const size_t n : got) REQUIRE(n == kMuch);
  for (const pid_t pid : writers) REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(ReceiveExactly(pair.server, kUnread) == std::string(kUnread, 'u'));
}

}  // namespace
}  // namespace posix_test
