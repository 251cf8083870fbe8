// Who may use a connection that several processes hold, and with which state. The second holder is this
// process, too, under a number of its own.
#include "preload/socket/shared_connection.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

#include "preload/hidden_fds.h"

namespace sdp::preload {
namespace {

using View = SharedConnection::View;

std::vector<std::byte> State(int value) { return std::vector<std::byte>(100, std::byte(value)); }

bool Publish(SharedConnection* connection, const std::vector<std::byte>& state) {
  Writer ar;
  ar.Append(state);
  return connection->Publish(ar);
}

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
  REQUIRE(Publish(h.first.get(), State(1)));
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kStale);
  std::vector<std::byte> state;
  REQUIRE(h.second->Read(&state));
  CHECK(state == State(1));
  REQUIRE(Publish(h.second.get(), State(2)));
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
  REQUIRE(Publish(h.first.get(), State(3)));
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kStale);
  h.second->Unlock();
}

TEST_CASE(
    "shared connection: who leaves with a state that it kept leaves a broken connection, not an old state") {
  Holders h;
  REQUIRE(h.first->Lock() == View::kCurrent);
  REQUIRE(Publish(h.first.get(), State(4)));
  h.first->Keep();
  h.first->Leave();
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kBroken);
  CHECK_FALSE(h.second->HasOthers(/*sure=*/true));
  h.second->Unlock();
}

TEST_CASE("shared connection: a state in several pieces, and one that is as it was") {
  Holders h;
  const std::vector<std::byte> small(3, std::byte{1}), large(700'000, std::byte{2});
  std::vector<std::byte> whole = small;
  whole.insert(whole.end(), large.begin(), large.end());
  whole.insert(whole.end(), small.begin(), small.end());
  Writer ar;
  for (const auto* part : {&small, &large, &small}) ar.Append(*part);
  REQUIRE(h.first->Lock() == View::kCurrent);
  REQUIRE(h.first->Publish(ar));
  h.first->Unlock();
  std::vector<std::byte> state;
  REQUIRE(h.second->Lock() == View::kStale);
  REQUIRE(h.second->Read(&state));
  CHECK(state == whole);
  REQUIRE(Publish(h.second.get(), whole));
  h.second->Unlock();
  REQUIRE(h.first->Lock() == View::kCurrent);
  REQUIRE(Publish(h.first.get(), large));
  h.first->Unlock();
  REQUIRE(h.second->Lock() == View::kStale);
  REQUIRE(h.second->Read(&state));
  CHECK(state == large);
  h.second->Unlock();
}

TEST_CASE("shared connection: who is lost in a message is no holder") {
  const auto connection = SharedConnection::Make();
  REQUIRE(connection != nullptr);
  int passed = -1, watched = -1;
  const Member relative = connection->arena().InviteRelative(&passed, &watched);
  REQUIRE(IsInFlight(relative));
  const int in_message = dup(passed);
  REQUIRE(connection->Lock() == View::kCurrent);
  REQUIRE(connection->Add(relative));
  connection->Await(relative, watched);
  HiddenFds::Close(passed);
  HiddenFds::Close(watched);
  CHECK(connection->HasOthers(/*sure=*/true));
  close(in_message);
  CHECK_FALSE(connection->HasOthers(/*sure=*/true));
  connection->Unlock();
}

TEST_CASE(
    "shared connection: who is in a message whose sender is gone is a holder while somebody may take it") {
  const auto connection = SharedConnection::Make();
  REQUIRE(connection != nullptr);
  int passed = -1, watched = -1;
  const Member relative = connection->arena().InviteRelative(&passed, &watched);
  REQUIRE(IsInFlight(relative));
  HiddenFds::Close(watched);  // with its sender
  REQUIRE(connection->Lock() == View::kCurrent);
  REQUIRE(connection->Add(relative));
  std::array<int, 3> memberships{};
  for (int& membership : memberships)
    REQUIRE(connection->arena().Invite(&membership) != 0);  // processes that do not have the connection
  for (const int membership : memberships) {
    CHECK(connection->HasOthers(/*sure=*/true));
    HiddenFds::Close(membership);
  }
  CHECK_FALSE(connection->HasOthers(/*sure=*/true));
  connection->Unlock();
  HiddenFds::Close(passed);
}

TEST_CASE("shared connection: nobody can take its memory away") {
  const auto connection = SharedConnection::Make();
  REQUIRE(connection != nullptr);
  CHECK(ftruncate(connection->arena().file(), 0) == -1);
  const int file = memfd_create("another", MFD_CLOEXEC);
  REQUIRE(ftruncate(file, off_t{1} << 40) == 0);
  CHECK(SharedArena::Attach(file, -1, 0) == nullptr);
}

}  // namespace
}  // namespace sdp::preload
