// Urgent data: as the C library's manual teaches it, what the reader does when it hears of it; and where the
// byte stands.
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <vector>

#include "test/posix/support.h"

namespace posix_test {
namespace {

bool AtMark(int fd) {
  int mark = 0;
  REQUIRE(ioctl(fd, SIOCATMARK, &mark) == 0);
  return mark != 0;
}

// Reads up to the mark, with blocking reads of `size` bytes; how much there was.
size_t ReadUntilMark(int fd, size_t size, std::string* kept) {
  size_t total = 0;
  std::vector<char> buffer(size);
  while (!AtMark(fd)) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    REQUIRE(n > 0);
    if (kept != nullptr) kept->append(buffer.data(), static_cast<size_t>(n));
    total += static_cast<size_t>(n);
  }
  return total;
}

// It may have been announced and not be here yet.
char TakeUrgent(int fd) {
  char c = 0;
  REQUIRE(Eventually([&] { return recv(fd, &c, 1, MSG_OOB) == 1; }));
  return c;
}

TEST_CASE("urgent: who asks for nothing but the mark hears of it") {
  const int in_line = GENERATE(0, 1);
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, in_line);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(SendAll(pair.client, std::string("ab")));
    REQUIRE(ReceiveExactly(pair.server, 2) == "ab");
    REQUIRE_FALSE(AtMark(pair.server));
    REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
    REQUIRE(Eventually([&] { return AtMark(pair.server); }));
    if (in_line != 0) {
      REQUIRE(ReceiveExactly(pair.server, 1) == "!");
    } else {
      REQUIRE(TakeUrgent(pair.server) == '!');
    }
  }
}

TEST_CASE("urgent: everything before the mark is thrown away, what follows is read") {
  const size_t before = GENERATE(size_t{0}, size_t{10}, size_t{70'000});
  const size_t piece = GENERATE(size_t{100}, size_t{1'000'000});
  Pair pair = MakePair();
  const std::string ahead = Pattern(before);
  auto sender = Async([&] {
    if (!SendAll(pair.client, ahead)) return false;
    if (send(pair.client, "!", 1, MSG_OOB) != 1) return false;
    return SendAll(pair.client, std::string("after"));
  });
  REQUIRE(WaitFor(pair.server, POLLPRI));
  REQUIRE(ReadUntilMark(pair.server, piece, nullptr) == before);
  REQUIRE(TakeUrgent(pair.server) == '!');
  REQUIRE(ReceiveExactly(pair.server, 5) == "after");
  REQUIRE(Get(sender));
}

TEST_CASE("urgent: what stands before the mark is kept, the urgent byte handled first") {
  Pair pair = MakePair();
  const std::string ahead = Pattern(60'000);
  auto sender = Async([&] {
    return SendAll(pair.client, ahead) && send(pair.client, "?", 1, MSG_OOB) == 1 &&
           SendAll(pair.client, std::string("answered"));
  });
  REQUIRE(WaitFor(pair.server, POLLPRI));
  // As long as the window is shut the byte itself cannot come: ordinary data has to be read to make room.
  std::string kept;
  std::vector<char> buffer(5000);
  char urgent = 0;
  REQUIRE(Eventually([&] {
    if (recv(pair.server, &urgent, 1, MSG_OOB) == 1) return true;
    if (AtMark(pair.server)) return false;
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) kept.append(buffer.data(), static_cast<size_t>(n));
    return false;
  }));
  REQUIRE(urgent == '?');
  ReadUntilMark(pair.server, 100'000, &kept);
  REQUIRE(Hash(kept) == Hash(ahead));
  REQUIRE(ReceiveExactly(pair.server, 8) == "answered");
  REQUIRE(Get(sender));
}

TEST_CASE("urgent: a read that sleeps for more ends at a mark which comes meanwhile") {
  const bool whole = GENERATE(true, false);  // else it is the low water mark that it waits for
  Pair pair = MakePair();
  if (!whole) SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 10);
  REQUIRE(SendAll(pair.client, "12345"));
  std::string got(10, '\0');
  auto reader = Async([&] { return recv(pair.server, got.data(), got.size(), whole ? MSG_WAITALL : 0); });
  REQUIRE(StillRunning(reader));
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  const bool ended = Eventually([&] { return !StillRunning(reader, 1); });
  REQUIRE(SendAll(pair.client, "abcde"));
  REQUIRE(Get(reader) == 5);
  REQUIRE(ended);
  REQUIRE(AtMark(pair.server));
  REQUIRE(TakeUrgent(pair.server) == '!');
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 1);
  REQUIRE(ReceiveExactly(pair.server, 5) == "abcde");
}

TEST_CASE("urgent: looks end at the mark, whatever they ask for") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "12345"));
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(SendAll(pair.client, "abcde"));
  REQUIRE(TakeUrgent(pair.server) == '!');
  SetTimeout(pair.server, SO_RCVTIMEO, kPatienceMs);
  std::string got(10, '\0');
  REQUIRE(recv(pair.server, got.data(), got.size(), MSG_PEEK | MSG_TRUNC) == 5);
  REQUIRE(recv(pair.server, got.data(), got.size(), MSG_PEEK) == 5);
  REQUIRE(recv(pair.server, got.data(), got.size(), 0) == 5);
  REQUIRE(ReceiveExactly(pair.server, 5) == "abcde");
}

