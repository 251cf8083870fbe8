// What a scraper says before it gets its metrics: the head of an HTTP request, of which little matters.
#ifndef SDP_PORTMAPPER_DAEMON_METRICS_REQUEST_H_
#define SDP_PORTMAPPER_DAEMON_METRICS_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sdp::pm {

inline constexpr size_t kMaxMetricsRequest = 4096;  // bytes of a head; longer ones are refused

enum class MetricsRequest : uint8_t {
  kIncomplete,  // no empty line yet
  kGet,         // GET /metrics, or GET /
  kHead,        // the same with HEAD
  kNotFound,    // another path
  kBadMethod,   // neither GET nor HEAD
  kBad,         // not HTTP/1.x, or too long
};

// `head` is everything received so far.
[[nodiscard]] MetricsRequest ParseMetricsRequest(std::string_view head);

// The whole answer, to be followed by the end of the connection. `body` is used for kGet and kHead.
[[nodiscard]] std::string MetricsResponse(MetricsRequest request, const std::string& body);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_METRICS_REQUEST_H_
