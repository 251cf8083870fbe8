// The parts of an epoll set, each by itself.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "preload/readiness/kick.h"
#include "preload/readiness/listener_registrations.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/readiness/registrations.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

using namespace std::chrono_literals;
using Asked = Registrations::Asked;
using Readiness = StreamSocket::Watch::Readiness;
using State = StreamSocket::State;

constexpr Time kStart{1h};

// A socket that is not connected yet.
SocketRef NewSocket() {
  const int fd = real.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return SocketRef(Socket::New(AF_INET, fd));
}

class InnerEpoll {
 public:
  ~InnerEpoll() { real.close(fd); }
  [[nodiscard]] int Count() const {
    epoll_event events[8];
    return real.epoll_wait(fd, events, 8, 0);
  }
  std::atomic<int> fd{real.epoll_create1(EPOLL_CLOEXEC)};
};

// By value: an epoll_event is packed.
uint64_t DataOf(const epoll_event& event) { return event.data.u64; }
uint32_t EventsOf(const epoll_event& event) { return event.events; }

// Its second end is writable.
class Pipe {
 public:
  Pipe() { REQUIRE(pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    real.close(ends[0]);
    real.close(ends[1]);
  }
  int ends[2];
};

Asked AskedFor(uint32_t events, uint64_t data = 0) { return {.events = events, .data = {.u64 = data}}; }

Readiness Connected(short events, uint64_t read_edge = 1, uint64_t write_edge = 1) {
  Readiness readiness;
  readiness.state = State::kSdp;
  readiness.events = events;
  readiness.read_edge = read_edge;
  readiness.write_edge = write_edge;
  return readiness;
}

std::vector<int> Keys(const Registrations::Work& work) {
  std::vector<int> keys;
  for (const Registrations::Job& job : work) keys.push_back(job.key);
  return keys;
}

// As a wait does that has taken the candidate just now.
bool ReportNow(Registrations& registrations, int key, const Readiness& readiness, epoll_event* event) {
  const Registrations::Entry* const entry = registrations.Find(key);
  return registrations.ReportOne({.key = key, .socket = {}, .version = entry != nullptr ? entry->version : 0},
                                 readiness, /*alone=*/false, event);
}

std::vector<int> Candidates(Registrations& registrations, bool keep = false) {
  Registrations::Work work;
  registrations.TakeCandidates(&work, keep);
  return Keys(work);
}

}  // namespace

TEST_CASE("Kick: it is given only where a thread or another set would hear of it") {
  Kick kick;
  REQUIRE(kick.Open(/*group=*/0x7001));
  kick.Give();
  CHECK_FALSE(kick.given());
  {
    const CountedSleeper sleeper(kick);
    CHECK(kick.heard());
    kick.Give();
    CHECK(kick.given());
  }
  CHECK_FALSE(kick.heard());
  CHECK(kick.given());  // until it is taken
  kick.Take();
  CHECK_FALSE(kick.given());
  kick.SetNested();
  errno = ENOTTY;
  kick.Give();
  CHECK(errno == ENOTTY);
  CHECK(kick.given());
  kick.Close();
  CHECK(kick.fd() == -1);
}

TEST_CASE("Asked: level-triggered, what holds is reported as often as it holds") {
  const Asked asked = AskedFor(EPOLLIN);
  CHECK(asked.Holding(Connected(POLLIN | POLLOUT)) == EPOLLIN);
  CHECK(asked.Holding(Connected(POLLOUT)) == 0);
  CHECK(asked.Holding(Connected(POLLERR | POLLHUP)) == (EPOLLERR | EPOLLHUP));  // asked for or not
}

TEST_CASE("Asked: edge-triggered, all that holds is reported once for each edge of a wanted side") {
  Asked asked = AskedFor(EPOLLIN | EPOLLOUT | EPOLLET);
  CHECK(asked.Holding(Connected(POLLIN | POLLOUT, 5, 6)) == (EPOLLIN | EPOLLOUT));
  asked.seen_read_edge = 5;
  asked.seen_write_edge = 6;
  CHECK(asked.Holding(Connected(POLLIN | POLLOUT, 5, 6)) == 0);
  CHECK(asked.Holding(Connected(POLLIN | POLLOUT, 7, 6)) == (EPOLLIN | EPOLLOUT));
  CHECK(asked.Holding(Connected(POLLOUT, 7, 6)) == 0);  // the edge of a side where nothing holds
}

