#include "portmapper/daemon/metrics_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "portmapper/daemon/metrics_request.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {
namespace {

constexpr size_t kMaxClients = 8;
constexpr Duration kPatience = std::chrono::seconds(5);

absl::StatusOr<UniqueFd> ListenOnUnix(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError("--metrics unix:" + path + ": a socket's path has 1 to 107 bytes");
  }
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(path.c_str());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const mode_t previous = umask(0117);
  const bool bound = fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int error = errno;
  umask(previous);
  if (!bound) return absl::ErrnoToStatus(error, path);
  return fd;
}

absl::StatusOr<UniqueFd> ListenOnLoopback(const Endpoint& address) {
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(address, &name);
  UniqueFd fd(socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    return absl::ErrnoToStatus(errno, address.ToString());
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Open(const std::string& where) {
  constexpr std::string_view kUnix = "unix:";
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  if (where.compare(0, kUnix.size(), kUnix) == 0) {
    auto fd = ListenOnUnix(where.substr(kUnix.size()));
    if (!fd.ok()) return fd.status();
    server->listener_ = *std::move(fd);
    server->path_ = where.substr(kUnix.size());
    server->where_ = where;
  } else {
    const bool port_alone = where.find_first_not_of("0123456789") == std::string::npos;
    const auto address = ParseEndpoint(port_alone ? absl::StrCat("127.0.0.1:", where) : where);
    if (!address || !address->IsLoopback()) {
      return absl::InvalidArgumentError("--metrics " + where +
                                        ": not unix:PATH, a port, or a loopback address with a port");
    }
    auto fd = ListenOnLoopback(*address);
    if (!fd.ok()) return fd.status();
    server->listener_ = *std::move(fd);
    sockaddr_storage name;
    socklen_t length = sizeof name;
    getsockname(server->listener_.get(), reinterpret_cast<sockaddr*>(&name), &length);
    server->where_ = FromSockaddr(name).value_or(*address).ToString();
  }
  server->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (listen(server->listener_.get(), 16) != 0 || !server->epoll_ ||
      epoll_ctl(server->epoll_.get(), EPOLL_CTL_ADD, server->listener_.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, where);
  }
  return server;
}

MetricsServer::~MetricsServer() {
  if (!path_.empty()) unlink(path_.c_str());
}

void MetricsServer::HandleReadable(absl::FunctionRef<std::string()> metrics, Time now) {
  std::array<epoll_event, kMaxClients + 1> events;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    auto* const client = static_cast<Client*>(events[i].data.ptr);
    if (client != nullptr && !Progress(*client, metrics)) {
      clients_.remove_if([&](const Client& other) { return &other == client; });
    }
  }
  // Last: a new client could take the place of one that ended, and no event of the old one is its own.
  Accept(now);
}

void MetricsServer::Accept(Time now) {
  while (true) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    if (clients_.size() >= kMaxClients) clients_.pop_front();  // who has had the most time
    clients_.push_back({std::move(fd), now + kPatience, {}, {}});
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &clients_.back();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, clients_.back().fd.get(), &event) != 0) clients_.pop_back();
  }
}

bool MetricsServer::Progress(Client& client, absl::FunctionRef<std::string()> metrics) {
  if (client.answer.empty()) {
    std::array<char, 1024> buffer;
    const ssize_t received = recv(client.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (received <= 0) return received < 0 && errno == EAGAIN;
    client.received.append(buffer.data(), static_cast<size_t>(received));
    const MetricsRequest request = ParseMetricsRequest(client.received);
    if (request == MetricsRequest::kIncomplete) return true;
    const bool wanted = request == MetricsRequest::kGet || request == MetricsRequest::kHead;
    client.answer = MetricsResponse(request, wanted ? metrics() : std::string());
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.ptr = &client;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event);
  }
  const ssize_t sent =
      send(client.fd.get(), client.answer.data(), client.answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno == EAGAIN;
  client.answer.erase(0, static_cast<size_t>(sent));
  if (!client.answer.empty()) return true;
  shutdown(client.fd.get(), SHUT_WR);
  return false;
}

void MetricsServer::HandleTimeout(Time now) {
  while (!clients_.empty() && clients_.front().deadline <= now) clients_.pop_front();
}

}  // namespace sdp::pm
