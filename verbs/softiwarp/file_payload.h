// The payload of Sends that lies in a file (verbs/file_range.h). FilePayload writes it to the link from the
// file's pages, or reads it into memory. The caller owns the file descriptor.
#ifndef SDP_VERBS_SOFTIWARP_FILE_PAYLOAD_H_
#define SDP_VERBS_SOFTIWARP_FILE_PAYLOAD_H_

#include "verbs/file_range.h"
#include "verbs/softiwarp/proto/unread_payload.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class FilePayload final : public UnreadPayload {
 public:
  explicit FilePayload(const verbs::FileRange& file) : file_(file) {}

  [[nodiscard]] bool Holds(const std::byte* at) const override { return file_.Holds(at); }
  bool Read(const std::byte* from, MutableBytes out) const override;
  // Like TcpLink::Write. Parts that lie in the file leave from its pages, each with a system call of its own.
  // kEof means that the file is shorter than its range.
  LinkResult Write(const TcpLink& link, std::span<const iovec> parts) const;

 private:
  LinkResult WriteFile(const TcpLink& link, Bytes part, bool more) const;
  // Not inlined, so that only this function has the stack frame for the copy.
  [[gnu::noinline]] LinkResult WriteCopy(const TcpLink& link, Bytes part, bool more) const;

  const verbs::FileRange file_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_FILE_PAYLOAD_H_
