#include "portmapper/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>

namespace sdp::pm {
namespace {

uint64_t Number(const char* text) {
  uint64_t value = 0;
  if (text == nullptr) return 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end ? value : 0;
}

}  // namespace

ServiceManager::ServiceManager(char* (*get_environment)(const char*)) {
  const char* path = get_environment("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  const size_t length = std::strlen(path);
  if (length < 2 || length >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::copy(path, path + length, address.sun_path);
  if (path[0] == '@') address.sun_path[0] = '\0';
  fd_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  // Connected now: later we may not reach it any more.
  if (fd_ && connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) fd_.Reset();
  const char* pid = get_environment("WATCHDOG_PID");
  if (pid == nullptr || Number(pid) == static_cast<uint64_t>(getpid())) {
    watchdog_ =
        std::chrono::microseconds(std::min<uint64_t>(Number(get_environment("WATCHDOG_USEC")), 1u << 31)) / 2;
  }
}

void ServiceManager::Ready(std::string_view status) { Send("READY=1\nSTATUS=" + std::string(status)); }

void ServiceManager::Reloading(Time now) {
  const auto microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  Send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds));
}

void ServiceManager::Stopping() { Send("STOPPING=1"); }

void ServiceManager::HandleTimeout(Time now) {
  if (NextTimeout() > now) return;
  Send("WATCHDOG=1");
  next_ = now + watchdog_;
}

void ServiceManager::Send(std::string_view message) const {
  if (fd_) (void)!send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace sdp::pm
