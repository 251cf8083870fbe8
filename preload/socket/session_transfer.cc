#include "preload/socket/session_transfer.h"

#include <utility>

#include "preload/socket/session_direct.h"

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

std::vector<std::byte> Session::Transfer::Freeze() {
  Writer ar;
  Freeze(ar);
  return ar.Take();
}

void Session::Transfer::Freeze(Writer& ar) {
  s_.KeepLent();
  bool ended = s_.link_ended_;
  stats::TransferCounts transfers = s_.recorder_.transfers();
  ar.Flag(ended);
  Visit(ar, transfers);
  ar.Sized([this](Writer& to) { s_.engine_->Freeze(to); });
  s_.queue_pair_->portable()->Freeze(ar);
}

std::unique_ptr<Session> Session::Transfer::Blank(int fd, Memory memory) {
  return std::make_unique<Session>(BlankEngine(), iwarp::Blank(fd, std::move(memory)));
}

std::unique_ptr<Session> Session::Transfer::Thawed(Bytes frozen, int fd, Memory memory) {
  auto session = std::make_unique<Session>(BlankEngine(), nullptr);
  return session->transfer().Thaw(frozen, fd, std::move(memory)) ? std::move(session) : nullptr;
}

bool Session::Transfer::Thaw(Bytes frozen, int fd, Memory memory) {
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
  *s_.engine_ = std::move(*engine);
  s_.queue_pair_ = std::move(queue_pair);
  s_.recorder_.SetTransfers(transfers);
  s_.link_ended_ = ended;
  s_.kinship_.Forget();  // another process may have moved the connection
  s_.lent_.reset();
  s_.move_.now.reset();
  s_.move_.failure.reset();
  return true;
}

void Session::Transfer::ReadLittle(bool little) {
  if (little) s_.KeepLent();
  s_.reads_little_ = little;
}

}  // namespace sdp::preload
