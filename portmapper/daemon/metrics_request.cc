#include "portmapper/daemon/metrics_request.h"

namespace sdp::pm {
namespace {

std::string_view TakeWord(std::string_view* line) {
  const size_t space = line->find(' ');
  const std::string_view word = line->substr(0, space);
  line->remove_prefix(space == std::string_view::npos ? line->size() : space + 1);
  return word;
}

}  // namespace

MetricsRequest ParseMetricsRequest(std::string_view head) {
  if (head.size() > kMaxMetricsRequest) return MetricsRequest::kBad;
  if (head.find("\r\n\r\n") == std::string_view::npos && head.find("\n\n") == std::string_view::npos) {
    return head.size() == kMaxMetricsRequest ? MetricsRequest::kBad : MetricsRequest::kIncomplete;
  }
  std::string_view line = head.substr(0, head.find('\n'));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::string_view method = TakeWord(&line);
  const std::string_view target = TakeWord(&line);
  if (line.substr(0, 7) != "HTTP/1." || target.empty()) return MetricsRequest::kBad;
  if (method != "GET" && method != "HEAD") return MetricsRequest::kBadMethod;
  const std::string_view path = target.substr(0, target.find('?'));
  if (path != "/metrics" && path != "/") return MetricsRequest::kNotFound;
  return method == "GET" ? MetricsRequest::kGet : MetricsRequest::kHead;
}

std::string MetricsResponse(MetricsRequest request, const std::string& body) {
  const auto answer = [](const char* status, const char* type, const std::string& text, size_t length) {
    return std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " + type +
           "\r\nContent-Length: " + std::to_string(length) + "\r\nConnection: close\r\n\r\n" + text;
  };
  constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  switch (request) {
    case MetricsRequest::kGet:
      return answer("200 OK", kOpenMetrics, body, body.size());
    case MetricsRequest::kHead:
      return answer("200 OK", kOpenMetrics, "", body.size());
    case MetricsRequest::kNotFound:
      return answer("404 Not Found", kPlain, "ask for /metrics\n", 17);
    case MetricsRequest::kBadMethod:
      return answer("405 Method Not Allowed", kPlain, "use GET\n", 8);
    case MetricsRequest::kIncomplete:
    case MetricsRequest::kBad:
      break;
  }
  return answer("400 Bad Request", kPlain, "use GET /metrics HTTP/1.1\n", 26);
}

}  // namespace sdp::pm