TEST_CASE("Asked: nothing is reported of a registration that is not armed; a new socket hangs up as TCP's") {
  Asked asked = AskedFor(EPOLLIN | EPOLLOUT);
  CHECK(asked.Holding(Readiness{}) == (EPOLLOUT | EPOLLHUP));
  asked.armed = false;
  CHECK(asked.Holding(Connected(POLLIN)) == 0);
}

TEST_CASE("Registrations: a socket is registered once, and is a candidate at once") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  CHECK(registrations.Find(70) == nullptr);
  CHECK(registrations.Add(70, socket.get(), AskedFor(EPOLLIN, 42), /*alone=*/false));
  CHECK_FALSE(registrations.Add(70, socket.get(), AskedFor(EPOLLOUT, 43), /*alone=*/false));
  REQUIRE(registrations.Find(70) != nullptr);
  CHECK(registrations.Find(70)->asked.data.u64 == 42);
  CHECK(registrations.HasData(42));
  CHECK_FALSE(registrations.HasData(43));
  CHECK(Candidates(registrations, /*keep=*/true) == std::vector<int>{70});
  CHECK(Candidates(registrations) == std::vector<int>{70});
  CHECK(Candidates(registrations).empty());

  registrations.Change(70, *registrations.Find(70), {.events = EPOLLOUT, .data = {.u64 = 44}},
                       /*alone=*/false);
  CHECK(registrations.HasData(44));
  CHECK(Candidates(registrations) == std::vector<int>{70});
}

TEST_CASE("Registrations: level-triggered ones stay candidates, one-shot ones are disarmed") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN, 1), /*alone=*/false);
  registrations.Add(71, socket.get(), AskedFor(EPOLLIN | EPOLLET, 2), /*alone=*/false);
  registrations.Add(72, socket.get(), AskedFor(EPOLLIN | EPOLLONESHOT, 3), /*alone=*/false);
  (void)Candidates(registrations);
  epoll_event event{};
  for (const int key : {70, 71, 72}) {
    CHECK(ReportNow(registrations, key, Connected(POLLIN), &event));
    CHECK(DataOf(event) == static_cast<uint64_t>(key - 69));
    CHECK(EventsOf(event) == EPOLLIN);
  }
  CHECK(Candidates(registrations) == std::vector<int>{70});
  CHECK(ReportNow(registrations, 70, Connected(POLLIN), &event));
  CHECK_FALSE(ReportNow(registrations, 71, Connected(POLLIN), &event));
  CHECK_FALSE(ReportNow(registrations, 72, Connected(POLLIN, 2), &event));
  CHECK_FALSE(ReportNow(registrations, 73, Connected(POLLIN), &event));
}

TEST_CASE("Registrations: an answer from before another report, or a change, reports nothing") {
  const auto events = GENERATE(0u, static_cast<uint32_t>(EPOLLET), static_cast<uint32_t>(EPOLLONESHOT));
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN | events, 1), /*alone=*/false);
  Registrations::Work work;
  registrations.TakeCandidates(&work, /*keep=*/false);
  REQUIRE(work.size() == 1);
  epoll_event event{};
  SECTION("another thread has reported it") {
    CHECK(ReportNow(registrations, 70, Connected(POLLIN), &event));
  }
  SECTION("the application has changed it") {
    registrations.Change(70, *registrations.Find(70), {.events = EPOLLIN | events, .data = {.u64 = 2}},
                         /*alone=*/false);
  }
  CHECK_FALSE(registrations.ReportOne(work[0], Connected(POLLIN, 2), /*alone=*/false, &event));
  // The next wait asks the socket again.
  CHECK(Candidates(registrations) == std::vector<int>{70});
}

TEST_CASE("Registrations: candidates without room come first the next time") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  for (const int key : {70, 71, 72}) registrations.Add(key, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  Registrations::Work work;
  registrations.TakeCandidates(&work, /*keep=*/false);
  registrations.MakeCandidate(70, *registrations.Find(70));  // it was reported, and still holds
  registrations.PutBack(work, 1);
  CHECK(Candidates(registrations) == std::vector<int>{71, 72, 70});
}

TEST_CASE("Registrations: a deleted link stays in the inner epoll until it has something to say") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  registrations.Add(70, socket.get(), AskedFor(EPOLLOUT), /*alone=*/false);
  Registrations::Entry& entry = *registrations.Find(70);
  registrations.Watch(70, entry, link.ends[1], POLLOUT, nullptr);
  CHECK(inner.Count() == 1);
  CHECK(registrations.HasDevices());  // a descriptor of its own for the link is a kernel RNIC's
  entry.socket = SocketRef();         // EPOLL_CTL_DEL
  CHECK(registrations.Find(70) == nullptr);
  CHECK(inner.Count() == 1);
  registrations.UnwatchDeleted(70);
  CHECK(inner.Count() == 0);
  CHECK_FALSE(registrations.HasDevices());
}

