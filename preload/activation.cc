#include "preload/activation.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "preload/config.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/real_calls.h"
#include "preload/startup.h"

namespace sdp::preload {
namespace {

constexpr int kFirstPassed = 3;
constexpr int kMostPassed = 1024;

std::optional<int> NumberIn(const char* variable) {
  const char* const value = secure_getenv(variable);
  if (value == nullptr) return std::nullopt;
  const std::string_view text(value);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<int> Option(int fd, int name) { return IntOption(fd, SOL_SOCKET, name); }

void TakeUp(int fd) {
  const std::optional<int> domain = Option(fd, SO_DOMAIN);
  if (Option(fd, SO_ACCEPTCONN) != 1 || Option(fd, SO_PROTOCOL) != IPPROTO_TCP ||
      (domain != AF_INET && domain != AF_INET6))
    return;
  tcp_info info{};  // for a listener tcpi_sacked is the backlog
  socklen_t length = sizeof info;
  if (real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  RefreshConfig();
  if (NothingButTcp()) return;
  EnsureStarted();
  const SocketRef socket{Socket::New(*domain, fd)};
  FdTable::Set(fd, socket.get());
  socket->ListensForOthers();
  socket->Listen(fd, static_cast<int>(info.tcpi_sacked));
}

}  // namespace

void TakeUpPassedListeners() {
  const std::optional<int> count = NumberIn("LISTEN_FDS");
  if (!count || *count <= 0 || *count > kMostPassed || NumberIn("LISTEN_PID") != getpid()) return;
  const NoCancellation no_cancellation;
  for (int fd = kFirstPassed; fd < kFirstPassed + *count; ++fd) {
    if (!FdTable::Has(fd)) TakeUp(fd);
  }
}

}  // namespace sdp::preload
