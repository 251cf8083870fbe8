// What a call on a connection that several processes hold leaves to the others. The second holder is this
// process, too.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <utility>

#include "preload/socket/forking.h"
#include "preload/socket/shared_connection.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/watch.h"
#include "test/preload/session_pair.h"

namespace sdp::preload {
namespace {

using View = SharedConnection::View;

struct Shared {
  Shared() {
    socket = new StreamSocket(AF_INET, fd(), std::move(pair.session), {}, {}, {}, /*nonblocking=*/true);
    // As around a fork.
    SharedArena::InviteChild();
    REQUIRE(StreamSocket::Forking(*socket).LockForFork());
    StreamSocket::Forking(*socket).ShareWithChild();
    StreamSocket::Forking(*socket).UnlockAfterFork();
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
  [[nodiscard]] int fd() const { return pair.link.z.fd.value; }

  ssize_t Receive() {
    char c;
    const iovec room{.iov_base = &c, .iov_len = 1};
    return socket->Receive(fd(), &room, 1, 0, nullptr);
  }
  // What the other holder finds, and takes.
  View OthersView() {
    const View view = other->Lock();
    std::vector<std::byte> state;
    if (view == View::kStale) REQUIRE(other->Read(&state));
    other->Unlock();
    return view;
  }

  SessionPair pair{{}, {}};
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
    CHECK((Watch(*s.socket).GetReadiness().events & (POLLIN | POLLOUT)) == POLLOUT);
    CHECK(s.OthersView() == View::kCurrent);
  }
  const iovec word{.iov_base = const_cast<char*>("w"), .iov_len = 1};
  CHECK(s.socket->Send(s.fd(), &word, 1, 0) == 1);
  CHECK(s.OthersView() == View::kStale);
}

}  // namespace
}  // namespace sdp::preload
