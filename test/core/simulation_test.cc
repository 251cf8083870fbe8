// Two engines and their applications under a seeded scheduler that delays, splits, closes and breaks where it
// likes. Every schedule gives the same byte stream, keeps the invariants that engine_pair checks, and ends.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "test/core/engine_pair.h"

namespace sdp::engine {
namespace {

std::byte Pattern(int direction, uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761u >> 7) + offset + static_cast<uint64_t>(direction) * 91);
}

// Many times what a schedule takes.
constexpr uint64_t kMostStepsWithRequests = 300'000;

enum class Fate { kGraceful, kAbort, kLinkLoss };

// One application: writes `to_send` bytes, reads what comes, then closes.
struct App {
  End* end = nullptr;
  int direction = 0;
  uint64_t to_send = 0;
  uint64_t sent = 0;
  uint64_t read = 0;
  bool edge_triggered = false;
  bool sends_first = false;  // reads nothing until all is sent (9.5.6)
  bool full = false;
  bool lazy_close = false;  // closes only after the peer's end
  uint64_t write_edge = 0, read_edge = 0;
  bool write_blocked = false, read_blocked = false;
  bool closed = false;
  uint64_t oob_every = 0;
  bool zcopy = false;
  bool asks = false;  // sends behind the offers of its memory
  // Lent to the engine while not empty.
  std::vector<std::byte> source, sink;
  bool moved = false;  // the engine has a copy of what was lent
  bool sink_moved = false;
};

class Simulation {
 public:
  // `log`: gets the messages and the applications' calls, which takes as long as all the rest.
  explicit Simulation(uint64_t seed, std::vector<std::string>* log);
  void Run();
  [[nodiscard]] int duplications() const { return duplications_; }
  [[nodiscard]] uint64_t went_direct() const { return went_direct_; }
  // Ends that have sent questions in SinkAvails.
  [[nodiscard]] int asking() const {
    return (pair_->a.engine.stats().transaction_bytes_out != 0) +
           (pair_->z.engine.stats().transaction_bytes_out != 0);
  }
  // Ends whose receive Private Buffers are not what they were: their peer's stream has had them enlarged.
  [[nodiscard]] int enlarged() const {
    return (resize_ ? 0 : 1) * ((pair_->a.receive_size > pair_->a.options.receive_buffer_size) +
                                (pair_->z.receive_size > pair_->z.options.receive_buffer_size));
  }

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }
  Options RandomOptions();
  bool Step();
  bool Write(App* app);
  bool Read(App* app, const App& from);
  bool Offer(App* app);
  bool AwaitSource(App* app);
  bool AwaitSink(App* app, const App& from);
  bool TakeSink(App* app, const App& from, uint64_t size);
  bool Close(App* app);
  bool Deliver(End* from, End* to);
  bool EndLink(End* end, End* peer);
  bool Duplicate();
  bool AppsDone() const;
  void Finish();

  std::vector<std::string>* log_;
  std::mt19937_64 random_;
  std::unique_ptr<EnginePair> pair_;
  App a_, z_;
  Fate fate_ = Fate::kGraceful;
  uint64_t fate_step_ = 0;
  bool fate_came_ = false;
  bool change_modes_ = false;
  bool prefer_ = false;  // the readers' wish for Pipelined Mode comes and goes
  bool refreeze_ = false;
  bool resize_ = false;
  bool suspend_ = false;
  bool goes_direct_ = false;
  uint64_t went_direct_ = 0;
  int duplications_ = 0;
};

Options Simulation::RandomOptions() {
  Options o;
  const uint32_t sizes[] = {37, 38, 64, 100, 1000, 4096, 32 * 1024 + 16};
  o.receive_buffer_size = sizes[Pick(7)];
  o.receive_buffers = static_cast<uint16_t>(Pick(2) ? 3 + Pick(3) : 3 + Pick(30));
  o.receive_limit = static_cast<uint32_t>(o.receive_buffer_size * (3 + Pick(o.receive_buffers)) + Pick(3000));
  const uint32_t thresholds[] = {1, 50, 500, 3000};
  o.read_zcopy = Pick(4) != 0;
  o.source_threshold = thresholds[Pick(4)];
  o.sink_threshold = thresholds[Pick(4)];
  o.src_avail_payload = static_cast<uint32_t>(Pick(2) ? 1 + Pick(40) : 1000);
  o.read_size = static_cast<uint32_t>(Pick(2) ? 1 + Pick(1000) : 1000000);
  o.prefer_pipelined = Pick(2);
  o.follow_hints = Pick(4) != 0;
  o.begin_pipelined = Pick(6) == 0;
  o.max_adverts = static_cast<uint16_t>(1 + Pick(3));
  o.ord = static_cast<uint16_t>(1 + Pick(4));
  o.send_limit = static_cast<uint32_t>(Pick(3) ? 1 + Pick(5000) : 100000);
  o.enlarge_remote = Pick(2);
  o.desired_remote_size = static_cast<uint32_t>(40 + Pick(5000));
  o.receive_buffer_limit = static_cast<uint32_t>(Pick(3) ? Pick(8000) : 0);
  return o;
}

