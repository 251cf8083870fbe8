#include "verbs/softiwarp/file_payload.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace sdp::iwarp {

bool FilePayload::Read(const std::byte* from, MutableBytes out) const {
  off64_t at = file_.OffsetOf(from);
  while (!out.empty()) {
    const ssize_t n = ::pread64(file_.fd, out.data(), out.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<size_t>(n));
    at += n;
  }
  return true;
}

LinkResult FilePayload::Write(const TcpLink& link, std::span<const iovec> parts) const {
  size_t written = 0;
  // Each sendfile would push the end of its FPDU in a segment of its own.
  struct Corked {
    const TcpLink& link;
    explicit Corked(const TcpLink& l) : link(l) { link.Cork(true); }
    ~Corked() { link.Cork(false); }
  } const corked(link);
  while (!parts.empty()) {
    size_t count = 0;
    size_t wanted = 0;
    while (count < parts.size() && !Holds(static_cast<const std::byte*>(parts[count].iov_base)))
      wanted += parts[count++].iov_len;
    LinkResult result;
    if (count > 0) {
      result = link.Write(parts.first(count), /*more=*/count < parts.size());
    } else {
      count = 1;
      wanted = parts[0].iov_len;
      result =
          WriteFile(link, Bytes(static_cast<const std::byte*>(parts[0].iov_base), wanted), parts.size() > 1);
    }
    if (result.kind == LinkResult::Kind::kEof) return result;
    // The bytes before this part are sent; the next call reports the failure.
    if (result.kind != LinkResult::Kind::kOk)
      return written > 0 ? LinkResult{.kind = LinkResult::Kind::kOk, .bytes = written} : result;
    written += result.bytes;
    if (result.bytes < wanted) break;
    parts = parts.subspan(count);
  }
  return {.kind = LinkResult::Kind::kOk, .bytes = written};
}

LinkResult FilePayload::WriteFile(const TcpLink& link, Bytes part, bool more) const {
  const LinkResult sent = link.WriteFile(file_.fd, file_.OffsetOf(part.data()), part.size());
  if (sent.kind == LinkResult::Kind::kOk || sent.kind == LinkResult::Kind::kWouldBlock) return sent;
  // Either the file has no pages to send from, or has become shorter, or the link has ended. The copy finds
  // out which.
  return WriteCopy(link, part, more);
}

LinkResult FilePayload::WriteCopy(const TcpLink& link, Bytes part, bool more) const {
  std::array<std::byte, 16 * 1024> copy;
  const MutableBytes bytes = std::span(copy).first(std::min(copy.size(), part.size()));
  if (!Read(part.data(), bytes)) return {.kind = LinkResult::Kind::kEof};
  const iovec whole = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  return link.Write({&whole, 1}, more || bytes.size() < part.size());
}

}  // namespace sdp::iwarp
