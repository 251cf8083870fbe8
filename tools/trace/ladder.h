// Messages drawn as a ladder: this process on the left, its peer on the right, a rung for each message. Pure.
#ifndef SDP_TOOLS_TRACE_LADDER_H_
#define SDP_TOOLS_TRACE_LADDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "preload/stats_layout.h"
#include "tools/trace/trace_image.h"

namespace sdp::trace {

struct LadderOptions {
  size_t width = 0;         // of the screen; a longer rung is broken. 0: none is
  bool descriptors = true;  // a column that tells connections apart
};

class Ladder {
 public:
  explicit Ladder(const LadderOptions& options) : options_(options) {}

  // A connection that is there already: a line that names it.
  std::string Introduce(const stats::ConnectionRecord& record);
  // The next message, as lines that end in a newline; nothing for a note that says nothing. Times count from
  // the first.
  std::string Draw(const NotedMessage& message);

 private:
  struct Connection {
    int fd = -1;
    std::string names;
    stats::FlowMode source = stats::FlowMode::kCombined;
    stats::FlowMode sink = stats::FlowMode::kCombined;
  };

  std::string Prefix(const NotedMessage& message);
  std::string Rung(const NotedMessage& message);
  // " now C/P" behind a ModeChange.
  std::string FollowMode(const stats::MessageNote& note, Connection* connection) const;
  std::string Broken(std::string line, const std::string& words) const;

  const LadderOptions options_;
  std::map<uint32_t, Connection> connections_;
  std::optional<uint64_t> start_ns_;
};

}  // namespace sdp::trace

#endif  // SDP_TOOLS_TRACE_LADDER_H_
