// A Session's state, as another process gets it.
#include <utility>

#include "core/base/archive.h"
#include "preload/socket/session.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {
namespace {

// Returns the engine of a session that Thaw() is about to fill.
std::unique_ptr<engine::Engine> BlankEngine() {
  return std::make_unique<engine::Engine>(engine::Role::kAccepting, engine::Options{});
}

template <typename Archive>
void Visit(Archive& ar, stats::TransferCounts& counts) {
  for (uint64_t& count : counts.in) ar.Number(count);
  for (uint64_t& count : counts.out) ar.Number(count);
  ar.Number(counts.mode_changes);
}

}  // namespace

std::vector<std::byte> Session::Freeze() {
  Writer ar;
  Freeze(ar);
  return ar.Take();
}

void Session::Freeze(Writer& ar) {
  KeepLent();
  bool ended = link_ended_;
  stats::TransferCounts transfers = recorder_.transfers();
  ar.Flag(ended);
  Visit(ar, transfers);
  ar.Sized([this](Writer& to) { engine_->Freeze(to); });
  queue_pair_->portable()->Freeze(ar);
}

std::unique_ptr<Session> Session::Blank(int fd, Memory memory) {
  return std::make_unique<Session>(BlankEngine(), iwarp::Blank(fd, std::move(memory)));
}

std::unique_ptr<Session> Session::Thawed(Bytes frozen, int fd, Memory memory) {
  auto session = std::make_unique<Session>(BlankEngine(), nullptr);
  return session->Thaw(frozen, fd, std::move(memory)) ? std::move(session) : nullptr;
}

bool Session::Thaw(Bytes frozen, int fd) { return Thaw(frozen, fd, iwarp::MemoryOf(*queue_pair_)); }

bool Session::Thaw(Bytes frozen, int fd, Memory memory) {
  Reader ar(frozen);
  bool ended = false;
  uint64_t engine_size = 0;
  stats::TransferCounts transfers;
  ar.Flag(ended);
  Visit(ar, transfers);
  ar.Number(engine_size);
  const Bytes engine_bytes = ar.Take(engine_size);
  if (!ar.ok()) return false;
  auto engine = engine::Engine::Thaw(engine_bytes);
  auto queue_pair = iwarp::Thaw(fd, ar.Take(ar.left()), std::move(memory));
  if (!engine || queue_pair == nullptr) return false;
  *engine_ = std::move(*engine);
  queue_pair_ = std::move(queue_pair);
  recorder_.SetTransfers(transfers);
  link_ended_ = ended;
  kin_ = leaves_first_ = left_first_ = false;  // another process may have moved the connection
  lent_.reset();
  move_.reset();
  failure_.reset();
  return true;
}

}  // namespace sdp::preload
