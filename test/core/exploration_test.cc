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

// What an application does. `Back`: in the other direction, in which z is the Data Source.
enum class Op {
  kSmallSend,
  kOfferSource,
  kBackOfferSource,
  kOfferSink,
  kBackOfferSink,
  kRevokeSource,
  kBackRevokeSource,
  kMoveSource,
  kRevokeSink,
  kMoveSink,
  kBuffered,
  kLeaveBuffered,
  kCombined,
  kPipelined,
  kForce
};

struct Scenario {
  const char* name;
  FlowMode mode;         // of both directions, at the beginning
  std::vector<Op> a, z;  // what each application does, in this order
  bool ends = false;     // all buffers come back without anybody asking for them
  bool slow = false;     // tens of thousands of orders
};

// One direction: a source at one end, a sink at the other.
struct Way {
  End* from;
  End* to;
  std::vector<std::byte> data{};
  std::vector<std::byte> source{};
  std::vector<std::byte> sink{};
  uint64_t sent = 0, got = 0;
  bool offering = false;
  bool source_moved = false;
  bool sink_moved = false;
};

// One run. Choices come from `script` as far as it goes, then are always the first; what was possible is
// noted.
class Run {
 public:
  Run(const Scenario& scenario, std::vector<size_t>* script, std::vector<size_t>* widths)
      : scenario_(scenario), script_(*script), widths_(*widths), pair_(kSmall, kSmall) {
    widths_.clear();
    for (Way* way : {&there_, &back_}) {
      way->data.resize(8000);
      for (size_t i = 0; i < way->data.size(); ++i)
        way->data[i] = static_cast<std::byte>(i * (way == &back_ ? 29 : 31) + i / 256);
      if (scenario.mode == FlowMode::kCombined) continue;
      PAIR_CHECK(way->from->engine.ChangeMode(Half::kSource, scenario.mode), "set-up");
      way->from->Drain();
      pair_.Settle();
    }
    Play();
    PAIR_CHECK(!scenario.ends || (!there_.offering && !back_.offering),
               "a buffer does not come back by itself");
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
        const Bytes piece = Bytes(there_.data).subspan(there_.sent, 5);
        there_.sent += pair_.a.Send({&piece, 1}, {});
        return;
      }
      case Op::kOfferSource:
        return OfferSource(&there_);
      case Op::kBackOfferSource:
        return OfferSource(&back_);
      case Op::kOfferSink:
        return OfferSink(&there_);
      case Op::kBackOfferSink:
        return OfferSink(&back_);
      case Op::kRevokeSource:
        pair_.a.RevokeSource();
        return;
      case Op::kBackRevokeSource:
        pair_.z.RevokeSource();
        return;
      case Op::kMoveSource:
        if (pair_.a.MoveSource()) {
          there_.sent += there_.source.size();
          there_.source_moved = true;
        }
        return;
      case Op::kRevokeSink:
        pair_.z.RevokeSink();
        return;
      case Op::kMoveSink:
        if (const auto filled = pair_.z.MoveSink()) {
          Got(&there_, Bytes(there_.sink).first(*filled));
          there_.sink.clear();
          there_.sink_moved = true;
        }
        return;
      case Op::kBuffered:
        return ChangeMode(&pair_.a, Half::kSource, FlowMode::kBuffered);
      case Op::kLeaveBuffered:
        return ChangeMode(&pair_.z, Half::kSink, FlowMode::kCombined);
      case Op::kCombined:
        return ChangeMode(&pair_.a, Half::kSource, FlowMode::kCombined);
      case Op::kPipelined:
        return ChangeMode(&pair_.a, Half::kSource, FlowMode::kPipelined);
      case Op::kForce:
        pair_.z.ForceBcopy();
        return;
    }
  }

  static void OfferSource(Way* way) {
    if (way->offering) return;
    const Bytes next = Bytes(way->data).subspan(way->sent, 1500);
    way->source.assign(next.begin(), next.end());
    way->offering = way->from->OfferSource(way->source);
  }
  static void OfferSink(Way* way) {
    if (!way->sink.empty() || way->sink_moved) return;
    way->sink.resize(1000);
    if (!way->to->OfferSink(way->sink, true)) way->sink.clear();
  }
  static void ChangeMode(End* end, Half half, FlowMode mode) {
    (void)end->engine.ChangeMode(half, mode);
    end->Drain();
  }

  void Collect() {
    Collect(&there_);
    Collect(&back_);
  }
  static void Collect(Way* way) {
    if (const auto result = way->from->SourceResult()) {
      if (!way->source_moved) way->sent += result->bytes;
      way->offering = way->source_moved = false;
    }
    if (const auto result = way->to->SinkResult()) {
      if (!way->sink_moved) Got(way, Bytes(way->sink).first(result->bytes));
      way->sink.clear();
      way->sink_moved = false;
    }
    if (!way->sink.empty()) return;
    std::vector<std::byte> out(4000);
    const MutableBytes piece(out);
    const size_t n = way->to->engine.Receive({&piece, 1}, {});
    way->to->Drain();
    Got(way, Bytes(out).first(n));
  }

  static void Got(Way* way, Bytes bytes) {
    for (const std::byte byte : bytes)
      PAIR_CHECK(byte == way->data[way->got++], way->to->name + " reads something else");
  }

  // Everybody gives up; what was counted as sent has arrived, and nothing else.
  void Finish() {
    for (int i = 0; i < 10; ++i) {
      for (End* end : {&pair_.a, &pair_.z}) {
        end->RevokeSource();
        end->RevokeSink();
        end->ForceBcopy();
      }
      pair_.Settle();
      Collect();
    }
    for (const Way* way : {&there_, &back_}) {
      PAIR_CHECK(!way->offering && way->sink.empty() && !way->sink_moved, "a buffer is not given back");
      PAIR_CHECK(way->sent == way->got, "the counts differ");
      PAIR_CHECK(way->from->engine.state() == State::kEstablished, way->from->name);
      PAIR_CHECK(way->from->engine.freezable(), "not at rest");
    }
    // They still work.
    Do(Op::kSmallSend);
    pair_.Settle();
    Collect();
    PAIR_CHECK(there_.sent == there_.got, "the counts differ at the end");
  }

  const Scenario& scenario_;
  std::vector<size_t>& script_;
  std::vector<size_t>& widths_;
  EnginePair pair_;
  Way there_{.from = &pair_.a, .to = &pair_.z};
  Way back_{.from = &pair_.z, .to = &pair_.a};
  size_t next_a_ = 0, next_z_ = 0;
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
      {"read of a copy that is asked back",
       kComb,
       {Op::kOfferSource, Op::kMoveSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kForce}},
      {"read of a copy that is asked back, and what was sent behind it",
       kComb,
       {Op::kOfferSource, Op::kMoveSource, Op::kSmallSend, Op::kRevokeSource},
       {Op::kForce}},
      {"a copy that is asked back in Pipelined Mode",
       kPipe,
       {Op::kOfferSource, Op::kMoveSource, Op::kRevokeSource},
       {Op::kOfferSink, Op::kOfferSink}},
      {"both advertise, one asks its copy back",
       kComb,
       {Op::kOfferSource, Op::kMoveSource, Op::kRevokeSource},
       {Op::kBackOfferSource},
       /*ends=*/false,
       /*slow=*/true},
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
      {"into Buffered Mode and back",
       kComb,
       {Op::kOfferSource, Op::kBuffered},
       {Op::kOfferSink, Op::kLeaveBuffered}},
      {"into Buffered Mode, and the source revokes",
       kComb,
       {Op::kOfferSource, Op::kRevokeSource, Op::kBuffered},
       {Op::kOfferSink, Op::kForce}},
      {"both advertise, nobody receives", kComb, {Op::kOfferSource}, {Op::kBackOfferSource}, /*ends=*/true},
      {"both advertise, one receives",
       kComb,
       {Op::kOfferSource},
       {Op::kBackOfferSource, Op::kOfferSink},
       /*ends=*/true,
       /*slow=*/true},
      {"both advertise, one revokes",
       kComb,
       {Op::kOfferSource},
       {Op::kBackOfferSource, Op::kBackRevokeSource},
       /*ends=*/false,
       /*slow=*/true},
      {"two advertisements from one end", kPipe, {Op::kOfferSource, Op::kBackOfferSink}, {Op::kForce}},
      {"two advertisements each way",
       kPipe,
       {Op::kOfferSource, Op::kBackOfferSink},
       {Op::kOfferSink, Op::kBackOfferSource},
       /*ends=*/false,
       /*slow=*/true},
  };
  const bool all = std::getenv("SDP_EXPLORE_ALL") != nullptr;
  if (!all) std::cout << "without scenarios of many orders, which take seconds: SDP_EXPLORE_ALL=1 has them\n";
  uint64_t total = 0;
  for (const Scenario& scenario : scenarios) {
    if (!all && (scenario.slow || scenario.a.size() + scenario.z.size() >= 6)) continue;
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
