// The queue pair's messages past the send queue, on a TCP link.
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/send_batch.h"
#include "verbs/softiwarp/soft_qp.h"

namespace sdp::iwarp {

bool DirectSendAbility::MaySendDirect(size_t size) {
  return qp_.send_queue_.MayFrameDirectly(size) && qp_.may_post() && qp_.may_send();
}

void DirectSendAbility::SendDirect(Bytes header, std::span<const Bytes> payload) {
  static constexpr std::array<std::byte, kMaxTrailer> kTrailer{};
  std::array<std::byte, SendQueue::kDirectPrefix + kMostHeader + SendBatch::kInline + kMaxTrailer> front;
  std::array<iovec, kMostDirectPieces + 2> parts;
  size_t count = 1;
  const uint64_t size = TotalSize(payload);
  const size_t trailer = qp_.send_queue_.FrameDirectly(static_cast<uint32_t>(header.size() + size),
                                                       std::span(front).first<SendQueue::kDirectPrefix>());
  auto end = std::copy(header.begin(), header.end(), front.begin() + SendQueue::kDirectPrefix);
  if (size <= SendBatch::kInline) {
    for (const Bytes& piece : payload) end = std::copy(piece.begin(), piece.end(), end);
    end = std::fill_n(end, trailer, std::byte{});
  } else {
    for (const Bytes& piece : payload)
      parts[count++] = {.iov_base = const_cast<std::byte*>(piece.data()), .iov_len = piece.size()};
    parts[count++] = {.iov_base = const_cast<std::byte*>(kTrailer.data()), .iov_len = trailer};
  }
  parts[0] = {.iov_base = front.data(), .iov_len = static_cast<size_t>(end - front.begin())};
  const LinkResult sent = qp_.link_.Write(std::span(parts).first(count));
  ++qp_.counters_.write_calls;
  qp_.counters_.bytes_out += sent.bytes;
  if (sent.bytes < SendQueue::FramedSize(header.size() + size)) [[unlikely]]
    return Queue(header, payload, sent);
  qp_.send_queue_.NoteFramed();
}

void DirectSendAbility::Queue(Bytes header, std::span<const Bytes> payload, const LinkResult& sent) {
  (void)qp_.PostSend({.id = {}, .header = header, .payload = payload});
  if (sent.kind == LinkResult::Kind::kError) {
    (void)qp_.Flush();  // finds the error again, and ends the connection
    return;
  }
  if (sent.bytes > 0) {
    SendBatch batch;
    qp_.send_queue_.BuildBatch(&batch);
    qp_.send_queue_.HandleSent(batch, sent.bytes);
  }
  qp_.link_full_ = true;
  qp_.DetachBorrowed();
}

}  // namespace sdp::iwarp
