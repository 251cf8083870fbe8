// Chains of work requests, with a device that the test plays.
#include "verbs/ibv/send_chain.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

namespace sdp::ibv {
namespace {

struct Posted {
  uint64_t id;
  uint64_t address;
  uint32_t length;
};
std::vector<std::vector<Posted>> calls;
int answer = 0;

int PostSend(ibv_qp*, ibv_send_wr* request, ibv_send_wr** refused) {
  calls.emplace_back();
  if (answer != 0) *refused = request;
  for (; request != nullptr; request = request->next) {
    const bool piece = request->num_sge == 1;
    REQUIRE(request->num_sge <= 1);
    calls.back().push_back({.id = request->wr_id,
                            .address = piece ? request->sg_list->addr : 0,
                            .length = piece ? request->sg_list->length : 0});
  }
  return answer;
}

struct Fixture {
  Fixture() {
    calls.clear();
    answer = 0;
    context.ops.post_send = PostSend;
    queue_pair.context = &context;
  }
  void Add(uint64_t id, uint64_t address, uint32_t length, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = opcode;
    chain.Add(request, {.addr = address, .length = length, .lkey = 1});
  }

  ibv_context context{};
  ibv_qp queue_pair{};
  SendChain chain;
};

TEST_CASE_METHOD(Fixture, "What is added goes to the device in one call, in order, each with its own piece") {
  CHECK(chain.empty());
  Add(1, 1000, 10);
  Add(2, 2000, 0);
  Add(3, 3000, 30, IBV_WR_RDMA_READ);
  CHECK(calls.empty());
  CHECK(chain.Post(&queue_pair) == 0);
  REQUIRE(calls.size() == 1);
  REQUIRE(calls[0].size() == 3);
  CHECK(calls[0][0].address == 1000);
  CHECK(calls[0][1].address == 0);
  CHECK(calls[0][2].id == 3);
  CHECK(calls[0][2].length == 30);
  CHECK(chain.empty());
}

TEST_CASE_METHOD(Fixture, "A chain is full by requests or by bytes, and begins anew when it was posted") {
  for (size_t i = 0; i < SendChain::kMost; ++i) {
    CHECK_FALSE(chain.full());
    Add(i, 1, 1);
  }
  CHECK(chain.full());
  CHECK(chain.Post(&queue_pair) == 0);
  Add(100, 1, SendChain::kMostBytes);
  CHECK(chain.full());
  CHECK(chain.Post(&queue_pair) == 0);
  Add(101, 1, 1);
  CHECK_FALSE(chain.full());
  CHECK(chain.Post(&queue_pair) == 0);
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].size() == SendChain::kMost);
  CHECK(calls[1].size() == 1);
  CHECK(calls[2].size() == 1);
}

TEST_CASE_METHOD(Fixture, "An RDMA Read names its sink even for nothing; what is refused is told, and gone") {
  Add(1, 1000, 0, IBV_WR_RDMA_READ);
  answer = GENERATE(EINVAL, -EINVAL);
  CHECK(chain.Post(&queue_pair) == EINVAL);
  REQUIRE(calls[0].size() == 1);
  CHECK(calls[0][0].address == 1000);
  CHECK(chain.empty());
}

}  // namespace
}  // namespace sdp::ibv
