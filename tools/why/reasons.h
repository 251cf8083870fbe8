// What the reason codes mean, for people: which side caused it, and what to do about it.
#ifndef SDP_TOOLS_WHY_REASONS_H_
#define SDP_TOOLS_WHY_REASONS_H_

#include <span>
#include <string>
#include <string_view>

namespace sdp::sdpstat {

struct Reason {
  const char* code;  // stable
  const char*
      side;  // "local": this host's doing, "remote": the peer's or its host's, "path": what lies between
  const char* meaning;  // one clause
  const char* remedy;   // one sentence; empty: nothing to be done
};

// Codes of single sockets (stats::FallbackReason, and what the tools see from outside), then those of whole
// processes.
std::span<const Reason> AllReasons();
// Null if there is no such code.
const Reason* FindReason(std::string_view code);
// What helps here, which `text`, as the process noted it, may narrow down. Empty: nothing to be done.
std::string Remedy(const Reason& reason, std::string_view text);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_WHY_REASONS_H_
