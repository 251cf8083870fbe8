#include "preload/socket/memory_keeper.h"

#include <new>

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

constinit Task task;

void NoteKept() {
  bool added = false;
  try {
    added = Background::Add(&task, kKept);
  } catch (const std::bad_alloc&) {
  }
  if (!added) (void)iwarp::ForgetMemories(Duration::zero());
}

}  // namespace

void Begin() { iwarp::KeepMemories(NoteKept); }

void Stop() {
  iwarp::KeepMemories(nullptr);
  (void)iwarp::ForgetMemories(Duration::zero());
}

}  // namespace sdp::preload::memory_keeper
