// Any datagram as an announcement: what is understood is written as it was read, and a central PMSP bears a
// stream of them, with and without their cookies.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/check.h"
#include "portmapper/engine/directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sdp::pm;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto announcement = ParseAnnouncement(bytes)) {
    SDP_CHECK(ParseAnnouncement(Serialize(*announcement)) == announcement);
    SDP_CHECK(!Parse(bytes).has_value());
  }
  Directory directory({1, 2}, std::chrono::seconds(5));
  Registry registry;
  registry.serve.emplace_back();  // everybody
  directory.Configure(registry);
  sdp::Time now{};
  // A stream: 48 bytes each, and one that says where it comes from and whether its cookie is right.
  for (auto left = bytes; left.size() > kPmMessageSize; left = left.subspan(kPmMessageSize + 1)) {
    auto announcement = ParseAnnouncement(left.first(kPmMessageSize));
    const auto how = std::to_integer<uint8_t>(left[kPmMessageSize]);
    now += std::chrono::milliseconds(how * 10);
    directory.HandleTimeout(now);
    if (!announcement) continue;
    Endpoint source = announcement->conventional;
    if ((how & 2) != 0) source.address[3] ^= 1;
    auto answer = directory.HandleAnnouncement(*announcement, source, now);
    if (answer && (how & 1) != 0) {
      announcement->cookie = ParseAnnouncement(*answer)->cookie;
      answer = directory.HandleAnnouncement(*announcement, source, now);
      SDP_CHECK(!answer || ParseAnnouncement(*answer)->type == AnnouncementType::kRefuse);
      if (!answer && announcement->lifetime != 0 && announcement->type == AnnouncementType::kAnnounce) {
        SDP_CHECK(directory.FindAnnounced(announcement->conventional, 1, now).has_value());
      }
    }
    SDP_CHECK(directory.announcements().IsConsistent());
  }
  return 0;
}
