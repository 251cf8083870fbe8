// What doctor says of one thing.
#ifndef SDP_TOOLS_SDPSTAT_FINDING_H_
#define SDP_TOOLS_SDPSTAT_FINDING_H_

#include <cstdint>
#include <string>

namespace sdp::sdpstat {

struct Finding {
  enum class Grade : uint8_t { kFine, kNote, kWarning, kFailure };
  Grade grade = Grade::kFine;
  std::string subject;
  std::string text;
  std::string remedy;  // for warnings and failures
};

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_FINDING_H_
