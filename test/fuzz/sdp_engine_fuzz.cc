// An engine, its application and its RNIC, all driven by the input; and a peer that says whatever the input
// says. Most messages get a right MSeq, MSeqAck and Len, so that they reach what is behind those checks.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <vector>

#include "core/engine/engine.h"
#include "core/wire/message.h"
#include "test/fuzz/sdp_engine_input.h"

namespace sdp::engine {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

class Harness {
 public:
  explicit Harness(Input* in)
      : in_(*in),
        start_(in->Byte()),
        role_(start_ % 2 ? Role::kConnecting : Role::kAccepting),
        engine_(role_, MakeOptions(in)) {}

  void Run() {
    SetUp();
    Drain();
    GoToStart();
    while (!in_.empty()) {
      Step();
      Drain();
    }
    // Whatever happened, an abort ends it and gives all memory back, but for what is read behind a refusal.
    Abort();
    Drain();
    engine_.HandleLinkEnd(false);
    Drain();
    CloseReceive();
    Drain();
    Require(engine_.finished() && lent_.empty());
    Require(!engine_.source_offered() && !engine_.sink_offered());
    TakeResults();
    Require(source_.empty() && sink_.empty());
  }

 private:
  static Options MakeOptions(Input* in) {
    Options o;
    o.receive_buffers = in->Byte() % 40;
    o.receive_buffer_size = 37 + in->Number() % 3000;
    o.receive_limit = in->Number() * 16;
    o.send_limit = in->Number() % 10000;
    const uint8_t adverts = in->Byte();
    o.max_adverts = adverts % 5;
    o.enlarge_remote = adverts & 128;
    o.receive_buffer_limit = adverts & 64 ? 5000 : 0;
    const uint8_t zcopy = in->Byte();
    o.read_zcopy = zcopy & 1;
    o.prefer_pipelined = o.follow_hints = zcopy & 2;
    o.source_threshold = zcopy & 4 ? 0 : 1000;
    o.sink_threshold = zcopy & 8 ? 0 : 1000;
    o.src_avail_payload = zcopy >> 4;
    o.read_size = zcopy & 16 ? 100 : 100000;
    return o;
  }

  void SetUp() {
    peer_bufs_ = static_cast<uint16_t>(in_.Byte() % 40);
    std::array<std::byte, wire::kMaxHeaderSize> bytes{};
    wire::Message message;
    message.bsdh.bufs = peer_bufs_;
    if (role_ == Role::kAccepting) {
      message.bsdh.len = kHelloSize;
      message.body =
          wire::Hello{.max_adverts = 3, .local_rcv_sz = 37 + in_.Number() % 5000, .loc_ird = 1, .loc_ord = 1};
      const size_t size = SerializeTo(message, bytes);
      if (!engine_.HandleHello(Bytes(bytes).first(size))) return;
      if (in_.Byte() % 2) {
        (void)engine_.HelloAck();
      } else {
        engine_.SendHelloAck();
      }
      return;
    }
    (void)engine_.Hello();
    if (in_.Byte() % 2) {
      (void)engine_.HandleReply({});
      return;
    }
    message.bsdh.len = kHelloAckSize;
    message.body =
        wire::HelloAck{.max_adverts = 3, .act_rcv_sz = 37 + in_.Number() % 5000, .loc_ird = 1, .loc_ord = 1};
    const size_t size = SerializeTo(message, bytes);
    (void)engine_.HandleReply(Bytes(bytes).first(size));
  }

  // The input's first byte chooses in which state and in which modes all begins; 0 and 1: as the handshake
  // left it.
  void GoToStart() {
    const auto say = [&](const wire::Body& body) {
      Say(body, 0);
      Drain();
    };
    const auto change = [&](Half half, FlowMode mode) {
      (void)engine_.ChangeMode(half, mode);
      Drain();
    };
    switch (start_ / 2 % 4) {  // our half as Data Source
      case 1:
        change(Half::kSource, FlowMode::kBuffered);
        break;
      case 2:
        change(Half::kSource, FlowMode::kPipelined);
        break;
      default:
        break;
    }
    switch (start_ / 8 % 4) {  // the peer's
      case 1:
        say(wire::ModeChange{.mode = wire::ModeChange::kBuffered, .receivers_source = false});
        break;
      case 2:
        say(wire::ModeChange{.mode = wire::ModeChange::kPipelined, .receivers_source = false});
        break;
      default:
        break;
    }
    switch (start_ / 32) {
      case 1:
        engine_.CloseSend();
        break;
      case 2:
        return say(wire::DisConn{});
      case 3:
        engine_.CloseSend();
        Drain();
        return say(wire::DisConn{});
      case 4:
        Abort();
        break;
      case 5:
        (void)engine_.Suspend(7);
        break;
      case 6:
        return say(wire::SuspComm{7});
      case 7:
        if (role_ == Role::kConnecting) {
          RefuseReceive();
        } else {
          CloseReceive();
        }
        break;
      default:
        break;
    }
    Drain();
  }

