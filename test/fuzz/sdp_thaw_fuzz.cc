// Bytes that claim to be a frozen engine: refused, or an engine that works and freezes to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/engine/engine.h"
#include "core/wire/message.h"

namespace sdp::engine {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void Drain(Engine* engine) {
  Action action;
  for (int i = 0; i < 100000 && engine->PollAction(&action); ++i) Require(engine->IsConsistent());
}

void Use(Engine* engine) {
  Drain(engine);
  if (engine->suspended()) {
    engine->HandleLinkEnd(true);
    Require(engine->Resume(1, 1) && !engine->suspended());
  }
  const std::vector<std::byte> data(5000);
  const Bytes out(data);
  (void)engine->Send({&out, 1}, {Buffering::kFull, true});
  Drain(engine);
  wire::Message message;
  message.bsdh = {.bufs = 30, .len = 20};
  std::vector<std::byte> bytes(20);
  SerializeTo(message, bytes);
  const Bytes piece(bytes);
  engine->HandleReceive({.length = 20, .pieces = {&piece, 1}, .token = 1, .cost = 20});
  Drain(engine);
  std::vector<std::byte> memory(3000);
  const MutableBytes in(memory);
  while (engine->Receive({&in, 1}, {}) != 0) Drain(engine);
  Drain(engine);
  engine->CloseSend();
  engine->Abort(AbortReason::kLocal);
  Drain(engine);
  engine->HandleLinkEnd(false);
  engine->CloseReceive();
  Drain(engine);
  (void)engine->stats();
}

}  // namespace
}  // namespace sdp::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sdp::engine::Engine;
  auto engine = Engine::Thaw({reinterpret_cast<const std::byte*>(data), size});
  if (!engine) return 0;
  if (engine->freezable()) {
    const auto again = engine->Freeze();
    auto twin = Engine::Thaw(again);
    sdp::engine::Require(twin.has_value() && twin->Freeze() == again);
  }
  sdp::engine::Use(&*engine);
  return 0;
}
