#include "test/core/engine_pair.h"

#include <cstring>
#include <stdexcept>

namespace sdp::engine {

void Scribble(MutableBytes memory) { std::fill(memory.begin(), memory.end(), std::byte{0xee}); }

void PairFailed(const char* file, int line, const char* what, const std::string& who) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + who + ": " + what);
}

End::End(std::string the_name, Role role, const Options& the_options)
    : name(std::move(the_name)), options(the_options), engine(role, the_options) {
  posted = engine.stats().posted_receives;
  receive_size = engine.stats().local_buffer_size;
  posted_sizes.assign(posted, receive_size);
}

void End::Drain() {
  Action action;
  while (engine.PollAction(&action)) {
    if (const auto* post = std::get_if<PostSend>(&action)) {
      Post(*post);
    } else if (const auto* receives = std::get_if<PostReceives>(&action)) {
      PAIR_CHECK(link_up && receives->count > 0, name);
      posted += receives->count;
      posted_sizes.insert(posted_sizes.end(), receives->count, receive_size);
      // More only while a SrcAvailCancel holds MSeqAck back.
      PAIR_CHECK(posted - received <= options.receive_buffers + 256u, name);
    } else if (const auto* size = std::get_if<SetReceiveSize>(&action)) {
      PAIR_CHECK(link_up && size->bytes != receive_size && size->count >= 2, name);
      if (no_memory_for_sizes) {
        engine.HandleReceiveSizeRefused();
      } else {
        receive_size = size->bytes;
      }
    } else if (const auto* release = std::get_if<ReleaseReceive>(&action)) {
      const auto lent = lent_.find(release->token);
      PAIR_CHECK(lent != lent_.end(), name);
      GiveBack(std::move(lent->second));
      lent_.erase(lent);
    } else if (const auto* read = std::get_if<PostRdmaRead>(&action)) {
      PAIR_CHECK(link_up && !disconnected && read->length != 0, name);
      if (trace) trace(name + " -> RDMA Read of " + std::to_string(read->length));
      flights.push_back({.kind = Flight::Kind::kReadRequest,
                         .stag = read->remote_stag,
                         .va = read->remote_va,
                         .read = *read});
      ++reads_outstanding;
      PAIR_CHECK(reads_outstanding <= engine.ord(), name);
    } else if (const auto* write = std::get_if<PostRdmaWrite>(&action)) {
      PAIR_CHECK(link_up && !disconnected && !write->local.empty(), name);
      if (trace) trace(name + " -> RDMA Write of " + std::to_string(write->local.size()));
      flights.push_back({.kind = Flight::Kind::kWrite,
                         .stag = write->remote_stag,
                         .va = write->remote_va,
                         .read = {.id = write->id},
                         .source = write->local,
                         .taken = false});
      completions.push_back(write->id);
    } else if (std::holds_alternative<DisconnectLink>(action)) {
      PAIR_CHECK(link_up && !disconnected, name);
      if (trace) trace(name + " disconnects");
      disconnected = true;
    } else {
      PAIR_CHECK(link_up && !aborted_link, name);
      if (trace) trace(name + " aborts the link");
      disconnected = aborted_link = true;
    }
  }
  PAIR_CHECK(engine.IsConsistent(), name);
  const State state = engine.state();
  PAIR_CHECK(!engine.finished() || state == State::kClosed || state == State::kAborted, name);
  PAIR_CHECK(!engine.finished() || lent_.empty(), name);
}

// Not freed at once, so that a late look at it finds the rubbish.
void End::GiveBack(Lent memory) {
  for (auto& piece : memory) Scribble(piece);
  given_back_.push_back(std::move(memory));
  if (given_back_.size() > 64) given_back_.pop_front();
}