TEST_CASE("urgent: a second one before the first was taken") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "ab1", 3, MSG_OOB) == 3);
  REQUIRE(WaitFor(pair.server, POLLPRI));
  REQUIRE(TakeUrgent(pair.server) == '1');
  REQUIRE(send(pair.client, "cd2", 3, MSG_OOB) == 3);
  REQUIRE(WaitFor(pair.server, POLLPRI));
  std::string kept;
  ReadUntilMark(pair.server, 100, &kept);
  REQUIRE(TakeUrgent(pair.server) == '2');
  REQUIRE(kept.substr(0, 2) == "ab");
  REQUIRE(kept.substr(kept.size() - 2) == "cd");
}

TEST_CASE("stream: urgent data out of line") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "abc", 3, 0) == 3);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE((PollOne(pair.server, POLLPRI) & POLLPRI) != 0);
  char c = 0;
  REQUIRE(recv(pair.server, &c, 1, MSG_OOB) == 1);
  REQUIRE(c == '!');
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_OOB), EINVAL);
  REQUIRE(send(pair.client, "def", 3, 0) == 3);
  REQUIRE(ReceiveExactly(pair.server, 6) == "abcdef");
}

TEST_CASE("stream: of a send in many pieces the last byte is urgent, and no other") {
  Pair pair = MakePair();
  std::string data = Pattern(200);
  data.back() = '!';
  std::vector<iovec> pieces;
  for (char& c : data) pieces.push_back({.iov_base = &c, .iov_len = 1});
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  REQUIRE(sendmsg(pair.client, &message, MSG_OOB) == 200);
  char c = 0;
  REQUIRE(Eventually([&] { return recv(pair.server, &c, 1, MSG_OOB) == 1; }));
  REQUIRE(c == '!');
  REQUIRE(SendAll(pair.client, "on"));
  REQUIRE(ReceiveExactly(pair.server, 201) == data.substr(0, 199) + "on");
}

TEST_CASE("stream: urgent data that is here already comes in line once that is asked for") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "abc", 3, 0) == 3);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  const bool followed = GENERATE(false, true);
  if (followed) REQUIRE(send(pair.client, "de", 2, 0) == 2);
  char c = 0;
  REQUIRE(Eventually([&] { return recv(pair.server, &c, 1, MSG_OOB | MSG_PEEK) == 1; }));
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_OOB), EINVAL);
  char room[10];
  REQUIRE(recv(pair.server, room, sizeof(room), 0) == 3);
  int mark = -1;
  REQUIRE(ioctl(pair.server, SIOCATMARK, &mark) == 0);
  REQUIRE(mark == 1);
  REQUIRE(ReceiveExactly(pair.server, followed ? 3 : 1) == (followed ? "!de" : "!"));
}

TEST_CASE("stream: urgent data in line stops at the mark") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, 1);
  REQUIRE(send(pair.client, "abc", 3, 0) == 3);
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(send(pair.client, "de", 2, 0) == 2);
  REQUIRE((PollOne(pair.server, POLLPRI) & POLLPRI) != 0);
  int n = 0;
  REQUIRE(Eventually([&] { return ioctl(pair.server, FIONREAD, &n) == 0 && n >= 3; }));
  int mark = -1;
  REQUIRE(ioctl(pair.server, SIOCATMARK, &mark) == 0);
  REQUIRE(mark == 0);
  char room[10];
  REQUIRE(recv(pair.server, room, sizeof(room), 0) == 3);
  REQUIRE(ioctl(pair.server, SIOCATMARK, &mark) == 0);
  REQUIRE(mark == 1);
  REQUIRE(ReceiveExactly(pair.server, 3) == "!de");
}

}  // namespace
}  // namespace posix_test
