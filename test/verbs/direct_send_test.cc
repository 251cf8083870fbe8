// Messages past the send queue, on a TCP link that takes all, a part or nothing of one.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"
#include "verbs/softiwarp/proto/send_queue.h"

namespace sdp::iwarp::test {
namespace {

// The link's calls: no more is sent than is allowed, then `refusal` is the errno.
size_t may_send = SIZE_MAX;
int refusal = EAGAIN;
int calls_made = 0;

ssize_t SendLittle(int fd, const msghdr* message, int flags) {
  ++calls_made;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* const part = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
    bytes.insert(bytes.end(), part, part + message->msg_iov[i].iov_len);
  }
  const size_t size = std::min(bytes.size(), may_send);
  if (size == 0 && !bytes.empty()) {
    errno = refusal;
    return -1;
  }
  may_send -= size;
  return ::send(fd, bytes.data(), size, flags);
}

struct Direct {
  Direct()
      : calls([](LinkCalls& changed) {
          changed.sendmsg = SendLittle;
          changed.send = nullptr;
        }) {
    may_send = SIZE_MAX;
    refusal = EAGAIN;
    pair = MakePair();
    REQUIRE(pair.a.qp->facts().link == std::string_view("tcp"));
    pair.z.qp->ReadLink();  // the RTR
    calls_made = 0;
  }
  verbs::DirectSend& sender() { return *pair.a.qp->direct_send(); }
  // Sends header and payload, which is in two pieces, and then forgets them.
  void Send(std::string header, std::string payload) {
    REQUIRE(sender().MaySendDirect(header.size() + payload.size()));
    const Bytes all = AsBytes(payload);
    const std::array pieces = {all.first(all.size() / 3), all.subspan(all.size() / 3)};
    sender().SendDirect(AsBytes(header), pieces);
    std::fill(header.begin(), header.end(), '?');
    std::fill(payload.begin(), payload.end(), '?');
  }
  std::string Received() { return Text(NextCompletion(pair.z, pair.a)); }

  ChangedLinkCalls calls;
  QpPair pair;
};

TEST_CASE("direct send: a message is one call, and its queue stays empty") {
  Direct d;
  const size_t size = GENERATE(0, 1, 1000, 1024, 1025, 20'000);
  const std::string payload(size, 'p');
  const verbs::QpCounters before = d.pair.a.qp->counters();
  d.Send("header", payload);
  CHECK(calls_made == 1);
  CHECK(d.pair.a.qp->unsent_bytes() == 0);
  const verbs::QpCounters& after = d.pair.a.qp->counters();
  CHECK(after.write_calls == before.write_calls + 1);
  CHECK(after.fpdus_out == before.fpdus_out + 1);
  CHECK(after.bytes_out - before.bytes_out == SendQueue::FramedSize(6 + size));
  CHECK(d.Received() == "header" + payload);
  REQUIRE(d.pair.a.Send("by the queue") == verbs::PostResult::kOk);
  CHECK(d.Received() == "by the queue");
  d.Send("again", "past it");
  CHECK(d.Received() == "againpast it");
}

TEST_CASE("direct send: what the link does not take waits in the queue, as a copy") {
  Direct d;
  const size_t size = GENERATE(10, 3000);
  const size_t taken = GENERATE(0, 1, 19, 20, 21, 28, 39);
  CAPTURE(size, taken);
  may_send = taken;
  const std::string payload(size, 'p');
  d.Send("header", payload);
  CHECK(calls_made == 1);
  CHECK(d.pair.a.qp->unsent_bytes() > 0);
  CHECK(d.pair.a.qp->interest().write);
  CHECK_FALSE(d.sender().MaySendDirect(1));
  may_send = SIZE_MAX;
  CHECK(d.pair.a.qp->Flush());
  CHECK(d.Received() == "header" + payload);
  d.Send("next", "one");
  CHECK(d.Received() == "nextone");
}

TEST_CASE("direct send: a link that is gone is found, and nothing more may be sent") {
  Direct d;
  const size_t taken = GENERATE(0, 30);
  may_send = taken;
  refusal = EPIPE;
  d.Send("header", std::string(500, 'p'));
  CHECK(d.pair.a.qp->facts().send_failed == (taken == 0));
  CHECK(d.pair.a.qp->Flush());  // nothing is left for it
  CHECK(d.pair.a.qp->facts().send_failed);
  CHECK_FALSE(d.pair.a.qp->facts().failed_midway);
  CHECK_FALSE(d.sender().MaySendDirect(1));
  may_send = SIZE_MAX;
}

TEST_CASE("direct send: not behind what is posted, behind a Disconnect, or where frames have a CRC") {
  Direct d;
  may_send = 0;
  REQUIRE(d.pair.a.Send("queued") == verbs::PostResult::kOk);
  CHECK_FALSE(d.sender().MaySendDirect(1));
  may_send = SIZE_MAX;
  REQUIRE(d.pair.a.qp->Flush());
  CHECK(d.sender().MaySendDirect(1));
  d.pair.a.qp->Disconnect();
  CHECK_FALSE(d.sender().MaySendDirect(1));
  PairOptions crc;
  crc.a.want_crc = true;
  CHECK_FALSE(MakePair(crc).a.qp->direct_send()->MaySendDirect(1));
}

}  // namespace
}  // namespace sdp::iwarp::test
