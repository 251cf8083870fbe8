// A range of a file that serves as the payload of Sends (FileSource) without being read into memory first.
#ifndef SDP_VERBS_FILE_RANGE_H_
#define SDP_VERBS_FILE_RANGE_H_

#include <sys/types.h>

#include "core/base/types.h"

namespace sdp::verbs {

// The addresses in `name` stand for the bytes of `fd` from `offset` on: payload with these addresses is the
// file's. No memory needs to exist there, and no other payload may lie there. The caller keeps the
// descriptor.
struct FileRange {
  Bytes name{};
  int fd = -1;
  off64_t offset = 0;

  [[nodiscard]] bool Holds(const std::byte* at) const {
    return at >= name.data() && at < name.data() + name.size();
  }
  [[nodiscard]] off64_t OffsetOf(const std::byte* at) const { return offset + (at - name.data()); }
};

}  // namespace sdp::verbs

#endif  // SDP_VERBS_FILE_RANGE_H_
