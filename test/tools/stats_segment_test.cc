#include "preload/stats_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "preload/program_name.h"
#include "test/support/in_child.h"
#include "test/support/skipped.h"
#include "test/tools/stats_fixture.h"
#include "tools/stats/stats_reader.h"

namespace sdp::stats {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<StatsSegment> MustOpen(const std::string& directory) {
  std::string error;
  auto segment = StatsSegment::Open(directory, PlainSystemCalls(), &error);
  INFO(error);
  REQUIRE(segment != nullptr);
  return segment;
}

ProcessStats ReadOne(const std::string& directory) {
  Snapshot snapshot = ReadAll({directory});
  REQUIRE(snapshot.warnings.empty());
  REQUIRE(snapshot.processes.size() == 1);
  return snapshot.processes.front();
}

size_t CountFiles(const std::string& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

// Runs `body` in a forked child; true if it returned true.
template <typename Body>
bool InChild(Body body) {
  return sdp::test::InChild([&] { return body() ? 0 : 1; }) == 0;
}

// Many servers write a title over their arguments, where the C library's name of the program lies.
TEST_CASE("a process publishes the name that it began with") {
  char title[] = "nginx: worker process";
  char* const name = std::exchange(program_invocation_short_name, title);
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  program_invocation_short_name = name;
  CHECK(ReadOne(directory.path()).program == name);
  CHECK(std::string(preload::ProgramName()) == name);
}

TEST_CASE("what a process publishes is what a reader sees") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  ConnectionRecord record = EstablishedConnection();
  Slot* slot = segment->AcquireSlot(record);
  REQUIRE(slot != nullptr);

  ProcessStats process = ReadOne(directory.path());
  CHECK(process.pid == static_cast<uint32_t>(getpid()));
  CHECK(process.uid == getuid());
  CHECK_FALSE(process.program.empty());
  REQUIRE(process.records.size() == 1);
  CHECK(memcmp(&process.records[0], &record, sizeof record) == 0);

  record.counters.bytes_in[kBcopy] = 12345;
  StatsSegment::Publish(slot, record.counters);
  CHECK(ReadOne(directory.path()).records[0].counters.bytes_in[kBcopy] == 12345);
}

TEST_CASE("the file is private and goes with the segment") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  CHECK((fs::status(segment->path()).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  segment.reset();
  CHECK(CountFiles(directory.path()) == 0);
}

TEST_CASE("Remove hides the process at once and leaves its slots usable") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  Slot* slot = segment->AcquireSlot(EstablishedConnection());
  segment->Remove();
  CHECK(CountFiles(directory.path()) == 0);
  StatsSegment::Publish(slot, EstablishedConnection());
  CHECK(segment->AcquireSlot(EstablishedConnection()) != nullptr);
  segment->ReleaseSlot(slot);
  CHECK(CountFiles(directory.path()) == 0);
}

TEST_CASE("a closed connection's bytes and reason go to the totals") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  Slot* orderly = segment->AcquireSlot(EstablishedConnection());
  Slot* aborted = segment->AcquireSlot(EstablishedConnection());
  ConnectionRecord record = EstablishedConnection();
  SetText(record.reason, "link-lost");
  SetText(record.link, "local");
  record.counters.send_stalls = 3;
  StatsSegment::Publish(aborted, record);
  ConnectionRecord never = EstablishedConnection();
  never.counters.ever_established = 0;
  Slot* failed = segment->AcquireSlot(never);
  for (Slot* slot : {orderly, aborted, failed}) segment->ReleaseSlot(slot);

  ProcessStats process = ReadOne(directory.path());
  CHECK(process.records.empty());
  CHECK(process.totals.connections_closed == 2);
  CHECK(process.totals.connections_aborted == 1);
  CHECK(process.totals.bytes_in[kBcopy] == 200);
  CHECK(process.totals.bytes_out[kReadZcopy] == 4096);
  CHECK(process.totals.link_in[kTcpLink][kBcopy] == 100);
  CHECK(process.totals.link_in[kLocalLink][kBcopy] == 100);
  CHECK(process.totals.link_out[kRdmaLink][kReadZcopy] == 0);
  CHECK(process.totals.link_out[kLocalLink][kReadZcopy] == 2048);
  CHECK(process.totals.send_stalls == 3);
}