  void Step() {
    switch (in_.Byte() % 24) {
      case 16:
      case 17:
        Offer();
        return;
      case 18:
        TakeResults();
        return;
      case 19:
        switch (in_.Byte() % 4) {
          case 0:
            source_revoked_ = engine_.source_offered();
            engine_.RevokeSource();
            return;
          case 1:
            engine_.RevokeSink();
            return;
          default:
            engine_.ForceBcopy();
            return;
        }
      case 20:
      case 21:
        CompleteRdma();
        return;
      case 22:
      case 23:
        Say();
        return;
      case 0:
        Receive(in_.Rest(in_.Byte()));
        return;
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        Say();
        return;
      case 7:
      case 8:
        Send();
        return;
      case 9:
      case 10:
        Read();
        return;
      case 11:
        engine_.CloseSend();
        return;
      case 12:
        switch (in_.Byte() % 8) {
          case 0:
            Abort();
            return;
          case 1:
            engine_.HandleLinkEnd(in_.Byte() % 2);
            return;
          case 2:
            CloseReceive();
            return;
          case 3:
            Refreeze();
            return;
          case 4:
            (void)engine_.Suspend(in_.Byte());
            return;
          case 5:
            Resume();
            return;
          case 6:
            Command();
            return;
          default:
            engine_.SetOutOfBandInline(in_.Byte() % 2);
            return;
        }
      case 13:
        (void)engine_.ChangeMode(in_.Byte() % 2 ? Half::kSource : Half::kSink,
                                 static_cast<FlowMode>(in_.Byte() % 3));
        return;
      case 14:
        if (completions_.empty()) return;
        engine_.HandleSendCompleted(completions_.front());
        completions_.pop_front();
        return;
      default:
        (void)engine_.TakeOob({.peek = in_.Byte() % 2 == 1});
        return;
    }
  }

  void Command() {
    switch (in_.Byte() % 8) {
      case 0:
      case 1:
        (void)engine_.AskPeerBufferSize(in_.Number());
        return;
      case 2:
        MoveSource();
        return;
      case 3:
        RefuseReceive();
        return;
      case 4:
        MoveSink();
        return;
      case 5:
        engine_.PreferPipelined(in_.Byte() % 2);
        return;
      case 6:
        engine_.SetZcopyThreshold(in_.Number());
        return;
      default:
        engine_.SendUpdate();
        return;
    }
  }

  // What has come stays to be read, even behind an abort; nothing is added to it.
  void RefuseReceive() {
    const uint64_t kept = engine_.readable_bytes();
    engine_.RefuseReceive();
    Require(engine_.readable_bytes() == kept);
    if (!refuses_) most_readable_ = kept;
    refuses_ = true;
  }
  void CloseReceive() {
    engine_.CloseReceive();
    Require(engine_.readable_bytes() == 0);
    refuses_ = true;
    most_readable_ = 0;
  }
  void Abort() {
    const uint64_t kept = refuses_ ? engine_.readable_bytes() : 0;
    engine_.Abort(AbortReason::kLocal);
    Require(engine_.readable_bytes() == kept);
  }

  // The old memory is freed at once.
  void MoveSource() {
    if (!engine_.source_offered() || source_revoked_) return;
    std::vector<std::byte> copy = source_;
    engine_.MoveSource(copy);
    source_.swap(copy);
  }
  void MoveSink() {
    if (!engine_.sink_promised()) return;
    std::vector<std::byte> copy = sink_;
    Require(engine_.MoveSink(copy) <= copy.size());
    sink_.swap(copy);
  }

  void Offer() {
    const bool source = in_.Byte() % 2;
    if (!(source ? source_ : sink_).empty()) return;
    const size_t size = 1 + in_.Number() % 20000;
    Lend(source, size, !source && in_.Byte() % 2 == 1);
  }

