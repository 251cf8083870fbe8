// A peer that speaks whatever bytes a test wants to a QueuePair of ours over loopback TCP.
#ifndef SDP_TEST_VERBS_RAW_PEER_H_
#define SDP_TEST_VERBS_RAW_PEER_H_

#include <memory>
#include <vector>

#include "test/verbs/bytes.h"
#include "test/verbs/link_pair.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::iwarp::test {

struct RawPeer {
  Fd fd;
  Fd qp_fd;
  std::unique_ptr<verbs::QueuePair> qp;  // the responder, established

  void Send(Bytes bytes) const;
  // Lets the QueuePair move until it has read all that was sent or has ended.
  void Run() const;
  // What the QueuePair has sent, until it falls silent (it moves meanwhile) or has closed.
  std::vector<std::byte> Receive() const;
};

// `request`: an MPA Request in hex, from the flags on ("00 01 0000").
RawPeer MakeRawPeer(const verbs::QpOptions& qp, const SoftOptions& options = {},
                    std::string_view request = "00 01 0000");

}  // namespace sdp::iwarp::test

#endif  // SDP_TEST_VERBS_RAW_PEER_H_
