// Two QueuePairs of the embedded RNIC over loopback TCP, in one thread: `a` connects, `z` accepts.
#ifndef SDP_TEST_VERBS_QP_PAIR_H_
#define SDP_TEST_VERBS_QP_PAIR_H_

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "test/verbs/link_pair.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::iwarp::test {

inline Bytes AsBytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
std::string Text(const verbs::Completion& completion);
std::vector<std::byte> Pattern(size_t size, uint32_t seed = 1);

struct PairOptions {
  SoftOptions a;
  SoftOptions z;
  verbs::QpOptions a_qp{.receive_buffer_size = 1 << 20, .initial_receives = 64};
  verbs::QpOptions z_qp{.receive_buffer_size = 1 << 20, .initial_receives = 64};
  bool blocking = false;
};

struct Side {
  Fd fd;
  std::unique_ptr<verbs::QueuePair> qp;

  // Posts and flushes one Send that carries `text`.
  verbs::PostResult Send(std::string_view text, bool signaled = false);
};

// Waits on poll() for what both sides are interested in and lets both move, until `done` or for ten seconds;
// false: in vain.
bool RunUntil(Side& a, Side& z, const std::function<bool()>& done);
// The next completion of `self`, letting both sides move; fails the test when none comes.
verbs::Completion NextCompletion(Side& self, Side& other);

struct QpPair {
  Side a;
  Side z;
};
// Connects with private data "hello" and "welcome".
QpPair MakePair(const PairOptions& options = {});
// The same on sockets at hand.
QpPair MakePairOn(std::array<Fd, 2> fds, const PairOptions& options);

}  // namespace sdp::iwarp::test

#endif  // SDP_TEST_VERBS_QP_PAIR_H_
