// Any head of a request for metrics, whole and cut anywhere: one answer, and its length is the one it says.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "portmapper/daemon/metrics_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sdp::pm;
  const std::string_view head(reinterpret_cast<const char*>(data), size);
  const MetricsRequest request = ParseMetricsRequest(head);
  if (request == MetricsRequest::kIncomplete) {
    SDP_CHECK(size < kMaxMetricsRequest);
    SDP_CHECK(ParseMetricsRequest(head.substr(0, size / 2)) == MetricsRequest::kIncomplete);
    return 0;
  }
  const std::string answer = MetricsResponse(request, "# EOF\n");
  const size_t end = answer.find("\r\n\r\n");
  SDP_CHECK(end != std::string::npos);
  const size_t length = request == MetricsRequest::kHead ? 6 : answer.size() - end - 4;
  SDP_CHECK(answer.find("Content-Length: " + std::to_string(length) + "\r\n") != std::string::npos);
  return 0;
}
