// Any registry file: it is understood or every mistake has its place. What is understood answers questions,
// hears announcements and is replaced, and its tables stay consistent.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "portmapper/engine/directory.h"

namespace sdp::pm {
namespace {

void Use(const Registry& registry, std::string_view text) {
  Directory directory({1, 2}, std::chrono::seconds(5));
  directory.Configure(registry);
  Time now{};
  uint64_t handle = text.size();
  const auto nobody = [](const Endpoint&) { return std::optional<Endpoint>(); };
  for (int round = 0; round < 3; ++round) {
    for (const auto& [service, backends] : registry.services) {
      for (const Backend& backend : backends) {
        Announcement announcement;
        announcement.lifetime = 6;
        announcement.conventional = announcement.sdp = backend.address;
        Endpoint source = backend.address;
        source.port = 4000;
        if (const auto challenge = directory.HandleAnnouncement(announcement, source, now)) {
          announcement.cookie = ParseAnnouncement(*challenge)->cookie;
          (void)directory.HandleAnnouncement(announcement, source, now);
        }
      }
      (void)directory.Allows(backends.front().address, service);
      (void)directory.PmTimeFor(service, PmTime(1));
      SDP_CHECK(directory.IsConfigured(service));
      const auto sdp = directory.FindConfigured(service, ++handle, std::nullopt, nobody, now);
      SDP_CHECK(!sdp || (sdp->version == service.version && sdp->port != 0));
      if (sdp && handle % 2 == 0) directory.HandleAck(*sdp);
      SDP_CHECK(directory.announcements().IsConsistent());
    }
    now += std::chrono::seconds(4);
    directory.HandleTimeout(now);
    directory.Configure(registry);
  }
}

}  // namespace
}  // namespace sdp::pm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sdp::pm;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto registry = ParseRegistry(text);
  if (registry) {
    Use(*registry, text);
    return 0;
  }
  SDP_CHECK(!registry.error().empty() && registry.error().size() <= 100);
  for (const RegistryError& error : registry.error()) {
    SDP_CHECK(error.line > 0 && error.column > 0 && !error.text.empty());
  }
  return 0;
}
