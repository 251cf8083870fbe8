// What an idle connection takes of a process's own memory. scripts/bench memory has the whole, with the pages
// that the ends share and what the kernel has.
#include <malloc.h>

#include <catch2/catch.hpp>
#include <list>
#include <span>

#include "preload/socket/stream_socket.h"
#include "test/preload/session_pair.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // under which mallinfo2 counts nothing

namespace sdp::preload {
namespace {

void SendByte(Session& from, Session& to) {
  std::byte byte{'x'};
  const Bytes sent(&byte, 1);
  REQUIRE(from.Send(std::span(&sent, 1), {}) == 1);
  while (to.Read()) {
  }
  const MutableBytes room(&byte, 1);
  REQUIRE(to.engine().Receive(std::span(&room, 1), {}) == 1);
  to.Pump();
}

TEST_CASE("idle memory: an end that has sent and received a byte takes few bytes") {
  const bool local = GENERATE(false, true);
  CAPTURE(local);
  constexpr size_t kPairs = 16;
  std::list<SessionPair> pairs;
  size_t before = 0;
  for (size_t i = 0; i <= kPairs; ++i) {
    SessionPair& pair = pairs.emplace_back(engine::Options{}, engine::Options{}, local);
    SendByte(*pair.peer, *pair.session);
    SendByte(*pair.session, *pair.peer);
    if (i == 0) before = mallinfo2().uordblks;  // with what all connections have in common
  }
  const size_t session = (mallinfo2().uordblks - before) / kPairs / 2;
  CHECK(session < (local ? 3900 : 3500));
  CHECK(sizeof(StreamSocket) <= 1000);
}

}  // namespace
}  // namespace sdp::preload

#endif
