// A thread that sleeps in the link's read while others use its queue pair; and queue pairs in many threads.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Access;
using verbs::Completion;
using verbs::PostResult;
using verbs::ReadStatus;

// A thread in one ReadLinkBlocking() of `qp`.
class SleepingReader {
 public:
  explicit SleepingReader(verbs::QueuePair* qp)
      : thread_([this, qp] {
          std::unique_lock lock(mutex_);
          verbs::DroppedLock dropped(lock);
          begun_ = true;
          told_.notify_one();
          status_ = qp->sleepable()->ReadLinkBlocking(dropped, verbs::SleeperMemory::kOthers);
        }) {}
  // The owner's lock, while the thread is inside its read: that is when it lets go of the lock.
  std::unique_lock<std::mutex> LockAsleep() {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [this] { return begun_; });
    return lock;
  }
  // What the read has returned.
  ReadStatus Status() {
    thread_.join();
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  bool begun_ = false;
  ReadStatus status_{};
  std::thread thread_;
};

TEST_CASE("a sleeping reader: others post, flush, register and release meanwhile") {
  PairOptions options;
  options.blocking = true;
  options.a_qp = options.z_qp = {.receive_buffer_size = 1 << 20, .initial_receives = 100000};
  QpPair p = MakePair(options);
  constexpr int kMessages = 300;
  std::mutex mutex;  // the owner's lock of z
  int received = 0;
  std::thread reader([&] {
    std::unique_lock lock(mutex);
    verbs::DroppedLock dropped(lock);
    while (received < kMessages) {
      if (p.z.qp->sleepable()->ReadLinkBlocking(dropped, verbs::SleeperMemory::kOthers) == ReadStatus::kEnded)
        break;
      Completion c;
      while (p.z.qp->PollCompletion(&c)) {
        if (c.opcode != verbs::Opcode::kReceive) continue;
        const std::string text = Text(c);
        received += std::all_of(text.begin(), text.end(), [&](char x) { return x == text[0]; }) ? 1 : 1000000;
        p.z.qp->Release(c.token);
      }
    }
  });
  std::thread writer([&] {
    std::vector<std::byte> memory(100);
    for (int i = 0; i < kMessages; ++i) {
      const std::unique_lock lock(mutex);
      const auto region = p.z.qp->Register(memory, Access::kRemoteWrite);
      const Bytes payload = AsBytes("back");
      p.z.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
      if (!p.z.qp->Flush()) p.z.qp->DetachBorrowed();
      p.z.qp->PostReceives(1);
      p.z.qp->Deregister(region->stag);
    }
  });
  size_t back = 0;
  for (int i = 0; i < kMessages; ++i) {
    const std::string text(static_cast<size_t>(1 + i * 331 % 50000), static_cast<char>('a' + i % 26));
    const Bytes payload = AsBytes(text);
    p.a.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
    while (!p.a.qp->Flush()) {
      pollfd fd{.fd = p.a.fd.value, .events = POLLOUT | POLLIN, .revents = 0};
      ::poll(&fd, 1, 1000);
      p.a.qp->ReadLink();
    }
    Completion c;
    while (p.a.qp->PollCompletion(&c)) {
      ++back;
      p.a.qp->Release(c.token);
    }
  }
  reader.join();
  writer.join();
  CHECK(received == kMessages);
  while (back < kMessages) {
    pollfd fd{.fd = p.a.fd.value, .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&fd, 1, 5000) == 1);
    p.a.qp->ReadLink();
    Completion c;
    while (p.a.qp->PollCompletion(&c)) {
      ++back;
      p.a.qp->Release(c.token);
    }
  }
}

TEST_CASE("Abort wakes a sleeping reader") {
  PairOptions options;
  options.blocking = true;
  QpPair p = MakePair(options);
  p.z.qp->ReadLink();  // the RTR
  // ThreadSanitizer takes a connect for the descriptor's beginning, and a read of the same descriptor that
  // ends after it for a race.
  const ChangedLinkCalls unseen([](LinkCalls& calls) {
    calls.connect = [](int fd, const sockaddr* address, socklen_t length) {
      return static_cast<int>(syscall(SYS_connect, fd, address, length));
    };
  });
  SleepingReader reader(p.z.qp.get());
  {
    const auto lock = reader.LockAsleep();
    p.z.qp->Abort();
  }
  CHECK(reader.Status() == ReadStatus::kEnded);
}

// The link's calls: no more is sent than is allowed, and it is counted how often a kernel was told to
// acknowledge at once.
std::atomic<size_t> may_send{0};
std::atomic<int> acknowledged{0};

ssize_t SendLittle(int fd, const msghdr* message, int flags) {
  const size_t size = std::min<size_t>(message->msg_iov[0].iov_len, may_send);
  if (size == 0) {
    errno = EAGAIN;
    return -1;
  }
  may_send -= size;
  return ::send(fd, message->msg_iov[0].iov_base, size, flags);
}

int CountOption(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == IPPROTO_TCP && name == TCP_QUICKACK) ++acknowledged;
  return ::setsockopt(fd, level, name, value, length);
}

TEST_CASE("a sleeping reader has what came of a message acknowledged: the sender may have room for no more") {
  PairOptions options;
  options.blocking = true;
  QpPair p = MakePair(options);
  p.z.qp->ReadLink();  // the RTR
  const ChangedLinkCalls little([](LinkCalls& calls) {
    calls.sendmsg = SendLittle;
    calls.send = nullptr;
    calls.setsockopt = CountOption;
  });
  acknowledged = 0;
  const std::string text(1000, 't');
  may_send = 500;
  REQUIRE(p.a.Send(text) == PostResult::kOk);
  {
    SleepingReader reader(p.z.qp.get());  // at the beginning of a message
    CHECK(reader.Status() == ReadStatus::kProgress);
  }
  CHECK(acknowledged == 0);
  SleepingReader reader(p.z.qp.get());
  {
    const auto lock = reader.LockAsleep();
    CHECK(acknowledged == 1);
  }
  may_send = SIZE_MAX;
  CHECK(p.a.qp->Flush());
  CHECK(reader.Status() == ReadStatus::kProgress);
  CHECK(Text(NextCompletion(p.z, p.a)) == text);
}

TEST_CASE("many QueuePairs in many threads share what the process shares") {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    auto pair = std::make_shared<QpPair>(MakePair());
    threads.emplace_back([pair] {
      const std::string text(70000, 'q');
      std::vector<std::byte> memory(100);
      for (int i = 0; i < 50; ++i) {
        const Bytes payload = AsBytes(text);
        pair->a.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
        if (!pair->a.qp->Flush()) pair->a.qp->DetachBorrowed();
        const auto region = pair->z.qp->Register(memory, Access::kRemoteRead);
        Completion c;
        while (!pair->z.qp->PollCompletion(&c)) {
          pair->z.qp->ReadLink();
          pair->a.qp->Flush();
        }
        pair->z.qp->Release(c.token);
        pair->z.qp->PostReceives(1);
        pair->z.qp->Deregister(region->stag);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sdp::iwarp::test
