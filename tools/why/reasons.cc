#include "tools/why/reasons.h"

#include <unistd.h>

namespace sdp::sdpstat {
namespace {

constexpr Reason kReasons[] = {
    {"mode-tcp", "local", "SDP_MODE=tcp switches the library off",
     "Unset SDP_MODE in the program's environment."},
    {"rule", "local", "a rule of libsdp.conf says tcp",
     "Change the rule that is named; sdp-run --explain HOST:PORT tries it."},
    {"no-rnic", "local", "no RNIC could be opened",
     "SDP_RNIC=soft takes the embedded one, which needs no device."},
    {"not-registered", "local", "the listener is not known to this host's port mapper",
     "Start sdp-pmd (systemctl start sdp-pmd); a program that was registered registers by itself, "
     "another when its next client comes. sdpstat doctor looks for sdp-pmd."},
    {"resources", "local", "memory, descriptors or SDP ports ran out",
     "Raise the limit on open files (ulimit -n, LimitNOFILE=), or that on the length of files (ulimit -f, "
     "LimitFSIZE=). If the text names SDP ports, give set ports a longer range."},
    {"socket-option", "local", "the program asked for something that only TCP has", ""},
    {"address-family", "local", "an address that SDP does not carry", ""},
    {"pm-unreachable", "remote", "no port mapper answers at the peer's host",
     "Run sdp-pmd there, and let its UDP port (3935, or SDP_PM_PORT) through the firewall."},
    {"pm-timeout", "remote", "the peer's port mapper is silent",
     "A firewall may drop UDP port 3935 (or SDP_PM_PORT): open it, or reject instead of drop, which saves "
     "SDP_PM_TIMEOUT_MS for each new host."},
    {"pm-denied", "remote", "the peer's port mapper knows no SDP listener for this port",
     "Start the server with the preload, after sdp-pmd; or a rule there says tcp: sdpstat why tells it on "
     "the peer's host, and sdpstat -l shows its listeners."},
    {"pm-cached", "remote", "the peer's host failed a moment ago, and is not asked again yet",
     "Wait for SDP_PM_NEGATIVE_S (60 s), or restart the client; the first failure has its own reason."},
    {"pm-unusable", "remote", "the port mapper named an address that cannot be used",
     "Look at the registrations of the peer's sdp-pmd."},
    {"pm-untrusted", "remote",
     "the port mapper named another host, or for a port below 1024 an SDP port that any user can get",
     "Start the server with the right to ports below 1024, and with SDP ports there (set ports 914-988). If "
     "you trust all users of its host: SDP_ANY_PRIVILEGED_PORT=1; if its port mapper may name other hosts: "
     "SDP_PM_REDIRECT=1."},
    {"sdp-refused", "path", "the SDP address refused the connection",
     "Let the SDP ports through the firewall: set ports, or set port-offset, says which they are."},
    {"sdp-silent", "path", "the SDP address does not answer, or did not when it was tried last",
     "A firewall may drop the SDP ports: open them (set ports, or set port-offset, says which they are), or "
     "reject instead of drop. The text beside it says when SDP is tried again."},
    {"mpa-rejected", "remote", "the peer's RNIC rejected the connection",
     "Look at the server's log (SDP_LOG=info)."},
    {"mpa-failed", "path", "the iWARP start-up failed",
     "Something else may listen there, or a middlebox may rewrite TCP."},
    {"hello-failed", "remote", "the SDP handshake failed",
     "The two ends may speak different versions: see both logs (SDP_LOG=info)."},
    {"other", "local", "a cause without a code of its own", "The text beside it says more."},
    {"plain-client", "remote", "the client came by TCP",
     "Preload the client, and look at its own reason there with sdpstat why; or the listener is TCP itself."},
    {"unknown", "local", "made before the library was there, inherited, or passed over from another process",
     ""},
    {"forgotten", "local", "one of more fall-backs than the process keeps records of",
     "sdpstat -s counts them by reason."},
    {"tcp-link", "local", "SDP within this host, over TCP instead of memory that both ends share",
     "The text beside it says what was in the way; SDP_LINK=auto is needed at both ends."},

    {"not-preloaded", "local", "libsdp.so is not in the process, nor in its LD_PRELOAD",
     "Start it with sdp-run, or with LD_PRELOAD=libsdp.so; for a service: sdp-run --enable SERVICE."},
    {"preload-ignored", "local", "LD_PRELOAD names libsdp.so, and it is not in the process",
     "The loader found no such file, or the program is privileged: try sdp-run PROGRAM, which says which."},
    {"static-binary", "local", "a static program has no loader that could preload a library",
     "Use a dynamically linked build."},
    {"go-binary", "local", "a Go program makes its system calls without the C library",
     "Go programs cannot be preloaded."},
    {"privileged", "local",
     "the loader ignores LD_PRELOAD for setuid and setgid programs and those with file capabilities",
     "Give a service its privileges by systemd (AmbientCapabilities=) instead of by file capabilities."},
    {"foreign-machine", "local", "a 32-bit program, or one for another machine",
     "Use a native 64-bit build."},
    {"musl", "local", "linked with musl; libsdp.so needs the GNU C library", "Use a build for glibc."},
    {"zombie", "local", "the process has ended, and its parent has not asked how",
     "It has no sockets any more; sdpstat --ended shows how they were within the last minute."},
    {"kernel-thread", "local", "a thread of the kernel, which runs no program",
     "Sockets of the kernel itself (NFS, for example) cannot be SDP."},
    {"idle", "local",
     "the library is there, and has published nothing: no socket yet that it could carry, or that it could "
     "see (system calls past the C library)",
     "Run sdpstat why as root if the process runs in a container, or publishes where this user may not "
     "look."},
};

// The port mapper's socket that a listener's text names, where a daemon does not make it by itself. Empty:
// none.
std::string_view SocketOfItsOwn(std::string_view text) {
  constexpr std::string_view kBefore = "no sdp-pmd (";
  if (!text.starts_with(kBefore) || !text.ends_with(")")) return {};
  const std::string_view path = text.substr(kBefore.size(), text.size() - kBefore.size() - 1);
  const bool is_default =
      path == "/run/sdp/pmd.sock" || path.ends_with("/sdp-pmd.sock") || path.starts_with("/tmp/sdp-pmd-");
  return is_default ? std::string_view() : path;
}

}  // namespace

std::string Remedy(const Reason& reason, std::string_view text) {
  const std::string_view code = reason.code, path = SocketOfItsOwn(text);
  if (code == "not-registered" && !path.empty())
    return "It looks there alone: start sdp-pmd --socket " + std::string(path) +
           " as its user, or start the program anew.";
  if (code == "idle" && geteuid() == 0) return "";  // root has looked there
  return reason.remedy;
}

std::span<const Reason> AllReasons() { return kReasons; }

const Reason* FindReason(std::string_view code) {
  for (const Reason& reason : kReasons) {
    if (code == reason.code) return &reason;
  }
  return nullptr;
}

}  // namespace sdp::sdpstat
