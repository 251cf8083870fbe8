// Send, Receive, readiness and the ends of a StreamSocket over both links. The peer is a session of the
// test's, in this thread: so each case says what has come, and what the peer has taken.
#include "preload/socket/stream_socket.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/socket/clock.h"
#include "preload/socket/session.h"
#include "preload/socket/session_transfer.h"
#include "preload/socket/watch.h"
#include "test/preload/session_pair.h"
#include "test/support/eventually.h"
#include "test/verbs/changed_link_calls.h"

namespace sdp::preload {
namespace {

using iwarp::test::AsBytes;
using test::Eventually;

enum class Link { kTcp, kLocal };

constexpr uint16_t kBuffers = 10;      // that the peer has posted
constexpr size_t kPayload = 128 - 16;  // of a message that fits one

engine::Options Small() {
  engine::Options small;
  small.receive_buffers = kBuffers;
  small.receive_buffer_size = 128;
  return small;
}

struct Connection {
  explicit Connection(Link kind, bool nonblocking = true) : pair(Small(), {}, kind == Link::kLocal) {
    UNSCOPED_INFO((kind == Link::kLocal ? "local" : "tcp"));
    REQUIRE(pair.peer->queue_pair().facts().link == std::string_view(kind == Link::kLocal ? "local" : "tcp"));
    socket = new StreamSocket(AF_INET, fd(), std::move(pair.session), {}, {}, {}, nonblocking);
  }
  // As a program's close: the helper may still work for the socket.
  ~Connection() {
    socket->Close(fd());
    pair.link.z.fd.value = -1;
    socket->Unref();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  [[nodiscard]] int fd() const { return pair.link.z.fd.value; }

  // --- The program
  ssize_t Send(std::string_view text, int flags = 0) {
    const iovec piece{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    return socket->Send(fd(), &piece, 1, flags | MSG_NOSIGNAL);
  }
  // Returns what came; an error as its name.
  std::string Receive(size_t most, int flags = 0) {
    std::string room(most, '?');
    const iovec piece{.iov_base = room.data(), .iov_len = most};
    const ssize_t received = socket->Receive(fd(), &piece, 1, flags, nullptr);
    return received < 0 ? strerrorname_np(errno) : room.substr(0, static_cast<size_t>(received));
  }
  // As poll, which looks again while the link is ready.
  short Events() {
    pollfd ready{.fd = fd(), .events = POLLIN, .revents = 0};
    for (int looks = 0; looks < 8 && poll(&ready, 1, 0) == 1; ++looks) Watch(*socket).Progress();
    return Watch(*socket).GetReadiness().events;
  }
  // As FIONREAD does.
  int Readable() {
    int bytes = -1;
    REQUIRE(socket->Ioctl(fd(), FIONREAD, &bytes) == 0);
    return bytes;
  }

  // --- The peer
  // Sends a message of its own. `urgent`: its last byte is Out-Of-Band data.
  void Comes(std::string_view text, bool urgent = false) {
    const Bytes piece = AsBytes(text);
    REQUIRE(peer->Send({&piece, 1}, {.out_of_band = urgent}) == text.size());
  }
  // Takes what has arrived, and grants credit for it.
  std::string Takes() {
    peer->Read();
    std::string text(peer->engine().readable_bytes(), '?');
    const MutableBytes room = std::as_writable_bytes(std::span(text));
    if (!text.empty()) text.resize(peer->engine().Receive({&room, 1}, {}));
    peer->Pump();
    return text;
  }
  uint64_t messages() { return peer->recorder().transfers().in[stats::kBcopy]; }
  void PeerCloses() {
    peer->engine().CloseSend();
    peer->Pump();
  }
  void PeerResets() { peer->Abort(); }

  SessionPair pair;
  Session* const peer = pair.peer.get();
  StreamSocket* socket;
};

std::string Text(size_t size) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * i % 23);
  return text;
}

// ----------------------------------------------------------------------------------------------------
// Sending

// How often this thread has asked the link.
thread_local int asked = 0;

ssize_t CountedRecv(int fd, void* to, size_t size, int flags) {
  ++asked;
  return ::recv(fd, to, size, flags);
}

int CountedGetsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  ++asked;
  return ::getsockopt(fd, level, name, value, length);
}

TEST_CASE("stream socket: an answer to what was just read does not ask the link whether the peer is there") {
  const iwarp::test::ChangedLinkCalls counted([](iwarp::LinkCalls& calls) {
    calls.recv = CountedRecv;
    calls.getsockopt = CountedGetsockopt;
  });
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  REQUIRE(s.Send("greeting") == 8);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    CHECK_FALSE(s.Takes().empty());
    // Longer than a send goes by an earlier look.
    const Time begun = CoarseNow();
    REQUIRE(Eventually([&] { return CoarseNow() - begun > std::chrono::milliseconds(20); }));
    s.Comes("request");
    REQUIRE(Eventually([&] { return s.Receive(7) == "request"; }));
    asked = 0;
    REQUIRE(s.Send("answer") == 6);
    CHECK(asked == 0);
  }
}

