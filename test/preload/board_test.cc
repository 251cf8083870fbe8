// Who is told of a change, and how often.
#include "preload/socket/board.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/core/engine_pair.h"
#include "test/preload/scripted_session.h"

namespace sdp::preload {
namespace {

struct Listener final : public ReadinessObserver {
  void OnChange(int fd) override { heard.push_back("change " + std::to_string(fd)); }
  void OnWatch(int fd, int link_fd, short events, Session&) override {
    heard.push_back("watch " + std::to_string(fd) + " at " + std::to_string(link_fd) + " for " +
                    std::to_string(events));
  }
  void OnPlain(int fd) override { heard.push_back("plain " + std::to_string(fd)); }
  std::vector<std::string> Take() { return std::exchange(heard, {}); }

  std::vector<std::string> heard;
};
using Heard = std::vector<std::string>;

TEST_CASE("board: data is an edge for readers, an end for both, room for writers") {
  engine::EnginePair pair({}, {});
  const engine::Engine& e = pair.z.engine;
  Board board;
  const Board::Edges before = board.edges(e);
  pair.a.Send("x");
  pair.Settle();
  const Board::Edges with_data = board.edges(e);
  CHECK(with_data.read > before.read);
  CHECK(with_data.write == before.write);
  board.Bump();
  CHECK(board.edges(e) == Board::Edges{.read = with_data.read + 1, .write = with_data.write + 1});
  CHECK(board.edges() == Board::Edges{.read = 1, .write = 1});
  board.NoteRoom(false);
  CHECK(board.edges(e).write == with_data.write + 1);
  board.NoteRoom(true);
  CHECK(board.full());
  CHECK(board.edges(e).write == with_data.write + 1);
  board.NoteRoom(false);
  CHECK(board.edges(e) == Board::Edges{.read = with_data.read + 1, .write = with_data.write + 2});
}

TEST_CASE("board: each edge wakes the waiters once") {
  engine::EnginePair pair({}, {});
  Board board;
  (void)board.Compare(pair.z.engine);
  const uint64_t wakes = board.wakes();
  CHECK_FALSE(board.Compare(pair.z.engine));
  CHECK(board.wakes() == wakes);
  pair.a.Send("x");
  pair.Settle();
  CHECK(board.Compare(pair.z.engine));
  CHECK(board.wakes() == wakes + 1);
  CHECK_FALSE(board.Compare(pair.z.engine));
  board.Bump();
  CHECK(board.Compare(pair.z.engine));
  CHECK(board.wakes() == wakes + 2);
}

TEST_CASE("board: an observer hears of another watch once, and of each change") {
  Connected c(10);
  Listener listener;
  Board board;
  CHECK_FALSE(board.observed());
  CHECK(board.empty());
  board.Observe(&listener, 5, -1);
  CHECK(board.observed());
  CHECK_FALSE(board.empty());
  board.TellObservers(*c.session, 1, false);
  CHECK(listener.Take() == Heard{"watch 5 at 5 for 1"});
  board.TellObservers(*c.session, 1, true);
  CHECK(listener.Take() == Heard{"change 5"});
  // Where the link is the RNIC's descriptor, here none.
  Connected device(16, std::make_unique<ScriptedQueuePair>(ScriptedQueuePair::Kind::kDevice));
  board.TellObservers(*device.session, 4, true);
  CHECK(listener.Take() == Heard{"watch 5 at -1 for 4", "change 5"});
  board.TellChange();
  CHECK(listener.Take() == Heard{"change 5"});
}

TEST_CASE("board: an observer is forgotten by descriptor") {
  Listener listener;
  Board board;
  board.Observe(&listener, 5, 0);
  board.Observe(&listener, 6, 0);
  board.Forget(&listener, 5);
  board.TellChange();
  CHECK(listener.Take() == Heard{"change 6"});
}

TEST_CASE("board: who hears that the socket is plain TCP, or closed, hears nothing behind that") {
  Listener listener;
  Board board;
  board.Observe(&listener, 5, 0);
  const uint64_t wakes = board.wakes();
  board.TellPlain();
  CHECK(listener.Take() == Heard{"plain 5"});
  CHECK(board.wakes() == wakes + 1);
  CHECK_FALSE(board.observed());
  board.Observe(&listener, 5, 0);
  board.TellClosed();
  CHECK(board.wakes() == wakes + 2);
  board.TellChange();
  CHECK(listener.Take().empty());
}

}  // namespace
}  // namespace sdp::preload
