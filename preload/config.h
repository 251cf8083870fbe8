// What the environment says, read once at start-up. Unknown values are reported to the log and leave the
// default.
#ifndef SDP_PRELOAD_CONFIG_H_
#define SDP_PRELOAD_CONFIG_H_

#include <cstdint>
#include <string>

#include "core/base/types.h"

namespace sdp::preload {

enum class Mode : uint8_t { kBoth, kSdp, kTcp };  // SDP_MODE: SDP with fall-back, SDP or nothing, off
enum class RnicChoice : uint8_t { kAuto, kSoft, kVerbs };  // SDP_RNIC
enum class LogLevel : uint8_t { kError, kInfo, kDebug };   // SDP_LOG

struct Config {
  Mode mode = Mode::kBoth;
  RnicChoice rnic = RnicChoice::kAuto;
  LogLevel log_level = LogLevel::kError;
  std::string log_file;                                  // SDP_LOG_FILE; empty: standard error
  uint16_t pm_port = 3935;                               // SDP_PM_PORT
  std::string pmd_socket;                                // SDP_PMD_SOCKET; empty: the default path
  Duration pm_timeout = std::chrono::milliseconds(300);  // SDP_PM_TIMEOUT_MS: a silent port mapper
  Duration pm_negative =
      std::chrono::seconds(60);  // SDP_PM_NEGATIVE_S: a host without one is not asked again
  Duration handshake_timeout = std::chrono::seconds(10);  // SDP_HANDSHAKE_TIMEOUT_MS: MPA start-up
  bool mpa_crc = false;                                   // SDP_MPA_CRC=1: ask for CRC32c
  bool mpa_markers = false;                               // SDP_MPA_MARKERS=1: ask the peer for markers
  bool mpa_peer_to_peer = true;                           // SDP_MPA_P2P=0: HelloAck in the MPA Reply
  uint16_t receive_buffers = 24;                          // SDP_PRIVATE_BUFFERS: count (3 to 4096)
  uint32_t receive_buffer_size = 32784;  // SDP_PRIVATE_BUFFER_SIZE: bytes with headers (128 to 1 MiB)
  uint32_t send_buffer = 256 * 1024;     // SDP_SEND_BUFFER: bytes copied at most while credit is missing
  std::string stats_dir;                 // SDP_STATS_DIR; empty: the default runtime directory
};

const Config& config();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_H_