TEST_CASE("stream socket: one write is one message, whatever its pieces") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  std::string words[] = {"one ", "", "two ", "three"};
  std::vector<iovec> pieces;
  for (std::string& word : words) pieces.push_back({word.data(), word.size()});
  CHECK(s.socket->Send(s.fd(), pieces.data(), pieces.size(), 0) == 13);
  CHECK(s.Takes() == "one two three");
  CHECK(s.messages() == 1);
  CHECK(s.Send("") == 0);
  CHECK(s.socket->Send(s.fd(), nullptr, 0, 0) == 0);
  CHECK(s.Send(" four") == 5);
  CHECK(s.Takes() == " four");
  CHECK(s.messages() == 2);
}

TEST_CASE("stream socket: a write takes what poll has promised, and all of it arrives") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  const int small = 16'384;
  REQUIRE(s.socket->SetSockOpt(s.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
  const std::string text = Text(200'000);
  size_t taken = 0;
  const auto write = [&](size_t most) {
    const ssize_t sent = s.Send(std::string_view(text).substr(taken, most));
    if (sent > 0) taken += static_cast<size_t>(sent);
    return sent;
  };
  while ((s.Events() & POLLOUT) != 0) {
    REQUIRE(write(5'000) > 0);
    REQUIRE(taken < text.size());
  }
  while (write(1) == 1) REQUIRE(taken < text.size());  // poll asks for more room than a byte, as on TCP
  CHECK(errno == EAGAIN);
  CHECK(taken > kBuffers * kPayload / 2);
  std::string arrived;
  REQUIRE(Eventually([&] {
    arrived += s.Takes();
    (void)s.Events();  // credit has come
    return arrived.size() >= taken;
  }));
  CHECK(arrived == text.substr(0, taken));
  CHECK((s.Events() & POLLOUT) != 0);
}

TEST_CASE("stream socket: a send that waits in vain for credit keeps the rest, which leaves with credit") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal), /*nonblocking=*/false);
  const std::string text = Text(kBuffers * kPayload + 500);
  REQUIRE(s.Send(text) == static_cast<ssize_t>(text.size()));
  std::string arrived = s.Takes();
  CHECK(arrived.size() < text.size());
  s.Comes("answer");
  CHECK(s.Receive(10) == "answer");
  arrived += s.Takes();
  CHECK(arrived == text);
}

// The helper sends what has been kept for 200 ms.
TEST_CASE("stream socket: MSG_MORE keeps bytes for the next write, and no longer than the end") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  const Time began = iwarp::test::Now();
  const auto in_time = [&] { return iwarp::test::Now() - began < std::chrono::milliseconds(200); };
  CHECK(s.Send("head ", MSG_MORE) == 5);
  CHECK(s.Send("more ", MSG_MORE) == 5);
  std::string arrived = s.Takes();
  if (in_time()) CHECK(arrived.empty());
  CHECK(s.Send("body") == 4);
  arrived += s.Takes();
  CHECK(arrived == "head more body");
  if (in_time()) CHECK(s.messages() == 1);
  CHECK(s.Send("tail", MSG_MORE) == 4);
  CHECK(s.socket->Shutdown(s.fd(), SHUT_WR) == 0);
  CHECK(s.Takes() == "tail");
}

