// Two connected QueuePairs of any two backends, for the suite that holds every backend to what rnic.h
// promises.
#ifndef SDP_TEST_VERBS_RNIC_PAIRS_H_
#define SDP_TEST_VERBS_RNIC_PAIRS_H_

#include <functional>
#include <memory>
#include <string>

#include "test/verbs/link_pair.h"
#include "verbs/ibv/ibv_rnic.h"
#include "verbs/rnic.h"

namespace sdp::verbs::test {

enum class Backend : uint8_t { kSoft, kIbv, kLocal };  // kLocal: the embedded RNIC on a local link, both ends
const char* ToString(Backend backend);

// True if this host has the backend; else says why not, once. A kernel RNIC is looked for at
// SDP_TEST_RNIC_ADDRESS, by default where scripts/siw-guest has one.
bool Have(Backend backend);

struct Options {
  Backend a = Backend::kSoft;
  Backend z = Backend::kSoft;
  bool crc = false;  // asked for by an embedded RNIC on either side
  QpOptions qp{.receive_buffer_size = 64 * 1024, .initial_receives = 32, .ird = 8, .ord = 8};
  std::string hello = "hello";
  std::string welcome = "welcome";
  bool reject = false;
};

// One end: what it takes to reach it, and its connector, then its QueuePair.
struct End {
  iwarp::test::Fd fd;  // of an embedded RNIC
  std::unique_ptr<Connector> connector;
  std::unique_ptr<QueuePair> qp;
  ConnectState state = ConnectState::kInProgress;
};

struct RnicPair {
  End a;  // connects
  End z;  // accepts
};

// Shakes hands until both sides know the outcome; takes the QueuePairs of those that are established.
RnicPair Meet(const Options& options);

// Waits for what both sides are interested in and lets them move, until `done`; false after a minute.
bool RunUntil(RnicPair& pair, const std::function<bool()>& done);
Completion Next(End& self, RnicPair& pair);
std::string Text(const Completion& completion);
PostResult Send(End& end, std::string_view text, bool signaled = false);

}  // namespace sdp::verbs::test

#endif  // SDP_TEST_VERBS_RNIC_PAIRS_H_