Simulation::Simulation(uint64_t seed, std::vector<std::string>* log) : log_(log), random_(seed) {
  const Options ao = RandomOptions(), zo = RandomOptions();
  pair_ = std::make_unique<EnginePair>(ao, zo, Pick(2) ? AckIn::kReply : AckIn::kSend);
  if (log_ != nullptr)
    pair_->a.trace = pair_->z.trace = [this](const std::string& line) { log_->push_back(line); };
  for (App* app : {&a_, &z_}) {
    app->end = app == &a_ ? &pair_->a : &pair_->z;
    app->direction = app == &a_ ? 0 : 1;
    app->to_send = Pick(4) ? Pick(20000) : Pick(50);
    app->edge_triggered = Pick(2);
    app->full = Pick(2);
    app->lazy_close = app == &z_ && Pick(2);
    app->oob_every = Pick(3) ? 0 : 1 + Pick(700);
    app->end->engine.SetOutOfBandInline(true);
    app->zcopy = Pick(3) != 0;
    app->asks = Pick(2) == 0;
  }
  // Only one of them may insist on sending first if buffers are not large enough for both (9.5.6).
  (Pick(2) ? a_ : z_).sends_first = Pick(3) == 0;
  fate_ = Pick(4) ? Fate::kGraceful : Pick(2) ? Fate::kAbort : Fate::kLinkLoss;
  fate_step_ = Pick(400);
  change_modes_ = Pick(2) == 0;
  prefer_ = Pick(2) == 0;
  refreeze_ = Pick(4) == 0;
  resize_ = Pick(4) == 0;
  suspend_ = Pick(4) == 0;
  goes_direct_ = Pick(2) == 0;
  for (App* app : {&a_, &z_}) app->end->no_memory_for_sizes = Pick(8) == 0;
}

// A blocking send with a buffer of its own.
bool Simulation::Offer(App* app) {
  const uint64_t n = std::min(app->to_send - app->sent, 1 + (Pick(3) ? Pick(9000) : Pick(100)));
  app->source.resize(n);
  for (uint64_t i = 0; i < n; ++i) app->source[i] = Pattern(app->direction, app->sent + i);
  if (app->end->OfferSource(app->source)) {
    return true;
  }
  app->source.clear();
  return false;
}

bool Simulation::AwaitSource(App* app) {
  if (const auto result = app->end->SourceResult()) {
    PAIR_CHECK(result->bytes <= app->source.size(), app->end->name);
    app->sent += result->bytes;
    Scribble(app->source);
    app->source = {};
    return result->bytes != 0;
  }
  if (Pick(10) != 0 || app->end->engine.state() == State::kAborted) return false;
  if (Pick(2)) {
    app->end->RevokeSource();
    return false;
  }
  app->moved = app->end->MoveSource();
  if (!app->moved) return false;
  app->sent += app->source.size();
  app->source = {};
  return true;
}

// The first `size` bytes of what it had lent are the application's. Behind them lies whatever a cancelled
// transfer had placed there.
bool Simulation::TakeSink(App* app, const App& from, uint64_t size) {
  PAIR_CHECK(size <= app->sink.size(), app->end->name);
  for (uint64_t i = 0; i < size; ++i)
    PAIR_CHECK(app->sink[i] == Pattern(from.direction, app->read + i), app->end->name);
  app->read += size;
  app->read_blocked = false;
  Scribble(app->sink);
  app->sink = {};
  return size != 0;
}

bool Simulation::AwaitSink(App* app, const App& from) {
  if (const auto result = app->end->SinkResult()) return TakeSink(app, from, result->bytes);
  if (Pick(20) != 0 || app->end->engine.state() == State::kAborted) return false;
  if (Pick(2)) {
    if (const auto filled = app->end->MoveSink()) {
      app->sink_moved = true;
      return TakeSink(app, from, *filled);
    }
  }
  app->end->RevokeSink();
  return false;
}

