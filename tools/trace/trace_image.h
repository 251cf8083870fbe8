// Notes of messages out of the bytes that a process publishes. Nothing in them is trusted. Pure.
#ifndef SDP_TOOLS_TRACE_TRACE_IMAGE_H_
#define SDP_TOOLS_TRACE_TRACE_IMAGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/types.h"
#include "preload/stats_messages.h"

namespace sdp::trace {

struct NotedMessage {
  uint32_t connection = 0;  // ConnectionRecord::connection
  stats::MessageNote note;  // in range: kind, direction, size
};

// The note of an entry of sizeof(MessageEntry) bytes if its tag is `tag`.
std::optional<NotedMessage> ParseEntry(Bytes entry, uint32_t tag);
// The last messages of the connection in slot `index` of a stats file, oldest first. The slot has to be in
// the image.
std::vector<NotedMessage> RecentMessages(Bytes stats_image, size_t index);

}  // namespace sdp::trace

#endif  // SDP_TOOLS_TRACE_TRACE_IMAGE_H_
