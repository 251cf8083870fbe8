#include "preload/socket/handover.h"

namespace sdp::preload {
namespace {

constexpr uint32_t kMagic = 0x53444836;  // "SDH6"
constexpr uint32_t kMost = 1 << 20;

// What every build understands, and so never changes: which sockets are connections.
template <typename Archive>
void VisitHead(Archive& ar, uint64_t& version, Handover& h) {
  uint32_t magic = kMagic;
  ar.Number(magic);
  ar.Require(magic == kMagic);
  ar.Number(version);
  VisitList(ar, h.connections, kMost, [&](Handover::Connection& c) {
    ar.Number(c.inode);
    ar.Enum(c.kind, Handover::Kind::kNative);
  });
}

template <typename Archive>
void VisitRest(Archive& ar, Handover& h) {
  ar.Number(h.maker);
  VisitList(ar, h.arenas, kMost, [&](Handover::Arena& arena) { ar.Number(arena.member); });
  for (Handover::Connection& c : h.connections) {
    ar.Flag(c.whole);
    ar.Number(c.arena);
    ar.Number(c.number);
    ar.Flag(c.has_memory);
    auto size = static_cast<uint32_t>(c.front.size());
    ar.Number(size);
    if constexpr (Archive::kReads) {
      const Bytes front = ar.Take(size);
      c.front.assign(front.begin(), front.end());
    } else {
      ar.Append(c.front);
    }
    ar.Require(!c.whole || c.arena < h.arenas.size());
  }
  VisitList(ar, h.listeners, kMost, [&](Handover::Listener& l) {
    ar.Number(l.inode);
    ar.Enum(l.kind, Handover::Kind::kNative);
    for (bool* flag : {&l.registered, &l.dormant, &l.has_queue, &l.nonblocking, &l.forced_nonblocking,
                       &l.plain_clients_allowed})
      ar.Flag(*flag);
    ar.Number(l.backlog);
    l.options.Visit(ar);
  });
  VisitList(ar, h.fresh, kMost, [&](Handover::Fresh& f) {
    ar.Number(f.inode);
    ar.Enum(f.kind, Handover::Kind::kNative);
    f.options.Visit(ar);
  });
}

}  // namespace

size_t Handover::descriptors() const {
  size_t count = 2 * arenas.size();
  for (const Connection& connection : connections) count += connection.has_memory ? 1 : 0;
  for (const Listener& listener : listeners)
    count += 1 + (listener.registered ? 1 : 0) + (listener.has_queue ? 2 : 0);
  return count;
}

std::vector<std::byte> Handover::Pack(uint64_t version) {
  Writer ar;
  VisitHead(ar, version, *this);
  VisitRest(ar, *this);
  return ar.Take();
}

std::optional<Handover> Handover::Unpack(Bytes packed, uint64_t version) {
  Reader ar(packed);
  Handover handover;
  uint64_t packed_by = 0;
  VisitHead(ar, packed_by, handover);
  handover.other_build = packed_by != version;
  if (ar.ok() && !handover.other_build) {
    VisitRest(ar, handover);
    ar.Require(ar.left() == 0);
  }
  if (!ar.ok()) return std::nullopt;
  return handover;
}

}  // namespace sdp::preload
