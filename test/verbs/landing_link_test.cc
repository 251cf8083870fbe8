// Payload read from the link straight into the memory of a reader who waits, over a socket.
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>

#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

constexpr size_t kHeader = 16;
constexpr size_t kMessage = kHeader + 32768;
constexpr size_t kRoom = 1 << 20;

// Sends all of it, in messages of kMessage bytes.
bool Stream(Side& side, const std::vector<std::byte>& data) {
  for (size_t at = 0; at < data.size(); at += kMessage) {
    const Bytes payload = Bytes(data).subspan(at, std::min(kMessage, data.size() - at));
    if (side.qp->PostSend({.id = WorkId(1), .payload = {&payload, 1}}) != verbs::PostResult::kOk)
      return false;
    while (!side.qp->Flush()) {
      pollfd fd{.fd = side.fd.value, .events = POLLOUT, .revents = 0};
      if (::poll(&fd, 1, 20000) != 1) return false;
    }
  }
  return true;
}

// Reads with `memory` to land in until all of `data` is here; false if it is not what was sent.
bool Receive(Side& side, const std::vector<std::byte>& data, MutableBytes memory) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  verbs::DroppedLock dropped(lock);
  for (size_t at = 0; at < data.size();) {
    side.qp->Land(memory, kHeader);
    if (side.qp->ReadLinkBlocking(dropped, verbs::SleeperMemory::kOthers) == verbs::ReadStatus::kEnded)
      return false;
    for (verbs::Completion c; side.qp->PollCompletion(&c);) {
      for (size_t i = 0; i < c.piece_count; at += c.pieces[i++].size()) {
        if (!std::equal(c.pieces[i].begin(), c.pieces[i].end(), data.begin() + static_cast<ptrdiff_t>(at)))
          return false;
      }
      side.qp->Release(c.token);
      side.qp->PostReceives(1);
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a sleeping reader with memory to land in: most of a stream comes there") {
  const bool crc = GENERATE(false, true);
  PairOptions options;
  options.blocking = true;
  options.a.want_crc = crc;
  QpPair p = MakePair(options);
  const std::vector<std::byte> data = Pattern(600 * kMessage, 3);
  bool sent = false;
  std::thread writer([&] { sent = Stream(p.a, data); });
  std::vector<std::byte> memory(kRoom);
  const bool right = Receive(p.z, data, memory);
  if (!right) p.z.qp->Abort();
  writer.join();
  CHECK(right);
  CHECK(sent);
  if (crc) {
    CHECK(p.z.qp->counters().placed_in == 0);  // not before it was checked
  } else {
    CHECK(p.z.qp->counters().placed_in > data.size() / 2);
  }
}

TEST_CASE("memory to land in that cannot be written: what comes goes the ordinary way") {
  PairOptions options;
  options.blocking = true;
  QpPair p = MakePair(options);
  void* const nothing = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(nothing != MAP_FAILED);
  const std::vector<std::byte> data = Pattern(60 * kMessage, 4);
  bool sent = false;
  std::thread writer([&] { sent = Stream(p.a, data); });
  const bool right = Receive(p.z, data, {static_cast<std::byte*>(nothing), kRoom});
  if (!right) p.z.qp->Abort();
  writer.join();
  CHECK(right);
  CHECK(sent);
  ::munmap(nothing, kRoom);
}

}  // namespace sdp::iwarp::test
