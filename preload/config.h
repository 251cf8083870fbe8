// What the environment and libsdp.conf say. The environment is read once, at start-up, and stands above the
// file; the file is read again when it has changed. Unknown values are reported to the log and leave the
// default.
#ifndef SDP_PRELOAD_CONFIG_H_
#define SDP_PRELOAD_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "preload/config_file.h"

namespace sdp::preload {

enum class RnicChoice : uint8_t { kAuto, kSoft, kVerbs };  // SDP_RNIC
enum class Mechanism : uint8_t {
  kChosen,
  kBcopy,
  kRead,
  kWrite,
  kTransaction
};                                                        // SDP_FORCE: for measurements
enum class LogLevel : uint8_t { kError, kInfo, kDebug };  // SDP_LOG
enum class LogDestination : uint8_t {
  kStandardError,
  kFile,
  kSyslog
};  // SDP_LOG_DESTINATION; kFile if SDP_LOG_FILE is set

enum class IoUringUse : uint8_t { kDeny, kAllow };  // SDP_IO_URING

// Limits of settings, and of socket options that say the same for one connection.
inline constexpr uint16_t kLeastPrivateBuffers = 3, kMostPrivateBuffers = 4096;
inline constexpr uint32_t kLeastPrivateBufferSize = 128, kMostPrivateBufferSize = 1 << 20;

struct Config {
  Mode mode = Mode::kBoth;      // SDP_MODE; of sockets that no rule speaks of
  bool mode_is_forced = false;  // SDP_MODE stands in the environment: the rules are not asked
  RnicChoice rnic = RnicChoice::kAuto;
  LogLevel log_level = LogLevel::kError;
  LogDestination log_destination = LogDestination::kStandardError;
  std::string log_file;                   // SDP_LOG_FILE
  uint16_t pm_port = 3935;                // SDP_PM_PORT
  std::optional<pm::Endpoint> pm_server;  // SDP_PM_SERVER: a central port mapper, asked about every target
  std::string pmd_socket;                 // SDP_PMD_SOCKET; empty: the default path
  Duration pm_timeout = std::chrono::milliseconds(300);  // SDP_PM_TIMEOUT_MS: a silent port mapper
  Duration pm_negative =
      std::chrono::seconds(60);  // SDP_PM_NEGATIVE_S: a host without one is not asked again
  Duration handshake_timeout = std::chrono::seconds(10);  // SDP_HANDSHAKE_TIMEOUT_MS: MPA start-up
  bool mpa_crc = false;                                   // SDP_MPA_CRC=1: ask for CRC32c
  bool mpa_markers = false;                               // SDP_MPA_MARKERS=1: ask the peer for markers
  bool mpa_peer_to_peer = true;                           // SDP_MPA_P2P=0: HelloAck in the MPA Reply
  // SDP_PRIVATE_BUFFERS: count (3 to 4096); 0: what suits the RNIC (socket/options.h)
  uint16_t receive_buffers = 0;
  // SDP_PRIVATE_BUFFER_SIZE: bytes of each with headers (128 to 1 MiB); 0: what fills an FPDU
  // (socket/options.h)
  uint32_t receive_buffer_size = 0;
  // SDP_PRIVATE_BUFFER_LIMIT: bytes of each that a peer may have them enlarged to (SDP 10.6); 0: what fills
  // an FPDU
  uint32_t receive_buffer_limit = 0;
  uint32_t send_buffer = 256 * 1024;  // SDP_SEND_BUFFER: bytes copied at most while credit is missing
  // SDP_BCOPY_THRESHOLD: a blocking write or read of more bytes than this may go by Zcopy (SDP 11); nothing:
  // what suits the RNIC (socket/options.h)
  std::optional<uint32_t> bcopy_threshold;
  // SDP_CQ_POLL_US: how long a call looks at a kernel RNIC's completion queue before it sleeps, at most;
  // nothing: about what a sleep costs on this machine (socket/poll_budget.h)
  std::optional<Duration> cq_poll;
  Mechanism force = Mechanism::kChosen;  // SDP_FORCE
  IoUringUse io_uring =
      IoUringUse::kDeny;  // SDP_IO_URING: may a program that may have SDP sockets make rings?
  std::string stats_dir;  // SDP_STATS_DIR; empty: the default runtime directory
};

// As it is now. Lives as long as the process, whatever is read later: a caller that needs two values to fit
// together keeps the reference.
const Config& config();

// Looks whether libsdp.conf has changed, at most once a second, and reads it again if so. Keeps errno; no
// cancellation point. Called where a socket's fate is decided: socket(), connect(), listen().
void RefreshConfig();

// What is to become of a socket, and which rule says so.
struct Ruling {
  Mode mode = Mode::kBoth;
  const Rule* rule = nullptr;  // null: no rule speaks of it. Lives as long as the process.
  bool native = false;         // the program itself has asked for SDP

  // "libsdp.conf:12: use tcp server sshd *:*", or "SDP_MODE=tcp".
  [[nodiscard]] std::string ToString() const;
  // Of a socket made as AF_INET_SDP: SDP or an error, whatever the rules say.
  static Ruling Native() { return {.mode = Mode::kSdp, .rule = nullptr, .native = true}; }
};
Ruling DecideSocket(RuleRole role, const sockaddr* address, socklen_t length);
// The environment keeps the library out of everything.
bool TurnedOff();
// No socket of this process could become anything but TCP, unless it asks for SDP itself.
bool NothingButTcp();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_H_
