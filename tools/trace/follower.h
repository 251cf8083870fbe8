// Follows the trace of a running process: asks for it, and takes the messages as they come.
#ifndef SDP_TOOLS_TRACE_FOLLOWER_H_
#define SDP_TOOLS_TRACE_FOLLOWER_H_

#include <string>
#include <vector>

#include "tools/stats/stats_reader.h"
#include "tools/trace/trace_image.h"

namespace sdp::trace {

class Follower {
 public:
  // `process`: its stats file, open for reading and writing, of a process that runs.
  explicit Follower(stats::FoundProcess process);

  // Asks for the trace, or goes on asking: to be called more often than kTraceLeaseNs, after which the
  // process stops by itself. False: the file cannot be written.
  bool Ask();

  // What has come since the last call, in order. Messages that were overwritten before they were read count
  // in lost().
  std::vector<NotedMessage> Poll();
  [[nodiscard]] uint64_t lost() const { return lost_; }
  // The process cannot make its trace file: an errno; 0: nothing is known of that.
  [[nodiscard]] int error() const;
  [[nodiscard]] bool process_ended() const;

  // The connections, and what each noted last, as of now. Empty when the file makes no sense.
  struct Connection {
    stats::ConnectionRecord record;
    std::vector<NotedMessage> recent;
  };
  std::vector<Connection> Connections() const;

 private:
  bool OpenTrace();
  [[nodiscard]] uint64_t Next() const;

  stats::FoundProcess process_;
  stats::OwnedFd trace_;
  bool opened_ = false;
  uint64_t position_ = 0;
  uint64_t lost_ = 0;
  int stuck_ = 0;  // looks at a message that its writer does not complete
};

// The connections in a stats file's image.
std::vector<Follower::Connection> ConnectionsIn(Bytes image);

}  // namespace sdp::trace

#endif  // SDP_TOOLS_TRACE_FOLLOWER_H_