// A local link whose ring has something to read, or not.
struct FakePeek final : verbs::Peek {
  [[nodiscard]] bool unread() const override { return has_bytes; }
  bool has_bytes = false;
};

// None of these sockets has usual Data, so that nothing is reported at once.
void LookAtWarm(Registrations& registrations, Time now, Registrations::Work* cold) {
  registrations.LookAtWarm(now, /*alone=*/true, cold, [](int, uint32_t, epoll_data_t) {
    FAIL_CHECK("reported at once");
    return true;
  });
}

TEST_CASE(
    "Registrations: a local link that had something to report is looked at in memory until it is silent") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  const auto peek = std::make_shared<FakePeek>();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  Registrations::Entry& entry = *registrations.Find(70);
  registrations.Watch(70, entry, link.ends[0], POLLIN, peek);
  (void)Candidates(registrations);
  Registrations::Work cold;
  Time now = Now();
  peek->has_bytes = true;
  LookAtWarm(registrations, now, &cold);
  CHECK(Candidates(registrations).empty());  // not warm: its peer rings a doorbell
  registrations.Warm(70, entry);
  LookAtWarm(registrations, now, &cold);
  CHECK(Candidates(registrations) == std::vector<int>{70});
  CHECK(cold.empty());

  peek->has_bytes = false;
  for (int i = 0; i < 1000; ++i) LookAtWarm(registrations, now + 10ms, &cold);
  CHECK(cold.empty());
  LookAtWarm(registrations, now + 20ms, &cold);
  REQUIRE(cold.size() == 1);
  CHECK(cold[0].socket.get() == socket.get());
  CHECK(registrations.warm() == 0);

  registrations.Warm(70, entry);
  Registrations::Work taken;
  registrations.TakeWarm(&taken);
  CHECK(taken.size() == 1);
  CHECK(registrations.warm() == 0);
  registrations.StayCold(&taken);  // the set is inside another one
  registrations.Warm(70, entry);
  CHECK(registrations.warm() == 0);
}

TEST_CASE(
    "Registrations: what a warm link's socket has left is asked for again, whatever happens to the link") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  Registrations::Entry& entry = *registrations.Find(70);
  registrations.Watch(70, entry, link.ends[0], POLLIN, std::make_shared<FakePeek>());
  registrations.Warm(70, entry);
  (void)Candidates(registrations);
  const auto report = [&](bool alone) {
    epoll_event event{};
    return registrations.ReportOne({.key = 70, .socket = {}, .version = entry.version}, Connected(POLLIN),
                                   alone, &event);
  };
  CHECK(report(/*alone=*/false));
  CHECK(Candidates(registrations) == std::vector<int>{70});  // or a thread that sleeps would not hear of it
  CHECK_FALSE(registrations.HasCandidates());
  CHECK(report(/*alone=*/true));
  CHECK(registrations.HasCandidates());  // a thread that is about to sleep looks once more
  CHECK(Candidates(registrations).empty());
  Registrations::Work work;
  SECTION("a look at the warm links") { LookAtWarm(registrations, Now(), &work); }
  SECTION("the link has another one's place") {
    registrations.Watch(70, entry, link.ends[0], POLLIN, std::make_shared<FakePeek>());
  }
  SECTION("the link is watched no more") { registrations.Watch(70, entry, link.ends[0], 0, entry.peek); }
  SECTION("before a sleep") { registrations.TakeWarm(&work); }
  SECTION("the set is inside another one") { registrations.StayCold(&work); }
  CHECK(Candidates(registrations) == std::vector<int>{70});
}

TEST_CASE("Registrations: a local link in another's place is looked at, and the other one is forgotten") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  const auto before = std::make_shared<FakePeek>();
  const auto after = std::make_shared<FakePeek>();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  Registrations::Entry& entry = *registrations.Find(70);
  registrations.Watch(70, entry, link.ends[0], POLLIN, before);
  registrations.Warm(70, entry);
  registrations.Watch(70, entry, link.ends[0], POLLIN, after);
  CHECK_FALSE(entry.warm);
  registrations.Warm(70, entry);
  (void)Candidates(registrations);
  before->has_bytes = true;
  Registrations::Work cold;
  LookAtWarm(registrations, Now(), &cold);
  CHECK(Candidates(registrations).empty());
  CHECK(registrations.warm() == 1);
  after->has_bytes = true;
  LookAtWarm(registrations, Now(), &cold);
  CHECK(Candidates(registrations) == std::vector<int>{70});
  CHECK(entry.warm);
  registrations.Unwatch(entry);
  CHECK_FALSE(entry.warm);
}

