// The seeds of sdp_thaw_fuzz: frozen engines in states of all kinds, of the format of today.
// SDP_WRITE_SEEDS=1 makes them anew, after a change of the format.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "test/core/engine_pair.h"

namespace sdp::engine {
namespace {

constexpr Options kSmall{
    .receive_buffer_size = 516, .read_zcopy = true, .source_threshold = 500, .sink_threshold = 600};
constexpr Options kNarrow{.receive_buffers = 3, .receive_buffer_size = 116, .receive_limit = 348};

std::map<std::string, std::vector<std::byte>> Seeds() {
  std::map<std::string, std::vector<std::byte>> seeds;
  seeds["idle"] = Engine(Role::kConnecting, kSmall).Freeze();
  {
    EnginePair pair(kSmall, kSmall);
    pair.a.Send("x");
    pair.Settle();
    pair.z.Read(9);
    seeds["established"] = pair.z.engine.Freeze();
  }
  {
    EnginePair pair(kSmall, kNarrow);
    pair.a.Send(std::string(2000, 'f'), {.buffering = Buffering::kFull, .out_of_band = true});
    pair.Settle();
    seeds["buffered_oob"] = pair.a.engine.Freeze();
  }
  {
    EnginePair pair(kNarrow, kNarrow);
    for (End* end : {&pair.a, &pair.z}) end->Send(std::string(2000, 'f'), {.buffering = Buffering::kFull});
    pair.Settle();
    seeds["closed_windows"] = pair.z.engine.Freeze();
  }
  {
    EnginePair pair(kSmall, kSmall);
    pair.a.Abort();
    seeds["aborted"] = pair.a.engine.Freeze();
  }
  {
    EnginePair pair(kSmall, kSmall);
    pair.a.CloseSend();
    pair.z.CloseSend();
    pair.Settle();
    seeds["closed"] = pair.a.engine.Freeze();
  }
  {
    EnginePair pair(kSmall, kSmall);
    REQUIRE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kPipelined));
    pair.a.Drain();
    pair.a.Send("unread");
    pair.Settle();
    seeds["unread_pipelined"] = pair.z.engine.Freeze();
  }
  {
    EnginePair pair(kSmall, kSmall);
    pair.a.Send("unread");
    REQUIRE(pair.a.Suspend(5));
    pair.Settle();
    seeds["suspended_local"] = pair.a.engine.Freeze();
    seeds["suspended_remote"] = pair.z.engine.Freeze();
    pair.a.LoseLink(true);
    REQUIRE(pair.a.Resume());
    REQUIRE(pair.a.Suspend(7));
    seeds["resumed"] = pair.a.engine.Freeze();
  }
  return seeds;
}

std::vector<std::byte> Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace

TEST_CASE("Freeze: every seed of the fuzzer is an engine of today's format") {
  const std::filesystem::path corpus = SDP_THAW_CORPUS;
  const auto seeds = Seeds();
  if (std::getenv("SDP_WRITE_SEEDS") != nullptr) {
    for (const auto& [name, bytes] : seeds) {
      std::ofstream(corpus / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  for (const auto& [name, bytes] : seeds) {
    INFO(name << ": SDP_WRITE_SEEDS=1 makes the seeds anew");
    REQUIRE(std::filesystem::exists(corpus / name));
    const auto engine = Engine::Thaw(Contents(corpus / name));
    REQUIRE(engine.has_value());
    CHECK(engine->Freeze() == Contents(corpus / name));
    CHECK(Engine::Thaw(bytes).has_value());
  }
}

}  // namespace sdp::engine
