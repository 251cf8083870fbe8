#include "test/portmapper/local_sockets.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm::test {

TempDir::TempDir() {
  char name[] = "/tmp/sdp-pm-test-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
    std::filesystem::remove(entry.path(), ignored);
  }
  std::filesystem::remove(path_, ignored);
}

UniqueFd TcpSocket(std::string_view address, Listening listening) {
  const Endpoint endpoint = At(address);
  UniqueFd fd(socket(endpoint.version == IpVersion::kV4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(fd);
  const int on = 1;
  REQUIRE(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(endpoint, &name);
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  if (listening == Listening::kYes) REQUIRE(listen(fd.get(), 16) == 0);
  return fd;
}

Endpoint LocalAddress(int fd) {
  sockaddr_storage name;
  socklen_t length = sizeof name;
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0);
  return FromSockaddr(name).value();
}

ListenerPair::ListenerPair(const std::string& address)
    : conventional(TcpSocket(address + ":0")), sdp(TcpSocket(address + ":0")) {}

UniqueFd ConnectLocal(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(fd);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

bool SendLocal(int connection, Bytes data, std::span<const int> descriptors) {
  std::vector<char> control(CMSG_SPACE(descriptors.size_bytes()));
  iovec vector{const_cast<std::byte*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(connection, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(data.size());
}

std::optional<RegisterReply> AwaitReply(int connection) {
  pollfd readable{connection, POLLIN, 0};
  REQUIRE(poll(&readable, 1, 10000) == 1);
  std::array<std::byte, kMaxReplySize + 1> buffer;
  const ssize_t received = recv(connection, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (received <= 0) return std::nullopt;
  const auto reply = ParseRegisterReply(Bytes(buffer).first(static_cast<size_t>(received)));
  REQUIRE(reply.has_value());
  return *reply;
}

bool AwaitEnd(int connection) {
  return Eventually([&] {
    std::byte scratch[256];
    return recv(connection, scratch, sizeof scratch, MSG_DONTWAIT) == 0;
  });
}

size_t CountDescriptors(pid_t pid) {
  const std::filesystem::directory_iterator list("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(list), end(list)));
}

}  // namespace sdp::pm::test
