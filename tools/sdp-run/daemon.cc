#include "tools/sdp-run/daemon.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace sdp::run {
namespace {

constexpr char kSystemSocket[] = "/run/sdp/pmd.sock";
constexpr char kSystemDirectory[] = "/run/sdp";

// As the library sees it (portmapper/registrar.cc).
bool IsTrusted(const std::string& path, uid_t user) {
  if (user == 0 || user == geteuid()) return true;
  struct stat directory {};
  return path == kSystemSocket && lstat(kSystemDirectory, &directory) == 0 && S_ISDIR(directory.st_mode) &&
         (directory.st_mode & (S_IWGRP | S_IWOTH)) == 0 && directory.st_uid == user;
}

DaemonLook WhyNot(const std::string& path, int error) {
  struct stat status {};
  const uid_t owner = lstat(path.c_str(), &status) == 0 ? status.st_uid : 0;
  if (error == ENOENT || error == ENOTDIR) return {.state = DaemonState::kNoSocket};
  if (error == ECONNREFUSED || error == EPROTOTYPE || error == ENOTSOCK)
    return {.state = DaemonState::kNoDaemon, .user = owner};
  if (error == EACCES || error == EPERM) return {.state = DaemonState::kForbidden, .user = owner};
  return {.state = DaemonState::kBroken, .error = error};
}

}  // namespace

std::vector<std::string> LocalSocketPaths() {
  const char* wanted = getenv("SDP_PMD_SOCKET");
  if (wanted != nullptr && *wanted != '\0') return {wanted};
  if (geteuid() == 0) return {kSystemSocket};
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return {std::string(runtime) + "/sdp-pmd.sock", kSystemSocket};
  return {"/tmp/sdp-pmd-" + std::to_string(geteuid()) + ".sock", kSystemSocket};
}

DaemonLook LookForDaemon(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path)
    return {.state = DaemonState::kBroken, .error = ENAMETOOLONG};
  memcpy(address.sun_path, socket_path.c_str(), socket_path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  DaemonLook look{.state = DaemonState::kAnswers};
  ucred peer{};
  socklen_t length = sizeof peer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    look = WhyNot(socket_path, errno);
  } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
             !IsTrusted(socket_path, peer.uid)) {
    look = {.state = DaemonState::kStranger, .user = peer.uid};
  }
  close(fd);
  return look;
}

bool DaemonRuns(const std::string& socket_path) {
  return LookForDaemon(socket_path).state == DaemonState::kAnswers;
}

bool UdpPortIsFree(uint16_t port) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return is_free;
}

}  // namespace sdp::run
