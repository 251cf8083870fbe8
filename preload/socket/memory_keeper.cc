#include "preload/socket/memory_keeper.h"

#include "preload/lasting.h"
#include "preload/socket/background.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload::memory_keeper {
namespace {

constexpr Duration kKept = std::chrono::milliseconds(500);

struct Task final : Background::Task {
  Background::Wait Run(Time now) override {
    if (!iwarp::ForgetMemories(kKept)) return {.done = true};
    return {.deadline = now + kKept};
  }
  Socket* owner() override { return nullptr; }
};

void NoteKept() {
  if (!Background::Add(&Lasting<Task>(), kKept)) (void)iwarp::ForgetMemories(Duration::zero());
}

}  // namespace

void Begin() { iwarp::KeepMemories(NoteKept); }

void Stop() {
  iwarp::KeepMemories(nullptr);
  (void)iwarp::ForgetMemories(Duration::zero());
}

}  // namespace sdp::preload::memory_keeper
