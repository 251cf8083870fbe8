#include "test/posix/listening/backlog_support.h"

#include <netinet/tcp.h>

#include <algorithm>

namespace posix_test {

bool Connected(int fd) {
  int error = -1;
  socklen_t length = sizeof error;
  return WaitFor(fd, POLLOUT) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

std::vector<Fd> StartClients(Listener& listener, int count) {
  std::vector<Fd> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(TcpSocket(AF_INET, SOCK_NONBLOCK));
    const int result = connect(clients.back(), listener.address.get(), listener.address.length);
    REQUIRE((result == 0 || errno == EINPROGRESS));
  }
  return clients;
}

std::vector<Fd> ConnectClients(Listener& listener, int count) {
  std::vector<Fd> clients = StartClients(listener, count);
  for (int i = 0; i < count; ++i) {
    REQUIRE(Connected(clients[i]));
    REQUIRE(SendAll(clients[i], std::string(1, static_cast<char>('a' + i))));
  }
  return clients;
}

bool Serve(int listener, int count, char name) {
  for (int i = 0; i < count; ++i) {
    if (!WaitFor(listener, POLLIN)) return false;
    Fd server(accept(listener, nullptr, nullptr));
    if (server < 0) return false;
    const std::string got = ReceiveExactly(server, 1);
    if (got.size() != 1 || !SendAll(server, got + name)) return false;
  }
  return true;
}

bool ServeTogether(int listener, int count, char name) {
  std::vector<Fd> servers;
  for (int i = 0; i < count; ++i) {
    if (!WaitFor(listener, POLLIN)) return false;
    servers.emplace_back(accept(listener, nullptr, nullptr));
    if (servers.back() < 0) return false;
  }
  return std::all_of(servers.begin(), servers.end(), [&](const Fd& server) {
    const std::string got = ReceiveExactly(server, 1);
    return got.size() == 1 && SendAll(server, got + name) && shutdown(server, SHUT_WR) == 0;
  });
}

std::string Servers(std::vector<Fd>& clients) {
  std::string names;
  for (size_t i = 0; i < clients.size(); ++i) {
    const std::string answer = ReceiveExactly(clients[i], 2);
    REQUIRE(answer.size() == 2);
    REQUIRE(answer[0] == static_cast<char>('a' + i));
    REQUIRE(ReceiveToEnd(clients[i]).empty());
    names += answer[1];
  }
  return names;
}

bool HasWaiting(int listener, size_t count) {
  return Eventually([&] {
    tcp_info info{};
    socklen_t length = sizeof info;
    return getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked == count;
  });
}

}  // namespace posix_test
