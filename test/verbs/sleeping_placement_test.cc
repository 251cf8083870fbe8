// A thread that sleeps in the link's read and whose own memory is open to the peer: data comes straight into
// it.
#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>
#include <string>
#include <thread>

#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

constexpr size_t kSize = 3 << 20;
constexpr int kMessages = 8;

// Writes `data` to `to`, says so, and waits for the answer.
bool WriteAndTell(Side& side, const std::vector<std::byte>& data, STag stag, uint64_t to) {
  const Bytes payload(data);
  const Bytes done = AsBytes("done");
  bool posted = side.qp->PostRdmaWrite(
                    {.id = WorkId(1), .local = {&payload, 1}, .remote_stag = stag, .remote_to = to}) ==
                verbs::PostResult::kOk;
  posted = posted && side.qp->PostSend({.id = WorkId(2), .payload = {&done, 1}}) == verbs::PostResult::kOk;
  for (verbs::Completion c; posted;) {
    side.qp->Flush();
    pollfd fd{.fd = side.fd.value,
              .events = static_cast<short>(POLLIN | (side.qp->interest().write ? POLLOUT : 0)),
              .revents = 0};
    if (::poll(&fd, 1, 20000) != 1 || side.qp->ReadLink() == verbs::ReadStatus::kEnded) return false;
    while (side.qp->PollCompletion(&c)) {
      if (c.opcode != verbs::Opcode::kReceive) continue;
      const bool right = Text(c) == "next";
      side.qp->Release(c.token);
      return right;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("a sleeping reader whose memory the peer writes: nearly all of it is read to its place") {
  PairOptions options;
  options.blocking = true;
  QpPair p = MakePair(options);
  std::vector<std::byte> memory(kSize);
  const auto region = p.z.qp->Register(memory, verbs::Access::kRemoteWrite);
  REQUIRE(region);
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t i = 0; i < kMessages; ++i) sent.push_back(Pattern(kSize - i * 777, i + 1));
  std::thread writer([&] {
    for (const auto& data : sent) {
      if (!WriteAndTell(p.a, data, region->stag, region->base_to)) break;
    }
  });
  std::mutex mutex;
  std::unique_lock lock(mutex);
  verbs::DroppedLock dropped(lock);
  size_t written = 0;
  int right = 0;
  for (bool open = true; open && right < kMessages;) {
    open = p.z.qp->sleepable()->ReadLinkBlocking(dropped, verbs::SleeperMemory::kOwn) !=
           verbs::ReadStatus::kEnded;
    for (verbs::Completion c; open && p.z.qp->PollCompletion(&c);) {
      if (c.opcode != verbs::Opcode::kReceive) continue;
      const auto& data = sent[static_cast<size_t>(right)];
      open = Text(c) == "done" && std::equal(data.begin(), data.end(), memory.begin());
      written += data.size();
      ++right;
      p.z.qp->Release(c.token);
      p.z.Send("next");
    }
  }
  CHECK(right == kMessages);
  if (right < kMessages) p.z.qp->Abort();
  writer.join();
  // The rest is what came with the headers.
  CHECK(p.z.qp->counters().placed_in > written - written / 5);
}

}  // namespace sdp::iwarp::test