void End::Post(const PostSend& post) {
  PAIR_CHECK(link_up && !disconnected, name);
  Flight flight;
  flight.solicited = post.solicited;
  const auto header = post.header_bytes();
  flight.bytes.assign(header.begin(), header.end());
  for (const Bytes& piece : post.payload())
    flight.bytes.insert(flight.bytes.end(), piece.begin(), piece.end());
  const auto message = wire::Parse(flight.bytes, flight.bytes.size());
  PAIR_CHECK(message.has_value(), name);
  if (trace) trace(name + " -> " + ToString(*message));
  if (std::holds_alternative<wire::HelloAck>(message->body)) {
    PAIR_CHECK(sent == 0 && !hello_ack_sent, name);
    hello_ack_sent = true;
  } else {
    PAIR_CHECK(message->bsdh.mseq.value() == static_cast<uint32_t>(sent), name);
    ++sent;
  }
  PAIR_CHECK(message->bsdh.bufs == posted - received, name);  // 6.1.3
  // 14.2
  const bool data_flags = (message->bsdh.flags & (wire::kOobPend | wire::kOobPres)) != 0;
  bool solicited = false;
  switch (message->bsdh.mid) {
    case wire::Mid::kAbortConn:
    case wire::Mid::kSuspComm:
    case wire::Mid::kSuspCommAck:
    case wire::Mid::kSendSm:
    case wire::Mid::kHelloAck:
    case wire::Mid::kSinkCancelAck:
    case wire::Mid::kSrcAvailCancel:
    case wire::Mid::kSinkAvailCancel:
    case wire::Mid::kRdmaRdCompl:
    case wire::Mid::kRdmaWrCompl:
      solicited = true;
      break;
    case wire::Mid::kData:
      solicited = data_flags;
      break;
    default:
      break;
  }
  PAIR_CHECK(post.solicited == solicited, name);
  const bool completes =
      message->bsdh.mid == wire::Mid::kRdmaRdCompl || message->bsdh.mid == wire::Mid::kRdmaWrCompl;
  const uint8_t allowed = wire::kOobPend | wire::kOobPres | (completes ? wire::kReqPipe : 0);
  PAIR_CHECK((message->bsdh.flags & ~allowed) == 0, name);  // 6.1.2
  PAIR_CHECK(!post.invalidate || completes, name);
  flight.invalidate = post.invalidate;
  flights.push_back(std::move(flight));
  if (post.signaled) completions.push_back(post.id);
}

void End::Deliver(End& peer, std::mt19937_64* random) {
  PAIR_CHECK(peer.deliverable(), name);
  Flight flight = std::move(peer.flights.front());
  peer.flights.pop_front();
  if (!link_up || aborted_link) return;
  // After an abort its buffers are given back at once: the RNIC refuses what still comes for them, and the
  // stream ends.
  if (flight.kind != Flight::Kind::kSend && engine.state() == State::kAborted) return;
  switch (flight.kind) {
    case Flight::Kind::kSend:
      break;
    case Flight::Kind::kWrite:
      std::copy(flight.bytes.begin(), flight.bytes.end(),
                Access(flight.stag, flight.va, flight.bytes.size(), &Region::remote_write).begin());
      return;
    case Flight::Kind::kReadRequest: {
      if (disconnected) return;
      const Bytes bytes = Access(flight.stag, flight.va, flight.read.length, &Region::remote_read);
      flights.push_back(
          {.bytes = {bytes.begin(), bytes.end()}, .kind = Flight::Kind::kReadResponse, .read = flight.read});
      return;
    }
    case Flight::Kind::kReadResponse:
      std::copy(flight.bytes.begin(), flight.bytes.end(),
                Access(flight.read.local_stag, flight.read.local_va, flight.bytes.size(), nullptr).begin());
      --reads_outstanding;
      if (trace) trace(name + " has read " + std::to_string(flight.bytes.size()));
      engine.HandleRdmaReadCompleted(flight.read.id);
      Drain();
      return;
  }
  auto bytes = std::move(flight.bytes);
  if (flight.invalidate && regions.erase(flight.invalidate->value()) == 0) {
    PAIR_CHECK(engine.state() == State::kAborted, name);
    return;
  }
  PAIR_CHECK(posted > received, name);  // the virtual RNIC has a buffer for it
  PAIR_CHECK(bytes.size() <= posted_sizes.front(), name);
  Receive(std::move(bytes), random, flight.invalidate);
}

MutableBytes End::Access(STag stag, uint64_t va, size_t size, bool Region::*right) {
  const auto it = regions.find(stag.value());
  PAIR_CHECK(it != regions.end(), name);
  const Region& region = it->second;
  PAIR_CHECK(right == nullptr || region.*right, name);
  PAIR_CHECK(va >= region.va && va - region.va <= region.memory.size() &&
                 size <= region.memory.size() - (va - region.va),
             name);
  return region.memory.subspan(va - region.va, size);
}

