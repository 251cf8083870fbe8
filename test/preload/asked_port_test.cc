#include "preload/socket/asked_port.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

TEST_CASE("the port that a client means is behind its Hello, and nothing else is taken for it",
          "[asked_port]") {
  std::vector<std::byte> hello(32, std::byte{0x5a});
  CHECK_FALSE(AskedPort(hello));
  CHECK_FALSE(AskedPort({}));
  std::vector<std::byte> all = WithAskedPort(hello, 6379);
  CHECK(std::vector(all.begin(), all.begin() + 32) == hello);
  CHECK(AskedPort(all) == 6379);
  CHECK(AskedPort(WithAskedPort({}, 65535)) == 65535);
  CHECK(AskedPort(WithAskedPort(hello, 0)) == 0);
  CHECK(all[39] == std::byte{3});  // docs/wire.md
  CHECK(WithAskedPort(hello, 0)[39] == std::byte{4});
  for (size_t size = 0; size < all.size(); ++size) CHECK_FALSE(AskedPort(Bytes(all).first(size)));
  for (size_t i = 32; i < 40; ++i) {
    all[i] ^= std::byte{4};
    CHECK_FALSE(AskedPort(all));
    all[i] ^= std::byte{4};
  }
}

}  // namespace
}  // namespace sdp::preload