TEST_CASE("stream socket: nothing is sent behind SHUT_WR, and reading goes on") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  CHECK(s.socket->Shutdown(s.fd(), SHUT_WR) == 0);
  CHECK(s.Send("x") == -1);
  CHECK(errno == EPIPE);
  CHECK(s.Takes().empty());
  s.Comes("still here");
  CHECK(s.Receive(20) == "still here");
  CHECK(s.Receive(20) == "EAGAIN");
}

// ----------------------------------------------------------------------------------------------------
// Receiving

TEST_CASE("stream socket: messages become a stream, in any pieces") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  CHECK(s.Receive(4) == "EAGAIN");
  CHECK((s.Events() & POLLIN) == 0);
  s.Comes("abc");
  s.Comes("defg");
  s.Comes("hi");
  CHECK((s.Events() & POLLIN) != 0);
  CHECK(s.Receive(1) == "a");
  CHECK(s.Receive(4) == "bcde");
  char one[1], two[20];
  const iovec pieces[] = {{one, 1}, {nullptr, 0}, {two, sizeof two}};
  REQUIRE(s.socket->Receive(s.fd(), pieces, 3, 0, nullptr) == 4);
  CHECK(one[0] == 'f');
  CHECK(std::string(two, 3) == "ghi");
  CHECK((s.Events() & POLLIN) == 0);
  CHECK(s.Receive(4) == "EAGAIN");
}

TEST_CASE("stream socket: MSG_PEEK leaves the bytes, MSG_TRUNC drops them") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  s.Comes("abc");
  s.Comes("defg");
  CHECK(s.Receive(5, MSG_PEEK) == "abcde");
  CHECK(s.Receive(5, MSG_PEEK) == "abcde");
  CHECK(s.Receive(2, MSG_TRUNC) == "??");
  CHECK(s.Receive(10, MSG_PEEK | MSG_TRUNC) == "?????");
  CHECK(s.Receive(10) == "cdefg");
  CHECK(s.Receive(10, MSG_PEEK) == "EAGAIN");
}

TEST_CASE("stream socket: MSG_WAITALL that may not wait gives what is there") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  s.Comes("abc");
  CHECK(s.Receive(10, MSG_WAITALL) == "abc");
  CHECK(s.Receive(10, MSG_WAITALL) == "EAGAIN");
}

TEST_CASE("stream socket: a receive that waits gives up after SO_RCVTIMEO, with what it has") {
  Connection s(Link::kTcp, /*nonblocking=*/false);
  const timeval soon{.tv_sec = 0, .tv_usec = 1000};
  REQUIRE(s.socket->SetSockOpt(s.fd(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
  CHECK(s.Receive(10) == "EAGAIN");
  s.Comes("abc");
  CHECK(s.Receive(10, MSG_WAITALL) == "abc");
}

TEST_CASE("stream socket: a receive of nothing says what one of a byte would") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  CHECK(s.Receive(0) == "EAGAIN");
  s.Comes("a");
  CHECK(s.Receive(0).empty());
  CHECK(s.Receive(1) == "a");
}

TEST_CASE("stream socket: SO_RCVLOWAT decides readiness, not what a receive that may not wait gets") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  const int four = 4;
  REQUIRE(s.socket->SetSockOpt(s.fd(), SOL_SOCKET, SO_RCVLOWAT, &four, sizeof four) == 0);
  s.Comes("abc");
  CHECK((s.Events() & POLLIN) == 0);
  s.Comes("d");
  CHECK((s.Events() & POLLIN) != 0);
  CHECK(s.Receive(3) == "abc");
  CHECK((s.Events() & POLLIN) == 0);
  CHECK(s.Receive(3) == "d");
}

TEST_CASE("stream socket: a read stops before the urgent byte, and goes on behind it") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  s.Comes("abcU", /*urgent=*/true);
  s.Comes("def");
  CHECK((s.Events() & POLLPRI) != 0);
  CHECK(s.Receive(10) == "abc");
  int at_mark = 0;
  REQUIRE(s.socket->Ioctl(s.fd(), SIOCATMARK, &at_mark) == 0);
  CHECK(at_mark == 1);
  CHECK(s.Receive(1, MSG_OOB) == "U");
  CHECK(s.Receive(10) == "def");
}

