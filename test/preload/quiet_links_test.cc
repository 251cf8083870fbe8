// Links that nobody reads are watched, and read where what comes stays unread.
#include "preload/socket/quiet_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <vector>

#include "preload/critical.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);

template <typename Condition>
bool Eventually(Condition condition) {
  for (const Time give_up = Now() + kPatience; Now() < give_up;) {
    if (condition()) return true;
    poll(nullptr, 0, 5);
  }
  return false;
}

// One end of a pair of Unix sockets, which the test reads as a program would.
class FakeLink final : public QuietLinks::Link {
 public:
  FakeLink() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    fd_ = fds[0];
    peer_ = fds[1];
    owner_ = new StreamSocket(AF_INET);
    static auto* const all = new std::vector<FakeLink*>;
    all->push_back(this);
    const std::lock_guard lock(mutex_);
    read_at_ = Now();
    QuietLinks::Enter(this);
  }
  // The helper may be about to call it once more: it stays.
  void Close() {
    const std::lock_guard lock(mutex_);
    QuietLinks::Leave(this);
    closed_ = true;
    close(fd_);
    close(peer_);
  }

  Socket* owner() override { return owner_; }
  void LookIfUnread(Time since) override {
    const std::lock_guard lock(mutex_);
    ++looks_;
    if (closed_ || read_at_ >= since) return;
    QuietLinks::Watch(this, fd_);
    ++watches_;
  }
  void TakeUnread() override {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    taken_ += Read();
    // On the helper's thread, where a REQUIRE would meet the test's own.
    if (more_-- > 0 && write(peer_, "x", 1) != 1) abort();
    if (!stubborn_) QuietLinks::Watch(this, fd_);
  }

  void Say() { REQUIRE(write(peer_, "x", 1) == 1); }
  // As a call of the program's.
  int ReadAsProgram() {
    const std::lock_guard lock(mutex_);
    read_at_ = Now();
    return Read();
  }
  void Unwatch() {
    const std::lock_guard lock(mutex_);
    QuietLinks::Unwatch(this, fd_);
  }
  [[nodiscard]] int taken() const { return taken_; }
  [[nodiscard]] int looks() const { return looks_; }
  [[nodiscard]] int watches() const { return watches_; }
  void BeStubborn() { stubborn_ = true; }
  // So many times the peer has more to say as soon as the helper has read.
  void SayMore(int times) { more_ = times; }

 private:
  int Read() {
    char bytes[64];
    return static_cast<int>(std::max<ssize_t>(recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT), 0));
  }

  Mutex mutex_;
  int fd_ = -1, peer_ = -1;
  Socket* owner_ = nullptr;
  Time read_at_{};
  bool closed_ = false;
  std::atomic<bool> stubborn_{false};
  std::atomic<int> taken_{0}, looks_{0}, watches_{0}, more_{0};
};

struct Link {
  Link() = default;
  ~Link() { fake->Close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  FakeLink* operator->() const { return fake; }
  FakeLink* const fake = new FakeLink;
};

TEST_CASE(
    "quiet links: what nobody reads is taken within a second, whether the link was watched before or not") {
  const Link link;
  if (GENERATE(true, false)) REQUIRE(Eventually([&] { return link->watches() == 1; }));
  const Time said = Now();
  link->Say();
  REQUIRE(Eventually([&] { return link->taken() == 1; }));
  CHECK(Now() - said < 3 * QuietLinks::kLook);  // a busy machine
  link->Say();
  REQUIRE(Eventually([&] { return link->taken() == 2; }));
}

TEST_CASE(
    "quiet links: who has more to say than fits into the kernel's buffers does not wait long each time") {
  constexpr int kTimes = 20;
  const Link link;
  link->SayMore(kTimes - 1);
  link->Say();
  const Time said = Now();
  REQUIRE(Eventually([&] { return link->taken() == kTimes; }));
  CHECK(Now() - said < kTimes / 2 * QuietLinks::kLook);  // a busy machine
}

TEST_CASE("quiet links: a link that is read is left to its reader, and one without news to itself") {
  const Link used;
  const Link quiet;
  REQUIRE(Eventually([&] {
    used->ReadAsProgram();
    return used->looks() >= 3;
  }));
  CHECK(used->taken() == 0);
  CHECK(quiet->looks() == 1);
  CHECK(quiet->watches() == 1);
}

TEST_CASE("quiet links: what has come and is read by the next look is the program's") {
  const Link link;
  REQUIRE(Eventually([&] { return link->watches() == 1; }));
  link->Say();
  CHECK(link->ReadAsProgram() == 1);
  REQUIRE(Eventually([&] { return link->watches() == 2; }));
  CHECK(link->taken() == 0);
}

TEST_CASE(
    "quiet links: a descriptor that changes is watched anew, and one that a call leaves unwatched is looked "
    "at again") {
  const Link link;
  REQUIRE(Eventually([&] { return link->watches() == 1; }));
  link->Unwatch();
  REQUIRE(Eventually([&] { return link->watches() == 2; }));
  link->BeStubborn();
  link->Say();
  REQUIRE(Eventually([&] { return link->taken() == 1 && link->watches() == 3; }));
}

TEST_CASE("quiet links: many at once, that come and go") {
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 0; i < 200; ++i) links.push_back(std::make_unique<Link>());
  REQUIRE(Eventually([&] {
    return std::all_of(links.begin(), links.end(), [](const auto& link) { return (*link)->watches() == 1; });
  }));
  for (size_t i = 0; i < links.size(); i += 2) links[i] = std::make_unique<Link>();
  for (const auto& link : links) (*link)->Say();
  REQUIRE(Eventually([&] {
    return std::all_of(links.begin(), links.end(), [](const auto& link) { return (*link)->taken() == 1; });
  }));
}

}  // namespace
}  // namespace sdp::preload
