#include "portmapper/registrar.h"

#include <fcntl.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "portmapper/abstract_address.h"

namespace sdp::pm {
namespace {

using Clock = std::chrono::steady_clock;

RegistrarError Failed(RegistrarFailure failure, int sys_errno, std::string text = {}) {
  return {failure, sys_errno, Refusal::kNone, std::move(text)};
}

// The descriptor while the registration is not yet made.
class Connection {
 public:
  Connection(int fd, const RegistrarCalls& calls) : fd_(fd), calls_(calls) {}
  ~Connection() {
    if (fd_ >= 0) calls_.close(fd_);
  }
  Connection(Connection&& other) noexcept : fd_(other.Release()), calls_(other.calls_) {}
  Connection& operator=(Connection&&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
  const RegistrarCalls& calls_;
};

int MillisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<decltype(left)>(left, 0));
}

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;  // 0: there is none
};

UnixAddress AddressOf(const std::string& path) {
  UnixAddress result;
  if (path.empty() || path.size() >= sizeof result.address.sun_path) return result;
  result.address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), result.address.sun_path);
  result.length = sizeof result.address;
  return result;
}

Result<void, RegistrarError> ConnectByPath(int fd, const UnixAddress& to, const std::string& path,
                                           Clock::time_point deadline, const RegistrarCalls& calls) {
  while (true) {
    // A full backlog makes a unix connect wait, for as long as SO_SNDTIMEO says (0 would be for ever).
    const int left = std::max(MillisecondsUntil(deadline), 1);
    const timeval limit{left / 1000, left % 1000 * 1000};
    calls.setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (calls.connect(fd, reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0) return {};
    if (errno == EAGAIN) return unexpected(Failed(RegistrarFailure::kTimeout, errno));
    if (errno != EINTR) return unexpected(Failed(RegistrarFailure::kNoDaemon, errno, path));
    if (MillisecondsUntil(deadline) == 0) return unexpected(Failed(RegistrarFailure::kTimeout, EINTR));
  }
}

// Anybody may have taken the name and fill its backlog: nobody waits for that.
Result<void, RegistrarError> ConnectByName(int fd, const UnixAddress& to, const std::string& path,
                                           const RegistrarCalls& calls) {
  if (calls.connect(fd, reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0) return {};
  return unexpected(Failed(RegistrarFailure::kNoDaemon, errno, path));
}

// The user whom root lets serve the host: the owner of the system directory, if root made it and nobody else
// can put anything there. Nobody (-1) for another path.
uid_t SystemDaemonUser(const std::string& path, const RegistrarCalls& calls) {
  constexpr auto kNobody = static_cast<uid_t>(-1);
  if (path != kSystemSocketPath) return kNobody;
  const std::string directory = kSystemSocketDirectory;
  struct stat parent {};
  struct stat own {};
  const auto closed = [](const struct stat& s) { return S_ISDIR(s.st_mode) && (s.st_mode & 022) == 0; };
  if (calls.lstat(directory.substr(0, directory.rfind('/')).c_str(), &parent) != 0 || !closed(parent) ||
      parent.st_uid != 0 || calls.lstat(directory.c_str(), &own) != 0 || !closed(own)) {
    return kNobody;
  }
  return own.st_uid;
}

Result<uid_t, RegistrarError> PeerOf(int fd, const RegistrarCalls& calls) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (calls.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return unexpected(Failed(RegistrarFailure::kNotTrusted, errno));
  }
  return peer.uid;
}

// Returns the first three numbers in the file; 0 for each that is not there.
std::array<uid_t, 3> NumbersIn(const char* path, const RegistrarCalls& calls) {
  std::array<uid_t, 3> numbers{};
  char text[64] = {};
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return numbers;
  if (::pread(fd, text, sizeof text - 1, 0) > 0)
    std::sscanf(text, "%u %u %u", &numbers[0], &numbers[1], &numbers[2]);
  calls.close(fd);
  return numbers;
}

// Returns true for the number by which the kernel shows every user that this user namespace does not map.
// Where the namespace maps all users, only the user "nobody" has it.
bool StandsForMany(uid_t user, const RegistrarCalls& calls) {
  if (user == 0) return false;
  constexpr uid_t kNobody = 65534;
  const uid_t overflow = NumbersIn("/proc/sys/kernel/overflowuid", calls)[0];
  return user == (overflow != 0 ? overflow : kNobody) &&
         NumbersIn("/proc/self/uid_map", calls)[2] != std::numeric_limits<uid_t>::max();
}

// Who could bind the path could also answer on it: a daemon of another user would map our clients where he
// likes. Root, this very user, and whom root lets serve the host are to be trusted.
Result<uid_t, RegistrarError> TrustedByPath(int fd, const std::string& path, const RegistrarCalls& calls) {
  const auto peer = PeerOf(fd, calls);
  if (!peer || *peer == 0 || (*peer == geteuid() && !StandsForMany(*peer, calls)) ||
      *peer == SystemDaemonUser(path, calls))
    return peer;
  return unexpected(
      Failed(RegistrarFailure::kNotTrusted, EPERM,
             path + " is served by user " + std::to_string(*peer) + ", who is neither root nor this user"));
}

// What a daemon is told, with the listeners that prove it.
struct Request {
  Bytes bytes;
  std::span<const int> listeners;  // kRegisterDescriptors at most
  bool greets = true;              // the greeting goes first
};

Result<void, RegistrarError> Send(int fd, const Request& request, const RegistrarCalls& calls) {
  alignas(cmsghdr) char control[CMSG_SPACE(kRegisterDescriptors * sizeof(int))] = {};
  iovec data{const_cast<std::byte*>(request.bytes.data()), request.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!request.listeners.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(request.listeners.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(request.listeners.size_bytes());
    std::memcpy(CMSG_DATA(header), request.listeners.data(), request.listeners.size_bytes());
  }
  ssize_t sent;
  do sent = calls.sendmsg(fd, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(request.bytes.size())) return {};
  return unexpected(Failed(RegistrarFailure::kBroken, sent < 0 ? errno : 0));
}

Result<void, RegistrarError> AwaitReply(int fd, Clock::time_point deadline, const RegistrarCalls& calls) {
  pollfd readable{fd, POLLIN, 0};
  int ready;
  do ready = calls.poll(&readable, 1, MillisecondsUntil(deadline));
  while (ready < 0 && errno == EINTR);
  if (ready < 0) return unexpected(Failed(RegistrarFailure::kBroken, errno));
  if (ready == 0) return unexpected(Failed(RegistrarFailure::kTimeout, ETIMEDOUT));

  std::array<std::byte, kMaxReplySize> buffer;
  iovec data{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  const ssize_t received = calls.recvmsg(fd, &message, MSG_DONTWAIT);
  if (received < 0) return unexpected(Failed(RegistrarFailure::kBroken, errno));
  if (received == 0)
    return unexpected(Failed(RegistrarFailure::kBroken, 0, "the daemon closed the connection"));
  const auto reply = ParseRegisterReply(Bytes(buffer).first(static_cast<size_t>(received)));
  if (!reply)
    return unexpected(Failed(RegistrarFailure::kBroken, EPROTO, "the daemon's answer is not understood"));
  if (reply->refusal == Refusal::kNone) return {};
  return unexpected(RegistrarError{RegistrarFailure::kRefused, 0, reply->refusal, reply->text});
}

Result<int, RegistrarError> Introduce(Connection connection, const Request& request,
                                      Clock::time_point deadline, const RegistrarCalls& calls) {
  const auto ask = [&](const Request& message) {
    auto step = Send(connection.fd(), message, calls);
    return step ? AwaitReply(connection.fd(), deadline, calls) : step;
  };
  Result<void, RegistrarError> step;
  // Until the daemon has read them, listeners would stay open in its queue, whatever this process does.
  if (request.greets) step = ask({.bytes = Serialize(Greeting{}), .listeners = {}});
  if (step) step = ask(request);
  if (!step) return unexpected(std::move(step.error()));
  return connection.Release();
}

Result<int, RegistrarError> RegisterByPath(const std::string& path, const Request& request,
                                           Clock::time_point deadline, const RegistrarCalls& calls) {
  const UnixAddress to = AddressOf(path);
  if (to.length == 0) return unexpected(Failed(RegistrarFailure::kBadPath, ENAMETOOLONG, path));
  struct stat root {};
  const bool has_root = calls.known_daemons != nullptr && calls.lstat("/", &root) == 0;
  Connection connection(calls.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), calls);
  if (connection.fd() < 0) return unexpected(Failed(RegistrarFailure::kNoSocket, errno));
  if (auto step = ConnectByPath(connection.fd(), to, path, deadline, calls); !step)
    return unexpected(std::move(step.error()));
  const auto daemon = TrustedByPath(connection.fd(), path, calls);
  if (!daemon) return unexpected(daemon.error());
  auto registered = Introduce(std::move(connection), request, deadline, calls);
  if (registered && has_root && !StandsForMany(*daemon, calls))
    calls.known_daemons->Remember(path, *daemon, root);
  return registered;
}

// Only the daemon known from before is told anything.
Result<int, RegistrarError> RegisterByName(const std::string& path, uid_t daemon, const Request& request,
                                           Clock::time_point deadline, const RegistrarCalls& calls) {
  UnixAddress to;
  to.length = AbstractAddress(path, &to.address);
  if (to.length == 0) return unexpected(Failed(RegistrarFailure::kBadPath, ENAMETOOLONG, path));
  Connection connection(calls.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), calls);
  if (connection.fd() < 0) return unexpected(Failed(RegistrarFailure::kNoSocket, errno));
  if (auto step = ConnectByName(connection.fd(), to, path, calls); !step)
    return unexpected(std::move(step.error()));
  const auto peer = PeerOf(connection.fd(), calls);
  if (!peer || *peer != daemon) return unexpected(Failed(RegistrarFailure::kNotTrusted, EPERM, path));
  return Introduce(std::move(connection), request, deadline, calls);
}

Result<int, RegistrarError> RegisterAt(const std::string& path, const Request& request,
                                       Clock::time_point deadline, const RegistrarCalls& calls) {
  auto by_path = RegisterByPath(path, request, deadline, calls);
  if (by_path || by_path.error().failure != RegistrarFailure::kNoDaemon || calls.known_daemons == nullptr)
    return by_path;
  struct stat root {};
  if (calls.lstat("/", &root) != 0) return by_path;
  const std::optional<uid_t> daemon = calls.known_daemons->OutOfReach(path, root);
  if (!daemon) return by_path;
  auto by_name = RegisterByName(path, *daemon, request, deadline, calls);
  // Whoever has taken the name, or does not want us there, is no daemon of ours.
  const bool answered = by_name || by_name.error().failure == RegistrarFailure::kRefused;
  return answered ? std::move(by_name) : std::move(by_path);
}

Result<int, RegistrarError> Register(const std::string& path, const Request& request, Duration limit,
                                     const RegistrarCalls& calls) {
  const Clock::time_point deadline = Clock::now() + limit;
  auto result = RegisterAt(path, request, deadline, calls);
  if (result || result.error().refusal != Refusal::kBadVersion) return result;
  // The daemon runs, and knows no greeting.
  Request request_alone = request;
  request_alone.greets = false;
  return RegisterAt(path, request_alone, deadline, calls);
}

Result<int, RegistrarError> Register(std::span<const std::string> socket_paths, const Request& request,
                                     Duration limit, const RegistrarCalls& calls) {
  Result<int, RegistrarError> result = unexpected(Failed(RegistrarFailure::kBadPath, ENOENT));
  bool met_something = false;
  for (const std::string& path : socket_paths) {
    auto attempt = Register(path, request, limit, calls);
    const bool try_next = !attempt && (attempt.error().failure == RegistrarFailure::kNoDaemon ||
                                       attempt.error().failure == RegistrarFailure::kNotTrusted ||
                                       attempt.error().failure == RegistrarFailure::kBadPath);
    if (!try_next) return attempt;
    if (!met_something) result = std::move(attempt);
    met_something = met_something || result.error().sys_errno != ENOENT;
  }
  return result;
}

}  // namespace