TEST_CASE("stream socket: FIONREAD counts up to the mark") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  CHECK(s.Readable() == 0);
  s.Comes("abc");
  CHECK(s.Readable() == 3);
  s.Comes("deU", /*urgent=*/true);
  CHECK(s.Readable() == 5);
}

// ----------------------------------------------------------------------------------------------------
// The end

TEST_CASE("stream socket: what came before the peer's end is read before it") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  s.Comes("last words");
  s.PeerCloses();
  CHECK((s.Events() & (POLLIN | POLLRDHUP)) == (POLLIN | POLLRDHUP));
  CHECK(s.Receive(4) == "last");
  CHECK(s.Receive(20) == " words");
  CHECK(s.Receive(20).empty());
  CHECK(s.Receive(20).empty());
  CHECK(s.Send("answer") == 6);
  CHECK(s.Takes() == "answer");
}

TEST_CASE("stream socket: a reset comes behind the data, once, and then the end") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  s.Comes("abc");
  s.PeerResets();
  CHECK(s.Receive(2) == "ab");
  CHECK((s.Events() & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
  CHECK(s.Receive(2) == "c");
  (void)s.Events();
  CHECK(s.Receive(2) == "ECONNRESET");
  CHECK(s.Receive(2).empty());
  CHECK(s.Send("x") == -1);
  CHECK(errno == EPIPE);
}

TEST_CASE("stream socket: a send that meets the reset first reports it, and the next one EPIPE") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  s.PeerResets();
  CHECK((s.Events() & POLLERR) != 0);
  CHECK(s.Send("x") == -1);
  CHECK(errno == ECONNRESET);
  CHECK(s.Send("x") == -1);
  CHECK(errno == EPIPE);
  CHECK(s.Receive(1).empty());
}

TEST_CASE("stream socket: a send that finds the link gone reports the reset") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  CHECK(s.Send("before") == 6);
  s.PeerResets();
  // A local link tells of its end with the next look at its TCP connection.
  REQUIRE(Eventually([&] { return s.Send("x") == -1; }));
  CHECK(errno == ECONNRESET);
  CHECK(s.Send("x") == -1);
  CHECK(errno == EPIPE);
}

TEST_CASE("stream socket: a session whose send has found the link gone can go to another process") {
  Connection s(Link::kTcp);
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  REQUIRE(connect(s.fd(), &none, sizeof none) == 0);  // resets the link
  const Bytes piece = AsBytes("x");
  REQUIRE(Eventually([&] { return s.peer->Send({&piece, 1}, {}), s.peer->end_unread(); }));
  CHECK(s.peer->transfer().freezable());
}

TEST_CASE("stream socket: SHUT_RD gives the end, and what comes later") {
  Connection s(GENERATE(Link::kTcp, Link::kLocal));
  CHECK(s.socket->Shutdown(s.fd(), SHUT_RD) == 0);
  CHECK((s.Events() & (POLLIN | POLLRDHUP)) == (POLLIN | POLLRDHUP));
  CHECK(s.Receive(5).empty());
  s.Comes("late");
  CHECK(s.Receive(5) == "late");
  CHECK(s.Receive(5).empty());
}

}  // namespace
}  // namespace sdp::preload
