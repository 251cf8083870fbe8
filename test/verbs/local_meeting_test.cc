// How two ends of a TCP connection come to share memory, and what strangers can do about it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "test/support/in_child.h"
#include "test/verbs/link_pair.h"
#include "verbs/softiwarp/local/meeting.h"

namespace sdp::iwarp {
namespace {

using test::Fd;
using Outcome = LocalMeeting::Outcome;

// What AnswerOffer() sets: nothing is kept here, so each connection has new memory.
bool same = true;

struct TcpPair {
  Fd a;  // connects
  Fd z;  // accepts
};

TcpPair Connect(const char* from, const char* to) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  REQUIRE(inet_pton(AF_INET, to, &address.sin_addr) == 1);
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener.value, generic, length) == 0);
  REQUIRE(::listen(listener.value, 1) == 0);
  REQUIRE(::getsockname(listener.value, generic, &length) == 0);
  TcpPair pair;
  pair.a = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in source{};
  source.sin_family = AF_INET;
  REQUIRE(inet_pton(AF_INET, from, &source.sin_addr) == 1);
  REQUIRE(::bind(pair.a.value, reinterpret_cast<sockaddr*>(&source), sizeof source) == 0);
  REQUIRE(::connect(pair.a.value, generic, length) == 0);
  pair.z = Fd(::accept4(listener.value, nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(pair.z.value >= 0);
  return pair;
}

// Sends a datagram to the meeting's name as a stranger would who read /proc/net/unix.
void SendTo(const LocalOffer& offer, std::string_view text, std::vector<int> fds) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::string path = std::string(1, '\0') + "sdp-link-";
  for (const std::byte b : offer.name) {
    char hex[3];
    snprintf(hex, sizeof hex, "%02x", std::to_integer<unsigned>(b));
    path += hex;
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  const size_t size = fds.size() * sizeof(int);
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(rights), fds.data(), size);
  }
  REQUIRE(::sendmsg(socket.value, &message, 0) >= 0);
}

std::string Greeting(const LocalOffer& offer) {
  const auto bytes = offer.Serialize();
  std::string greeting(8 + offer.secret.size(), '\0');
  std::memcpy(greeting.data(), bytes.data(), 8);
  std::memcpy(greeting.data() + 8, offer.secret.data(), offer.secret.size());
  return greeting;
}