std::string_view ToString(RegistrarFailure failure) {
  switch (failure) {
    case RegistrarFailure::kNoSocket:
      return "no socket";
    case RegistrarFailure::kBadPath:
      return "the socket's path is too long or empty";
    case RegistrarFailure::kNoDaemon:
      return "no sdp-pmd";
    case RegistrarFailure::kNotTrusted:
      return "the sdp-pmd belongs to another user";
    case RegistrarFailure::kTimeout:
      return "sdp-pmd does not answer";
    case RegistrarFailure::kBroken:
      return "the connection to sdp-pmd broke";
    case RegistrarFailure::kRefused:
      return "sdp-pmd refuses";
  }
  return "unknown";
}

Result<int, RegistrarError> RegisterListener(const std::string& socket_path, int conventional_listener,
                                             int sdp_listener, Duration limit, const RegistrarCalls& calls) {
  return RegisterListener({&socket_path, 1}, conventional_listener, sdp_listener, limit, calls);
}

Result<int, RegistrarError> RegisterListener(std::span<const std::string> socket_paths,
                                             int conventional_listener, int sdp_listener, Duration limit,
                                             const RegistrarCalls& calls) {
  const int listeners[kRegisterDescriptors] = {conventional_listener, sdp_listener};
  const auto bytes = Serialize(RegisterRequest{});
  return Register(socket_paths, {.bytes = bytes, .listeners = listeners}, limit, calls);
}

