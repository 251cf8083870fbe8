// Sockets on their way to another program: the bytes, and the capsule they travel in.
#include "preload/socket/handover.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "preload/inheritance.h"
#include "preload/socket/capsule.h"

namespace sdp::preload {
namespace {

Handover Example() {
  Handover handover;
  handover.arenas = {{.member = 7}, {.member = 1}};
  handover.connections = {{.inode = 11,
                           .kind = Handover::Kind::kNative,
                           .whole = true,
                           .arena = 1,
                           .number = 4095,
                           .front = {std::byte{5}, std::byte{6}}},
                          {.inode = 12}};
  Handover::Listener listener;
  listener.inode = 13;
  listener.registered = listener.has_queue = listener.nonblocking = true;
  listener.backlog = 511;
  const linger five{.l_onoff = 1, .l_linger = 5};
  REQUIRE(listener.options.Set(-1, SOL_SOCKET, SO_LINGER, &five, sizeof five) == KeptOptions::Answer::kKept);
  handover.listeners = {listener, {}};
  Handover::Fresh fresh;
  fresh.inode = 14;
  handover.fresh = {fresh};
  return handover;
}

size_t OpenDescriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST_CASE("a handover is packed and unpacked") {
  Handover handover = Example();
  const auto packed = handover.Pack();
  auto unpacked = Handover::Unpack(packed);
  REQUIRE(unpacked);
  REQUIRE(unpacked->Pack() == packed);
  REQUIRE(unpacked->descriptors() == 4 + 4 + 1);
  REQUIRE(unpacked->connections[0].number == 4095);
  REQUIRE(unpacked->connections[0].front == handover.connections[0].front);
  REQUIRE(unpacked->listeners[0].options.linger_option().l_linger == 5);
  REQUIRE(unpacked->listeners[0].backlog == 511);
}

TEST_CASE("a handover that is cut or has no such arena is refused") {
  Handover handover = Example();
  const auto packed = handover.Pack();
  for (size_t size = 0; size < packed.size(); ++size)
    REQUIRE_FALSE(Handover::Unpack(Bytes(packed).first(size)));
  handover.connections[0].arena = 2;
  REQUIRE_FALSE(Handover::Unpack(handover.Pack()));
}

TEST_CASE("of a handover of another build the connections are known, and nothing else") {
  const auto packed = Example().Pack(/*version=*/2);
  const auto unpacked = Handover::Unpack(packed, /*version=*/1);
  REQUIRE(unpacked);
  REQUIRE(unpacked->other_build);
  REQUIRE(unpacked->descriptors() == 0);
  REQUIRE(unpacked->connections.size() == 2);
  REQUIRE(unpacked->connections[0].inode == 11);
  REQUIRE(unpacked->connections[0].kind == Handover::Kind::kNative);
  REQUIRE_FALSE(unpacked->connections[0].whole);
  REQUIRE(unpacked->connections[1].inode == 12);
  REQUIRE_FALSE(Handover::Unpack(Bytes(packed).first(20), /*version=*/1));
  REQUIRE_FALSE(Handover::Unpack(packed, /*version=*/2)->other_build);
}

std::vector<std::byte> Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

// SDP_WRITE_SEEDS=1 makes them anew, after a change of the format.
TEST_CASE("every seed of the fuzzer of handovers is one of today's format") {
  const std::filesystem::path corpus = SDP_HANDOVER_CORPUS;
  Handover whole = Example();
  Handover connections = whole, listener = whole;
  connections.listeners.clear();
  connections.fresh.clear();
  listener.arenas.clear();
  listener.connections.clear();
  listener.listeners.pop_back();
  for (const int name : {SO_SNDBUF, SO_RCVBUF, SO_TIMESTAMP, SO_RCVTIMEO}) {
    const timeval wide{.tv_sec = 7, .tv_usec = 0};  // to some of them an int
    listener.fresh.front().options.Note(SOL_SOCKET, name, &wide);
  }
  std::map<std::string, std::vector<std::byte>> seeds;
  constexpr uint64_t kVersion = 1;
  seeds["empty"] = Handover{}.Pack(kVersion);
  seeds["connections"] = connections.Pack(kVersion);
  seeds["listener"] = listener.Pack(kVersion);
  seeds["whole"] = whole.Pack(kVersion);
  if (std::getenv("SDP_WRITE_SEEDS") != nullptr) {
    for (const auto& [name, bytes] : seeds) {
      std::ofstream(corpus / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  for (const auto& [name, bytes] : seeds) {
    INFO(name << ": SDP_WRITE_SEEDS=1 makes the seeds anew");
    REQUIRE(std::filesystem::exists(corpus / name));
    CHECK(Contents(corpus / name) == bytes);
    CHECK_FALSE(Handover::Unpack(bytes, kVersion)->other_build);
  }
}

TEST_CASE("a capsule gives back what was sealed, also much of it, once") {
  const size_t bytes = GENERATE(0u, 5u, 100'000u);
  const size_t count = GENERATE(0u, 2u, 300u);
  const std::vector<std::byte> content(bytes, std::byte{42});
  std::vector<int> descriptors;
  for (size_t i = 0; i < count; ++i) descriptors.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int sealed = Capsule::Seal(content, descriptors);
  REQUIRE(sealed >= 0);
  for (const int fd : descriptors) close(fd);
  REQUIRE(Capsule::Is(sealed, Capsule::Maker::kTrusted));
  REQUIRE(Capsule::Is(sealed, Capsule::Maker::kAnybody));
  const size_t before = OpenDescriptors();
  const auto opened = Capsule::Open(sealed);
  REQUIRE(opened);
  REQUIRE(opened->content == content);
  REQUIRE(opened->descriptors.size() == count);
  for (const int fd : opened->descriptors) {
    struct stat status {};
    REQUIRE(fstat(fd, &status) == 0);
    REQUIRE(S_ISCHR(status.st_mode));
    REQUIRE(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    close(fd);
  }
  REQUIRE(OpenDescriptors() == before);
  REQUIRE_FALSE(Capsule::Is(sealed, Capsule::Maker::kAnybody));
  REQUIRE_FALSE(Capsule::Open(sealed));
  close(sealed);
}

TEST_CASE("nothing else is a capsule, and looking changes nothing") {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  REQUIRE(write(pair[1], "SDP capsule, or something like it", 33) == 33);
  REQUIRE_FALSE(Capsule::Is(pair[0], Capsule::Maker::kAnybody));
  char text[64];
  REQUIRE(read(pair[0], text, sizeof text) == 33);
  REQUIRE_FALSE(Capsule::Is(pair[0], Capsule::Maker::kAnybody));
  REQUIRE_FALSE(Capsule::Is(-1, Capsule::Maker::kAnybody));
  REQUIRE_FALSE(Capsule::Is(1000, Capsule::Maker::kAnybody));
  const int file = open("/dev/zero", O_RDONLY);
  REQUIRE_FALSE(Capsule::Is(file, Capsule::Maker::kAnybody));
  for (const int fd : {file, pair[0], pair[1]}) close(fd);
}

int BoundSocket(sockaddr_in* name) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *name = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof *name;
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(name), size) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(name), &size) == 0);
  return fd;
}

uint64_t InodeOf(int fd) {
  struct stat status {};
  REQUIRE(fstat(fd, &status) == 0);
  return status.st_ino;
}

TEST_CASE("a program of another build finds its connections dead, and its listeners plain ones") {
  sockaddr_in name;
  const int listener = BoundSocket(&name);
  REQUIRE(listen(listener, 1) == 0);
  const auto connected = [&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
    return fd;
  };
  const int peer = connected();
  const int link = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);

  Handover handover;
  handover.arenas = {{.member = 7}};
  handover.connections = {{.inode = InodeOf(link), .whole = true}};
  handover.listeners.emplace_back().inode = InodeOf(listener);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const size_t before = OpenDescriptors();
  AdoptSockets(Capsule::Seal(handover.Pack(kStateVersion + 1), std::vector<int>(3, null)));
  REQUIRE(OpenDescriptors() == before);

  char c;
  REQUIRE(recv(peer, &c, 1, 0) == 0);  // nothing but the link's end: to an SDP peer a reset
  REQUIRE(recv(link, &c, 1, 0) == -1);
  REQUIRE(errno == ENOTCONN);
  const int client = connected();
  const int accepted = accept(listener, nullptr, nullptr);
  REQUIRE(send(accepted, "x", 1, MSG_NOSIGNAL) == 1);
  REQUIRE(recv(client, &c, 1, 0) == 1);
  for (const int fd : {listener, peer, link, null, client, accepted}) close(fd);
}

TEST_CASE("a socket that is passed without a descriptor is refused, whatever build says so") {
  const uint64_t version = GENERATE(kStateVersion, kStateVersion + 1);
  Handover handover;
  handover.connections = {{.inode = 11}};
  const int fd = Capsule::Seal(handover.Pack(version), {});
  AdoptSocket(fd);
  char c;
  REQUIRE(recv(fd, &c, 1, 0) == -1);
  REQUIRE(errno == ENOTCONN);
  close(fd);
}

}  // namespace
}  // namespace sdp::preload
