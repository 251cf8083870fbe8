// Several sockets in one message, or in one call, and messages that are only looked at.
#include <array>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

// A message of one byte, with room for so many descriptors.
class Descriptors {
 public:
  explicit Descriptors(size_t room) : room_(CMSG_SPACE(room * sizeof(int))) { Clear(); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  msghdr* header() { return &header_; }
  void Clear() {
    header_ = {};
    header_.msg_iov = &piece_;
    header_.msg_iovlen = 1;
    header_.msg_control = room_.data();
    header_.msg_controllen = room_.size();
  }
  void Fill(const std::vector<int>& fds) {
    cmsghdr* const rights = CMSG_FIRSTHDR(&header_);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  std::vector<Fd> Take() {
    std::vector<Fd> fds;
    const cmsghdr* const rights = CMSG_FIRSTHDR(&header_);
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return fds;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= rights->cmsg_len; at += sizeof(int)) {
      int fd;
      memcpy(&fd, CMSG_DATA(rights) + at, sizeof fd);
      fds.emplace_back(fd);
    }
    return fds;
  }

 private:
  char byte_ = 'x';
  iovec piece_{&byte_, 1};
  std::vector<char> room_;
  msghdr header_;
};

struct Channel {
  explicit Channel(int type) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, type, 0, fds) == 0);
    in.reset(fds[0]);
    out.reset(fds[1]);
  }
  Fd in, out;
};

TEST_CASE(
    "rights: connections, a listener and a pipe in one message, one of them twice, and not room for all") {
  const int type = GENERATE(SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET);
  const bool looks_first = GENERATE(false, true);
  Channel channel(type);
  Listener listener = Listen();
  Pair first = ConnectTo(listener), second = MakePair();
  Pipe pipe;
  Descriptors message(6);
  message.Fill({first.client, pipe.out, listener.fd, first.client, second.client, second.client});
  REQUIRE(sendmsg(channel.in, message.header(), 0) == 1);
  first.client.reset();
  if (looks_first) {
    Descriptors looked(6);
    REQUIRE(recvmsg(channel.out, looked.header(), MSG_PEEK | MSG_CMSG_CLOEXEC) == 1);
    const std::vector<Fd> fds = looked.Take();
    REQUIRE(fds.size() == 6);
    for (const Fd& fd : fds) REQUIRE(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  }
  Descriptors taken(4);
  REQUIRE(recvmsg(channel.out, taken.header(), 0) == 1);
  REQUIRE(taken.header()->msg_flags == MSG_CTRUNC);
  std::vector<Fd> fds = taken.Take();
  REQUIRE(fds.size() == 4);
  REQUIRE(SendAll(fds[0], "one"));
  fds[0].reset();
  REQUIRE(SendAll(fds[3], "two"));
  REQUIRE(ReceiveExactly(first.server, 6) == "onetwo");
  fds[3].reset();
  REQUIRE(ReceiveToEnd(first.server).empty());
  REQUIRE(write(fds[1], "p", 1) == 1);
  REQUIRE(pipe.Hear());
  Fd client = Connected(listener);
  const Fd server(accept(fds[2], nullptr, nullptr));
  REQUIRE(SendAll(server, "hello"));
  REQUIRE(ReceiveExactly(client, 5) == "hello");
  // What found no room was not this connection's last.
  REQUIRE(SendAll(second.client, "still there"));
  REQUIRE(ReceiveExactly(second.server, 11) == "still there");
}

TEST_CASE("rights: as many connections in a message as there may be") {
  if (kUnderTsan)
    return Impossible(
        "TSan's search for deadlocks knows 64 locks that a thread has at once, and a hand-over takes that of "
        "each connection");
  constexpr size_t kMost = 253;
  Channel channel(SOCK_STREAM);
  const pid_t taker = Fork([&] {
    channel.in.reset();
    Descriptors message(kMost);
    if (recvmsg(channel.out, message.header(), 0) != 1) return 1;
    const std::vector<Fd> fds = message.Take();
    for (size_t i = 0; i < fds.size(); ++i) {
      if (!SendAll(fds[i], std::to_string(i))) return 2;
    }
    return fds.size() == kMost ? 0 : 3;
  });
  Listener listener = Listen();
  std::vector<Fd> servers;
  Descriptors message(kMost), too_many(kMost + 1);
  {
    std::vector<Fd> clients;
    std::vector<int> numbers;
    for (size_t i = 0; i < kMost; ++i) {
      Pair pair = ConnectTo(listener);
      numbers.push_back(pair.client);
      clients.push_back(std::move(pair.client));
      servers.push_back(std::move(pair.server));
    }
    message.Fill(numbers);
    numbers.push_back(listener.fd);
    too_many.Fill(numbers);
    REQUIRE_ERRNO(sendmsg(channel.in, too_many.header(), 0), EINVAL);
    REQUIRE(sendmsg(channel.in, message.header(), 0) == 1);
  }
  for (size_t i = 0; i < kMost; ++i) REQUIRE(ReceiveToEnd(servers[i]) == std::to_string(i));
  REQUIRE(ExitedWith(Reap(taker), 0));
}

TEST_CASE("rights: by sendmmsg and recvmmsg") {
  Channel channel(SOCK_DGRAM);
  Pair pairs[2] = {MakePair(), MakePair()};
  Descriptors out[2] = {Descriptors(1), Descriptors(1)}, in[2] = {Descriptors(1), Descriptors(1)};
  std::array<mmsghdr, 2> messages{};
  for (size_t i = 0; i < 2; ++i) {
    out[i].Fill({pairs[i].client});
    messages[i].msg_hdr = *out[i].header();
  }
  REQUIRE(sendmmsg(channel.in, messages.data(), 2, 0) == 2);
  for (Pair& pair : pairs) pair.client.reset();
  for (size_t i = 0; i < 2; ++i) messages[i].msg_hdr = *in[i].header();
  REQUIRE(recvmmsg(channel.out, messages.data(), 2, 0, nullptr) == 2);
  for (size_t i = 0; i < 2; ++i) {
    *in[i].header() = messages[i].msg_hdr;
    const std::vector<Fd> fds = in[i].Take();
    REQUIRE(fds.size() == 1);
    REQUIRE(SendAll(fds[0], "word " + std::to_string(i)));
  }
  for (size_t i = 0; i < 2; ++i) REQUIRE(ReceiveToEnd(pairs[i].server) == "word " + std::to_string(i));
}

}  // namespace
}  // namespace posix_test