TEST_CASE("the file grows by chunks and slots are used again") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  std::set<Slot*> slots;
  for (int i = 0; i < 1000; ++i) {
    ConnectionRecord record = EstablishedConnection();
    record.fd = i;
    Slot* slot = segment->AcquireSlot(record);
    REQUIRE(slot != nullptr);
    slots.insert(slot);
  }
  CHECK(slots.size() == 1000);
  CHECK(ReadOne(directory.path()).records.size() == 1000);
  uintmax_t size = fs::file_size(segment->path());
  for (Slot* slot : slots) segment->ReleaseSlot(slot);
  CHECK(ReadOne(directory.path()).records.empty());
  for (int i = 0; i < 1000; ++i) CHECK(slots.count(segment->AcquireSlot(EstablishedConnection())) == 1);
  CHECK(fs::file_size(segment->path()) == size);
}

TEST_CASE("the last fall-backs are kept with their reason, all are counted") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  for (int i = 0; i < 100; ++i) {
    ConnectionRecord record;
    record.peer = Ipv4(9, static_cast<uint16_t>(1000 + i));
    record.fallback = FallbackReason::kPmTimeout;
    segment->RecordFallback(record);
  }
  segment->CountFallback(FallbackReason::kPlainClient);
  ProcessStats process = ReadOne(directory.path());
  CHECK(process.totals.fallbacks[static_cast<size_t>(FallbackReason::kPmTimeout)] == 100);
  CHECK(process.totals.fallbacks[static_cast<size_t>(FallbackReason::kPlainClient)] == 1);
  REQUIRE(process.records.size() == kFallbackSlots);
  for (const ConnectionRecord& record : process.records) {
    CHECK(record.kind == Kind::kFallback);
    CHECK(record.peer.port >= 1000 + 100 - kFallbackSlots);
    CHECK(std::string(record.reason) == "pm-timeout");
    CHECK(record.opened_at_ns != 0);
  }
}

TEST_CASE("a forked child has a file of its own with its listeners, and the parent's stays as it was") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  ConnectionRecord record = EstablishedConnection();
  record.kind = Kind::kListener;
  Slot* slot = segment->AcquireSlot(record);
  REQUIRE(segment->AcquireSlot(EstablishedConnection()) != nullptr);
  ConnectionRecord of_device = record;
  SetText(of_device.link, kKernelLink);
  REQUIRE(segment->AcquireSlot(of_device) != nullptr);
  std::string parents_path = segment->path();
  segment->PrepareFork();
  bool good = InChild([&] {
    segment->ForkChild();
    if (segment->path().empty() || segment->path() == parents_path) return false;
    ConnectionRecord mine = record;
    mine.counters.accepted_sdp = 777;
    StatsSegment::Publish(slot, mine);
    Snapshot both = ReadAll({directory.path()});
    if (both.processes.size() != 2) return false;
    for (const ProcessStats& process : both.processes) {
      const bool child = process.pid == static_cast<uint32_t>(getpid());
      if (process.records.size() != (child ? 1 : 3)) return false;
      for (const ConnectionRecord& one : process.records) {
        if (one.kind == Kind::kListener && one.counters.accepted_sdp != (child ? 777 : 0)) return false;
      }
    }
    // The connection's slot and the kernel RNIC's listener's are free, the listener's is not.
    std::set<Slot*> slots = {slot};
    for (int i = 0; i < 100; ++i) {
      if (!slots.insert(segment->AcquireSlot(EstablishedConnection())).second) return false;
    }
    segment->Remove();
    return true;
  });
  segment->ForkParent();
  CHECK(good);
  CHECK(ReadOne(directory.path()).records.size() == 3);
}

TEST_CASE("a forked child without connections makes a file when it has something to show") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  segment->ReleaseSlot(segment->AcquireSlot(EstablishedConnection()));
  segment->PrepareFork();
  bool good = InChild([&] {
    segment->ForkChild();
    if (!segment->path().empty() || CountFiles(directory.path()) != 1) return false;
    Slot* slot = segment->AcquireSlot(EstablishedConnection());
    Snapshot both = ReadAll({directory.path()});
    if (slot == nullptr || both.processes.size() != 2) return false;
    for (const ProcessStats& process : both.processes) {
      if (process.pid == static_cast<uint32_t>(getpid()) && process.totals.connections_closed != 0)
        return false;
    }
    segment->Remove();
    return true;
  });
  segment->ForkParent();
  CHECK(good);
  CHECK(CountFiles(directory.path()) == 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need more address space
TEST_CASE("a forked child that may have no more memory than its parent has a file of its own") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  ConnectionRecord listener = EstablishedConnection();
  listener.kind = Kind::kListener;
  REQUIRE(segment->AcquireSlot(listener) != nullptr);
  const std::string parents_path = segment->path();
  segment->PrepareFork();
  CHECK(InChild([&] {
    long pages = 0;
    if (!(std::ifstream("/proc/self/statm") >> pages)) return false;
    const rlimit as_now{.rlim_cur = static_cast<rlim_t>(pages) * 4096, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &as_now) != 0) return false;
    while (malloc(size_t{64} * 1024) != nullptr) {  // what the heap has already
    }
    segment->ForkChild();
    const bool own = segment->path() != parents_path && CountFiles(directory.path()) == 2;
    segment->Remove();
    return own;
  }));
  segment->ForkParent();
  CHECK(ReadOne(directory.path()).pid == static_cast<uint32_t>(getpid()));
}

