// What a call on a connection that several processes hold leaves to the others. The second holder is this
// process, too.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "preload/socket/forking.h"
#include "preload/socket/shared_connection.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/watch.h"
#include "test/verbs/qp_pair.h"

namespace sdp::preload {
namespace {

using View = SharedConnection::View;

struct Shared {
  Shared() {
    setenv("SDP_STATS_DIR", "/dev/null/none", 1);  // no statistics: whatever can be made is
    const engine::Options options;
    const verbs::QpOptions queue{.receive_buffer_size = options.receive_buffer_size,
                                 .initial_receives = options.receive_buffers};
    iwarp::test::PairOptions pair;
    pair.a_qp = pair.z_qp = queue;
    link = iwarp::test::MakePair(pair);
    auto connecting = std::make_unique<engine::Engine>(engine::Role::kConnecting, options);
    auto accepting = std::make_unique<engine::Engine>(engine::Role::kAccepting, options);
    REQUIRE(accepting->HandleHello(connecting->Hello()).has_value());
    REQUIRE(connecting->HandleReply(accepting->HelloAck()).has_value());
    peer = std::make_unique<Session>(std::move(connecting), std::move(link.a.qp));
    auto session = std::make_unique<Session>(std::move(accepting), std::move(link.z.qp));
    session->Pump();
    socket = new StreamSocket(AF_INET, link.z.fd.value, std::move(session), {}, {}, {}, /*nonblocking=*/true);
    // As around a fork.
    SharedArena::InviteChild();
    REQUIRE(socket->forking().LockForFork());
    socket->forking().ShareWithChild();
    socket->forking().UnlockAfterFork();
    SharedArena* const arena = SharedArena::Own();
    REQUIRE(arena != nullptr);
    for (uint32_t number = 0; other == nullptr && number < 16; ++number)
      other = SharedConnection::Join(arena, number, arena->child(), -1);
    REQUIRE(other != nullptr);
  }
  ~Shared() {
    other.reset();
    socket->Unref();
  }

  ssize_t Receive() {
    char c;
    const iovec room{.iov_base = &c, .iov_len = 1};
    return socket->Receive(link.z.fd.value, &room, 1, 0, nullptr);
  }
  // What the other holder finds, and takes.
  View OthersView() {
    const View view = other->Lock();
    std::vector<std::byte> state;
    if (view == View::kStale) REQUIRE(other->Read(&state));
    other->Unlock();
    return view;
  }

  iwarp::test::QpPair link;
  std::unique_ptr<Session> peer;
  StreamSocket* socket;
  std::unique_ptr<SharedConnection> other;
};

TEST_CASE("shared socket: who looks in vain leaves nothing to the others") {
  Shared s;
  CHECK(s.Receive() == -1);
  s.OthersView();
  for (int i = 0; i < 3; ++i) {
    CHECK(s.Receive() == -1);
    CHECK(errno == EAGAIN);
    CHECK((s.socket->watch().GetReadiness().events & (POLLIN | POLLOUT)) == POLLOUT);
    CHECK(s.OthersView() == View::kCurrent);
  }
  const iovec word{.iov_base = const_cast<char*>("w"), .iov_len = 1};
  CHECK(s.socket->Send(s.link.z.fd.value, &word, 1, 0) == 1);
  CHECK(s.OthersView() == View::kStale);
}

}  // namespace
}  // namespace sdp::preload
