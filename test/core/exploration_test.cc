// Every order of a few application calls, messages and completions, played on two engines: advertisements,
// cancels and mode changes in flight cross in all ways that there are.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "test/core/engine_pair.h"

namespace sdp::engine {
namespace {

constexpr Options kSmall{.receive_buffer_size = 316,
                         .read_zcopy = true,
                         .source_threshold = 500,
                         .sink_threshold = 300,
                         .src_avail_payload = 10};

enum class Op {
  kSmallSend,
  kOfferSource,
  kOfferSink,
  kRevokeSource,
  kRevokeSink,
  kMoveSink,
  kCombined,
  kPipelined,
  kForce
};

struct Scenario {
  const char* name;
  FlowMode mode;         // from a to z, at the beginning
  std::vector<Op> a, z;  // what each application does, in this order
};

// One run. Choices come from `script` as far as it goes, then are always the first; what was possible is
// noted.
class Run {
 public:
  Run(const Scenario& scenario, std::vector<size_t>* script, std::vector<size_t>* widths)
      : scenario_(scenario), script_(*script), widths_(*widths), pair_(kSmall, kSmall) {
    widths_.clear();
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<std::byte>(i * 31 + i / 256);
    if (scenario.mode != FlowMode::kCombined) {
      PAIR_CHECK(pair_.a.engine.ChangeMode(Half::kSource, scenario.mode), "set-up");
      pair_.a.Drain();
      pair_.Settle();
    }
    Play();
    Finish();
  }

 private:
  size_t Choose(size_t width) {
    const size_t at = widths_.size();
    widths_.push_back(width);
    if (at == script_.size()) script_.push_back(0);
    return script_[at];
  }

  void Play() {
    for (int step = 0; step < 200; ++step) {
      std::vector<std::function<void()>> enabled;
      if (pair_.a.deliverable()) enabled.emplace_back([this] { pair_.z.Deliver(pair_.a, nullptr); });
      if (pair_.z.deliverable()) enabled.emplace_back([this] { pair_.a.Deliver(pair_.z, nullptr); });
      if (!pair_.a.completions.empty()) enabled.emplace_back([this] { pair_.a.Complete(); });
      if (!pair_.z.completions.empty()) enabled.emplace_back([this] { pair_.z.Complete(); });
      if (next_a_ < scenario_.a.size()) enabled.emplace_back([this] { Do(scenario_.a[next_a_++]); });
      if (next_z_ < scenario_.z.size()) enabled.emplace_back([this] { Do(scenario_.z[next_z_++]); });
      if (enabled.empty()) return;
      enabled[Choose(enabled.size())]();
      Collect();
    }
    PAIR_CHECK(false, "does not end");
  }

  void Do(Op op) {
    switch (op) {
      case Op::kSmallSend: {
        const Bytes piece = Bytes(data_).subspan(sent_, 5);
        sent_ += pair_.a.Send({&piece, 1}, {});
        return;
      }
      case Op::kOfferSource:
        if (!offering_) offering_ = pair_.a.OfferSource(MutableBytes(data_).subspan(sent_, 1500));
        return;
      case Op::kOfferSink:
        if (!sink_.empty() || sink_moved_) return;
        sink_.resize(1000);
        if (!pair_.z.OfferSink(sink_, true)) sink_.clear();
        return;
      case Op::kRevokeSource:
        pair_.a.RevokeSource();
        return;
      case Op::kRevokeSink:
        pair_.z.RevokeSink();
        return;
      case Op::kMoveSink:
        if (const auto filled = pair_.z.MoveSink()) {
          Got(Bytes(sink_).first(*filled));
          sink_.clear();
          sink_moved_ = true;
        }
        return;
      case Op::kCombined:
        (void)pair_.a.engine.ChangeMode(Half::kSource, FlowMode::kCombined);
        pair_.a.Drain();
        return;
      case Op::kPipelined:
        (void)pair_.a.engine.ChangeMode(Half::kSource, FlowMode::kPipelined);
        pair_.a.Drain();
        return;
      case Op::kForce:
        pair_.z.ForceBcopy();
        return;
    }
  }

  void Collect() {
    if (const auto result = pair_.a.SourceResult()) {
      sent_ += result->bytes;
      offering_ = false;
    }
    if (const auto result = pair_.z.SinkResult()) {
      if (!sink_moved_) Got(Bytes(sink_).first(result->bytes));
      sink_.clear();
      sink_moved_ = false;
    }
    if (!sink_.empty()) return;
    std::vector<std::byte> out(4000);
    const MutableBytes piece(out);
    const size_t n = pair_.z.engine.Receive({&piece, 1}, {});
    pair_.z.Drain();
    Got(Bytes(out).first(n));
  }

  void Got(Bytes bytes) {
    for (const std::byte byte : bytes) PAIR_CHECK(byte == data_[got_++], "z reads something else");
  }