#endif

TEST_CASE("a forked child that gets no memory leaves the parent's statistics alone, and so does its child") {
  static bool refuses;
  refuses = false;
  SystemCalls calls = PlainSystemCalls();
  calls.mmap = [](void* address, size_t size, int protection, int flags, int fd, off_t offset) {
    if (!refuses) return mmap(address, size, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
  };
  TemporaryDirectory directory;
  std::string error;
  auto segment = StatsSegment::Open(directory.path(), calls, &error);
  REQUIRE(segment != nullptr);
  ConnectionRecord listener = EstablishedConnection();
  listener.kind = Kind::kListener;
  Slot* const slot = segment->AcquireSlot(listener);
  REQUIRE(segment->AcquireSlot(EstablishedConnection()) != nullptr);
  segment->PrepareFork();
  CHECK(InChild([&] {
    refuses = true;
    segment->ForkChild();
    refuses = false;
    if (segment->AcquireSlot(EstablishedConnection()) != nullptr) return false;
    segment->RecordFallback(EstablishedConnection());
    segment->ReleaseSlot(slot);
    segment->PrepareFork();
    const bool good = InChild([&] {
      segment->ForkChild();
      return segment->AcquireSlot(EstablishedConnection()) == nullptr && CountFiles(directory.path()) == 1;
    });
    segment->ForkParent();
    segment->Remove();
    return good;
  }));
  segment->ForkParent();
  const ProcessStats parent = ReadOne(directory.path());
  CHECK(parent.pid == static_cast<uint32_t>(getpid()));
  CHECK(parent.records.size() == 2);
}

TEST_CASE("a slot that the parent fills behind the fork is free in the child once") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  REQUIRE(segment->AcquireSlot(EstablishedConnection()) != nullptr);
  segment->PrepareFork();
  int filled[2];
  REQUIRE(pipe(filled) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(filled[0], &byte, 1) != 1) _exit(1);
    segment->ForkChild();
    std::set<Slot*> slots;
    for (int i = 0; i < 100; ++i) {
      if (!slots.insert(segment->AcquireSlot(EstablishedConnection())).second) _exit(2);
    }
    segment->Remove();
    _exit(0);
  }
  segment->ForkParent();
  for (int i = 0; i < 8; ++i) CHECK(segment->AcquireSlot(EstablishedConnection()) != nullptr);
  CHECK(write(filled[1], "x", 1) == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(filled[0]);
  close(filled[1]);
}

TEST_CASE("an exit handler that runs in a child without ForkChild leaves the parent's file alone") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  CHECK(InChild([&] {
    segment->Remove();
    return true;
  }));
  CHECK(CountFiles(directory.path()) == 1);
}

// A child that dies with a connection, and, if it is traced, a trace file.
bool LeaveAFile(const std::string& directory, bool traced = false) {
  return InChild([&] {
    std::string error;
    StatsSegment* segment = StatsSegment::Open(directory, PlainSystemCalls(), &error).release();
    if (segment == nullptr) return false;
    segment->AcquireSlot(EstablishedConnection());
    if (traced) {
      const_cast<std::atomic<uint64_t>*>(segment->trace_until())->store(~uint64_t{0});
      segment->Trace({}, 1);
    }
    return true;
  });
}

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(directory)) out.push_back(entry.path().filename());
  return out;
}

