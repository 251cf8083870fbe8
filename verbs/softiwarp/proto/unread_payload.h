// Payload that addresses name but that is not in memory: a file's bytes (file_payload.h).
#ifndef SDP_VERBS_SOFTIWARP_PROTO_UNREAD_PAYLOAD_H_
#define SDP_VERBS_SOFTIWARP_PROTO_UNREAD_PAYLOAD_H_

#include "core/base/types.h"

namespace sdp::iwarp {

class UnreadPayload {
 public:
  // Returns true if the payload at this address is not in memory.
  [[nodiscard]] virtual bool Holds(const std::byte* at) const = 0;
  // Reads the out.size() bytes that `from` names. Returns false if they cannot be read.
  virtual bool Read(const std::byte* from, MutableBytes out) const = 0;

 protected:
  ~UnreadPayload() = default;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_UNREAD_PAYLOAD_H_
