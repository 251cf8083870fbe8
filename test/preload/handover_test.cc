// Sockets on their way to another program: the bytes, and the capsule they travel in.
#include "preload/socket/handover.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "preload/socket/capsule.h"

namespace sdp::preload {
namespace {

Handover Example() {
  Handover handover;
  handover.arenas = {{.member = 7}, {.member = 1}};
  handover.connections = {{.inode = 11, .kind = Handover::Kind::kNative, .whole = true, .arena = 1, .number = 4095}, {.inode = 12}};
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
  REQUIRE(unpacked->listeners[0].options.linger_option().l_linger == 5);
  REQUIRE(unpacked->listeners[0].backlog == 511);
}

TEST_CASE("a handover that is cut or has no such arena is refused") {
  Handover handover = Example();
  const auto packed = handover.Pack();
  for (size_t size = 0; size < packed.size(); ++size) REQUIRE_FALSE(Handover::Unpack(Bytes(packed).first(size)));
  handover.connections[0].arena = 2;
  REQUIRE_FALSE(Handover::Unpack(handover.Pack()));
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

}  // namespace
}  // namespace sdp::preload
