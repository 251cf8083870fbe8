// What this library adds to the private data of the MPA start-up. Other SDP peers see it as more private
// data.
//
// Behind Hello a connecting peer says that it is this library. If it goes by a remembered answer of the port
// mapper, it also says which conventional port it means: another service may have taken the SDP port since.
// An accepting end that is this library answers with the same, behind HelloAck, in its MPA Reply. So both
// ends know that they are kin (Session::kin). That saves a round trip: HelloAck does not wait for the RTR.
#ifndef SDP_PRELOAD_SOCKET_ASKED_PORT_H_
#define SDP_PRELOAD_SOCKET_ASKED_PORT_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "core/base/byte_order.h"
#include "core/base/types.h"

namespace sdp::preload {

inline constexpr std::array<char, 7> kAskedPort = {'S', 'D', 'P', 'p', 'o', 'r', 't'};
inline constexpr size_t kAskedPortSize = kAskedPort.size() + 1 + sizeof(uint16_t);
enum class Asks : uint8_t { kForPort = 3, kForAny = 4 };

// Returns `message`, Hello or HelloAck, with the conventional port behind it. `port` 0: any.
inline std::vector<std::byte> WithAskedPort(Bytes message, uint16_t port) {
  std::vector<std::byte> all(message.begin(), message.end());
  const Bytes magic = std::as_bytes(std::span(kAskedPort));
  all.insert(all.end(), magic.begin(), magic.end());
  all.push_back(static_cast<std::byte>(port != 0 ? Asks::kForPort : Asks::kForAny));
  all.resize(all.size() + sizeof port);
  StoreBe(all.data() + all.size() - sizeof port, port);
  return all;
}

// Returns the port at the end of `private_data`, 0 for any, or nothing. The private data may be anything.
inline std::optional<uint16_t> AskedPort(Bytes private_data) {
  if (private_data.size() < kAskedPortSize) return std::nullopt;
  const std::byte* const at = private_data.last(kAskedPortSize).data();
  if (std::memcmp(at, kAskedPort.data(), kAskedPort.size()) != 0) return std::nullopt;
  const auto asks = static_cast<Asks>(at[kAskedPort.size()]);
  if (asks != Asks::kForPort && asks != Asks::kForAny) return std::nullopt;
  return asks == Asks::kForAny ? uint16_t{0} : LoadBe<uint16_t>(at + kAskedPort.size() + 1);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ASKED_PORT_H_
