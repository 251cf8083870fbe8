// The urgent mark as its reader and the socket's owner are told of it.
#include "preload/socket/urgent_mark.h"

#include <catch2/catch.hpp>
#include <string>

#include "test/core/engine_pair.h"

namespace sdp::preload {
namespace {

// A reader's engine, and a writer that sends to it.
struct EnginePeer {
  void Send(const std::string& text, bool urgent) {
    REQUIRE(pair.a.Send(text, {.out_of_band = urgent}) == text.size());
    pair.Settle();
  }
  std::string Read(size_t size) { return pair.z.Read(size); }
  engine::Engine& reader() { return pair.z.engine; }

  engine::EnginePair pair{{}, {}};
};

TEST_CASE("urgent mark: a receive that begins at the mark has passed it, and takes the byte away") {
  EnginePeer peer;
  UrgentMark mark;
  peer.Send("ab!", /*urgent=*/true);
  engine::Engine& e = peer.reader();
  CHECK(mark.urgent(e));
  CHECK_FALSE(mark.at_mark(e));
  CHECK(mark.readable_at_once(e) == 2);
  CHECK_FALSE(mark.Pass(e, false));  // the mark is not next
  CHECK(peer.Read(8) == "ab");
  CHECK(mark.at_mark(e));
  CHECK(mark.Pass(e, false));
  CHECK(e.TakeOob({}).has_value());
  CHECK(mark.passed(e));
  CHECK_FALSE(mark.at_mark(e));
  CHECK_FALSE(mark.urgent(e));
}

TEST_CASE("urgent mark: with the byte in line no receive passes the mark by itself") {
  EnginePeer peer;
  peer.reader().SetOutOfBandInline(true);
  UrgentMark mark;
  peer.Send("!", /*urgent=*/true);
  CHECK_FALSE(mark.Pass(peer.reader(), true));
  CHECK(mark.at_mark(peer.reader()));
  CHECK(peer.Read(1) == "!");
}

TEST_CASE("urgent mark: another urgent byte at a passed mark is a mark again") {
  EnginePeer peer;
  UrgentMark mark;
  engine::Engine& e = peer.reader();
  peer.Send("!", /*urgent=*/true);
  REQUIRE(mark.Pass(e, false));
  e.TakeOob({});
  REQUIRE(mark.passed(e));
  peer.Send("?", /*urgent=*/true);
  CHECK_FALSE(mark.passed(e));
  CHECK(mark.urgent(e));
}

TEST_CASE("urgent mark: bytes behind a passed mark are readable, and reading them ends the passing") {
  EnginePeer peer;
  UrgentMark mark;
  engine::Engine& e = peer.reader();
  peer.Send("!", /*urgent=*/true);
  REQUIRE(mark.Pass(e, false));
  e.TakeOob({});
  peer.Send("cd", /*urgent=*/false);
  CHECK(mark.readable_at_once(e) == 2);
  mark.NoteRead();
  CHECK_FALSE(mark.passed(e));
}

TEST_CASE("urgent mark: each announcement is told once, also when the engine counts anew") {
  EnginePeer peer;
  UrgentMark mark;
  engine::Engine& e = peer.reader();
  CHECK_FALSE(mark.TakeAnnouncement(e));
  peer.Send("!", /*urgent=*/true);
  CHECK(mark.TakeAnnouncement(e));
  CHECK_FALSE(mark.TakeAnnouncement(e));
  mark.ForgetAnnouncements();
  CHECK(mark.TakeAnnouncement(e));
}

TEST_CASE("urgent mark: a signal that was raised is taken once") {
  UrgentMark mark;
  CHECK_FALSE(mark.TakeRaised());
  mark.NoteRaised();
  CHECK(mark.TakeRaised());
  CHECK_FALSE(mark.TakeRaised());
}

}  // namespace
}  // namespace sdp::preload
