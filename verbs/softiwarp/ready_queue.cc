#include "verbs/softiwarp/ready_queue.h"

#include <utility>

namespace sdp::iwarp {
namespace {

static_assert(verbs::kMaxPieces == kMaxMessagePieces);

// A token is 0, or the address of the only piece's chunk with the length above it, or the address of a
// ScatteredMessage with the lowest bit set.
constexpr int kAddressBits = 48;
constexpr uint64_t kScatteredBit = 1;
constexpr uint32_t kLongestInToken = (1u << (64 - kAddressBits)) - 1;
static_assert(sizeof(void*) == 8 && alignof(Chunk) > kScatteredBit);

}  // namespace

void ReadyQueue::PushWork(WorkId id, verbs::Opcode opcode, verbs::Status status, uint32_t length) {
  ready_.PushBack({.id = id,
                   .opcode = opcode,
                   .status = status,
                   .solicited = false,
                   .invalidates = false,
                   .length = length,
                   .invalidated = {},
                   .data = nullptr,
                   .token = 0});
}

void ReadyQueue::PushMessage(const ReceivedMessage& message) {
  Ready ready{.id = {},
              .opcode = verbs::Opcode::kReceive,
              .status = verbs::Status::kSuccess,
              .solicited = message.end.solicited,
              .invalidates = message.end.invalidate.has_value(),
              .length = message.end.length,
              .invalidated = message.end.invalidate.value_or(STag()),
              .data = message.body.count > 0 ? message.body.pieces[0].data : nullptr,
              .token = MakeToken(message.body)};
  ready_.PushBack(ready);
}

bool ReadyQueue::Poll(verbs::Completion* out) {
  if (ready_.empty()) return false;
  const Ready& r = ready_.front();
  out->opcode = r.opcode;
  out->status = r.status;
  out->id = r.id;
  out->length = r.length;
  out->solicited = r.solicited;
  out->invalidated.reset();
  if (r.invalidates) out->invalidated = r.invalidated;
  out->token = verbs::ReceiveToken(r.token);
  out->piece_count = 0;
  if ((r.token & kScatteredBit) != 0) {
    const AssembledMessage& body = reinterpret_cast<const ScatteredMessage*>(r.token - kScatteredBit)->body;
    for (size_t i = 0; i < body.count; ++i)
      out->pieces[i] = Bytes(body.pieces[i].data, body.pieces[i].length);
    out->piece_count = body.count;
  } else if (r.data != nullptr) {
    out->pieces[0] = Bytes(r.data, r.length);
    out->piece_count = 1;
  }
  ready_.PopFront();
  return true;
}

void ReadyQueue::Release(verbs::ReceiveToken token, ReceiveStream& stream) {
  const uint64_t value = token.value();
  if (value == 0) return;
  if ((value & kScatteredBit) == 0) {
    stream.Release({.length = static_cast<uint32_t>(value >> kAddressBits),
                    .chunk = reinterpret_cast<Chunk*>(value & ((uint64_t{1} << kAddressBits) - 1))});
    return;
  }
  auto* message = reinterpret_cast<ScatteredMessage*>(value - kScatteredBit);
  for (size_t i = 0; i < message->body.count; ++i) stream.Release(message->body.pieces[i]);
  message->next = spare_;
  spare_ = message;
}

uint64_t ReadyQueue::MakeToken(const AssembledMessage& body) {
  if (body.count == 0) return 0;
  const Piece& first = body.pieces[0];
  if (body.count == 1 && first.length <= kLongestInToken)
    return reinterpret_cast<uint64_t>(first.chunk) | static_cast<uint64_t>(first.length) << kAddressBits;
  ScatteredMessage* scattered = TakeScattered();
  scattered->body = body;
  return reinterpret_cast<uint64_t>(scattered) | kScatteredBit;
}

ReadyQueue::ScatteredMessage* ReadyQueue::TakeScattered() {
  if (spare_ == nullptr) return scattered_.emplace_back(std::make_unique<ScatteredMessage>()).get();
  return std::exchange(spare_, spare_->next);
}

}  // namespace sdp::iwarp