Result<int, RegistrarError> RegisterRnicListener(std::span<const std::string> socket_paths,
                                                 int conventional_listener, const Endpoint& sdp,
                                                 Duration limit, const RegistrarCalls& calls) {
  const auto bytes = Serialize(RnicRequest{sdp});
  return Register(socket_paths, {.bytes = bytes, .listeners = {&conventional_listener, 1}}, limit, calls);
}

namespace {

std::string UserSocketPath(uid_t uid, const std::string& runtime_directory) {
  return runtime_directory.empty() ? "/tmp/sdp-pmd-" + std::to_string(uid) + ".sock"
                                   : runtime_directory + "/sdp-pmd.sock";
}

std::string Variable(const char* name, char* (*get_environment)(const char*)) {
  const char* value = get_environment(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string DefaultSocketPath(uid_t uid, char* (*get_environment)(const char*)) {
  if (std::string path = Variable("SDP_PMD_SOCKET", get_environment); !path.empty()) return path;
  if (uid == 0) return kSystemSocketPath;
  return UserSocketPath(uid, Variable("XDG_RUNTIME_DIR", get_environment));
}

std::vector<std::string> RegistrationPaths(uid_t uid, char* (*get_environment)(const char*)) {
  std::vector<std::string> paths = {DefaultSocketPath(uid, get_environment)};
  if (uid != 0 && Variable("SDP_PMD_SOCKET", get_environment).empty()) paths.emplace_back(kSystemSocketPath);
  return paths;
}

}  // namespace sdp::pm
