// Payload that is not in memory yet.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_UNREAD_PAYLOAD_H_
#define SDP_VERBS_SOFTIWARP_PROTO_UNREAD_PAYLOAD_H_

#include "core/base/types.h"

namespace sdp::iwarp {

class UnreadPayload {
 public:
  // Whether the payload at this address is such.
  [[nodiscard]] virtual bool Holds(const std::byte* at) const = 0;
  // What stands at `from`, out.size() bytes of it. False: it cannot be had.
  virtual bool Read(const std::byte* from, MutableBytes out) const = 0;

 protected:
  ~UnreadPayload() = default;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_UNREAD_PAYLOAD_H_
