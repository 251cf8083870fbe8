// Memory that the next connection of the same two processes has again. This process is both ends.
#include "verbs/softiwarp/local/kept_memories.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/verbs/link_pair.h"
#include "verbs/softiwarp/local/abstract_name.h"
#include "verbs/softiwarp/local/meeting.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::iwarp {
namespace {

using namespace std::chrono_literals;
using test::Fd;
using Outcome = LocalMeeting::Outcome;

std::atomic<int> notes;

// Memory is kept until the end of the scope.
struct Keeping {
  Keeping() {
    notes = 0;
    KeptMemories::Begin([] { ++notes; });
  }
  ~Keeping() {
    KeptMemories::Begin(nullptr);
    KeptMemories::Forget(Duration::zero());
  }
};

struct Server {
  Server() : listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(listener.value, generic, length) == 0);
    REQUIRE(::listen(listener.value, 8) == 0);
    REQUIRE(::getsockname(listener.value, generic, &length) == 0);
  }
  Fd listener;
  sockaddr_in address{};
};

// A connection, as far as the set-up of its memory.
struct Connection {
  explicit Connection(const Server& server) : a(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(::connect(a.value, reinterpret_cast<const sockaddr*>(&server.address), sizeof server.address) ==
            0);
    z = Fd(::accept4(server.listener.value, nullptr, nullptr, SOCK_CLOEXEC));
    meeting = LocalMeeting::Open(a.value);
    REQUIRE(meeting != nullptr);
  }
  void Meet() {
    std::string why;
    theirs = AnswerOffer(meeting->offer(), z.value, &why);
    INFO(why);
    REQUIRE(theirs != nullptr);
    REQUIRE(meeting->Take(&ours, &why) == Outcome::kShared);
    CHECK(ours->id() == theirs->id());
  }
  // One way, from the connecting end.
  void Carry(size_t bytes) const {
    RingWriter writer = ours->Writer(LocalEnd::kConnecting);
    RingReader reader = theirs->Reader(LocalEnd::kAccepting);
    std::string sent(1000, 'c');
    std::string got(sent.size(), '\0');
    const iovec part{.iov_base = sent.data(), .iov_len = sent.size()};
    const MutableBytes room = std::as_writable_bytes(std::span(got));
    for (size_t done = 0; done < bytes; done += sent.size()) {
      REQUIRE(writer.Write(std::span(&part, 1)) == sent.size());
      REQUIRE(reader.Read(std::span(&room, 1)) == sent.size());
      REQUIRE(got == sent);
    }
  }

  Fd a, z;
  std::unique_ptr<LocalMeeting> meeting;
  std::shared_ptr<LocalMemory> ours, theirs;
};

// Makes a connection that carries so much, and ends it. Returns the memory's id.
LocalMemory::Id Once(const Server& server, size_t bytes = 1000) {
  Connection connection(server);
  connection.Meet();
  connection.Carry(bytes);
  return connection.ours->id();
}

LocalMemory::Id Offered(const Connection& connection) {
  LocalMemory::Id id;
  std::memcpy(id.data(), connection.meeting->offer().secret.data(), id.size());
  return id;
}