bool End::OfferSource(MutableBytes data) {
  const STag stag(next_stag_++);
  const uint64_t va = uint64_t{next_stag_} << 20;
  if (!engine.OfferSource({.data = data, .stag = stag, .va = va})) return false;
  source_stag = stag;
  source_memory_ = data;
  source_revoked_ = false;
  regions[source_stag.value()] = {.memory = data, .va = va, .remote_read = true};
  if (trace) trace(name + " offers to send " + std::to_string(data.size()));
  Drain();
  return true;
}

bool End::OfferSink(MutableBytes data, bool advertise, Bytes question) {
  sink_stag = STag(next_stag_++);
  const uint64_t va = uint64_t{next_stag_} << 20;
  if (!engine.OfferSink({.data = data, .stag = sink_stag, .va = va, .advertise = advertise})) return false;
  regions[sink_stag.value()] = {.memory = data, .va = va, .remote_write = advertise};
  if (trace)
    trace(name + " offers to receive " + std::to_string(data.size()) + (advertise ? ", advertised" : ""));
  if (!question.empty()) question_taken = engine.Send({&question, 1}, {.buffering = Buffering::kFull});
  Drain();
  return true;
}

std::optional<OfferResult> End::SourceResult() {
  const auto result = engine.TakeSourceResult();
  if (result) {
    if (trace) trace(name + " has sent " + std::to_string(result->bytes));
    for (const Flight& flight : flights) {
      const bool reads_it = flight.kind == Flight::Kind::kWrite && !flight.taken;
      PAIR_CHECK(!reads_it || engine.state() == State::kAborted,
                 name);  // an RDMA Write that has not read it yet
    }
    const bool known = regions.erase(source_stag.value()) != 0;
    // What comes after an abort is not looked at.
    PAIR_CHECK(known != result->invalidated || !link_up || engine.state() == State::kAborted, name);
  }
  return result;
}

std::optional<OfferResult> End::SinkResult() {
  const auto result = engine.TakeSinkResult();
  if (result) {
    if (trace) trace(name + " has received " + std::to_string(result->bytes));
    PAIR_CHECK(reads_outstanding == 0 || !link_up || engine.state() == State::kAborted,
               name);  // RDMA Reads into it
    const bool known = regions.erase(sink_stag.value()) != 0;
    // What comes after an abort is not looked at.
    PAIR_CHECK(known != result->invalidated || !link_up || engine.state() == State::kAborted, name);
  }
  return result;
}

bool End::MoveSource() {
  if (!engine.source_offered() || source_revoked_) return false;
  const MutableBytes old = source_memory_;
  moved_.assign(old.begin(), old.end());
  for (Flight& flight : flights) {
    if (flight.kind != Flight::Kind::kWrite || flight.taken) continue;
    flight.source =
        Bytes(moved_).subspan(static_cast<size_t>(flight.source.data() - old.data()), flight.source.size());
  }
  const auto region = regions.find(source_stag.value());
  if (region != regions.end()) region->second.memory = moved_;
  engine.MoveSource(moved_);
  Scribble(old);  // its owner has it back
  if (trace) trace(name + " goes on from a copy of its send buffer");
  Drain();
  return true;
}

std::optional<uint64_t> End::MoveSink() {
  if (!engine.sink_promised()) return std::nullopt;
  Region& region = regions.at(sink_stag.value());
  moved_sink_.assign(region.memory.begin(), region.memory.end());
  const MutableBytes old = std::exchange(region.memory, MutableBytes(moved_sink_));
  const uint64_t filled = engine.MoveSink(moved_sink_);
  PAIR_CHECK(filled <= old.size(), name);
  Scribble(old.subspan(filled));
  if (trace)
    trace(name + " goes on with another receive buffer, " + std::to_string(filled) + " bytes in the old");
  Drain();
  return filled;
}

void End::RevokeSource() {
  source_revoked_ = engine.source_offered();
  engine.RevokeSource();
  if (trace) trace(name + " wants its send buffer back");
  Drain();
}

void End::RevokeSink() {
  engine.RevokeSink();
  if (trace) trace(name + " wants its receive buffer back");
  Drain();
}

void End::ForceBcopy() {
  engine.ForceBcopy();
  Drain();
}

