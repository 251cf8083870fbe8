// A position in a caller's iovec, from which the rest is named as spans for the engine. Refers to the iovec
// and to its memory; has no lock.
#ifndef SDP_PRELOAD_SOCKET_IOVEC_CURSOR_H_
#define SDP_PRELOAD_SOCKET_IOVEC_CURSOR_H_

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "core/base/types.h"
#include "preload/user_memory.h"

namespace sdp::preload {

template <typename Span, typename Byte>
class IovecCursor {
 public:
  IovecCursor(const iovec* iov, size_t count) : iov_(iov), count_(count) {
    for (size_t i = 0; i < count; ++i) left_ += iov[i].iov_len;
  }
  [[nodiscard]] size_t left() const { return left_; }

  // Returns the next piece that is not empty; an empty span at the end.
  [[nodiscard]] Span Front() const {
    size_t i = index_;
    size_t offset = offset_;
    for (; i < count_ && iov_[i].iov_len == offset; ++i) offset = 0;
    return i < count_ ? Span(static_cast<Byte*>(iov_[i].iov_base) + offset, iov_[i].iov_len - offset)
                      : Span();
  }
  // Names as much of the rest, up to `most` bytes, as kSpans spans can. Valid until the next call.
  std::span<const Span> Rest(size_t most = SIZE_MAX) {
    return Name(most, {reinterpret_cast<Span*>(spans_), kSpans});
  }
  // Returns true if Rest() has named less than there is.
  [[nodiscard]] bool RestIsMore(std::span<const Span> named) const {
    if (named.size() < kSpans) return false;
    size_t bytes = 0;
    for (const Span& span : named) bytes += span.size();
    return bytes < left_;
  }
  // Rest() with room for as many spans as `spans` has.
  std::span<const Span> Name(size_t most, std::span<Span> spans) const {
    size_t n = 0;
    size_t offset = offset_;
    for (size_t i = index_; i < count_ && n < spans.size() && most > 0; ++i, offset = 0) {
      if (iov_[i].iov_len == offset) continue;
      const size_t length = std::min(iov_[i].iov_len - offset, most);
      new (&spans[n++]) Span(static_cast<Byte*>(iov_[i].iov_base) + offset, length);
      most -= length;
    }
    return spans.first(n);
  }

  // Returns true if the next `most` bytes, or what there is of them, may be written to.
  [[nodiscard]] bool MayWrite(size_t most) const {
    size_t offset = offset_;
    for (size_t i = index_; i < count_ && most > 0; ++i, offset = 0) {
      const size_t length = std::min(iov_[i].iov_len - offset, most);
      if (!preload::MayWrite(static_cast<std::byte*>(iov_[i].iov_base) + offset, length)) return false;
      most -= length;
    }
    return true;
  }

  // `bytes`: no more than left().
  void Advance(size_t bytes) {
    left_ -= bytes;
    while (bytes > 0) {
      const size_t step = std::min(bytes, iov_[index_].iov_len - offset_);
      bytes -= step;
      offset_ += step;
      if (offset_ == iov_[index_].iov_len) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  static constexpr size_t kSpans = 64;

  const iovec* iov_;
  size_t count_;
  size_t index_ = 0;
  size_t offset_ = 0;
  size_t left_ = 0;
  // Not made before there is something to name: most calls have one piece.
  alignas(Span) std::byte spans_[kSpans * sizeof(Span)];
};
using SendCursor = IovecCursor<Bytes, const std::byte>;
using ReceiveCursor = IovecCursor<MutableBytes, std::byte>;

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_IOVEC_CURSOR_H_
