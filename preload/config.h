// What the environment and libsdp.conf say. The library reads the environment once, at start-up; it takes
// precedence over the file. The library reads the file again when it has changed. Unknown values are reported
// to the log and leave the default. Any thread may ask, without a lock.
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
enum class LinkChoice : uint8_t { kAuto, kLocal, kTcp };   // SDP_LINK
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

// Limits for settings, and for the socket options that set the same for one connection.
inline constexpr uint16_t kLeastPrivateBuffers = 3, kMostPrivateBuffers = 4096;
inline constexpr uint32_t kLeastPrivateBufferSize = 128, kMostPrivateBufferSize = 1 << 20;

// Ports from `first` to `last`.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
};

struct Config {
  Mode mode = Mode::kBoth;      // SDP_MODE; for sockets that no rule applies to
  bool mode_is_forced = false;  // the environment sets SDP_MODE: rules are ignored
  RnicChoice rnic = RnicChoice::kAuto;
  LinkChoice link = LinkChoice::kAuto;  // the embedded RNIC's links; kLocal: other connections are TCP
  LogLevel log_level = LogLevel::kError;
  LogDestination log_destination = LogDestination::kStandardError;
  std::string log_file;                   // SDP_LOG_FILE
  uint16_t pm_port = 3935;                // SDP_PM_PORT
  std::optional<pm::Endpoint> pm_server;  // SDP_PM_SERVER: a central port mapper for every target
  std::string pmd_socket;                 // SDP_PMD_SOCKET; empty: the default path
  Duration pm_timeout = std::chrono::milliseconds(300);  // SDP_PM_TIMEOUT_MS: for a silent port mapper
  Duration pm_negative =
      std::chrono::seconds(60);  // SDP_PM_NEGATIVE_S: how long a host without one is not asked again
  bool pm_redirect = false;      // SDP_PM_REDIRECT=1: a target's port mapper may name another host
  bool any_privileged_port =
      false;  // SDP_ANY_PRIVILEGED_PORT=1: a target's port below 1024 may have any SDP port
  std::optional<PortRange> sdp_ports;  // SDP_PORTS: SDP listeners take theirs from there
  // SDP_PORT_OFFSET: the SDP port is the conventional one plus this (1 to 65534)
  std::optional<uint16_t> sdp_port_offset;
  // SDP_CONNECT_BUDGET_MS: how long an SDP port may be silent before a connect tries TCP, too; nothing: three
  // round trips, 50 to 300 ms (socket/connection_race.h)
  std::optional<Duration> connect_budget;
  Duration handshake_timeout = std::chrono::seconds(10);  // SDP_HANDSHAKE_TIMEOUT_MS: MPA start-up
  bool mpa_crc = false;                                   // SDP_MPA_CRC=1: ask for CRC32c
  bool mpa_markers = false;                               // SDP_MPA_MARKERS=1: ask the peer for markers
  bool mpa_peer_to_peer = true;                           // SDP_MPA_P2P=0: HelloAck goes into the MPA Reply
  // SDP_PRIVATE_BUFFERS: the number of buffers (3 to 4096); 0: what suits the RNIC (socket/options.h)
  uint16_t receive_buffers = 0;
  // SDP_PRIVATE_BUFFER_SIZE: bytes in each, headers included (128 to 1 MiB); 0: what fills an FPDU
  // (socket/options.h)
  uint32_t receive_buffer_size = 0;
  // SDP_PRIVATE_BUFFER_LIMIT: the most bytes to which a peer may enlarge each (SDP 10.6); 0: what fills an
  // FPDU
  uint32_t receive_buffer_limit = 0;
  uint32_t send_buffer = 256 * 1024;  // SDP_SEND_BUFFER: the most bytes to copy while credit is missing
  // SDP_BCOPY_THRESHOLD: a blocking write or read of more bytes than this may use Zcopy (SDP 11); nothing:
  // what suits the RNIC (socket/options.h)
  std::optional<uint32_t> bcopy_threshold;
  // SDP_POLL_US: how long, at most, a call looks at its links before it sleeps; nothing: about what a sleep
  // costs on the host (socket/poll_budget.h)
  std::optional<Duration> poll;
  Mechanism force = Mechanism::kChosen;  // SDP_FORCE
  IoUringUse io_uring =
      IoUringUse::kDeny;  // SDP_IO_URING: whether a program that may have SDP sockets may make rings
  std::string stats_dir;  // SDP_STATS_DIR; empty: the default runtime directory
};

// Returns the configuration in force. The object lives as long as the process, whatever is read later. A
// caller that needs two values to fit together keeps the reference.
const Config& config();

// Looks, at most once a second, whether libsdp.conf has changed, and reads it again if so. Keeps errno; is no
// cancellation point. Callers are the calls that decide what a socket becomes: socket(), connect(), listen().
void RefreshConfig();

// What a socket is to become, and which rule says so.
struct Ruling {
  Mode mode = Mode::kBoth;
  const Rule* rule = nullptr;  // null: no rule applies; lives as long as the process
  bool native = false;         // the program itself asked for SDP

  // "libsdp.conf:12: use tcp server sshd *:*", or "SDP_MODE=tcp".
  [[nodiscard]] std::string ToString() const;
  // For a socket made as AF_INET_SDP: SDP or an error, whatever the rules say.
  static Ruling Native() { return {.mode = Mode::kSdp, .rule = nullptr, .native = true}; }
};
Ruling DecideSocket(RuleRole role, const sockaddr* address, socklen_t length);
// Returns whether the environment turns the library off.
bool TurnedOff();
// Returns whether no socket of this process can become anything but TCP, unless the program itself asks for
// SDP.
bool NothingButTcp();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_H_