TEST_CASE("kept memory: the next connection of the same two processes has it, with new rings") {
  const Keeping keeping;
  const Server server;
  LocalMemory::Id first;
  {
    Connection connection(server);
    connection.Meet();
    connection.Carry(5000);
    // Something is left unread, and both doorbells are in the states of a connection in use.
    RingWriter writer = connection.theirs->Writer(LocalEnd::kAccepting);
    const iovec part{.iov_base = const_cast<char*>("left"), .iov_len = 4};
    REQUIRE(writer.Write(std::span(&part, 1)) == 4u);
    writer.Arm();
    (void)writer.TakeReader();
    first = connection.ours->id();
    CHECK(first != LocalMemory::Id{});
    CHECK(notes == 0);
  }
  CHECK(notes == 1);
  Connection again(server);
  again.Meet();
  CHECK(again.ours->id() == first);
  CHECK(again.ours->fd() >= 0);
  CHECK(again.theirs->fd() >= 0);
  CHECK(again.ours->Reader(LocalEnd::kConnecting).empty());
  CHECK(again.ours->Reader(LocalEnd::kConnecting).armed());
  CHECK_FALSE(again.theirs->Writer(LocalEnd::kAccepting).armed());
  again.Carry(20'000);
  // A third, meanwhile, has memory of its own.
  Connection third(server);
  third.Meet();
  CHECK(third.ours->id() != first);
}

TEST_CASE("kept memory: who knows the id alone cannot answer for the accepting end") {
  const Keeping keeping;
  const Server server;
  const auto first = Once(server);
  const Connection one(server);
  REQUIRE(Offered(one) == first);
  // The other half of the secret differs from connection to connection.
  LocalOffer guess = one.meeting->offer();
  guess.secret = {};
  std::memcpy(guess.secret.data(), first.data(), first.size());
  std::string why;
  CHECK(AnswerOffer(guess, one.z.value, &why) != nullptr);  // to the same name, with the wrong secret
  std::shared_ptr<LocalMemory> memory;
  CHECK(one.meeting->Take(&memory, &why) == Outcome::kRefused);
  const Connection other(server);
  CHECK(other.meeting->offer().secret != one.meeting->offer().secret);
}

TEST_CASE("kept memory: another server's connection has none of it") {
  const Keeping keeping;
  const Server one, other;
  const auto first = Once(one);
  CHECK(Once(other) != first);
  CHECK(Once(one) == first);
}

TEST_CASE("kept memory: where the accepting end has let it go, the next connection has new memory") {
  const Keeping keeping;
  const Server server;
  const auto first = Once(server);
  KeptMemories::TakeById(first)->LetGo();
  Connection next(server);
  next.Meet();
  CHECK(next.ours->id() != first);
  next.Carry(5000);
  // What the connecting end had kept in vain is gone.
  CHECK(Once(server) != first);
}

TEST_CASE("kept memory: what is in use, or was offered and refused twice, is not offered") {
  const Keeping keeping;
  const Server server;
  const auto first = Once(server);
  for (int i = 0; i < 2; ++i) {
    const Connection not_answered(server);
    CHECK(Offered(not_answered) == first);
    const Connection meanwhile(server);
    CHECK(Offered(meanwhile) != first);
  }
  Connection next(server);
  CHECK(Offered(next) != first);
}

TEST_CASE("kept memory: an accepting end that is done with it later has it for a later connection") {
  const Keeping keeping;
  const Server server;
  auto slow = std::make_unique<Connection>(server);
  slow->Meet();
  const auto first = slow->ours->id();
  for (int i = 0; i < 3; ++i) {
    slow->ours.reset();  // this end goes at once
    {
      Connection meanwhile(server);
      CHECK(Offered(meanwhile) == first);
      meanwhile.Meet();
      CHECK(meanwhile.ours->id() != first);
      meanwhile.ours->LetGo();
      meanwhile.theirs->LetGo();
    }
    slow.reset();
    slow = std::make_unique<Connection>(server);
    slow->Meet();
    CHECK(slow->ours->id() == first);
  }
}

TEST_CASE("kept memory: an answer that says so, where nothing was offered, or brings a descriptor") {
  const Server server;
  const Connection connection(server);
  const LocalOffer& offer = connection.meeting->offer();
  const auto bytes = offer.Serialize();
  std::string text(reinterpret_cast<const char*>(bytes.data()), 8);
  text.append(reinterpret_cast<const char*>(offer.secret.data()), offer.secret.size());
  const AbstractName name("sdp-link-", offer.name);
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto send = [&](const std::string& datagram) {
    REQUIRE(::sendto(socket.value, datagram.data(), datagram.size(), 0,
                     reinterpret_cast<const sockaddr*>(&name.address),
                     name.length) == static_cast<ssize_t>(datagram.size()));
  };
  std::shared_ptr<LocalMemory> memory;
  std::string why;
  send(text + '\2');
  send(text + "\1\1");
  CHECK(connection.meeting->Take(&memory, &why) == Outcome::kRefused);
  send(text + '\1');
  CHECK(connection.meeting->Take(&memory, &why) == Outcome::kFailed);
  CHECK(memory == nullptr);
}

TEST_CASE("kept memory: of what has carried much, was handed over or lived at a fork, nothing is kept") {
  const Keeping keeping;
  const Server server;
  const auto much = Once(server, KeptMemories::kMostCarried + 1000);
  CHECK(notes == 0);
  LocalMemory::Id handed_over;
  {
    Connection connection(server);
    connection.Meet();
    handed_over = connection.ours->id();
    CHECK(handed_over != much);
    CHECK(DescriptorOf(connection.ours.get()) >= 0);
    CHECK(DescriptorOf(connection.theirs.get()) >= 0);
  }
  CHECK(notes == 0);
  LocalMemory::Id forked;
  {
    Connection connection(server);
    connection.Meet();
    forked = connection.ours->id();
    CHECK(forked != handed_over);
    KeptMemories::NoteFork();
  }
  CHECK(notes == 0);
  const auto kept = Once(server);
  CHECK(kept != forked);
  CHECK(notes == 1);
  KeptMemories::NoteFork();
  CHECK(Once(server) != kept);
}

TEST_CASE("kept memory: what a fork finds between the answer and its arrival is used, and not kept again") {
  const Keeping keeping;
  const Server server;
  const auto first = Once(server);
  {
    Connection next(server);
    std::string why;
    next.theirs = AnswerOffer(next.meeting->offer(), next.z.value, &why);
    KeptMemories::NoteFork();
    REQUIRE(next.meeting->Take(&next.ours, &why) == Outcome::kShared);
    CHECK(next.ours->id() == first);
    next.Carry(1000);
  }
  CHECK(notes == 1);
  CHECK(Once(server) != first);
}

TEST_CASE("kept memory: a child has none, and keeps its own") {
  const Keeping keeping;
  const Server server;
  (void)Once(server);
  auto parents = std::make_unique<Connection>(server);
  parents->Meet();
  REQUIRE(KeptMemories::Reserve(parents->ours.get()));
  // As if another thread had been at it during the fork.
  KeptMemories::NoteFork();
  KeptMemories::ForgetInChild();
  CHECK_FALSE(KeptMemories::Forget(1h));
  parents.reset();
  {
    Connection own(server);
    own.Meet();
    CHECK(KeptMemories::Reserve(own.ours.get()));
  }
  const auto own = Once(server);
  CHECK(Once(server) == own);
}

TEST_CASE("kept memory: while some is in view, nobody is told of more") {
  const Keeping keeping;
  const Server server;
  for (int i = 0; i < 5; ++i) (void)Once(server);
  CHECK(notes == 1);
  CHECK_FALSE(KeptMemories::Forget(Duration::zero()));
  (void)Once(server);
  CHECK(notes == 2);
}

TEST_CASE("kept memory: it is kept for a while, and no more than some of it") {
  const Keeping keeping;
  const Server server;
  CHECK_FALSE(KeptMemories::Forget(Duration::zero()));
  (void)Once(server);
  CHECK(KeptMemories::Forget(1h));
  CHECK_FALSE(KeptMemories::Forget(Duration::zero()));
  {
    std::vector<std::unique_ptr<Connection>> many;
    for (size_t i = 0; i < KeptMemories::kMost + 4; ++i) {
      many.push_back(std::make_unique<Connection>(server));
      many.back()->Meet();
    }
  }
  // Both ends are kept here: half as many connections.
  size_t found = 0;
  std::vector<std::unique_ptr<Connection>> next;
  for (size_t i = 0; i < KeptMemories::kMost + 4; ++i) {
    next.push_back(std::make_unique<Connection>(server));
    const auto offered = Offered(*next.back());
    next.back()->Meet();
    if (next.back()->ours->id() == offered) ++found;
  }
  CHECK(found == KeptMemories::kMost / 2);
}

TEST_CASE("kept memory: of ends that linger only some keep their descriptor") {
  const Keeping keeping;
  const Server server;
  std::vector<std::unique_ptr<Connection>> many;
  size_t reserved = 0;
  for (size_t i = 0; i < KeptMemories::kMost + 4; ++i) {
    many.push_back(std::make_unique<Connection>(server));
    many.back()->Meet();
    LocalMemory* const memory = many.back()->ours.get();
    if (KeptMemories::Reserve(memory)) {
      ++reserved;
      CHECK(KeptMemories::Reserve(memory));
    } else {
      memory->CloseDescriptor();
    }
  }
  CHECK(reserved == KeptMemories::kMost);
  many.clear();
  Connection next(server);
  next.Meet();
  CHECK(KeptMemories::Reserve(next.ours.get()));
}

TEST_CASE("kept memory: nothing is kept until somebody ends it in time") {
  const Server server;
  const auto first = Once(server);
  CHECK(Once(server) != first);
  const Keeping keeping;
  const auto kept = Once(server);
  CHECK(Once(server) == kept);
}

TEST_CASE("kept memory: threads keep, take and end it at once") {
  const Keeping keeping;
  std::atomic<bool> over{false};
  std::thread ends([&] {
    while (!over) {
      (void)KeptMemories::Forget(Duration::zero());
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([] {
      LocalMemory::Id last{};
      for (int i = 0; i < 300; ++i) {
        std::string why;
        auto memory = KeptMemories::TakeById(last);
        if (memory == nullptr) memory = LocalMemory::Make(&why);
        if (memory == nullptr) return;
        memory->MayBeKept();
        last = memory->id();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  ends.join();
}

}  // namespace
}  // namespace sdp::iwarp
