// Every order in which the two ends of a ring can take their steps: write, read, arm, look, ring, sleep,
// wake. Neither end may sleep for ever while the other has done its part. The steps are the ring's own
// functions; each has one store or one look that the other end can see, in the one order that seq_cst gives
// them.
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "verbs/softiwarp/local/ring.h"

namespace sdp::iwarp {
namespace {

constexpr size_t kSize = 4 * 1024;
constexpr int kMessages = 12;
constexpr size_t kMessage = 750;  // the second one does not fit into the smallest window

struct Ring {
  RingControl control;
  std::byte first[kSmallestWindow] = {};
  std::byte data[kSize] = {};
  RingMemory memory() { return {.control = &control, .first = first, .data = data}; }
};

enum class Step : uint8_t { kWork, kTell, kDrain, kArm, kAskForBell, kLook, kAsleep, kDone };

// Both ends and the ring's control, as values that can be put back.
struct State {
  uint64_t head = 0;
  uint64_t tail = 0;
  uint32_t window = 0;
  uint32_t reader_armed = 0;
  uint32_t writer_armed = 0;
  bool reader_bell = false;  // a doorbell lies on the TCP connection
  bool writer_bell = false;
  bool rung = false;  // the bell that the reader has asked for, or its futex
  Step writer = Step::kWork;
  Step reader = Step::kDrain;
  size_t written = 0;
  size_t read = 0;
  RingWriter writes;

  [[nodiscard]] auto Key() const {
    return std::tuple(head, tail, window, reader_armed, writer_armed, reader_bell, writer_bell, rung, writer,
                      reader, written, read, writes.has_room());
  }
};

// What the reader asks for before it sleeps.
enum class Asks : uint8_t { kNothing, kBell, kFutex };

class Model {
 public:
  explicit Model(Asks asks) : asks_(asks), ring_(std::make_unique<Ring>()) {
    InitializeRing(&ring_->control);
  }

  // Returns the number of states seen. Stops at the first one from which nothing goes on.
  size_t Explore() {
    State first{.writes = RingWriter(ring_->memory())};
    Save(&first);
    std::vector<State> open{first};
    while (!open.empty() && !stuck_) {
      const State state = open.back();
      open.pop_back();
      bool moved = false;
      for (const bool writer : {true, false}) {
        State next = state;
        Load(next);
        if (!(writer ? StepWriter(&next) : StepReader(&next))) continue;
        moved = true;
        Save(&next);
        if (seen_.insert(next.Key()).second) open.push_back(next);
      }
      if (!moved) stuck_ = state.read != kMessages * kMessage || state.writer != Step::kDone;
    }
    return seen_.size();
  }
  [[nodiscard]] bool stuck() const { return stuck_; }

 private:
  void Load(const State& s) {
    ring_->control.head = s.head;
    ring_->control.tail = s.tail;
    ring_->control.window = s.window;
    ring_->control.reader = s.reader_armed;
    ring_->control.writer = s.writer_armed;
  }
  void Save(State* s) {
    s->head = ring_->control.head;
    s->tail = ring_->control.tail;
    s->window = ring_->control.window;
    s->reader_armed = ring_->control.reader;
    s->writer_armed = ring_->control.writer;
  }

  // As LocalLink::Write, then a sleep for room. Returns false if the writer cannot move.
  bool StepWriter(State* s) {
    switch (s->writer) {
      case Step::kWork: {
        const size_t left = kMessage - s->written % kMessage;
        const iovec part{.iov_base = scratch_, .iov_len = left};
        const auto bytes = s->writes.Write(std::span(&part, 1));
        REQUIRE(bytes);
        s->written += *bytes;
        s->writer = *bytes > 0 ? Step::kTell : Step::kArm;
        return true;
      }
      case Step::kTell:
        switch (s->writes.TakeReader()) {
          case ReaderState::kArmed:
            s->reader_bell = true;
            break;
          case ReaderState::kAtBell:
          case ReaderState::kAtFutex:
            s->rung = true;
            break;
          default:
            break;
        }
        s->writer = s->written == kMessages * kMessage ? Step::kDone
                    : s->written % kMessage != 0       ? Step::kArm
                                                       : Step::kWork;
        return true;
      case Step::kArm:
        s->writes.Arm();
        s->writer = Step::kLook;
        return true;
      case Step::kLook:
        s->writer = s->writes.has_room() ? Step::kWork : Step::kAsleep;
        return true;
      case Step::kAsleep:
        if (!s->writer_bell) return false;
        s->writer_bell = false;
        s->writer = Step::kLook;
        return true;
      default:
        return false;
    }
  }

  // As LocalLink::Read by a caller that sleeps when nothing is there.
  bool StepReader(State* s) {
    RingReader reads(ring_->memory());
    switch (s->reader) {
      case Step::kWork: {
        const MutableBytes room(scratch_, sizeof scratch_);
        const auto bytes = reads.Read(std::span(&room, 1));
        REQUIRE(bytes);
        s->read += *bytes;
        s->reader = *bytes > 0                ? Step::kTell
                    : !reads.armed()          ? Step::kDrain
                    : asks_ != Asks::kNothing ? Step::kAskForBell
                                              : Step::kAsleep;
        return true;
      }
      case Step::kTell:
        if (reads.TakeWriter()) s->writer_bell = true;
        s->reader = Step::kWork;
        return true;
      case Step::kDrain:
        s->reader_bell = false;
        s->reader = Step::kArm;
        return true;
      case Step::kArm:
        if (!reads.armed()) reads.Arm();
        s->reader = Step::kWork;
        return true;
      case Step::kAskForBell:
        asks_ == Asks::kFutex ? (void)reads.ArmFutex() : reads.ArmBell({.words = {1, 2}}, 3);
        s->rung = false;  // of an earlier sleep
        s->reader = Step::kLook;
        return true;
      case Step::kLook:
        s->reader = (asks_ == Asks::kFutex ? reads.at_bell() : reads.empty()) ? Step::kAsleep : Step::kWork;
        return true;
      case Step::kAsleep:
        if (!s->reader_bell && !s->rung) return false;
        s->reader = s->rung ? Step::kWork : Step::kDrain;
        s->rung = false;
        return true;
      default:
        return false;
    }
  }

  const Asks asks_;
  std::unique_ptr<Ring> ring_;
  std::byte scratch_[kMessage] = {};
  std::set<decltype(std::declval<State>().Key())> seen_;
  bool stuck_ = false;
};

TEST_CASE("ring: in every order of steps both ends come to their end") {
  Model model(GENERATE(Asks::kNothing, Asks::kBell, Asks::kFutex));
  const size_t states = model.Explore();
  CHECK_FALSE(model.stuck());
  CHECK(states > 500);
}

}  // namespace
}  // namespace sdp::iwarp