  // Memory on loan is freed as soon as the engine gives it back.
  void Lend(bool source, size_t size, bool advertise) {
    auto& memory = source ? source_ : sink_;
    if (!memory.empty()) return;
    memory.resize(size);
    const bool taken =
        source ? engine_.OfferSource({.data = memory, .stag = STag(1), .va = 1000})
               : engine_.OfferSink({.data = memory, .stag = STag(1), .va = 1000, .advertise = advertise});
    Require(source || !taken || !refuses_);
    if (!taken) memory.clear();
    if (source) source_revoked_ = false;
    (void)engine_.wants_source(memory.size());
    (void)engine_.sink_wish(memory.size());
    (void)engine_.advertised_bytes();
  }

  void TakeResults() {
    if (const auto result = engine_.TakeSourceResult()) {
      Require(result->bytes <= source_.size());
      source_.clear();
      source_.shrink_to_fit();
    }
    if (const auto result = engine_.TakeSinkResult()) {
      Require(result->bytes <= sink_.size());
      sink_.clear();
      sink_.shrink_to_fit();
    }
  }

  void CompleteRdma() {
    if (!reads_.empty() && in_.Byte() % 2) {
      const PostRdmaRead read = reads_.front();
      reads_.pop_front();
      Require(sink_.empty() || read.local_va - 1000 + read.length <= sink_.size());
      engine_.HandleRdmaReadCompleted(read.id);
    } else if (!writes_.empty()) {
      const WorkId id = writes_.front();
      writes_.pop_front();
      engine_.HandleRdmaWriteCompleted(id);
    }
  }

  void Refreeze() {
    if (!engine_.freezable()) return;
    auto thawed = Engine::Thaw(engine_.Freeze());
    Require(thawed.has_value());
    engine_ = std::move(*thawed);
    lent_.clear();
  }

  // The session's next connection, if it has left one.
  void Resume() {
    const bool connects = engine_.suspended_port().has_value();
    engine_.HandleLinkEnd(true);
    Drain();
    TakeResults();
    const bool suspended = engine_.suspended();
    const bool resumed = engine_.Resume(in_.Byte(), in_.Byte());
    Require(!resumed || suspended);
    if (!resumed) return;
    role_ = connects ? Role::kConnecting : Role::kAccepting;
    lent_.clear();
    reads_.clear();
    writes_.clear();
    completions_.clear();
    mseq_ = sent_ = 0;
    SetUp();
  }

