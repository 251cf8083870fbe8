#include "test/verbs/raw_peer.h"

#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

namespace sdp::iwarp::test {

void RawPeer::Send(Bytes bytes) const {
  REQUIRE(::send(fd.value, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

void RawPeer::Run() const {
  // Loopback delivers in the sender's call, so what was sent is there.
  while (qp->ReadLink() == verbs::ReadStatus::kProgress) {
  }
}

std::vector<std::byte> RawPeer::Receive() const {
  std::vector<std::byte> all;
  Run();
  std::byte buffer[4096];
  ssize_t n;
  while ((n = ::recv(fd.value, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
    Append(&all, Bytes(buffer, static_cast<size_t>(n)));
    Run();
  }
  return all;
}

RawPeer MakeRawPeer(const verbs::QpOptions& qp, const SoftOptions& options, std::string_view request) {
  auto fds = LoopbackPair();
  RawPeer peer{.fd = std::move(fds[0]), .qp_fd = std::move(fds[1]), .qp = nullptr};
  auto bytes = Hex("4d504120494420526571204672616d65");
  Append(&bytes, Hex(request));
  peer.Send(bytes);
  auto z = Listen(peer.qp_fd.value, options, Now());
  REQUIRE(z->Step(Now()) == verbs::ConnectState::kRequested);
  z->Accept({}, qp);
  REQUIRE(z->Step(Now()) == verbs::ConnectState::kEstablished);
  peer.qp = z->TakeQueuePair();
  std::byte reply[64];
  REQUIRE(::recv(peer.fd.value, reply, sizeof reply, 0) >= 20);
  return peer;
}

}  // namespace sdp::iwarp::test