void End::Receive(std::vector<std::byte> bytes, std::mt19937_64* random, std::optional<STag> invalidated) {
  std::vector<std::vector<std::byte>> memory;
  const size_t length = bytes.size();
  size_t at = 0;
  while (random != nullptr && memory.size() < 7 && at < length && (*random)() % 3 == 0) {
    const size_t n = (*random)() % (length - at) + 1;
    memory.emplace_back(bytes.begin() + static_cast<long>(at), bytes.begin() + static_cast<long>(at + n));
    at += n;
  }
  if (at < length) memory.emplace_back(bytes.begin() + static_cast<long>(at), bytes.end());
  std::vector<Bytes> pieces(memory.begin(), memory.end());
  ++received;
  if (!posted_sizes.empty()) posted_sizes.pop_front();
  const uint64_t token = next_token_++;
  lent_[token] = std::move(memory);
  const ReceivedMessage message{.length = static_cast<uint32_t>(length),
                                .pieces = pieces,
                                .token = token,
                                .cost = static_cast<uint32_t>(length) + 64,
                                .invalidated = invalidated};
  if (trace) trace(name + " receives " + std::to_string(length) + " bytes");
  engine.HandleReceive(message);
  Drain();
}

void End::Complete() {
  const WorkId id = completions.front();
  completions.pop_front();
  for (Flight& flight : flights) {
    if (flight.kind != Flight::Kind::kWrite || flight.read.id != id) continue;
    flight.bytes.assign(flight.source.begin(), flight.source.end());
    flight.taken = true;
    engine.HandleRdmaWriteCompleted(id);
    Drain();
    return;
  }
  engine.HandleSendCompleted(id);
  Drain();
}

size_t End::Send(std::span<const Bytes> data, SendFlags flags) {
  const size_t n = engine.Send(data, flags);
  Drain();
  return n;
}

size_t End::Send(const std::string& text, SendFlags flags) {
  // A copy that dies with this call: nothing may refer to it afterwards.
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(text.data()),
                                    reinterpret_cast<const std::byte*>(text.data()) + text.size());
  const Bytes piece(copy);
  return Send({&piece, 1}, flags);
}

void End::EndDirect() {
  if (!engine.due_after_direct()) {
    Action action;
    PAIR_CHECK(!engine.PollAction(&action), name);
  }
  Drain();
}

bool End::SendDirect(std::span<const Bytes> data) {
  size_t total = 0;
  for (const Bytes& piece : data) total += piece.size();
  if (data.size() > kMaxPayloadPieces || !engine.may_send_direct(total)) return false;
  PostSend post{.header_size = kDataHeader, .piece_count = static_cast<uint8_t>(data.size())};
  std::copy(data.begin(), data.end(), post.pieces.begin());
  engine.SendDirect(static_cast<uint32_t>(total), std::span(post.header).first<kDataHeader>());
  Post(post);
  EndDirect();
  return true;
}

size_t End::ReceiveDirect(End& peer, MutableBytes room) {
  if (!link_up || aborted_link || !peer.deliverable()) return 0;
  const Flight& flight = peer.flights.front();
  if (flight.kind != Flight::Kind::kSend || flight.invalidate || flight.bytes.size() < kDataHeader) return 0;
  const auto header = Bytes(flight.bytes).first<kDataHeader>();
  const size_t size = flight.bytes.size() - kDataHeader;
  if (size > room.size() || !engine.may_receive_direct(header, static_cast<uint32_t>(flight.bytes.size())))
    return 0;
  PAIR_CHECK(posted > received && flight.bytes.size() <= posted_sizes.front(), name);
  ++received;
  posted_sizes.pop_front();
  const uint32_t receives = engine.ReceiveDirect(header);
  std::copy(flight.bytes.begin() + kDataHeader, flight.bytes.end(), room.begin());
  posted += receives;
  posted_sizes.insert(posted_sizes.end(), receives, receive_size);
  if (trace) trace(name + " receives " + std::to_string(size) + " bytes directly");
  peer.flights.pop_front();
  EndDirect();
  return size;
}

std::string End::Read(size_t size, ReceiveFlags flags) {
  std::string text(size, '\0');
  const MutableBytes piece(reinterpret_cast<std::byte*>(text.data()), size);
  text.resize(engine.Receive({&piece, 1}, flags));
  Drain();
  return text;
}

void End::CloseSend() {
  engine.CloseSend();
  Drain();
}