TEST_CASE("Registrations: a link that another one has replaced takes nothing of the other's") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  Registrations::Entry& entry = *registrations.Find(70);
  for (int i = 0; i < 2; ++i) {
    registrations.Watch(70, entry, link.ends[0], POLLIN, std::make_shared<FakePeek>());
    registrations.Warm(70, entry);
  }
  (void)Candidates(registrations);
  epoll_event event{};
  CHECK(registrations.ReportOne({.key = 70, .socket = {}, .version = entry.version}, Connected(POLLIN),
                                /*alone=*/true, &event));
  Registrations::Work cold;
  LookAtWarm(registrations, Now(), &cold);
  CHECK(Candidates(registrations) == std::vector<int>{70});
}

TEST_CASE("Registrations: in the child of a fork the next wait asks all sockets") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  for (const int key : {70, 71}) registrations.Add(key, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  (void)Candidates(registrations);
  registrations.Disown();
  CHECK(Candidates(registrations) == std::vector<int>{70, 71});
}

TEST_CASE("Registrations: a local link that is no longer watched is not looked at") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  const auto peek = std::make_shared<FakePeek>();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  Registrations::Entry& entry = *registrations.Find(70);
  registrations.Watch(70, entry, link.ends[0], POLLIN, peek);
  registrations.Warm(70, entry);
  (void)Candidates(registrations);
  peek->has_bytes = true;
  registrations.Unwatch(entry);
  Registrations::Work cold;
  LookAtWarm(registrations, Now(), &cold);
  CHECK(cold.empty());
  CHECK(registrations.warm() == 0);
  CHECK(Candidates(registrations).empty());
}

TEST_CASE("Registrations: two registrations of one link are both watched, by a hidden duplicate") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  const Pipe link;
  for (const int key : {70, 71}) {
    registrations.Add(key, socket.get(), AskedFor(EPOLLOUT), /*alone=*/false);
    registrations.Watch(key, *registrations.Find(key), link.ends[1], POLLOUT, nullptr);
  }
  CHECK(inner.Count() == 2);
  CHECK(registrations.Find(71)->twin >= 0);
  int hidden = -1;
  CHECK(registrations.Drop(71, &hidden).get() == socket.get());
  CHECK(inner.Count() == 1);
  CHECK(registrations.Clear().size() == 1);
  CHECK_FALSE(registrations.HasDevices());
}

TEST_CASE("Registrations: one whose number is closed lives on under a key of its own") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN, 42), /*alone=*/false);
  Asked asked;
  SocketRef taken = registrations.TakeOut(70, &asked);
  REQUIRE(taken.get() == socket.get());
  CHECK(asked.data.u64 == 42);
  CHECK_FALSE(registrations.TakeOut(70, &asked));
  const int key = registrations.AddOrphan(std::move(taken), asked, /*link=*/-1);
  CHECK(key == Registrations::kFirstOrphan);
  CHECK(registrations.HasData(42));
  REQUIRE(registrations.Orphans().size() == 1);
  CHECK(registrations.Orphans()[0].first == key);
  int hidden = 0;
  CHECK(registrations.Drop(key, &hidden).get() == socket.get());
  CHECK(hidden == -1);
  CHECK(registrations.Orphans().empty());
}

