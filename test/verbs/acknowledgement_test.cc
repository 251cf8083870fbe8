// A queue pair whose reader is about to sleep.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <string>

#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

// The link's calls: no more is sent than is allowed, and it is counted how often a kernel was told to
// acknowledge at once.
size_t may_send = 0;
int acknowledged = 0;

ssize_t SendLittle(int fd, const msghdr* message, int flags) {
  const size_t size = std::min(message->msg_iov[0].iov_len, may_send);
  if (size == 0) {
    errno = EAGAIN;
    return -1;
  }
  may_send -= size;
  return ::send(fd, message->msg_iov[0].iov_base, size, flags);
}

int CountOption(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == IPPROTO_TCP && name == TCP_QUICKACK) ++acknowledged;
  return ::setsockopt(fd, level, name, value, length);
}

TEST_CASE("what came of a message is acknowledged before a sleep: the sender may have room for no more") {
  QpPair p = MakePair();
  p.z.qp->ReadLink();  // the RTR
  const ChangedLinkCalls little([](LinkCalls& calls) {
    calls.sendmsg = SendLittle;
    calls.send = nullptr;
    calls.setsockopt = CountOption;
  });
  acknowledged = 0;
  p.z.qp->NoteSleep();  // at the beginning of a message
  CHECK(acknowledged == 0);
  const std::string text(1000, 't');
  may_send = 500;
  REQUIRE(p.a.Send(text) == verbs::PostResult::kOk);
  REQUIRE(p.z.qp->ReadLink() == verbs::ReadStatus::kProgress);
  CHECK(acknowledged == 0);
  p.z.qp->NoteSleep();
  CHECK(acknowledged == 1);
  may_send = SIZE_MAX;
  CHECK(p.a.qp->Flush());
  CHECK(Text(NextCompletion(p.z, p.a)) == text);
}

}  // namespace
}  // namespace sdp::iwarp::test
