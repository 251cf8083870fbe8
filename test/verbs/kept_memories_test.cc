// Memory that the next connection of the same two processes has again. This process is both ends.
#include "verbs/softiwarp/local/kept_memories.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/verbs/qp_pair.h"
#include "verbs/softiwarp/local/meeting.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::iwarp {
namespace {

using namespace std::chrono_literals;
using test::Fd;
using verbs::ConnectState;
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
    bool same = false;
    theirs = AnswerOffer(meeting->offer(), z.value, &same, &why);
    INFO(why);
    REQUIRE(theirs != nullptr);
    Take(same);
    REQUIRE(ours != nullptr);
    CHECK(ours->id() == theirs->id());
  }
  void Take(bool same) {
    std::string why;
    if (same) {
      ours = meeting->TakeOffered();
    } else {
      CHECK(meeting->Take(&ours, &why) == Outcome::kShared);
    }
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
  bool same = false;
  CHECK(AnswerOffer(guess, one.z.value, &same, &why) != nullptr);
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

int64_t BytesInUse(const LocalMemory& memory) {
  struct stat status {};
  REQUIRE(::fstat(memory.fd(), &status) == 0);
  return int64_t{status.st_blocks} * 512;
}

TEST_CASE("kept memory: an idle connection takes one page, also behind one that has used more") {
  const Keeping keeping;
  const Server server;
  {
    Connection first(server);
    first.Meet();
    CHECK(BytesInUse(*first.ours) == 4096);
    first.Carry(20'000);
  }
  Connection next(server);
  next.Meet();
  CHECK(BytesInUse(*next.ours) > 4096);
  for (const auto& memory : {next.ours, next.theirs}) {
    RingWriter writer = memory->Writer(memory == next.ours ? LocalEnd::kConnecting : LocalEnd::kAccepting);
    memory->GiveBack(writer.Shrink());
    CHECK(writer.Shrink().empty());
  }
  CHECK(BytesInUse(*next.ours) == 4096);
}

// A connection's set-up by both RNICs, step by step.
struct Startup {
  static constexpr verbs::QpOptions kQp{.receive_buffer_size = 4096, .initial_receives = 8};
  static constexpr SoftOptions kLocal{.local_link = true};
  explicit Startup(const Server& server, const SoftOptions& options = kLocal)
      : a(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(::connect(a.value, reinterpret_cast<const sockaddr*>(&server.address), sizeof server.address) ==
            0);
    z = Fd(::accept4(server.listener.value, nullptr, nullptr, SOCK_CLOEXEC));
    from_a = Connect(a.value, test::AsBytes("hello"), kQp, options, test::Now());
    from_z = Listen(z.value, kLocal, test::Now());
    REQUIRE(from_a->Step(test::Now()) == ConnectState::kInProgress);
    REQUIRE(from_z->Step(test::Now()) == ConnectState::kRequested);
  }
  void Accept() {
    from_z->Accept(test::AsBytes("welcome"), kQp);
    at_z = from_z->Step(test::Now());
    at_a = from_a->Step(test::Now());
  }

  Fd a, z;
  std::unique_ptr<verbs::Connector> from_a, from_z;
  ConnectState at_a{}, at_z{};
};

std::string SendOne(verbs::QueuePair& from, verbs::QueuePair& to) {
  const Bytes payload = test::AsBytes("at once");
  REQUIRE(from.PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == verbs::PostResult::kOk);
  REQUIRE(from.Flush());
  to.ReadLink();
  verbs::Completion got;
  return to.PollCompletion(&got) ? test::Text(got) : "nothing";
}

TEST_CASE("kept memory: the accepting end's Reply is the last word, and either end may send first") {
  const Keeping keeping;
  const Server server;
  {
    Startup first(server);
    CHECK(first.from_z->may_send_first());
    first.Accept();
    CHECK(first.at_z == ConnectState::kInProgress);  // the connecting end may not be able to take the memory
    CHECK(first.at_a == ConnectState::kEstablished);
    CHECK(first.from_z->Step(test::Now()) == ConnectState::kEstablished);
  }
  int socket = -1;
  for (const bool connecting_first : {true, false}) {
    Startup next(server);
    CHECK_FALSE(next.from_z->may_send_first());
    next.Accept();
    REQUIRE(next.at_z == ConnectState::kEstablished);
    REQUIRE(next.at_a == ConnectState::kEstablished);
    CHECK(next.from_a->peer_private_data().size() == 7);
    const auto a = next.from_a->TakeQueuePair();
    const auto z = next.from_z->TakeQueuePair();
    CHECK(a->unsent_bytes() == 0);
    CHECK(SendOne(connecting_first ? *a : *z, connecting_first ? *z : *a) == "at once");
    CHECK(SendOne(connecting_first ? *z : *a, connecting_first ? *a : *z) == "at once");
    // The offer's socket goes from connection to connection.
    const int used = MemoryOf(*a)->socket();
    CHECK(used >= 0);
    if (socket >= 0) CHECK(used == socket);
    socket = used;
  }
}

TEST_CASE("kept memory: an accepting end that sends behind its Reply is heard") {
  const Keeping keeping;
  const Server server;
  for (int i = 0; i < 2; ++i) {
    Startup startup(server);
    startup.from_z->Accept({}, Startup::kQp);
    startup.from_z->Step(test::Now());
    if (i == 0) {
      REQUIRE(startup.from_a->Step(test::Now()) == ConnectState::kEstablished);
      REQUIRE(startup.from_z->Step(test::Now()) == ConnectState::kEstablished);
      continue;
    }
    const auto z = startup.from_z->TakeQueuePair();
    const Bytes payload = test::AsBytes("early");
    REQUIRE(z->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == verbs::PostResult::kOk);
    REQUIRE(z->Flush());  // the Reply and a doorbell are on the TCP connection
    REQUIRE(startup.from_a->Step(test::Now()) == ConnectState::kEstablished);
    const auto a = startup.from_a->TakeQueuePair();
    // No doorbell tells of it any more.
    CHECK_FALSE(a->pollable()->may_sleep());
    CHECK(a->pollable()->has_untold());
    a->ReadLink();
    verbs::Completion got;
    REQUIRE(a->PollCompletion(&got));
    CHECK(test::Text(got) == "early");
    CHECK(a->pollable()->may_sleep());
    // From here on doorbells tell.
    const Bytes more = test::AsBytes("more");
    REQUIRE(z->PostSend({.id = WorkId(2), .payload = std::span(&more, 1)}) == verbs::PostResult::kOk);
    REQUIRE(z->Flush());
    char doorbell = 0;
    CHECK(::recv(startup.a.value, &doorbell, 1, MSG_DONTWAIT) == 1);
  }
}

TEST_CASE("kept memory: a Reply that lies, or that has more than doorbells behind it, ends the set-up") {
  const Keeping keeping;
  const Server server;
  const auto same = std::string(kSameMemory.data(), kSameMemory.size());
  const auto replies = [&](const Startup& startup, const std::string& text, char flags = '\x10') {
    // RFC 5044, 7.1: the key, no flags, revision 2; RFC 6581: IRD and ORD, with an RTR by RDMA Write.
    std::string frame = "MPA ID Rep Frame";
    frame += std::string(1, flags) + '\x02' + '\0' + static_cast<char>(text.size() + 4);
    frame += std::string("\x80\x10\x80\x10", 4) + text;
    REQUIRE(::send(startup.z.value, frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()));
    return startup.from_a->Step(test::Now());
  };
  SECTION("nothing was offered") {
    Startup startup(server);
    CHECK(replies(startup, "x" + same) == ConnectState::kFailed);
    CHECK(startup.from_a->cause().text.find("not offered") != std::string::npos);
    CHECK(startup.from_a->cause().local);
  }
  SECTION("no offer was made at all") {
    Startup startup(server, {});
    CHECK(replies(startup, same) == ConnectState::kFailed);
  }
  SECTION("kept memory was offered, and the Reply wants CRCs or markers as well") {
    const char flags = GENERATE('\x50', '\x90');
    (void)Once(server);
    Startup startup(server);
    CHECK(replies(startup, same, flags) == ConnectState::kFailed);
    CHECK(startup.from_a->cause().local);
  }
  SECTION("kept memory was offered, and the Reply goes on") {
    (void)Once(server);
    Startup startup(server);
    const std::string reply = "x" + same;
    std::string frame = "MPA ID Rep Frame";
    frame += std::string("\x10\x02", 2) + '\0' + static_cast<char>(reply.size() + 4);
    frame += std::string("\x80\x10\x80\x10", 4) + reply + "\xff" + "y";
    REQUIRE(::send(startup.z.value, frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size()));
    CHECK(startup.from_a->Step(test::Now()) == ConnectState::kFailed);
    CHECK(startup.from_a->cause().text.find("behind") != std::string::npos);
  }
}

TEST_CASE("kept memory: where none was offered, a Reply that speaks of it brings none") {
  const Server server;
  const Connection connection(server);
  CHECK(connection.meeting->TakeOffered() == nullptr);
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
    bool same = false;
    next.theirs = AnswerOffer(next.meeting->offer(), next.z.value, &same, &why);
    REQUIRE(same);
    KeptMemories::NoteFork();
    next.Take(same);
    REQUIRE(next.ours != nullptr);
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
  // As if another thread had been at it during the fork.
  KeptMemories::NoteFork();
  KeptMemories::ForgetInChild();
  CHECK_FALSE(KeptMemories::Forget(1h));
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
