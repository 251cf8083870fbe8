// The small parts of a StreamSocket.
#include "preload/socket/socket_parts.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "preload/socket/calls_inside.h"
#include "preload/socket/numbers.h"
#include "preload/socket/share.h"
#include "preload/socket/tcp_side.h"

namespace sdp::preload {
namespace {

using std::chrono::milliseconds;

struct Fd {
  Fd() : number(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) { REQUIRE(number >= 0); }
  ~Fd() { close(number); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  [[nodiscard]] int flags() const { return fcntl(number, F_GETFL); }
  const int number;
};

TEST_CASE("Numbers: descriptors come, change and go") {
  Numbers numbers;
  CHECK(numbers.none());
  CHECK(numbers.any() == -1);
  CHECK(numbers.OtherThan(3) == -1);
  numbers.Add(3);
  numbers.AddUnlessKnown(3);
  CHECK(numbers.all() == std::vector{3});
  CHECK(numbers.OtherThan(3) == -1);
  numbers.Add(std::vector{5, 7});
  CHECK(numbers.OtherThan(3) == 5);
  numbers.Replace(5, 9);
  CHECK_FALSE(numbers.Has(5));
  CHECK(numbers.Has(9));
  numbers.Remove(3);
  CHECK(numbers.any() == 9);
  numbers.Clear();
  CHECK(numbers.none());
}

TEST_CASE("Numbers: the kernel is asked once for the file's flags, until another process may change them") {
  const Fd fd;
  Numbers numbers;
  CHECK_FALSE(numbers.IsNonblocking(fd.number));
  REQUIRE(fcntl(fd.number, F_SETFL, O_NONBLOCK | O_APPEND) == 0);
  CHECK_FALSE(numbers.IsNonblocking(fd.number));
  numbers.ForgetFlags();
  CHECK_FALSE(numbers.nonblocking());
  CHECK(numbers.IsNonblocking(fd.number));
  CHECK(numbers.nonblocking());
  CHECK(numbers.Appends(fd.number));
  CHECK(numbers.Set(O_APPEND) == O_APPEND);
  CHECK_FALSE(numbers.IsNonblocking(fd.number));
  Numbers none;
  CHECK_FALSE(none.IsNonblocking(-1));
}

TEST_CASE("Numbers: a listener's file does not block, and the program sees its own wish") {
  const Fd fd;
  Numbers numbers;
  CHECK_FALSE(numbers.IsNonblocking(fd.number));
  CHECK(numbers.Visible(O_NONBLOCK) == O_NONBLOCK);
  numbers.ForceNonblocking(fd.number);
  CHECK((fd.flags() & O_NONBLOCK) != 0);
  CHECK(numbers.Visible(fd.flags()) == (fd.flags() & ~O_NONBLOCK));
  CHECK(numbers.Visible(-1) == -1);
  CHECK((numbers.Set(0) & O_NONBLOCK) != 0);
  numbers.SetNonblocking(true);
  CHECK(numbers.Visible(fd.flags()) == fd.flags());
  numbers.EndForce(fd.number);
  CHECK((fd.flags() & O_NONBLOCK) != 0);
  numbers.SetNonblocking(false);
  numbers.EndForce(fd.number);
  CHECK((fd.flags() & O_NONBLOCK) == 0);
}

TEST_CASE("Numbers: one descriptor without close-on-exec survives an exec") {
  const Fd closes;
  const Fd stays;
  REQUIRE(fcntl(stays.number, F_SETFD, 0) == 0);
  Numbers numbers;
  numbers.Add(closes.number);
  CHECK_FALSE(numbers.SurvivesExec());
  numbers.Add(stays.number);
  CHECK(numbers.SurvivesExec());
}

TEST_CASE("Share: a sleeper looks less and less often, and anew after another process's use") {
  Share share;
  for (const int expected : {1, 2, 4, 8, 16, 32, 32}) CHECK(share.NextLook(false) == milliseconds(expected));
  for (const int expected : {32, 64, 128, 256, 256}) CHECK(share.NextLook(true) == milliseconds(expected));
  share.left_unsent = true;
  share.NoteUse();
  CHECK_FALSE(share.left_unsent);
  CHECK(share.NextLook(false) == milliseconds(1));
}

TEST_CASE("Share: a connection is foreign while another process keeps it, or if it was given up") {
  Share share;
  CHECK_FALSE(share.foreign());
  share.elsewhere = true;
  CHECK(share.foreign());
  share.elsewhere = false;
  share.given_up = true;
  CHECK(share.foreign());
}

TEST_CASE("TcpSide: an error is reported once, and outlives the connection") {
  TcpSide tcp{.pending_error = ECONNRESET, .error_outlived = true, .receive_shut = true, .send_shut = true};
  tcp.abort_noted = tcp.connect_reported = true;
  tcp.zero_copies_sent = 2;
  CHECK(tcp.has_queued_message());
  tcp.ForgetConnection();
  CHECK_FALSE(tcp.has_queued_message());
  CHECK_FALSE((tcp.receive_shut || tcp.send_shut || tcp.abort_noted || tcp.connect_reported));
  CHECK(tcp.TakeError() == ECONNRESET);
  CHECK_FALSE(tcp.error_outlived);
  CHECK(tcp.TakeError() == 0);
}

TEST_CASE("CallsInside: the last call that a closed connection was kept for ends it") {
  CallsInside calls;
  calls.Enter();
  calls.Enter();
  CHECK(calls.count() == 2);
  CHECK(calls.all_return());
  calls.Keep();
  CHECK_FALSE(calls.Leave());
  CHECK(calls.Leave());
  calls.EndKeeping();
  calls.Enter();
  CHECK_FALSE(calls.Leave());
}

TEST_CASE("CallsInside: a child of fork has none of its parent's calls") {
  CallsInside calls;
  calls.Enter();
  calls.ForgetInChild();
  CHECK(calls.count() == 0);
  CHECK_FALSE(calls.Leave());  // the handler that forked returns into the call
  CHECK(calls.count() == 0);
}

// Returns how many writes of a stream leave at once before they may wait for each other; 0: more than 10,000.
int WritesAtOnce(WriteStream& writes, Time now, uint64_t received = 0) {
  for (int i = 0; i < 10'000; ++i) {
    if (writes.Note(now, received)) return i;
  }
  return 0;
}

TEST_CASE("WriteStream: many writes in one tick may wait, unless something is received between them") {
  WriteStream writes;
  const Time now = Time{} + milliseconds(8);
  const int first = WritesAtOnce(writes, now);
  REQUIRE(first > 0);
  CHECK(first < 100);
  CHECK(writes.Note(now, 0));
  CHECK_FALSE(writes.Note(now, 1));  // the peer has answered
  CHECK(WritesAtOnce(writes, now, 1) == first - 1);
  CHECK_FALSE(writes.Note(now + milliseconds(4), 1));  // the next tick
  for (int i = 2; i < 1000; ++i) CHECK_FALSE(writes.Note(now, i));
}

TEST_CASE("WriteStream: where few writes share the wait, later ones leave sooner, until a message is full") {
  WriteStream writes;
  Time now = Time{} + milliseconds(8);
  const auto next = [&] { return WritesAtOnce(writes, now += milliseconds(4)); };
  const auto keep = [&](int count) {
    for (int i = 0; i < count; ++i) writes.NoteKept(/*first=*/i == 0);
    writes.NoteLate();
  };
  const int first = next();
  keep(100);
  CHECK(next() == first);
  keep(2);
  const int later = next();
  CHECK(later > first);
  for (int i = 0; i < 20; ++i) keep(2);
  const int most = next();
  CHECK(most > later);
  CHECK(most < 1000);
  writes.NoteFull();
  CHECK(next() < most);
  for (int i = 0; i < 20; ++i) writes.NoteFull();
  CHECK(next() == first);
}

}  // namespace
}  // namespace sdp::preload
