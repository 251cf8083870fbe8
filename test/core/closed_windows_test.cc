// Both windows are shut, nobody reads, and both have something to say without payload: all of it arrives,
// nobody is left with one credit (10.5), and they fall silent. Every order of messages and calls.
#include <catch2/catch.hpp>
#include <iostream>

#include "test/core/engine_pair.h"

namespace sdp::engine {
namespace {

// Windows that hold one unread message each.
Options Small(uint16_t buffers) {
  return {.receive_buffers = buffers, .receive_buffer_size = 1016, .receive_limit = buffers * uint32_t{1016}};
}

class Run {
 public:
  Run(uint16_t buffers, AckIn ack, int a_words, int z_words, bool more_payload, std::vector<size_t>* script,
      std::vector<size_t>* widths)
      : words_{a_words, z_words},
        script_(*script),
        widths_(*widths),
        pair_(Small(buffers), Small(buffers), ack) {
    widths_.clear();
    pair_.Settle();
    // Both fill the other's window as far as it goes; what does not fit waits, if that is wanted.
    for (int i = 0; i < 10; ++i) {
      for (End* end : {&pair_.a, &pair_.z}) {
        if (end->engine.writable() || (more_payload && i == 9))
          end->Send(std::string(900, 'x'), {.buffering = Buffering::kFull});
      }
      pair_.Settle();
    }
    Play();
    PAIR_CHECK(pair_.a.engine.stats().send_credits >= 2, "a");
    PAIR_CHECK(pair_.z.engine.stats().send_credits >= 2, "z");
    PAIR_CHECK(Modes(pair_.a, pair_.z) == (a_words % 2 == 1), "a's word");
    PAIR_CHECK(Modes(pair_.z, pair_.a) == (z_words % 2 == 1), "z's word");
  }

 private:
  // Whether the half-connection from `source` is in Pipelined Mode, on which both have to agree.
  static bool Modes(const End& source, const End& sink) {
    PAIR_CHECK(source.engine.stats().source_mode == sink.engine.stats().sink_mode, source.name);
    return source.engine.stats().source_mode == FlowMode::kPipelined;
  }

  size_t Choose(size_t width) {
    const size_t at = widths_.size();
    widths_.push_back(width);
    if (at == script_.size()) script_.push_back(0);
    return script_[at];
  }

  // A word: a change of mode, there and back. It may have to wait for credit or for the change before.
  bool Speak(End* end, int* words) {
    const bool pipelined = end->engine.stats().source_mode == FlowMode::kPipelined;
    if (!end->engine.ChangeMode(Half::kSource, pipelined ? FlowMode::kCombined : FlowMode::kPipelined))
      return false;
    end->Drain();
    --*words;
    return true;
  }

  void Play() {
    for (int step = 0; step < 200; ++step) {
      std::vector<std::function<void()>> enabled;
      if (pair_.a.deliverable()) enabled.emplace_back([this] { pair_.z.Deliver(pair_.a, nullptr); });
      if (pair_.z.deliverable()) enabled.emplace_back([this] { pair_.a.Deliver(pair_.z, nullptr); });
      const bool quiet = enabled.empty();
      bool stuck = quiet;
      for (int side = 0; side < 2; ++side) {
        if (words_[side] == 0) continue;
        End& end = side == 0 ? pair_.a : pair_.z;
        enabled.emplace_back([this, &end, side] { spoke_ = Speak(&end, &words_[side]); });
      }
      if (enabled.empty()) return;
      spoke_ = true;
      enabled[Choose(enabled.size())]();
      stuck = stuck && !spoke_ && words_[0] + words_[1] != 0 && enabled.size() == 1;
      PAIR_CHECK(!stuck, "a word is never said");
      if (!spoke_ && !quiet) return Settled();  // as if it had been tried later
    }
    PAIR_CHECK(false, "does not end");
  }

  // The rest in one order.
  void Settled() {
    for (int i = 0; i < 100 && words_[0] + words_[1] != 0; ++i) {
      pair_.Settle(200);
      if (words_[0] != 0) (void)Speak(&pair_.a, &words_[0]);
      if (words_[1] != 0) (void)Speak(&pair_.z, &words_[1]);
    }
    pair_.Settle(200);
    PAIR_CHECK(words_[0] + words_[1] == 0, "a word is never said");
  }

  int words_[2];
  std::vector<size_t>& script_;
  std::vector<size_t>& widths_;
  EnginePair pair_;
  bool spoke_ = true;
};

bool Advance(std::vector<size_t>* script, const std::vector<size_t>& widths) {
  script->resize(widths.size());
  while (!script->empty()) {
    if (++script->back() < widths[script->size() - 1]) return true;
    script->pop_back();
  }
  return false;
}

}  // namespace

TEST_CASE("Credit: with closed windows everything is said, nobody is left at one credit, and it ends") {
  const uint16_t buffers = GENERATE(uint16_t{3}, uint16_t{5});
  const AckIn ack = GENERATE(AckIn::kReply, AckIn::kSend);
  const bool more_payload = GENERATE(false, true);
  uint64_t total = 0;
  for (const auto& [a_words, z_words] : {std::pair(1, 0), std::pair(0, 1), std::pair(1, 1)}) {
    std::vector<size_t> script, widths;
    do {
      INFO(buffers << " buffers, words " << a_words << " and " << z_words
                   << ", more payload: " << more_payload);
      const Run run(buffers, ack, a_words, z_words, more_payload, &script, &widths);
      ++total;
    } while (Advance(&script, widths));
  }
  CHECK(total > 100);
  std::cout << total << " orders with closed windows\n";
}

TEST_CASE("Credit: what ends the exchange of updates over closed windows costs bounded memory") {
  // A peer with much to send brings it about by a control message, again and again.
  const Options options = Small(5);
  EnginePair pair(options, options);
  pair.Settle();
  for (int i = 0; i < 100; ++i) {
    pair.a.Send(std::string(20'000, 'x'), {.buffering = Buffering::kFull});
    pair.z.Send(std::string(20'000, 'x'), {.buffering = Buffering::kFull});
    const bool pipelined = pair.a.engine.stats().source_mode == FlowMode::kPipelined;
    (void)pair.a.engine.ChangeMode(Half::kSource, pipelined ? FlowMode::kCombined : FlowMode::kPipelined);
    pair.a.Drain();
    pair.Settle(200);
  }
  for (const End* end : {&pair.a, &pair.z}) {
    CHECK(end->engine.stats().receive_queue > 0);
    CHECK(end->engine.stats().receive_queue <= 2 * options.receive_limit + options.receive_buffer_size);
  }
}

}  // namespace sdp::engine