bool Simulation::Write(App* app) {
  Engine& engine = app->end->engine;
  if (!app->source.empty()) return AwaitSource(app);
  if (app->moved && app->end->SourceResult()) app->moved = false;
  if (app->moved && Pick(8) == 0) app->end->RevokeSource();
  if (app->zcopy && app->sent < app->to_send && Pick(3) == 0 && engine.can_send() && Offer(app)) return false;
  if (!engine.can_send() || app->sent == app->to_send) return false;
  if (app->write_blocked) {
    if (app->edge_triggered ? engine.write_edge() == app->write_edge : !engine.writable()) return false;
    app->write_blocked = false;
  }
  uint64_t n = std::min(app->to_send - app->sent, 1 + (Pick(3) ? Pick(200) : Pick(9000)));
  const bool oob = app->oob_every != 0 && Pick(5) == 0;
  std::vector<std::byte> data(n);
  for (uint64_t i = 0; i < n; ++i) data[i] = Pattern(app->direction, app->sent + i);
  std::vector<Bytes> pieces;
  for (size_t at = 0; at < n;) {
    const size_t m = Pick(3) ? n - at : Pick(n - at + 1);
    pieces.push_back(Bytes(data).subspan(at, m));
    at += m;
  }
  const bool writable = engine.writable();
  const bool full = app->full && Pick(2);
  app->write_edge = engine.write_edge();
  const bool direct = goes_direct_ && !oob && Pick(2) && app->end->SendDirect(pieces);
  const size_t taken =
      direct ? n : app->end->Send(pieces, {full ? Buffering::kFull : Buffering::kSmall, oob});
  went_direct_ += direct;
  Scribble(data);
  if (log_ != nullptr)
    log_->push_back(app->end->name + " sends " + std::to_string(n) + ", " + std::to_string(taken) + " taken");
  PAIR_CHECK(taken <= n, app->end->name);
  PAIR_CHECK(!(writable && n == 1 && taken == 0), app->end->name);
  PAIR_CHECK(!(taken == 0 && engine.writable()), app->end->name);
  app->sent += taken;
  if (taken < n) app->write_blocked = true;
  return taken > 0;
}

bool Simulation::Read(App* app, const App& from) {
  if (app->sends_first && app->sent < app->to_send) return false;
  Engine& engine = app->end->engine;
  if (!app->sink.empty()) return AwaitSink(app, from);
  if (app->sink_moved && app->end->SinkResult()) app->sink_moved = false;
  if (engine.readable_bytes() == 0 && app->zcopy && !app->sink_moved && (Pick(4) != 0)) {
    const size_t n = 1 + (Pick(3) ? Pick(9000) : Pick(50));
    const SinkWish wish = engine.sink_wish(n);
    if (wish != SinkWish::kNothing || Pick(5) == 0) {
      app->sink.resize(n);
      std::vector<std::byte> question;
      if (app->asks && app->source.empty() && app->sent < app->to_send && engine.can_send())
        question.resize(std::min(app->to_send - app->sent, 1 + (Pick(3) ? Pick(30) : Pick(9000))));
      for (uint64_t i = 0; i < question.size(); ++i) question[i] = Pattern(app->direction, app->sent + i);
      if (app->end->OfferSink(app->sink, wish == SinkWish::kAdvertise || Pick(2), question)) {
        if (!question.empty()) app->sent += app->end->question_taken;
        return false;
      }
      app->sink.clear();
    }
  }
  if (goes_direct_ && Pick(2)) {
    std::vector<std::byte> data(1 + (Pick(2) ? Pick(100) : Pick(10000)));
    const size_t count = app->end->ReceiveDirect(*from.end, data);
    for (size_t i = 0; i < count; ++i)
      PAIR_CHECK(data[i] == Pattern(from.direction, app->read + i), app->end->name);
    app->read += count;
    went_direct_ += count != 0;
    if (count != 0) return true;
  }
  if (engine.readable_bytes() == 0 && engine.advertised_bytes() != 0 && Pick(2)) {
    app->end->ForceBcopy();
    return true;
  }
  if (app->read_blocked) {
    if (app->edge_triggered ? engine.read_edge() == app->read_edge : engine.readable_bytes() == 0)
      return false;
    app->read_blocked = false;
  }
  app->read_edge = engine.read_edge();
  const size_t n = 1 + (Pick(2) ? Pick(100) : Pick(10000));
  const bool peek = Pick(8) == 0;
  std::vector<std::byte> data(n);
  const size_t split = Pick(n + 1);
  const MutableBytes out[2] = {MutableBytes(data).first(split), MutableBytes(data).subspan(split)};
  const bool within = !peek && n < engine.readable_piece() && Pick(2) == 0;
  if (within) engine.ReceiveWithin(data);
  const size_t count = within ? n : engine.Receive(out, {peek});
  app->end->Drain();
  for (size_t i = 0; i < count; ++i)
    PAIR_CHECK(data[i] == Pattern(from.direction, app->read + i), app->end->name);
  if (!peek) app->read += count;
  if (count == 0) app->read_blocked = true;
  return count > 0 && !peek;
}