TEST_CASE("the file of a process that died is kept as ended, its trace is not") {
  TemporaryDirectory directory;
  REQUIRE(LeaveAFile(directory.path(), /*traced=*/true));
  REQUIRE(CountFiles(directory.path()) == 2);
  SECTION("a reader notices") {
    const Snapshot snapshot = ReadAll({directory.path()});
    CHECK(snapshot.processes.empty());
    CHECK(snapshot.warnings.empty());
    REQUIRE(snapshot.ended.size() == 1);
    CHECK(snapshot.ended[0].ended_at_ns != 0);
    REQUIRE(snapshot.ended[0].records.size() == 1);
    CHECK(snapshot.ended[0].records[0].fd == 7);
    CHECK(Names(directory.path()).size() == 1);
    CHECK(ReadAll({directory.path()}).ended.size() == 1);
    std::string why;
    const auto found =
        FindProcess({directory.path()}, static_cast<pid_t>(snapshot.ended[0].pid), O_RDONLY, &why);
    REQUIRE(found.has_value());
    CHECK(found->file.name.kind == FileKind::kEnded);
  }
  SECTION("the next process notices") {
    auto segment = MustOpen(directory.path());
    CHECK(CountFiles(directory.path()) == 2);
    CHECK(ReadAll({directory.path()}).ended.size() == 1);
    CHECK(ReadAll({directory.path()}).processes.size() == 1);
  }
}

TEST_CASE("what processes that died leave is bounded") {
  TemporaryDirectory directory;
  for (size_t i = 0; i < kMaxEnded + 5; ++i) REQUIRE(LeaveAFile(directory.path()));
  CHECK(ReadAll({directory.path()}).ended.size() == kMaxEnded);
  CHECK(CountFiles(directory.path()) == kMaxEnded);
}

TEST_CASE("a process that is dead but not buried has ended") {
  TemporaryDirectory directory;
  int written[2];
  REQUIRE(pipe(written) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string error;
    StatsSegment::Open(directory.path(), PlainSystemCalls(), &error).release();
    _exit(write(written[1], "x", 1) == 1 ? 0 : 1);
  }
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(ReadAll({directory.path()}).processes.empty());
  CHECK(ReadAll({directory.path()}).ended.size() == 1);
  waitpid(child, nullptr, 0);
  close(written[0]);
  close(written[1]);
}

TEST_CASE("a live process that no longer has its file mapped (exec) is not shown") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  std::string path = segment->path();
  std::string copy = directory.path() + "/copy";
  fs::copy_file(path, copy);
  segment.reset();
  fs::rename(copy, path);
  Snapshot snapshot = ReadAll({directory.path()});
  CHECK(snapshot.processes.empty());
  CHECK(snapshot.warnings.empty());
}

TEST_CASE("a directory that somebody else could write to is refused") {
  TemporaryDirectory directory;
  std::string error;
  fs::permissions(directory.path(), fs::perms::all);
  CHECK(StatsSegment::Open(directory.path(), PlainSystemCalls(), &error) == nullptr);
  CHECK_FALSE(error.empty());
  fs::permissions(directory.path(), fs::perms::owner_all);
  std::string link = directory.path() + "-link";
  fs::create_directory_symlink(directory.path(), link);
  CHECK(StatsSegment::Open(link, PlainSystemCalls(), &error) == nullptr);
  fs::remove(link);
  CHECK(StatsSegment::Open(directory.path() + "/no/such", PlainSystemCalls(), &error) == nullptr);
}

TEST_CASE("a full disk leaves the process without stats, not without sockets") {
  static std::atomic<int> writes_left;
  SystemCalls calls = PlainSystemCalls();
  calls.pwrite = [](int fd, const void* data, size_t size, off_t offset) -> ssize_t {
    if (writes_left.fetch_sub(1) > 0) return pwrite(fd, data, size, offset);
    errno = ENOSPC;
    return -1;
  };
  TemporaryDirectory directory;
  std::string error;
  writes_left = 0;
  CHECK(StatsSegment::Open(directory.path(), calls, &error) == nullptr);
  CHECK(error.find("No space left") != std::string::npos);
  CHECK(CountFiles(directory.path()) == 0);

  writes_left = 1;
  auto segment = StatsSegment::Open(directory.path(), calls, &error);
  REQUIRE(segment != nullptr);
  Slot* slot = segment->AcquireSlot(EstablishedConnection());
  while (slot != nullptr) slot = segment->AcquireSlot(EstablishedConnection());
  StatsSegment::Publish(nullptr, EstablishedConnection());
  segment->ReleaseSlot(nullptr);
  CHECK(ReadOne(directory.path()).totals.slots_refused == 1);
}

