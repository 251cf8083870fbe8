// Two sessions over a real pair of queue pairs, in one thread.
#ifndef SDP_TEST_PRELOAD_SESSION_PAIR_H_
#define SDP_TEST_PRELOAD_SESSION_PAIR_H_

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <utility>

#include "preload/socket/session.h"
#include "test/verbs/qp_pair.h"

namespace sdp::preload {

// The process has no statistics from here on. The owner of a socket's session has `link.z.fd`.
struct SessionPair {
  explicit SessionPair(const engine::Options& of_peer, const engine::Options& of_socket, bool local = false) {
    setenv("SDP_STATS_DIR", "/dev/null/none", 1);
    iwarp::test::PairOptions pair;
    pair.a.local_link = pair.z.local_link = local;
    pair.a_qp = {.receive_buffer_size = of_peer.receive_buffer_size,
                 .initial_receives = of_peer.receive_buffers};
    pair.z_qp = {.receive_buffer_size = of_socket.receive_buffer_size,
                 .initial_receives = of_socket.receive_buffers};
    link = iwarp::test::MakePair(pair);
    auto connecting = std::make_unique<engine::Engine>(engine::Role::kConnecting, of_peer);
    auto accepting = std::make_unique<engine::Engine>(engine::Role::kAccepting, of_socket);
    REQUIRE(accepting->HandleHello(connecting->Hello()).has_value());
    REQUIRE(connecting->HandleReply(accepting->HelloAck()).has_value());
    peer = std::make_unique<Session>(std::move(connecting), std::move(link.a.qp));
    session = std::make_unique<Session>(std::move(accepting), std::move(link.z.qp));
    session->Pump();
  }

  iwarp::test::QpPair link;
  std::unique_ptr<Session> peer;
  std::unique_ptr<Session> session;
};

}  // namespace sdp::preload

#endif  // SDP_TEST_PRELOAD_SESSION_PAIR_H_
