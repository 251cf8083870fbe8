#include "portmapper/known_daemons.h"

namespace sdp::pm {
namespace {

// FNV-1a.
uint64_t HashOf(std::string_view path) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : path) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

// A sequence lock; everything sequentially consistent, as this is once a listener.
void KnownDaemons::Remember(std::string_view path, uid_t daemon, const struct stat& root) {
  const uint64_t hash = HashOf(path);
  for (Place& place : places_) {
    uint32_t version = place.version.load();
    if (version != 0 && place.path.load() != hash) continue;
    // Whoever is writing here knows as much.
    if ((version & 1) != 0 || !place.version.compare_exchange_strong(version, version + 1)) return;
    place.path.store(hash);
    place.daemon.store(daemon);
    place.root_device.store(root.st_dev);
    place.root_inode.store(root.st_ino);
    place.version.store(version + 2 == 0 ? 2 : version + 2);
    return;
  }
}

std::optional<uid_t> KnownDaemons::OutOfReach(std::string_view path, const struct stat& root) const {
  const uint64_t hash = HashOf(path);
  for (const Place& place : places_) {
    const uint32_t version = place.version.load();
    if (version == 0 || (version & 1) != 0 || place.path.load() != hash) continue;
    const uid_t daemon = place.daemon.load();
    const bool same = place.root_device.load() == root.st_dev && place.root_inode.load() == root.st_ino;
    if (place.version.load() != version || same) return std::nullopt;
    return daemon;
  }
  return std::nullopt;
}

}  // namespace sdp::pm