TEST_CASE("a process that gave up root goes on in its own user's directory") {
  if (geteuid() != 0) return sdp::test::Skipped("only root can become another user");
  constexpr uid_t kNobody = 54321;
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  Slot* first = segment->AcquireSlot(EstablishedConnection());
  std::string own = "/tmp/sdp-" + std::to_string(kNobody);
  segment->PrepareFork();
  CHECK(InChild([&] {
    unsetenv("XDG_RUNTIME_DIR");
    segment->ForkChild();
    if (setresuid(kNobody, kNobody, kNobody) != 0 || first == nullptr) return false;
    for (int i = 0; i < 100; ++i) {
      if (segment->AcquireSlot(EstablishedConnection()) == nullptr) return false;
    }
    bool moved = segment->path().starts_with(own + "/");
    segment->Remove();
    return moved;
  }));
  segment->ForkParent();
  std::error_code ignored;  // another run may have one of its own there
  fs::remove_all(own, ignored);
}

TEST_CASE("readers see whole records while writers publish", "[threads]") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  constexpr int kWriters = 2;
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&segment, &stop] {
      Slot* slot = segment->AcquireSlot(EstablishedConnection());
      ConnectionRecord record = EstablishedConnection();
      for (uint64_t n = 1; !stop; ++n) {
        record.counters.bytes_in[kBcopy] = record.counters.link_bytes_in = record.counters.accepted_tcp = n;
        record.opened_at_ns = n;
        StatsSegment::Publish(slot, record);
        if (n % 64 == 0) {
          segment->ReleaseSlot(slot);
          slot = segment->AcquireSlot(record);
        }
      }
      segment->ReleaseSlot(slot);
    });
  }
  int torn = 0, seen = 0;
  for (int i = 0; i < 300; ++i) {
    for (const ConnectionRecord& record : ReadOne(directory.path()).records) {
      ++seen;
      const Counters& c = record.counters;
      if (c.bytes_in[kBcopy] != c.link_bytes_in || c.link_bytes_in != c.accepted_tcp) ++torn;
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(torn == 0);
  CHECK(seen > 0);
}

TEST_CASE("a process that publishes in two places is one process") {
  TemporaryDirectory one, other;
  const auto first = MustOpen(one.path());
  const auto second = MustOpen(other.path());
  CHECK(ReadAll({one.path(), other.path()}).processes.size() == 1);
}

TEST_CASE("a connection that closes during a look is counted once", "[threads]") {
  TemporaryDirectory directory;
  auto segment = MustOpen(directory.path());
  ConnectionRecord record = EstablishedConnection();
  record.counters.bytes_in[kBcopy] = 100;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> published = 0, looks = 0;
  // At one look a connection opens, at the next it closes: sooner or later after the look's beginning.
  std::thread writer([&] {
    uint64_t seen = 0;
    const auto await_look = [&](uint64_t turns) {
      while (looks == seen && !stop) std::this_thread::yield();
      seen = looks;
      for (std::atomic<uint64_t> turn = 0; turn < turns;) ++turn;
    };
    for (uint64_t turns = 0; !stop; turns = (turns + 97) % 20'000) {
      await_look(0);
      Slot* const slot = segment->AcquireSlot(record);
      ++published;
      await_look(turns);
      segment->ReleaseSlot(slot);
    }
  });
  int missed = 0, doubled = 0;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t before = published * 100;
    ++looks;
    const ProcessStats seen = ReadOne(directory.path());
    uint64_t sum = seen.totals.bytes_in[kBcopy];
    for (const ConnectionRecord& one : seen.records) sum += one.counters.bytes_in[kBcopy];
    if (sum < before) ++missed;
    if (sum > published * 100 + 100) ++doubled;  // the last may be published, and not counted yet
  }
  stop = true;
  writer.join();
  CHECK(missed == 0);
  CHECK(doubled == 0);
}

TEST_CASE("addresses and texts") {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(80);
  in.sin_addr.s_addr = htonl(0x0A000002);
  Address four = ToAddress(reinterpret_cast<sockaddr*>(&in));
  Address wanted = Ipv4(2, 80);
  CHECK(memcmp(&four, &wanted, sizeof four) == 0);
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(443);
  in6.sin6_addr = in6addr_loopback;
  in6.sin6_scope_id = 3;
  Address six = ToAddress(reinterpret_cast<sockaddr*>(&in6));
  CHECK(six.family == 6);
  CHECK(six.port == 443);
  CHECK(six.scope_id == 3);
  CHECK(six.ip[15] == 1);
  sockaddr local{};
  local.sa_family = AF_UNIX;
  CHECK(ToAddress(&local).family == 0);
  char text[4] = {'x', 'x', 'x', 'x'};
  SetText(text, "abcdef");
  CHECK(std::string(text) == "abc");
  SetText(text, "");
  CHECK(text[3] == '\0');
}

}  // namespace
}  // namespace sdp::stats