  void Say() {
    const wire::Body body = MakeBody(&in_);
    Say(body, in_.Byte());
  }
  void Say(const wire::Body& body, uint8_t spoil) {
    wire::Message message;
    message.body = body;
    message.bsdh.mseq = MSeq(spoil == 1 ? in_.Number() : mseq_++);
    message.bsdh.mseq_ack = MSeq(spoil == 2                                   ? in_.Number()
                                 : spoil >= 0x10 && spoil < 0x18 && sent_ > 1 ? sent_ - 2
                                 : sent_ == 0                                 ? 0
                                                                              : sent_ - 1);
    message.bsdh.bufs = spoil == 3 ? static_cast<uint16_t>(in_.Number()) : peer_bufs_;
    message.bsdh.flags = spoil & 0x80 ? in_.Byte() : 0;
    const Bytes payload = spoil & 0x40 ? in_.Rest(in_.Byte()) : Bytes();
    const size_t headers = message.header_size();
    message.bsdh.len = spoil == 4 ? in_.Number() : static_cast<uint32_t>(headers + payload.size());
    std::vector<std::byte> bytes(headers);
    SerializeTo(message, bytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    if (spoil >= 0x20 && spoil < 0x30) invalidated_ = STag(spoil & 1);
    if ((spoil & 0x08) == 0 || !ReceiveDirect(bytes)) Receive(bytes);
    invalidated_.reset();
  }

  bool ReceiveDirect(Bytes bytes) {
    if (invalidated_ || bytes.size() < kDataHeader) return false;
    const auto header = bytes.first<kDataHeader>();
    if (!engine_.may_receive_direct(header, static_cast<uint32_t>(bytes.size()))) return false;
    Require(engine_.readable_bytes() == 0);
    (void)engine_.ReceiveDirect(header);
    EndDirect();
    return true;
  }
  void EndDirect() {
    Action action;
    Require(engine_.state() == State::kAborted || engine_.due_after_direct() || !engine_.PollAction(&action));
  }

  void Receive(Bytes bytes) {
    const uint64_t token = next_token_++;
    std::vector<std::vector<std::byte>> memory;
    const size_t cut = bytes.empty() ? 0 : in_.Byte() % (bytes.size() + 1);
    memory.emplace_back(bytes.begin(), bytes.begin() + static_cast<long>(cut));
    memory.emplace_back(bytes.begin() + static_cast<long>(cut), bytes.end());
    const std::vector<Bytes> pieces(memory.begin(), memory.end());
    lent_[token] = std::move(memory);
    engine_.HandleReceive({.length = static_cast<uint32_t>(bytes.size()),
                           .pieces = pieces,
                           .token = token,
                           .cost = static_cast<uint32_t>(bytes.size()),
                           .invalidated = invalidated_});
  }

  void Send() {
    const size_t size = in_.Number() % 70000;
    const std::vector<std::byte> data(size);
    const Bytes pieces[2] = {Bytes(data).first(size / 3), Bytes(data).subspan(size / 3)};
    const uint8_t how = in_.Byte();
    if ((how & 24) == 24) Lend(false, 20000, true);  // 9.4: what is sent is a question
    const bool writable = engine_.writable();
    if ((how & 32) != 0 && engine_.may_send_direct(size)) {
      std::array<std::byte, kDataHeader> header;
      engine_.SendDirect(static_cast<uint32_t>(size), header);
      ++sent_;
      return EndDirect();
    }
    const size_t taken =
        engine_.Send(pieces, {how & 1 ? Buffering::kFull : Buffering::kSmall, (how & 6) == 6});
    Drain();  // before the memory goes
    Require(taken <= size);
    Require(!(writable && size == 1 && taken == 0));
    Require(!(size != 0 && taken == 0 && engine_.writable()));
  }

  void Read() {
    std::vector<std::byte> data(in_.Number() % 5000);
    const MutableBytes out(data);
    const uint64_t readable = engine_.readable_bytes();
    const size_t count = engine_.Receive({&out, 1}, {.peek = in_.Byte() % 4 == 0});
    Require(count <= readable);
    if (refuses_) most_readable_ = engine_.readable_bytes();
  }

  void Drain() {
    Require(engine_.IsConsistent());
    Require(refuses_ ? engine_.readable_bytes() <= most_readable_ : !engine_.refused_data());
    Action action;
    while (engine_.PollAction(&action)) {
      Require(engine_.IsConsistent());
      if (const auto* post = std::get_if<PostSend>(&action)) {
        std::vector<std::byte> bytes(post->header_bytes().begin(), post->header_bytes().end());
        for (const Bytes& piece : post->payload()) bytes.insert(bytes.end(), piece.begin(), piece.end());
        const auto message = wire::Parse(bytes, bytes.size());
        Require(message.has_value());
        Require(bytes.size() <= engine_.stats().remote_buffer_size);
        if (!std::holds_alternative<wire::HelloAck>(message->body)) {
          Require(message->bsdh.mseq.value() == sent_);
          ++sent_;
        }
        if (post->signaled) completions_.push_back(post->id);
      } else if (const auto* size = std::get_if<SetReceiveSize>(&action)) {
        Require(size->count >= 2);
        if (size->bytes % 4 == 3) engine_.HandleReceiveSizeRefused();
      } else if (const auto* read = std::get_if<PostRdmaRead>(&action)) {
        Require(!sink_.empty() && read->local_va - 1000 + read->length <= sink_.size());
        reads_.push_back(*read);
      } else if (const auto* write = std::get_if<PostRdmaWrite>(&action)) {
        Require(write->local.data() >= source_.data() &&
                write->local.data() + write->local.size() <= source_.data() + source_.size());
        writes_.push_back(write->id);
      } else if (const auto* release = std::get_if<ReleaseReceive>(&action)) {
        Require(lent_.erase(release->token) == 1);
      }
    }
    (void)engine_.stats();
    (void)engine_.finished();
  }

  Input& in_;
  const uint8_t start_;
  Role role_;
  Engine engine_;
  bool refuses_ = false;  // or reads no more
  uint64_t most_readable_ = 0;
  std::optional<STag> invalidated_;
  uint16_t peer_bufs_ = 0;
  uint32_t mseq_ = 0;
  uint32_t sent_ = 0;
  std::vector<std::byte> source_, sink_;
  bool source_revoked_ = false;
  std::deque<PostRdmaRead> reads_;
  std::deque<WorkId> writes_;
  std::deque<WorkId> completions_;
  std::map<uint64_t, std::vector<std::vector<std::byte>>> lent_;
  uint64_t next_token_ = 1;
};

}  // namespace
}  // namespace sdp::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sdp::engine::Input input(data, size);
  sdp::engine::Harness(&input).Run();
  return 0;
}