int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST_CASE("meeting: the ends of a connection within the host share a sealed memory") {
  const TcpPair tcp = Connect("127.0.0.1", "127.0.0.2");
  const auto meeting = LocalMeeting::Open(tcp.a.value);
  REQUIRE(meeting != nullptr);
  const auto bytes = meeting->offer().Serialize();
  std::string hello = "hello";
  hello.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto offer = LocalOffer::Parse(std::as_bytes(std::span(hello)));
  REQUIRE(offer);
  CHECK(*offer == meeting->offer());

  std::string why;
  const auto theirs = AnswerOffer(*offer, tcp.z.value, &same, &why);
  INFO(why);
  REQUIRE(theirs != nullptr);
  CHECK_FALSE(same);
  std::shared_ptr<LocalMemory> ours;
  REQUIRE(meeting->Take(&ours, &why) == Outcome::kShared);
  RingWriter writer = ours->Writer(LocalEnd::kConnecting);
  const iovec part{.iov_base = hello.data(), .iov_len = hello.size()};
  REQUIRE(writer.Write(std::span(&part, 1)) == hello.size());
  std::string read(hello.size(), '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(read));
  REQUIRE(theirs->Reader(LocalEnd::kAccepting).Read(std::span(&room, 1)) == hello.size());
  CHECK(read == hello);
  // A peer cannot make it smaller, which would end a process that touches it.
  CHECK(ftruncate(ours->fd(), 0) != 0);
}

TEST_CASE("meeting: without an answer, or with a stranger's, the link stays TCP") {
  const int before = OpenDescriptors();
  {
    const TcpPair tcp = Connect("127.0.0.1", "127.0.0.1");
    const auto meeting = LocalMeeting::Open(tcp.a.value);
    REQUIRE(meeting != nullptr);
    std::shared_ptr<LocalMemory> memory;
    std::string why;
    CHECK(meeting->Take(&memory, &why) == Outcome::kRefused);
    const auto other = LocalMemory::Make(&why);
    SendTo(meeting->offer(), "", {});
    SendTo(meeting->offer(), "SDPlocl\x01 but not the secret", {other->fd()});
    SendTo(meeting->offer(), "two descriptors", {other->fd(), other->fd()});
    SendTo(meeting->offer(), std::string(24, 'x'), {other->fd()});
    CHECK(meeting->Take(&memory, &why) == Outcome::kRefused);
    // The peer comes after them.
    SendTo(meeting->offer(), std::string(24, 'x'), {other->fd()});
    REQUIRE(AnswerOffer(meeting->offer(), tcp.z.value, &same, &why) != nullptr);
    CHECK(meeting->Take(&memory, &why) == Outcome::kShared);
  }
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("meeting: a stranger who fills the queue keeps the ends on TCP, and nothing waits") {
  const TcpPair tcp = Connect("127.0.0.1", "127.0.0.1");
  const auto meeting = LocalMeeting::Open(tcp.a.value);
  REQUIRE(meeting != nullptr);
  int sent = 0;
  for (; sent < 100000; ++sent) {
    std::string why;
    if (AnswerOffer(meeting->offer(), tcp.z.value, &same, &why) == nullptr) {
      CHECK(why.find("cannot be reached") != std::string::npos);
      break;
    }
  }
  CHECK(sent < 100000);
}

TEST_CASE(
    "meeting: with few descriptors left a new link has no memory, and a connection's own is taken over") {
  const verbs::DescriptorCalls before = verbs::descriptor_calls();
  verbs::DescriptorCalls few = before;
  few.keep = [](int fd, std::atomic<int>* slot, verbs::DescriptorCalls::Need need) {
    if (need == verbs::DescriptorCalls::Need::kLast) {
      slot->store(fd);
      return true;
    }
    close(fd);
    return false;
  };
  std::string why;
  const auto memory = LocalMemory::Make(&why);
  REQUIRE(memory != nullptr);
  verbs::SetDescriptorCalls(few);
  const auto made = LocalMemory::Make(&why);
  const auto offered = LocalMemory::Take(dup(memory->fd()), &why);
  const auto taken_over = LocalMemory::TakeOver(dup(memory->fd()), &why);
  verbs::SetDescriptorCalls(before);
  CHECK(made == nullptr);
  CHECK(offered == nullptr);
  REQUIRE(taken_over != nullptr);
  CHECK(taken_over->fd() >= 0);
}

TEST_CASE("meeting: a peer's memory of another kind is refused") {
  const TcpPair tcp = Connect("127.0.0.1", "127.0.0.1");
  const auto meeting = LocalMeeting::Open(tcp.a.value);
  REQUIRE(meeting != nullptr);
  const std::string greeting = Greeting(meeting->offer());
  std::shared_ptr<LocalMemory> memory;
  std::string why;
  const auto fails = [&](int fd) {
    SendTo(meeting->offer(), greeting, fd < 0 ? std::vector<int>{} : std::vector<int>{fd});
    return meeting->Take(&memory, &why) == Outcome::kFailed && memory == nullptr;
  };
  CHECK(fails(-1));
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const Fd out(pipe_fds[0]);
  const Fd in(pipe_fds[1]);
  CHECK(fails(out.value));
  const Fd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(unsealed.value, LocalMemory::kSize) == 0);
  CHECK(fails(unsealed.value));
  const Fd small(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(small.value, 4096) == 0);
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  REQUIRE(fcntl(small.value, F_ADD_SEALS, seals) == 0);
  CHECK(fails(small.value));
  const Fd closed_to_writes(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(closed_to_writes.value, LocalMemory::kSize) == 0);
  REQUIRE(fcntl(closed_to_writes.value, F_ADD_SEALS, seals | F_SEAL_WRITE) == 0);
  CHECK(fails(closed_to_writes.value));
}

TEST_CASE("meeting: behind a relay the ends see other addresses, and the link stays TCP") {
  const TcpPair client = Connect("127.0.0.1", "127.0.0.1");
  const TcpPair server = Connect("127.0.0.1", "127.0.0.1");
  const auto meeting = LocalMeeting::Open(client.a.value);
  REQUIRE(meeting != nullptr);
  std::string why;
  CHECK(AnswerOffer(meeting->offer(), server.z.value, &same, &why) == nullptr);
  CHECK(why.find("relay") != std::string::npos);
}

TEST_CASE("meeting: a limit of file size does not end the process") {
  const auto tried = sdp::test::InChild([] {
    const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    std::string why;
    return LocalMemory::Make(&why) == nullptr && why.find("RLIMIT_FSIZE") != std::string::npos ? 0 : 1;
  });
  CHECK(tried == 0);
}

TEST_CASE("meeting: private data without an offer") {
  CHECK_FALSE(LocalOffer::Parse({}));
  std::string text(LocalOffer::kSize, 'h');
  CHECK_FALSE(LocalOffer::Parse(std::as_bytes(std::span(text))));
  text.resize(LocalOffer::kSize - 1);
  CHECK_FALSE(LocalOffer::Parse(std::as_bytes(std::span(text))));
}

}  // namespace
}  // namespace sdp::iwarp
