// Who may use a connection that several processes hold, and with which state. The second holder is this process, too, under a number of
// its own.
#include "preload/socket/shared_connection.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

using View = SharedConnection::View;

std::vector<std::byte> State(int value) { return std::vector<std::byte>(100, std::byte(value)); }

struct Holders {
  Holders() {
    first = SharedConnection::Make();
    REQUIRE(first != nullptr);
    int membership = -1;
    const Member guest = first->arena().Invite(&membership);
    REQUIRE(guest != 0);
    REQUIRE(first->Lock() == View::kCurrent);
    REQUIRE(first->Add(guest));
    first->Unlock();
    second = SharedConnection::Join(&first->arena(), first->number(), guest, membership);
    REQUIRE(second != nullptr);
  }
  std::unique_ptr<SharedConnection> first, second;
};

TEST_CASE("shared connection: each takes the state that the other left") {
  Holders h;
  REQUIRE(h.first->Lock() == View::kCurrent);
  REQUIRE(h.first->Publish(State(1)));
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kStale);
  std::vector<std::byte> state;
  REQUIRE(h.second->Read(&state));
  CHECK(state == State(1));
  REQUIRE(h.second->Publish(State(2)));
  h.second->Unlock();
  REQUIRE(h.first->Lock() == View::kStale);
  REQUIRE(h.first->Read(&state));
  CHECK(state == State(2));
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kCurrent);
  h.second->Unlock();
}

TEST_CASE("shared connection: a state that is kept is elsewhere until it is published") {
  Holders h;
  REQUIRE(h.first->Lock() == View::kCurrent);
  h.first->Keep();
  CHECK(h.first->Keeps());
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kElsewhere);
  CHECK_FALSE(h.second->Keeps());
  h.second->Unlock();
  REQUIRE(h.first->Lock() == View::kCurrent);
  REQUIRE(h.first->Publish(State(3)));
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kStale);
  h.second->Unlock();
}

TEST_CASE("shared connection: who leaves with a state that it kept leaves a broken connection, not an old state") {
  Holders h;
  REQUIRE(h.first->Lock() == View::kCurrent);
  REQUIRE(h.first->Publish(State(4)));
  h.first->Keep();
  h.first->Leave();
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kBroken);
  CHECK_FALSE(h.second->HasOthers(/*sure=*/true));
  h.second->Unlock();
}

}  // namespace
}  // namespace sdp::preload