  // Everybody gives up; what was counted as sent has arrived, and nothing else.
  void Finish() {
    for (int i = 0; i < 10; ++i) {
      pair_.a.RevokeSource();
      pair_.z.RevokeSink();
      pair_.z.ForceBcopy();
      pair_.Settle();
      Collect();
    }
    PAIR_CHECK(!offering_ && sink_.empty() && !sink_moved_, "a buffer is not given back");
    PAIR_CHECK(sent_ == got_, "the counts differ");
    PAIR_CHECK(pair_.a.engine.state() == State::kEstablished, "a");
    PAIR_CHECK(pair_.z.engine.state() == State::kEstablished, "z");
    PAIR_CHECK(pair_.a.engine.freezable() && pair_.z.engine.freezable(), "not at rest");
    // Both directions still work.
    Do(Op::kSmallSend);
    pair_.Settle();
    Collect();
    PAIR_CHECK(sent_ == got_, "the counts differ at the end");
  }

  const Scenario& scenario_;
  std::vector<size_t>& script_;
  std::vector<size_t>& widths_;
  EnginePair pair_;
  std::vector<std::byte> data_ = std::vector<std::byte>(8000);
  std::vector<std::byte> sink_;
  size_t next_a_ = 0, next_z_ = 0;
  uint64_t sent_ = 0, got_ = 0;
  bool offering_ = false;
  bool sink_moved_ = false;
};

constexpr uint64_t kMostRuns = 2'000'000;

// The next sequence of choices in order; false after the last.
bool Advance(std::vector<size_t>* script, const std::vector<size_t>& widths) {
  script->resize(widths.size());
  while (!script->empty()) {
    if (++script->back() < widths[script->size() - 1]) return true;
    script->pop_back();
  }
  return false;
}

}  // namespace

TEST_CASE("Exploration: every interleaving of advertisements, cancels and mode changes") {
  constexpr FlowMode kComb = FlowMode::kCombined, kPipe = FlowMode::kPipelined;
  const Scenario scenarios[] = {
      {"read and its revocation",
       kComb,
       {Op::kOfferSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kOfferSink}},
      {"read given up by the reader",
       kComb,
       {Op::kOfferSource},
       {Op::kOfferSink, Op::kRevokeSink, Op::kForce}},
      {"read that goes on elsewhere",
       kComb,
       {Op::kOfferSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kMoveSink, Op::kForce}},
      {"write that goes on elsewhere",
       kPipe,
       {Op::kSmallSend, Op::kOfferSource},
       {Op::kOfferSink, Op::kMoveSink, Op::kOfferSink}},
      {"both revoke in Combined Mode",
       kComb,
       {Op::kOfferSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kForce}},
      {"crossing", kPipe, {Op::kOfferSource}, {Op::kOfferSink, Op::kOfferSink}},
      {"crossing, the source revokes", kPipe, {Op::kOfferSource, Op::kRevokeSource}, {Op::kOfferSink}},
      {"crossing, the sink revokes", kPipe, {Op::kOfferSource}, {Op::kOfferSink, Op::kRevokeSink}},
      {"stale", kPipe, {Op::kSmallSend, Op::kOfferSource}, {Op::kOfferSink, Op::kOfferSink}},
      {"stale and revoked",
       kPipe,
       {Op::kSmallSend, Op::kSmallSend},
       {Op::kOfferSink, Op::kRevokeSink, Op::kOfferSink}},
      {"leaving Pipelined Mode", kPipe, {Op::kOfferSource, Op::kCombined}, {Op::kOfferSink}},
      {"leaving Pipelined Mode with data",
       kPipe,
       {Op::kSmallSend, Op::kCombined},
       {Op::kOfferSink, Op::kRevokeSink}},
      {"crossing, both revoke",
       kPipe,
       {Op::kOfferSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kRevokeSink, Op::kForce}},
      {"twice",
       kPipe,
       {Op::kOfferSource, Op::kRevokeSource, Op::kOfferSource},
       {Op::kOfferSink, Op::kRevokeSink, Op::kOfferSink}},
      {"out of Pipelined Mode and back",
       kPipe,
       {Op::kOfferSource, Op::kCombined, Op::kPipelined},
       {Op::kOfferSink, Op::kOfferSink}},
      {"stale, and both revoke",
       kPipe,
       {Op::kSmallSend, Op::kOfferSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kRevokeSink, Op::kOfferSink}},
      {"entering Pipelined Mode", kComb, {Op::kOfferSource, Op::kPipelined}, {Op::kOfferSink}},
  };
  const bool all = std::getenv("SDP_EXPLORE_ALL") != nullptr;
  if (!all) std::cout << "without scenarios of six calls, which take seconds: SDP_EXPLORE_ALL=1 has them\n";
  uint64_t total = 0;
  for (const Scenario& scenario : scenarios) {
    if (!all && scenario.a.size() + scenario.z.size() >= 6) continue;
    std::vector<size_t> script, widths;
    uint64_t runs = 0;
    do {
      try {
        const Run run(scenario, &script, &widths);
      } catch (const std::exception& e) {
        std::string choices;
        for (const size_t choice : script) choices += " " + std::to_string(choice);
        FAIL(scenario.name << ", choices" << choices << ": " << e.what());
      }
      ++runs;
    } while (runs < kMostRuns && Advance(&script, widths));
    INFO(scenario.name);
    CHECK(runs > 10);
    CHECK(runs < kMostRuns);  // all of them
    total += runs;
  }
  std::cout << total << " interleavings\n";
}

}  // namespace sdp::engine