void End::CloseReceive() {
  engine.CloseReceive();
  Drain();
}

void End::Abort() {
  engine.Abort(AbortReason::kLocal);
  Drain();
}

void End::LoseLink(bool orderly) {
  link_up = false;
  completions.clear();
  engine.HandleLinkEnd(orderly);
  Drain();
}

bool End::Refreeze() {
  if (!engine.freezable()) return false;
  auto thawed = Engine::Thaw(engine.Freeze());
  PAIR_CHECK(thawed.has_value(), name);
  engine = std::move(*thawed);
  lent_.clear();
  if (trace) trace(name + " is frozen and thawed");
  Drain();
  return true;
}

bool End::Suspend(uint16_t port) {
  const bool taken = engine.Suspend(port);
  if (taken && trace) trace(name + " suspends");
  Drain();
  return taken;
}

bool End::Resume() {
  if (!engine.Resume(options.ird, options.ord)) return false;
  if (trace) trace(name + " goes on over another link");
  PAIR_CHECK(regions.empty() && completions.empty() && reads_outstanding == 0, name);
  lent_.clear();
  link_up = true;
  disconnected = aborted_link = hello_ack_sent = false;
  posted = engine.stats().posted_receives;
  received = sent = 0;
  receive_size = engine.stats().local_buffer_size;
  posted_sizes.assign(posted, receive_size);
  return true;
}

wire::Message End::Peek() const {
  PAIR_CHECK(flights.front().kind == Flight::Kind::kSend, name);
  return *wire::Parse(flights.front().bytes, flights.front().bytes.size());
}
std::string End::Text() const {
  if (flights.empty()) return "nothing";
  const Flight& flight = flights.front();
  switch (flight.kind) {
    case Flight::Kind::kSend:
      return ToString(Peek());
    case Flight::Kind::kWrite:
      return "RdmaWrite len=" + std::to_string(flight.source.size());
    case Flight::Kind::kReadRequest:
      return "RdmaRead len=" + std::to_string(flight.read.length);
    case Flight::Kind::kReadResponse:
      return "RdmaReadResponse";
  }
  return "?";
}

EnginePair::EnginePair(const Options& a_options, const Options& z_options, AckIn ack)
    : a("a", Role::kConnecting, a_options), z("z", Role::kAccepting, z_options) {
  SetUp(&a, &z, ack);
}

void EnginePair::SetUp(End* connecting, End* accepting, AckIn ack) {
  const auto hello = connecting->engine.Hello();
  PAIR_CHECK(accepting->engine.HandleHello(hello).has_value(), "set-up");
  if (ack == AckIn::kReply) {
    const auto hello_ack = accepting->engine.HelloAck();
    PAIR_CHECK(connecting->engine.HandleReply(hello_ack).has_value(), "set-up");
  } else {
    PAIR_CHECK(connecting->engine.HandleReply({}).has_value(), "set-up");
    accepting->engine.SendHelloAck();
  }
  connecting->Drain();
  accepting->Drain();
}

bool EnginePair::Reconnect(AckIn ack) {
  if (!a.engine.suspended() || !z.engine.suspended()) return false;
  End& remote = a.engine.suspended_port() ? a : z;
  End& local = &remote == &a ? z : a;
  PAIR_CHECK(!local.engine.suspended_port(), local.name);
  PAIR_CHECK(a.flights.empty() && z.flights.empty(), "something follows SuspComm or SuspCommAck");
  if (remote.link_up) remote.LoseLink(true);
  if (local.link_up) local.LoseLink(true);
  if (!remote.engine.freezable() || !local.engine.freezable()) return false;
  PAIR_CHECK(remote.Resume() && local.Resume(), "resume");
  SetUp(&remote, &local, ack);
  return true;
}

size_t EnginePair::Settle(size_t limit) {
  size_t count = 0;
  while (!a.flights.empty() || !z.flights.empty() || !a.completions.empty() || !z.completions.empty()) {
    if (a.deliverable()) z.Deliver(a, nullptr), ++count;
    if (z.deliverable()) a.Deliver(z, nullptr), ++count;
    if (!a.completions.empty()) a.Complete();
    if (!z.completions.empty()) z.Complete();
    PAIR_CHECK(count <= limit, "settle");
  }
  return count;
}

}  // namespace sdp::engine
