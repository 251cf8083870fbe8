// Addresses, messages and times for the port mapper's tests, short enough to stand in a table.
#ifndef SDP_TEST_PORTMAPPER_PM_TEST_SUPPORT_H_
#define SDP_TEST_PORTMAPPER_PM_TEST_SUPPORT_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <ostream>
#include <string_view>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/pm_client.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

inline std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint) {
  return out << endpoint.ToString();
}
inline std::ostream& operator<<(std::ostream& out, const PmMessage& message) {
  return out << ToString(message);
}
inline std::ostream& operator<<(std::ostream& out, QueryState state) { return out << ToString(state); }

namespace test {

inline Endpoint At(std::string_view text) {
  const auto endpoint = ParseEndpoint(text);
  REQUIRE(endpoint.has_value());
  return *endpoint;
}

inline Time Ms(int64_t milliseconds) { return Time(std::chrono::milliseconds(milliseconds)); }

inline PmMessage Message(MessageType type, uint64_t handle, std::string_view cp, std::string_view ap,
                         uint8_t pm_time = 0) {
  return {type, PmTime(pm_time), AssocHandle(handle), At(cp), At(ap)};
}

inline PmMessage Parsed(const Datagram& datagram) {
  const auto message = Parse(datagram);
  REQUIRE(message.has_value());
  return *message;
}

}  // namespace test
}  // namespace sdp::pm

#endif  // SDP_TEST_PORTMAPPER_PM_TEST_SUPPORT_H_
