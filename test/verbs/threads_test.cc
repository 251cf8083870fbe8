// Queue pairs in many threads.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Access;
using verbs::Completion;

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
