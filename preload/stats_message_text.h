// A noted message as text, for the log and for sdpstat. No state.
#ifndef SDP_PRELOAD_STATS_MESSAGE_TEXT_H_
#define SDP_PRELOAD_STATS_MESSAGE_TEXT_H_

#include <string>

#include "preload/stats_messages.h"

namespace sdp::stats {

struct MessageText {
  std::string name;     // "SrcAvail", "RDMA Read"
  std::string details;  // "bufs=24 mseq=7 ack=3 len=65536 stag=0x1234 ...", as the codec prints it
};
// Accepts any note, whatever it holds. The text is plain ASCII.
MessageText ToText(const MessageNote& note);

}  // namespace sdp::stats

#endif  // SDP_PRELOAD_STATS_MESSAGE_TEXT_H_
