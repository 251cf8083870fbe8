// A queue pair on a local link: what its doorbells tell of.
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "test/support/futex.h"
#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"
#include "verbs/softiwarp/bell.h"
#include "verbs/softiwarp/local/memory.h"
#include "verbs/softiwarp/proto/send_queue.h"

namespace sdp::iwarp::test {
namespace {

// Something happens as soon as a read of the TCP connection has taken its doorbells.
std::function<void()> after_read;

ssize_t Receive(int fd, void* to, size_t size, int flags) {
  const ssize_t n = ::recv(fd, to, size, flags);
  if (const auto then = std::exchange(after_read, nullptr)) then();
  return n;
}

bool IsReadable(const Side& side) {
  pollfd fd{.fd = side.fd.value, .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, 0) == 1;
}

TEST_CASE("local link: one read empties a ring that was full, and arms its doorbell") {
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  QpPair p = MakePair(options);
  const std::string message(60'000, 'm');
  // The writer is told of room, and goes on with a larger window, until one read finds a full ring.
  for (int i = 0; i < 20; ++i) {
    while (p.a.qp->unsent_bytes() == 0) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
    p.z.qp->ReadLink();
    for (verbs::Completion c; p.z.qp->PollCompletion(&c);) p.z.qp->Release(c.token);
    REQUIRE(p.z.qp->pollable()->may_sleep());
    REQUIRE_FALSE(IsReadable(p.z));
    p.z.qp->PostReceives(20);
    p.a.qp->ReadLink();
  }
}

TEST_CASE("local link: what comes just before a doorbell is armed is read in the same call") {
  const ChangedLinkCalls watched([](LinkCalls& calls) { calls.recv = Receive; });
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  QpPair p = MakePair(options);
  REQUIRE(p.a.qp->facts().link == std::string_view("local"));
  const std::string message(60'000, 'm');
  const auto send = [&](int count) {
    for (int i = 0; i < count; ++i) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  };
  int got = 0;
  const auto take = [&] {
    for (verbs::Completion c; p.z.qp->PollCompletion(&c); p.z.qp->Release(c.token)) ++got;
  };
  // The ring grows to its full size.
  send(30);
  REQUIRE(RunUntil(p.a, p.z, [&] { return take(), got == 30; }));
  send(5);
  REQUIRE(p.a.qp->unsent_bytes() == 0);
  REQUIRE(IsReadable(p.z));
  bool came = false;
  after_read = [&] {
    came = true;
    send(7);
    REQUIRE(p.a.qp->unsent_bytes() == 0);
  };
  p.z.qp->ReadLink();
  REQUIRE(came);
  CHECK((IsReadable(p.z) || !p.z.qp->pollable()->has_untold()));
  take();
  CHECK(got == 42);
}

// Something happens as soon as a doorbell is rung.
std::function<void()> after_ring;

ssize_t Send(int fd, const void* from, size_t size, int flags) {
  const ssize_t n = ::send(fd, from, size, flags);
  if (const auto then = std::exchange(after_ring, nullptr)) then();
  return n;
}

TEST_CASE("local link: room that comes just before a writer asks to be told is used in the same call") {
  const ChangedLinkCalls watched([](LinkCalls& calls) { calls.send = Send; });
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  QpPair p = MakePair(options);
  REQUIRE(p.a.qp->facts().link == std::string_view("local"));
  p.z.qp->ReadLink();  // from here on it waits for a doorbell
  const std::string message(60'000, 'm');
  const Bytes payload = AsBytes(message);
  for (int i = 0; i < 20; ++i)
    REQUIRE(p.a.qp->PostSend({.id = {}, .payload = std::span(&payload, 1)}) == verbs::PostResult::kOk);
  // The reader takes what has come before the writer, whose ring was full, asks to be told of room.
  bool taken = false;
  after_ring = [&] {
    taken = true;
    p.z.qp->ReadLink();
  };
  p.a.qp->Flush();
  REQUIRE(taken);
  REQUIRE(p.a.qp->unsent_bytes() != 0);
  // The writer is told of room, or the reader has something to read.
  CHECK((p.z.qp->pollable()->has_untold() || IsReadable(p.z) || IsReadable(p.a)));
}

using verbs::ReadStatus;

QpPair LocalPair() {
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  return MakePair(options);
}

// Reads all there is, until the link may be slept on.
int Settle(Side& side) {
  int got = 0;
  while (!side.qp->pollable()->may_sleep()) {
    REQUIRE(side.qp->ReadLink() != ReadStatus::kEnded);
    for (verbs::Completion c; side.qp->PollCompletion(&c); side.qp->Release(c.token)) ++got;
  }
  return got;
}

std::vector<uint64_t> Rung(Bell& bell) {
  std::array<uint64_t, Bell::kMostAtOnce> cookies;
  const size_t count = bell.Take(cookies);
  return {cookies.begin(), cookies.begin() + count};
}

TEST_CASE("local link: who asks for its bell is rung once, and no doorbell comes") {
  QpPair p = LocalPair();
  Bell bell;
  REQUIRE(bell.Open());
  Settle(p.z);
  REQUIRE(p.z.qp->pollable()->HearByBell(bell.name(), 7));
  CHECK(Rung(bell).empty());
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  REQUIRE(p.a.Send("y") == verbs::PostResult::kOk);
  CHECK(Rung(bell) == std::vector<uint64_t>{7});
  CHECK_FALSE(IsReadable(p.z));
  // While the owner looks, nothing is armed, and nothing is rung.
  verbs::Pollable& link = *p.z.qp->pollable();
  CHECK(link.PollLink(verbs::Pollable::PollFor::kSleep) == ReadStatus::kProgress);
  REQUIRE(p.a.Send("z") == verbs::PostResult::kOk);
  CHECK(Rung(bell).empty());
  CHECK_FALSE(IsReadable(p.z));
  CHECK(Settle(p.z) == 3);
  // Then the doorbell tells again, until the bell is asked for.
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(IsReadable(p.z));
  CHECK(Rung(bell).empty());
}

std::string TakeDirect(Side& side, size_t header) {
  verbs::Direct* const link = side.qp->direct();
  std::string text(header, '\0');
  const auto arrived = link->LookDirect(std::as_writable_bytes(std::span(text)));
  if (!arrived) return {};
  std::string rest(arrived->length - header, '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(rest));
  const MutableBytes parts[] = {room.first(rest.size() / 2), room.subspan(rest.size() / 2)};
  link->TakeDirect(header, parts);
  side.qp->PostReceives(1);
  return text + rest;
}

TEST_CASE("local link: the direct way and the queues send and take the same messages, in order") {
  QpPair p = LocalPair();
  Settle(p.z);
  verbs::Direct* const link = p.a.qp->direct();
  REQUIRE(link != nullptr);
  int taken = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string message =
        "head" + std::string(static_cast<size_t>(i) * 7 % 300, 'm') + std::to_string(i);
    if (i % 3 == 0) {
      REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
    } else {
      REQUIRE(link->MaySendDirect(message.size()));
      const Bytes bytes = std::as_bytes(std::span(message));
      const Bytes parts[] = {bytes.subspan(4, 1), {}, bytes.subspan(5)};
      link->SendDirect(bytes.first(4), parts);
    }
    if (i % 2 == 0) {
      taken += TakeDirect(p.z, 4) == message;
      continue;
    }
    REQUIRE(p.z.qp->ReadLink() == ReadStatus::kProgress);
    CHECK(TakeDirect(p.z, 4).empty());  // a completion is first
    verbs::Completion c;
    REQUIRE(p.z.qp->PollCompletion(&c));
    taken += Text(c) == message;
    p.z.qp->Release(c.token);
    p.z.qp->PostReceives(1);
  }
  CHECK(taken == 200);
  CHECK(p.z.qp->counters().fpdus_in == p.a.qp->counters().fpdus_out);
  CHECK(p.z.qp->counters().bytes_in == p.a.qp->counters().bytes_out);
}

TEST_CASE("local link: a message that has no room goes by the queues, and one that is not whole waits") {
  QpPair p = LocalPair();
  Settle(p.z);
  verbs::Direct* const link = p.a.qp->direct();
  const std::string large(60'000, 'm');
  size_t posted = 0;
  for (; p.a.qp->unsent_bytes() == 0; ++posted) REQUIRE(p.a.Send(large) == verbs::PostResult::kOk);
  CHECK_FALSE(link->MaySendDirect(1));
  size_t got = 0;
  while (TakeDirect(p.z, 4) == large) ++got;
  // The writer's frame ends beyond the ring's: its beginning is read, or it would never come whole.
  CHECK(p.z.qp->pollable()->has_untold());
  CHECK(got < posted);
  CHECK(RunUntil(p.a, p.z, [&] {
    for (verbs::Completion c; p.z.qp->PollCompletion(&c); p.z.qp->Release(c.token)) ++got;
    return got == posted;
  }));
  CHECK(link->MaySendDirect(1));
}

std::string LendDirect(Side& side, size_t header) {
  verbs::Direct* const link = side.qp->direct();
  std::string text(header, '\0');
  if (!link->LookDirect(std::as_writable_bytes(std::span(text)))) return {};
  for (const Bytes& piece : link->LendDirect(header))
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  side.qp->PostReceives(1);
  return text;
}

TEST_CASE("local link: a message that is lent stays in the ring, whole, with what is behind it") {
  QpPair p = LocalPair();
  Settle(p.z);
  verbs::Direct* const link = p.z.qp->direct();
  // The messages' lengths differ, so the window's end cuts them in different places.
  for (int i = 0; i < 300; ++i) {
    const std::string first = "head" + std::string(static_cast<size_t>(i) * 37 % 1500, 'f');
    REQUIRE(p.a.Send(first) == verbs::PostResult::kOk);
    REQUIRE(LendDirect(p.z, 4) == first);
    const uint64_t of_first = link->InLink();
    REQUIRE(p.a.Send("head next") == verbs::PostResult::kOk);
    REQUIRE(p.a.Send("head last") == verbs::PostResult::kOk);
    std::string header(6, '\0');
    verbs::Direct::Arrived before{.end = of_first};
    for (const char* expected : {"head n", "head l"}) {
      const auto behind = link->LookDirect(std::as_writable_bytes(std::span(header)), &before);
      REQUIRE(behind);
      CHECK(header == expected);
      CHECK(behind->length == 9);
      before = *behind;
    }
    CHECK(before.end == link->InLink());
    CHECK_FALSE(link->LookDirect(std::as_writable_bytes(std::span(header)), &before));
    link->ReturnLent();
    REQUIRE(TakeDirect(p.z, 4) == "head next");
    REQUIRE(TakeDirect(p.z, 4) == "head last");
    CHECK(link->InLink() == 0);
  }
  CHECK(p.z.qp->counters().bytes_in == p.a.qp->counters().bytes_out);
}

TEST_CASE("local link: who sends files waits for room with nothing unsent") {
  QpPair p = LocalPair();
  Settle(p.z);
  verbs::FileSource& link = *p.a.qp->file_source();
  CHECK_FALSE(link.full());
  CHECK_FALSE(link.AwaitRoom());  // there is all of it
  const std::string message(30'000, 'm');
  // The writer enlarges its window when the ring is empty. Before the window is the whole ring, room() cannot
  // tell how much a write takes.
  for (int i = 0; i < 4; ++i) {
    while (p.a.qp->unsent_bytes() == 0) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
    while (p.a.qp->unsent_bytes() != 0) {
      Settle(p.z);
      p.z.qp->PostReceives(64);
      p.a.qp->ReadLink();
    }
    Settle(p.z);
  }
  int sent = 0;
  for (; link.room() > 31'000; ++sent) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  CHECK(sent == LocalMemory::kRingSize / 30'040);
  CHECK(p.a.qp->unsent_bytes() == 0);
  Settle(p.a);
  CHECK(link.AwaitRoom());
  CHECK(link.full());
  CHECK(p.a.qp->pollable()->may_sleep());
  CHECK_FALSE(IsReadable(p.a));
  while (link.full()) REQUIRE(TakeDirect(p.z, 4) == message);
  CHECK(link.room() >= LocalMemory::kRingSize / 2);
  CHECK(IsReadable(p.a));
  CHECK_FALSE(p.a.qp->pollable()->may_sleep());
  CHECK(p.a.qp->ReadLink() == ReadStatus::kProgress);
  Settle(p.a);
  CHECK_FALSE(link.full());
  CHECK(p.a.qp->pollable()->may_sleep());
  // The room that it was told of is used up before it looks.
  for (; link.room() > 31'000; ++sent) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  CHECK(link.AwaitRoom());
  while (link.full()) REQUIRE(TakeDirect(p.z, 4) == message);
  while (link.room() > 31'000) {
    REQUIRE(p.a.qp->direct()->MaySendDirect(30'000));
    const Bytes bytes = AsBytes(message);
    p.a.qp->direct()->SendDirect(bytes.first(4), std::array{bytes.subspan(4)});
  }
  CHECK_FALSE(link.full());
  Settle(p.a);
  CHECK(link.AwaitRoom());
  CHECK_FALSE(IsReadable(p.a));
  const std::shared_ptr<const verbs::Peek> peek = p.a.qp->pollable()->peek();
  CHECK_FALSE(peek->unread());
  while (link.full()) REQUIRE(TakeDirect(p.z, 4) == message);
  CHECK(IsReadable(p.a));
  CHECK(peek->unread());
  CHECK(link.TakeRoom());
  CHECK_FALSE(link.TakeRoom());
  CHECK_FALSE(peek->unread());
  // All but the end of the last frame has room.
  for (; link.room() > 61'000; ++sent) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  size_t last = link.room();
  while (SendQueue::FramedSize(last) != link.room() + 4) --last;
  REQUIRE(p.a.Send(std::string(last, 'l')) == verbs::PostResult::kOk);
  CHECK(p.a.qp->unsent_bytes() == 0);
  CHECK(link.room() == 0);
  CHECK(link.AwaitRoom());
  CHECK(link.full());
  while (link.full()) REQUIRE(TakeDirect(p.z, 4) == message);
  CHECK(p.a.qp->ReadLink() == ReadStatus::kProgress);
  CHECK_FALSE(link.full());
  Settle(p.a);
  CHECK(p.a.qp->pollable()->may_sleep());
}

TEST_CASE("local link: a direct send wakes who sleeps") {
  QpPair p = LocalPair();
  Settle(p.z);
  REQUIRE_FALSE(IsReadable(p.z));
  REQUIRE(p.a.qp->direct()->MaySendDirect(4));
  p.a.qp->direct()->SendDirect(AsBytes("head"), {});
  CHECK(IsReadable(p.z));
  Settle(p.z);
  Bell bell;
  REQUIRE(bell.Open());
  REQUIRE(p.z.qp->pollable()->HearByBell(bell.name(), 3));
  REQUIRE(p.a.qp->direct()->MaySendDirect(4));
  p.a.qp->direct()->SendDirect(AsBytes("head"), {});
  CHECK(Rung(bell) == std::vector<uint64_t>{3});
  CHECK(TakeDirect(p.z, 4) == "head");
}

TEST_CASE("local link: a bell that nobody has is no loss: the doorbell comes") {
  QpPair p = LocalPair();
  Settle(p.z);
  {
    Bell gone;
    REQUIRE(gone.Open());
    REQUIRE(p.z.qp->pollable()->HearByBell(gone.name(), 0));
  }
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(IsReadable(p.z));
  CHECK(Settle(p.z) == 1);
}

TEST_CASE("local link: who leaves its bell hears by the link, and learns what was rung meanwhile") {
  QpPair p = LocalPair();
  Bell bell;
  REQUIRE(bell.Open());
  Settle(p.z);
  verbs::Pollable& link = *p.z.qp->pollable();
  REQUIRE(link.HearByBell(bell.name(), 0));
  CHECK(link.HearByLink());
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(Rung(bell).empty());
  CHECK(IsReadable(p.z));
  CHECK(Settle(p.z) == 1);
  REQUIRE(link.HearByBell(bell.name(), 0));
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK_FALSE(link.HearByLink());
  CHECK_FALSE(link.HearByBell(bell.name(), 0));  // something is there already
  CHECK(Settle(p.z) == 1);
}

TEST_CASE("local link: a writer that waits for room is rung, too") {
  QpPair p = LocalPair();
  Bell bell;
  REQUIRE(bell.Open());
  const std::string message(60'000, 'm');
  while (p.a.qp->unsent_bytes() == 0) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  Settle(p.a);
  REQUIRE(p.a.qp->pollable()->HearByBell(bell.name(), 9));
  p.z.qp->PostReceives(40);
  Settle(p.z);
  CHECK(Rung(bell) == std::vector<uint64_t>{9});
}

TEST_CASE("local link: the end comes on the TCP connection, also behind what was rung") {
  QpPair p = LocalPair();
  Bell bell;
  REQUIRE(bell.Open());
  Settle(p.z);
  REQUIRE(p.z.qp->pollable()->HearByBell(bell.name(), 0));
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  p.a.qp->Disconnect();
  CHECK(Rung(bell).size() == 1);
  CHECK(IsReadable(p.z));
  ReadStatus status = ReadStatus::kProgress;
  for (int i = 0; i < 10 && status != ReadStatus::kEnded; ++i) status = p.z.qp->ReadLink();
  CHECK(status == ReadStatus::kEnded);
}

TEST_CASE("local link: a doorbell that nobody took makes no reset of an end, but what was meant as one is") {
  const bool meant = GENERATE(false, true);
  CAPTURE(meant);
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  QpPair p = MakePair(options);
  p.z.qp->ReadLink();
  REQUIRE(p.z.Send("last words") == verbs::PostResult::kOk);
  const std::byte doorbell{0xff};
  REQUIRE(::send(p.a.fd.value, &doorbell, 1, MSG_NOSIGNAL) == 1);
  if (meant) {
    p.z.qp->Abort();
  } else {
    p.z.qp.reset();
    p.z.fd.Close();  // the kernel has a byte that nobody has read
  }
  ReadStatus status = ReadStatus::kProgress;
  for (int i = 0; i < 10 && status != ReadStatus::kEnded; ++i) status = p.a.qp->ReadLink();
  verbs::Completion c;
  CHECK(p.a.qp->PollCompletion(&c));
  CHECK(p.a.qp->cause().end == (meant ? verbs::LinkEnd::kReset : verbs::LinkEnd::kClosedByPeer));
}

TEST_CASE("bell: it is rung by name, by whoever knows the name") {
  Bell bell;
  Bell other;
  CHECK(bell.fd() == -1);
  REQUIRE(bell.Open());
  REQUIRE(bell.Open());
  REQUIRE(other.Open());
  CHECK_FALSE(bell.name() == other.name());
  for (uint64_t cookie = 1; cookie <= 3; ++cookie) REQUIRE(RingBell(bell.name(), cookie));
  CHECK(Rung(bell) == std::vector<uint64_t>{1, 2, 3});
  CHECK(Rung(bell).empty());
  CHECK(Rung(other).empty());
  // A full queue is said at once. More than that has been rung already.
  size_t rung = 0;
  while (rung < 100'000 && RingBell(bell.name(), 0)) ++rung;
  CHECK(rung >= 1);
  CHECK(rung < 100'000);
  while (!Rung(bell).empty()) {
  }
  CHECK(RingBell(bell.name(), 0));
  const verbs::BellName name = bell.name();
  bell.Close();
  errno = 7;
  CHECK_FALSE(RingBell(name, 0));
  CHECK(errno == 7);
}

bool IsUnrung(const verbs::FutexBell& bell) { return *bell.word == bell.unrung; }

// Returns what ends with another thread's sleep for `bell`.
std::future<long> Sleeper(const verbs::FutexBell& bell) {
  std::future<long> sleeper = std::async(std::launch::async, [bell] {
    return ::syscall(SYS_futex, bell.word, FUTEX_WAIT, bell.unrung, nullptr, nullptr, 0);
  });
  sdp::test::AwaitSleeper(*bell.word, bell.unrung);
  return sleeper;
}

TEST_CASE("local link: who sleeps by a futex is woken by a message, by room, and by what came before") {
  QpPair p = LocalPair();
  Settle(p.z);
  verbs::Pollable& link = *p.z.qp->pollable();
  std::optional<verbs::FutexBell> bell = link.HearByFutex();
  REQUIRE(bell);
  REQUIRE(IsUnrung(*bell));
  std::future<long> sleeper = Sleeper(*bell);
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(sleeper.get() == 0);
  CHECK_FALSE(IsUnrung(*bell));
  CHECK_FALSE(IsReadable(p.z));
  CHECK_FALSE(link.HearByLink());
  CHECK(Settle(p.z) == 1);

  REQUIRE(p.a.qp->direct()->MaySendDirect(4));
  p.a.qp->direct()->SendDirect(AsBytes("head"), {});
  CHECK_FALSE(link.HearByFutex());  // it comes before the question
  CHECK(TakeDirect(p.z, 4) == "head");

  const std::string message(60'000, 'm');
  while (p.a.qp->unsent_bytes() == 0) REQUIRE(p.a.Send(message) == verbs::PostResult::kOk);
  Settle(p.a);
  bell = p.a.qp->pollable()->HearByFutex();
  REQUIRE(bell);
  REQUIRE(IsUnrung(*bell));
  p.z.qp->PostReceives(40);
  Settle(p.z);
  CHECK_FALSE(IsUnrung(*bell));
}

TEST_CASE("local link: who leaves its futex hears by the link") {
  QpPair p = LocalPair();
  Settle(p.z);
  verbs::Pollable& link = *p.z.qp->pollable();
  REQUIRE(link.HearByFutex());
  CHECK(link.HearByLink());
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(IsReadable(p.z));
  CHECK(Settle(p.z) == 1);
  // Then another way of the same end may follow.
  REQUIRE(link.HearByFutex());
  Bell bell;
  REQUIRE(bell.Open());
  REQUIRE(link.HearByBell(bell.name(), 5));
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(Rung(bell) == std::vector<uint64_t>{5});
}

TEST_CASE("local link: a process that may not wake by a futex rings the doorbell") {
  const ChangedLinkCalls confined([](LinkCalls& calls) { calls.may_ring = [] { return false; }; });
  QpPair p = LocalPair();
  Settle(p.z);
  REQUIRE(p.z.qp->pollable()->HearByFutex());
  REQUIRE(p.a.Send("x") == verbs::PostResult::kOk);
  CHECK(IsReadable(p.z));
}

TEST_CASE("local link: a peer that writes impossible indices loses the connection, whoever finds them") {
  PairOptions options;
  options.a.local_link = options.z.local_link = true;
  for (const bool by_write : {false, true}) {
    CAPTURE(by_write);
    QpPair p = MakePair(options);
    REQUIRE(p.a.Send("before") == verbs::PostResult::kOk);
    const verbs::Completion got = NextCompletion(p.z, p.a);
    p.z.qp->Release(got.token);
    // The first control is of the ring that `a` writes and `z` reads.
    void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, MemoryOf(*p.a.qp)->fd(), 0);
    REQUIRE(page != MAP_FAILED);
    auto* const control = static_cast<RingControl*>(page);
    (by_write ? control->tail : control->head).fetch_add(uint64_t{1} << 40);
    ::munmap(page, 4096);
    Side& finder = by_write ? p.a : p.z;
    if (by_write) {
      // The writer looks at the index once its copy leaves too little room.
      const std::string more(700, 'm');
      for (int i = 0; i < 3; ++i) (void)p.a.Send(more);
    } else {
      CHECK(p.z.qp->ReadLink() == verbs::ReadStatus::kEnded);
    }
    CHECK(finder.qp->cause().end == verbs::LinkEnd::kFailed);
    CHECK(finder.qp->cause().text.find("impossible indices") != std::string::npos);
    CHECK(finder.qp->cause().os_error == 0);
    Side& other = by_write ? p.z : p.a;
    REQUIRE(RunUntil(p.a, p.z, [&] { return other.qp->cause().end != verbs::LinkEnd::kOpen; }));
  }
}

}  // namespace
}  // namespace sdp::iwarp::test
