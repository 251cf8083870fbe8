// What a probe and who started it say to each other.
#ifndef SDP_TOOLS_PROBE_PROBE_WORDS_H_
#define SDP_TOOLS_PROBE_PROBE_WORDS_H_

namespace sdp::probe {

inline constexpr char kProbeOption[] =
    "--sdp-probe";  // then HOST and PORT, both empty for a connection to itself
inline constexpr char kConnected[] = "connected ";  // then milliseconds
inline constexpr char kFailed[] = "failed ";        // then why

}  // namespace sdp::probe

#endif  // SDP_TOOLS_PROBE_PROBE_WORDS_H_
