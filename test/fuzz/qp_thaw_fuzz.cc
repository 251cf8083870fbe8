// Frozen queue pairs from anywhere: refused, or good to use. Input: two bytes with the length of the frozen
// part, that part, and then what the link brings to the queue pair it becomes.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/base/check.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/link_calls.h"
#include "verbs/softiwarp/soft_rnic.h"

using namespace sdp;

namespace {

Bytes incoming;
size_t sendable;

ssize_t Receive(int, msghdr* message, int) {
  if (incoming.empty()) {
    errno = EAGAIN;
    return -1;
  }
  size_t taken = 0;
  for (size_t i = 0; i < message->msg_iovlen && !incoming.empty(); ++i) {
    const size_t n = std::min(message->msg_iov[i].iov_len, incoming.size());
    std::memcpy(message->msg_iov[i].iov_base, incoming.data(), n);
    incoming = incoming.subspan(n);
    taken += n;
    if (n < message->msg_iov[i].iov_len) break;
  }
  return static_cast<ssize_t>(taken);
}

ssize_t Send(int, const msghdr* message, int) {
  size_t taken = 0;
  for (size_t i = 0; i < message->msg_iovlen && taken < sendable; ++i) {
    const size_t n = std::min(message->msg_iov[i].iov_len, sendable - taken);
    volatile std::byte touch{};
    for (size_t k = 0; k < n; ++k) touch = static_cast<const std::byte*>(message->msg_iov[i].iov_base)[k];
    (void)touch;
    taken += n;
  }
  sendable -= taken;
  if (taken > 0) return static_cast<ssize_t>(taken);
  errno = EAGAIN;
  return -1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  iwarp::SetLinkCalls({.recvmsg = Receive,
                       .sendmsg = Send,
                       .shutdown = [](int, int) { return 0; },
                       .setsockopt = [](int, int, int, const void*, socklen_t) { return 0; },
                       .getsockopt = [](int, int, int, void*, socklen_t*) { return -1; }});
  const Bytes all = std::as_bytes(std::span(data + 2, size - 2));
  const size_t frozen_size = std::min<size_t>(all.size(), data[0] << 8 | data[1]);
  auto qp = iwarp::Thaw(3, all.first(frozen_size));
  if (qp == nullptr) return 0;
  const auto frozen = qp->portable()->Freeze();
  qp = iwarp::Thaw(3, frozen);
  SDP_CHECK(qp != nullptr && qp->portable()->Freeze() == frozen);

  for (int round = 0; round < 4; ++round) {
    incoming = all.subspan(frozen_size);
    incoming = incoming.subspan(incoming.size() * static_cast<size_t>(round) / 4,
                                incoming.size() * static_cast<size_t>(round + 1) / 4 -
                                    incoming.size() * static_cast<size_t>(round) / 4);
    sendable = 3000;
    const std::byte payload[700] = {};
    const Bytes piece(payload);
    qp->PostSend(
        {.id = WorkId(1), .signaled = true, .header = piece.first(16), .payload = std::span(&piece, 1)});
    qp->Flush();
    qp->DetachBorrowed();
    while (!incoming.empty() && qp->ReadLink() == verbs::ReadStatus::kProgress) {
    }
    verbs::Completion c;
    while (qp->PollCompletion(&c)) {
      if (c.opcode == verbs::Opcode::kReceive && round % 2 == 0) qp->Release(c.token);
    }
    if (!qp->portable()->freezable()) continue;
    const auto again = qp->portable()->Freeze();
    qp = iwarp::Thaw(3, again);
    SDP_CHECK(qp != nullptr);
  }
  return 0;
}
