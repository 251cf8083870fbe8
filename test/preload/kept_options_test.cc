// What becomes of TCP_CONGESTION on a link that stays within the host, with sockets of the kernel.
#include "preload/socket/kept_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "preload/socket/address.h"

namespace sdp::preload {
namespace {

struct Socket {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ~Socket() { close(fd); }
};

std::string OfKernel(int fd) {
  char name[17] = {};
  socklen_t length = 16;
  REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
  return name;
}

std::string Told(const KeptOptions& options, int fd, socklen_t room = 16) {
  char name[17] = {};
  socklen_t length = room;
  if (options.Get(IPPROTO_TCP, TCP_CONGESTION, name, &length) == KeptOptions::Answer::kKernel)
    return "kernel: " + OfKernel(fd);
  REQUIRE(length == room);
  return name;
}

// One that no program has chosen for `fd`, and that the link does not keep; or none.
std::string AnotherName(int fd) {
  for (const std::string name : {"bbr", "dctcp", "vegas"}) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0)
      return name;
  }
  return {};
}

KeptOptions::Answer Choose(KeptOptions& options, int fd, const std::string& name) {
  return options.Set(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

TEST_CASE(
    "kept options: congestion control is the program's to choose and read, and the link has none that "
    "paces") {
  const Socket other;
  const std::string name = AnotherName(other.fd);
  if (name.empty()) WARN("skipped in part: this kernel offers nothing that paces");
  const std::string chosen = name.empty() ? "reno" : name;
  const Socket link;
  KeptOptions options;
  REQUIRE(Choose(options, link.fd, chosen) == KeptOptions::Answer::kKernel);
  REQUIRE(setsockopt(link.fd, IPPROTO_TCP, TCP_CONGESTION, chosen.data(),
                     static_cast<socklen_t>(chosen.size())) == 0);
  REQUIRE(Told(options, link.fd) == "kernel: " + chosen);

  options.ForgoCongestionControl(link.fd);
  REQUIRE(OfKernel(link.fd) == "reno");
  REQUIRE(Told(options, link.fd) == chosen);
  REQUIRE(Told(options, link.fd, 2) == chosen.substr(0, 2));

  // The kernel judges, and the link keeps what it has.
  errno = 0;
  REQUIRE(Choose(options, link.fd, "no such") == KeptOptions::Answer::kFailed);
  REQUIRE(errno == ENOENT);
  REQUIRE(Told(options, link.fd) == chosen);
  REQUIRE(Choose(options, link.fd, "reno") == KeptOptions::Answer::kKept);
  REQUIRE(Told(options, link.fd) == "reno");
  REQUIRE(Choose(options, link.fd, chosen) == KeptOptions::Answer::kKept);
  REQUIRE(Told(options, link.fd) == chosen);
  REQUIRE(OfKernel(link.fd) == "reno");

  SECTION("a socket that becomes plain TCP has what the program chose") {
    options.Apply(link.fd);
    REQUIRE(OfKernel(link.fd) == chosen);
  }
  SECTION("one that will be connected elsewhere, too") {
    options.RestoreCongestionControl(link.fd);
    REQUIRE(OfKernel(link.fd) == chosen);
    REQUIRE(Told(options, link.fd) == "kernel: " + chosen);
    options.RestoreCongestionControl(link.fd);
    REQUIRE(Choose(options, link.fd, "reno") == KeptOptions::Answer::kKernel);
  }
}

TEST_CASE("kept options: cubic paces nothing, and stays on the link") {
  const Socket link;
  if (setsockopt(link.fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
    WARN("skipped: this kernel offers no cubic");
    return;
  }
  KeptOptions options;
  options.ForgoCongestionControl(link.fd);
  REQUIRE(OfKernel(link.fd) == "cubic");
  REQUIRE(Told(options, link.fd) == "cubic");
  REQUIRE(Choose(options, link.fd, "reno") == KeptOptions::Answer::kKept);
  REQUIRE(Told(options, link.fd) == "reno");
  options.RestoreCongestionControl(link.fd);
  REQUIRE(OfKernel(link.fd) == "reno");
}

TEST_CASE(
    "kept options: an accepted connection has its listener's congestion control to tell, and none that "
    "paces") {
  const Socket listener;
  const std::string name = AnotherName(listener.fd);
  if (name.empty()) WARN("skipped in part: this kernel offers nothing that paces");
  const Socket link;
  AnotherName(link.fd);
  KeptOptions::ForgoForAccepted(link.fd);
  REQUIRE((OfKernel(link.fd) == "reno" || OfKernel(link.fd) == "cubic"));
  KeptOptions options;
  options.InheritCongestionControl(listener.fd);
  REQUIRE(Told(options, link.fd) == OfKernel(listener.fd));
  const std::string kept = OfKernel(link.fd);
  options.ForgoCongestionControl(link.fd);  // it is already
  REQUIRE(Told(options, link.fd) == OfKernel(listener.fd));
  REQUIRE(OfKernel(link.fd) == kept);
  options.RestoreCongestionControl(link.fd);  // the peer is another host
  REQUIRE(OfKernel(link.fd) == OfKernel(listener.fd));
}

TEST_CASE("kept options: which links stay within the host") {
  const auto at = [](const char* text) { return ToAddress(*pm::ParseEndpoint(text), AF_UNSPEC, 0); };
  REQUIRE(WithinHost(at("127.0.0.1:5"), at("127.0.0.1:6")));
  REQUIRE(WithinHost(at("127.0.0.1:5"), at("127.9.9.9:6")));
  REQUIRE(WithinHost(at("10.0.0.1:5"), at("10.0.0.1:6")));
  REQUIRE(WithinHost(at("10.0.0.1:5"), at("[::ffff:10.0.0.1]:6")));
  REQUIRE(WithinHost(at("[::1]:5"), at("[::1]:6")));
  REQUIRE(WithinHost(at("[fe80::1]:5"), at("[fe80::1]:6")));
  REQUIRE_FALSE(WithinHost(at("10.0.0.1:5"), at("10.0.0.2:5")));
  REQUIRE_FALSE(WithinHost(at("127.0.0.1:5"), at("10.0.0.2:5")));
  REQUIRE_FALSE(WithinHost(at("[fe80::1]:5"), at("[fe80::2]:5")));
  REQUIRE_FALSE(WithinHost({}, {}));
}

}  // namespace
}  // namespace sdp::preload