TEST_CASE("Registrations: connections that several processes hold become candidates every so often") {
  InnerEpoll inner;
  Registrations registrations(inner.fd);
  const SocketRef socket = NewSocket();
  registrations.Add(70, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  registrations.Add(71, socket.get(), AskedFor(EPOLLIN), /*alone=*/false);
  (void)Candidates(registrations);
  registrations.NoteShared(71, true);
  CHECK(registrations.HasShared());
  const Time next = registrations.LookAtShared(kStart);
  CHECK(next > kStart);
  CHECK(Candidates(registrations) == std::vector<int>{71});
  CHECK(registrations.LookAtShared(next - 1ns) == next);
  CHECK(Candidates(registrations).empty());
  registrations.NoteShared(71, false);
  CHECK_FALSE(registrations.HasShared());
  CHECK(registrations.LookAtShared(next) == kNever);
}

TEST_CASE("ListenerRegistrations: marks are neither descriptor numbers nor a kick's") {
  for (const int fd : {0, 5, 1 << 20}) {
    const uint64_t mark = ListenerRegistrations::MarkOf(fd);
    CHECK(ListenerRegistrations::IsMarked(mark));
    CHECK(ListenerRegistrations::SdpFdOf(mark) == fd);
    CHECK_FALSE(ListenerRegistrations::IsMarked(static_cast<uint64_t>(fd)));
  }
  CHECK_FALSE(ListenerRegistrations::IsMarked(~uint64_t{0}));
  CHECK_FALSE(ListenerRegistrations::IsMarked(static_cast<uint64_t>(Registrations::kFirstOrphan)));
}

TEST_CASE("ListenerRegistrations: a listener's descriptors give one event, with the application's data") {
  Mutex mutex;
  InnerEpoll inner;
  InnerEpoll outer;
  const Pipe conventional;
  const Pipe queue;
  ListenerRegistrations listeners(mutex, inner.fd);
  const SocketRef socket = NewSocket();
  auto* const stream = static_cast<StreamSocket*>(socket.get());
  Readiness readiness;
  readiness.state = State::kListening;
  readiness.listener_fds[1] = queue.ends[0];
  const char byte = 0;
  REQUIRE(real.write(conventional.ends[1], &byte, 1) == 1);
  REQUIRE(real.write(queue.ends[1], &byte, 1) == 1);

  SECTION("one event, as often as it holds") {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 42}};
    REQUIRE(listeners.Control(outer.fd, EPOLL_CTL_ADD, conventional.ends[0], conventional.ends[0], stream,
                              &event, readiness) == 0);
    CHECK(listeners.HasData(42));
    for (int round = 0; round < 2; ++round) {
      epoll_event events[4];
      REQUIRE(real.epoll_wait(outer.fd, events, 4, 0) == 2);
      REQUIRE(listeners.Merge(events, 0, 2) == 1);
      CHECK(DataOf(events[0]) == 42);
      CHECK(EventsOf(events[0]) == EPOLLIN);
    }
    REQUIRE(listeners.Control(outer.fd, EPOLL_CTL_DEL, conventional.ends[0], conventional.ends[0], stream,
                              nullptr, readiness) == 0);
    CHECK(outer.Count() == 0);
    CHECK_FALSE(listeners.HasData(42));
  }
  SECTION("with EPOLLONESHOT one in all, until it is armed again") {
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 42}};
    REQUIRE(listeners.Control(outer.fd, EPOLL_CTL_ADD, conventional.ends[0], conventional.ends[0], stream,
                              &event, readiness) == 0);
    epoll_event events[4];
    REQUIRE(real.epoll_wait(outer.fd, events, 1, 0) == 1);
    CHECK(listeners.Merge(events, 0, 1) == 1);
    REQUIRE(real.epoll_wait(outer.fd, events, 1, 0) == 1);  // the other descriptor's
    CHECK(listeners.Merge(events, 0, 1) == 0);
    listeners.Arm(conventional.ends[0]);
    REQUIRE(listeners.Control(outer.fd, EPOLL_CTL_MOD, conventional.ends[0], conventional.ends[0], stream,
                              &event, readiness) == 0);
    REQUIRE(real.epoll_wait(outer.fd, events, 4, 0) == 2);
    CHECK(listeners.Merge(events, 0, 2) == 1);
  }
}

TEST_CASE("ListenerRegistrations: a listener that a child of fork closes goes on being watched") {
  Mutex mutex;
  InnerEpoll inner;
  InnerEpoll outer;
  const Pipe sdp;
  ListenerRegistrations listeners(mutex, inner.fd);
  const SocketRef socket = NewSocket();
  Readiness readiness;
  readiness.state = State::kListening;
  readiness.listener_fds[0] = sdp.ends[0];
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 42}};
  const int fd = Stream(socket).AnyDescriptor();
  REQUIRE(real.write(sdp.ends[1], "x", 1) == 1);
  REQUIRE(listeners.Control(outer.fd, EPOLL_CTL_ADD, fd, fd, &Stream(socket), &event, readiness) == 0);
  const bool in_child = GENERATE(true, false);
  CAPTURE(in_child);
  if (in_child) {
    std::lock_guard lock(mutex);
    listeners.Disown();
  }
  listeners.Forget(fd);
  CHECK(inner.Count() == (in_child ? 1 : 0));
}

}  // namespace sdp::preload
