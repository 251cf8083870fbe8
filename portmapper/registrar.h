// The library's side of local registration: tells the sdp-pmd of this host that a process listens, and on
// which SDP port.
//
// One connection per listener. The registration lives as long as the returned descriptor is open in any
// process: it is inherited by fork, closed by exec, and gone when the last holder closes it or dies. See
// local_protocol.h.
#ifndef SDP_PORTMAPPER_REGISTRAR_H_
#define SDP_PORTMAPPER_REGISTRAR_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/types.h"
#include "portmapper/known_daemons.h"
#include "portmapper/local_protocol.h"

namespace sdp::pm {

// The system calls the registrar makes. Inside a preloaded process the plain names are the shim's own, so the
// shim passes the real ones. The defaults are libc's.
struct RegistrarCalls {
  int (*socket)(int, int, int) = ::socket;
  int (*connect)(int, const sockaddr*, socklen_t) = ::connect;
  ssize_t (*sendmsg)(int, const msghdr*, int) = ::sendmsg;
  ssize_t (*recvmsg)(int, msghdr*, int) = ::recvmsg;
  int (*poll)(pollfd*, nfds_t, int) = ::poll;
  int (*close)(int) = ::close;
  int (*getsockopt)(int, int, int, void*, socklen_t*) = ::getsockopt;
  int (*setsockopt)(int, int, int, const void*, socklen_t) = ::setsockopt;
  int (*lstat)(const char*, struct stat*) = ::lstat;
  // What this process, or one that it is a fork of, knows of daemons it registered with by their paths.
  // Written and read, and the caller's. Null: no abstract name is tried.
  KnownDaemons* known_daemons = nullptr;
};

enum class RegistrarFailure : uint8_t {
  kNoSocket,    // no descriptor or memory left: errno says which
  kBadPath,     // the path does not fit into a sockaddr_un
  kNoDaemon,    // nobody serves the path
  kNotTrusted,  // whoever serves it is neither root, nor our own user, nor the user root gave /run/sdp to
  kTimeout,     // the daemon did not answer in time
  kBroken,      // the connection ended, or the answer was not understood
  kRefused,     // the daemon said no: refusal and text say why
};
[[nodiscard]] std::string_view ToString(RegistrarFailure failure);

struct RegistrarError {
  RegistrarFailure failure;
  int sys_errno = 0;                 // of the call that failed, 0 if none did
  Refusal refusal = Refusal::kNone;  // kRefused only
  std::string text;                  // for people; the daemon's words when it refused
};

// The daemon of the host, and where it listens: the directory is made by root, so whoever owns it is who root
// wants to serve there.
inline constexpr const char* kSystemSocketDirectory = "/run/sdp";
inline constexpr const char* kSystemSocketPath = "/run/sdp/pmd.sock";

// Registers the listener: at the path. Where nobody serves that, at its abstract name (abstract_address.h),
// but only if `calls.known_daemons` has a daemon of this very path and "/" was another directory when that
// was last registered with; and the listener is passed only to whoever is there as that daemon's user:
// neither root nor this process's own user is trusted there for himself. A full backlog at the name counts as
// nobody there, and whatever goes wrong there leaves the error that the path gave. Both descriptors stay the
// caller's. Blocks at most `limit` (the daemon looks at descriptors and does no other I/O, so it normally
// answers within a fraction of a millisecond). The listeners are passed to a daemon that has answered a
// greeting: one that stands still would keep them open. Returns the descriptor that keeps the registration
// alive, close-on-exec; the caller closes it with the listener. It becomes readable (end of file) when the
// daemon goes away: then close it and register again. Starts no thread, raises no SIGPIPE; changes errno.
[[nodiscard]] Result<int, RegistrarError> RegisterListener(const std::string& socket_path,
                                                           int conventional_listener, int sdp_listener,
                                                           Duration limit = std::chrono::milliseconds(200),
                                                           const RegistrarCalls& calls = {});

// The same with the first of these paths where a daemon serves that is to be trusted; `limit` is for each.
// When there is none, the error is that of the first path where there is something, else of the last one.
[[nodiscard]] Result<int, RegistrarError> RegisterListener(std::span<const std::string> socket_paths,
                                                           int conventional_listener, int sdp_listener,
                                                           Duration limit = std::chrono::milliseconds(200),
                                                           const RegistrarCalls& calls = {});

// The same for a listener of a kernel RNIC, which has an address and no descriptor: clients that ask for that
// address of the host are sent there. Refused with kBadMessage by a daemon that does not know of these.
[[nodiscard]] Result<int, RegistrarError> RegisterRnicListener(
    std::span<const std::string> socket_paths, int conventional_listener, const Endpoint& sdp,
    Duration limit = std::chrono::milliseconds(200), const RegistrarCalls& calls = {});

// Where a daemon of this user binds its socket, by this order: SDP_PMD_SOCKET; for root kSystemSocketPath;
// $XDG_RUNTIME_DIR/sdp-pmd.sock; /tmp/sdp-pmd-UID.sock. `get_environment` is std::getenv or something like
// it; set-user-ID programs pass secure_getenv.
[[nodiscard]] std::string DefaultSocketPath(uid_t uid, char* (*get_environment)(const char*));

// Where a program of this user looks for a daemon: SDP_PMD_SOCKET and nothing else if it is set; else the
// user's own, then the host's.
[[nodiscard]] std::vector<std::string> RegistrationPaths(uid_t uid, char* (*get_environment)(const char*));

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_REGISTRAR_H_