bool Simulation::Close(App* app) {
  Engine& engine = app->end->engine;
  if (app->closed || app->sent < app->to_send || !engine.can_send()) return false;
  if (app->lazy_close && !engine.end_of_stream()) return false;
  app->closed = true;
  if (log_ != nullptr) log_->push_back(app->end->name + " closes");
  app->end->CloseSend();
  return true;
}

bool Simulation::Deliver(End* from, End* to) {
  if (!from->deliverable()) return false;
  to->Deliver(*from, &random_);
  return true;
}

// The LLP's teardown by one end reaches the other behind all messages.
bool Simulation::EndLink(End* end, End* peer) {
  if (!peer->disconnected || !end->link_up) return false;
  if (!peer->flights.empty() && !peer->aborted_link) return false;
  if (log_ != nullptr) log_->push_back(end->name + " sees the link end");
  peer->flights.clear();
  end->LoseLink(!peer->aborted_link);
  return true;
}

bool Simulation::Step() {
  End& a = pair_->a;
  End& z = pair_->z;
  switch (Pick(12)) {
    case 0:
      return Write(&a_);
    case 1:
      return Write(&z_);
    case 2:
      return Read(&a_, z_);
    case 3:
      return Read(&z_, a_);
    case 4:
      return Close(&a_);
    case 5:
      return Close(&z_);
    case 6:
    case 7:
      return Deliver(&a, &z);
    case 8:
    case 9:
      return Deliver(&z, &a);
    case 10: {
      End& end = Pick(2) ? a : z;
      if (end.completions.empty()) return false;
      end.Complete();
      return true;
    }
    default:
      return Pick(2) ? EndLink(&a, &z) : EndLink(&z, &a);
  }
}

// Socket Duplication: each end asks for it now and then, both at once as well.
bool Simulation::Duplicate() {
  if (Pick(60) == 0) (Pick(2) ? pair_->a : pair_->z).Suspend(static_cast<uint16_t>(Pick(65536)));
  // Nobody is there any more to connect to.
  for (End* end : {&pair_->a, &pair_->z}) {
    End& peer = end == &pair_->a ? pair_->z : pair_->a;
    if (end->engine.suspended() && !end->link_up && peer.engine.state() == State::kAborted) end->Abort();
  }
  if (Pick(5) != 0 || !pair_->Reconnect(Pick(2) ? AckIn::kReply : AckIn::kSend)) return false;
  ++duplications_;
  return true;
}

bool Simulation::AppsDone() const { return pair_->a.engine.finished() && pair_->z.engine.finished(); }

void Simulation::Run() {
  int idle = 0;
  for (uint64_t step = 0; !AppsDone(); ++step) {
    PAIR_CHECK(step < 3'000'000, "the simulation does not end");
    if (Step()) {
      idle = 0;
    } else if (++idle > 6000) {
      break;  // nothing can move any more
    }
    // Requests without end would be answered without end: with both windows shut to the reserve nothing else
    // gets through (docs/wire.md).
    const bool asking = step < kMostStepsWithRequests;
    if (asking && change_modes_ && Pick(30) == 0) {
      End& end = Pick(2) ? pair_->a : pair_->z;
      if (end.link_up)
        end.engine.ChangeMode(Pick(2) ? Half::kSource : Half::kSink, static_cast<FlowMode>(Pick(3)));
      end.Drain();
    }
    if (prefer_ && Pick(30) == 0) (Pick(2) ? pair_->a : pair_->z).engine.PreferPipelined(Pick(2));
    if (asking && resize_ && Pick(40) == 0) {
      End& end = Pick(2) ? pair_->a : pair_->z;
      end.engine.AskPeerBufferSize(static_cast<uint32_t>(Pick(3000)));
      end.Drain();
    }
    if (suspend_) idle = Duplicate() ? 0 : idle;
    if (refreeze_ && Pick(20) == 0) (Pick(2) ? pair_->a : pair_->z).Refreeze();
    if (fate_ != Fate::kGraceful && !fate_came_ && step >= fate_step_) {
      fate_came_ = true;
      End& end = Pick(2) ? pair_->a : pair_->z;
      End& peer = &end == &pair_->a ? pair_->z : pair_->a;
      if (fate_ == Fate::kAbort) {
        if (log_ != nullptr) log_->push_back(end.name + " aborts");
        end.Abort();
      } else {
        if (log_ != nullptr) log_->push_back("the link breaks");
        end.flights.clear();
        peer.flights.clear();
        if (end.link_up) end.LoseLink(false);
        if (peer.link_up) peer.LoseLink(false);
      }
    }
  }
  Finish();
}

void Simulation::Finish() {
  Engine& a = pair_->a.engine;
  Engine& z = pair_->z.engine;
  for (App* app : {&a_, &z_}) {
    if (const auto result = app->end->SourceResult(); result && !app->moved) app->sent += result->bytes;
    if (const auto result = app->end->SinkResult(); result && !app->sink_moved) app->read += result->bytes;
  }
  for (const Engine* engine : {&a, &z}) {
    PAIR_CHECK(!IsViolation(engine->abort_reason()),
               ToString(engine->abort_reason()));  // what either saw of the other: MaxAdverts, credit, ...
  }
  if (fate_ != Fate::kGraceful) {
    // What was lost may not be mistaken for a graceful end.
    for (App* app : {&a_, &z_}) {
      const App& other = app == &a_ ? z_ : a_;
      Engine& engine = app->end->engine;
      if (engine.state() == State::kClosed)
        PAIR_CHECK(app->read <= other.sent && engine.end_of_stream(), app->end->name);
      PAIR_CHECK(engine.state() == State::kClosed || engine.state() == State::kAborted, app->end->name);
    }
    return;
  }
  PAIR_CHECK(a_.read == z_.to_send && z_.read == a_.to_send, "bytes are missing");
  PAIR_CHECK(a.state() == State::kClosed && z.state() == State::kClosed, "not closed");
  PAIR_CHECK(a.finished() && z.finished(), "not finished");
  PAIR_CHECK(a.end_of_stream() && z.end_of_stream(), "no end of stream");
}

// What all schedules have come to.
struct Sums {
  uint64_t duplications = 0;
  uint64_t enlarged = 0;
  uint64_t asking = 0;
  uint64_t direct = 0;
};

// Each seed, or the message of what failed with the last lines of its log.
std::optional<std::string> RunSeed(uint64_t seed, Sums* sums) {
  try {
    Simulation simulation(seed, nullptr);
    simulation.Run();
    sums->duplications += simulation.duplications();
    sums->enlarged += simulation.enlarged();
    sums->asking += simulation.asking();
    sums->direct += simulation.went_direct();
    return std::nullopt;
  } catch (const std::exception&) {
    // The same again, in words.
  }
  std::vector<std::string> log;
  std::string what = "passes when it is logged";
  try {
    Simulation(seed, &log).Run();
  } catch (const std::exception& e) {
    what = e.what();
  }
  const size_t from = log.size() > 4000 ? log.size() - 4000 : 0;
  for (size_t i = from; i < log.size(); ++i) std::cerr << log[i] << '\n';
  return what;
}

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("Simulation: every schedule gives the same stream and ends") {
  const uint64_t first = Setting("SDP_SIM_FIRST", 1);
  const uint64_t seeds = Setting("SDP_SIM_SEEDS", 20000);
  Sums sums;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const auto failure = RunSeed(seed, &sums);
    if (failure) FAIL("seed " << seed << ": " << *failure);
  }
  std::cout << seeds << " schedules from seed " << first << ", " << sums.duplications
            << " sockets duplicated, " << sums.enlarged << " times Private Buffers enlarged for a stream, "
            << sums.asking << " ends with Transactions, " << sums.direct << " messages direct\n";
  CHECK((seeds < 1000 || sums.enlarged != 0));
  CHECK((seeds < 1000 || sums.asking != 0));
  CHECK((seeds < 1000 || sums.direct != 0));
}

}  // namespace sdp::engine
