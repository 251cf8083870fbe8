// Connection set-up (SDP 8.1.1): what our Hello and HelloAck contain, and what we require of the peer's.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/engine/engine.h"
#include "core/engine/rep.h"

namespace sdp::engine {
namespace {

Result<wire::Message, AbortReason> ParseHandshake(Bytes bytes) {
  if (bytes.size() < wire::Bsdh::kSize) return unexpected(AbortReason::kShortMessage);
  // A connection manager may pad private data: Len gives the end of the message.
  const uint32_t len = wire::Bsdh::Parse(bytes.first<wire::Bsdh::kSize>()).len;
  auto message = wire::Parse(bytes, std::min<uint64_t>(len, bytes.size()));
  if (!message) return unexpected(ReasonFor(message.error()));
  return *message;
}

// The checks for Hello and HelloAck alike: 8.1.1, 3a and 7a; 10.3; 10, constraint 4.
AbortReason CheckPeer(uint8_t maj_v, uint16_t max_adverts, uint16_t ird, uint16_t ord, uint16_t bufs,
                      uint32_t rcv_sz) {
  if (maj_v != wire::kMajorVersion) return AbortReason::kBadVersion;
  if (max_adverts == 0) return AbortReason::kBadMaxAdverts;
  if (ird == 0 || ord == 0) return AbortReason::kBadIrdOrd;
  if (bufs < 3) return AbortReason::kTooFewBuffers;
  if (rcv_sz < wire::kMinPrivateBuffer || rcv_sz > wire::kMaxSize) return AbortReason::kBadBufferSize;
  return AbortReason::kNone;
}

Options MakeLegal(Options options) {
  options.receive_buffers = std::max<uint16_t>(options.receive_buffers, 3);
  options.receive_buffer_size =
      std::clamp(options.receive_buffer_size, wire::kMinPrivateBuffer, wire::kMaxSize);
  options.receive_buffer_limit =
      std::clamp(options.receive_buffer_limit, options.receive_buffer_size, wire::kMaxSize);
  const uint64_t three = uint64_t{3} * options.receive_buffer_size;
  options.receive_limit =
      static_cast<uint32_t>(std::clamp<uint64_t>(three, options.receive_limit, UINT32_MAX));
  options.send_limit = std::max<uint32_t>(options.send_limit, 1);
  options.max_adverts = std::max<uint16_t>(options.max_adverts, 1);
  options.ird = std::max<uint16_t>(options.ird, 1);
  options.ord = std::max<uint16_t>(options.ord, 1);
  return options;
}

}  // namespace

Rep::Rep(Role the_role, const Options& the_options)
    : role(the_role),
      options(MakeLegal(the_options)),
      ord(options.ord),
      credit(role),
      source(options.send_limit),
      sink(options),
      adverts(options.max_adverts, options.read_zcopy),
      resizing(options.receive_buffer_size) {
  credit.SetPosted(sink.PostedTarget());
}

std::array<std::byte, kHelloSize> Rep::Hello() {
  SDP_CHECK(role == Role::kConnecting);
  hello_done = true;
  wire::Message message;
  message.bsdh.bufs = static_cast<uint16_t>(credit.posted());
  message.bsdh.len = kHelloSize;
  message.body = wire::Hello{.max_adverts = options.max_adverts,
                             .des_rem_rcv_sz = std::min(options.desired_remote_size, wire::kMaxSize),
                             .local_rcv_sz = options.receive_buffer_size,
                             .loc_ird = options.ird,
                             .loc_ord = options.ord};
  std::array<std::byte, kHelloSize> bytes;
  wire::SerializeTo(message, bytes);
  return bytes;
}

Result<void, AbortReason> Rep::HandleHello(Bytes bytes) {
  SDP_CHECK(role == Role::kAccepting && !hello_done);
  const auto refuse = [this](AbortReason reason) {
    Fail(reason);
    return unexpected(reason);
  };
  const auto message = ParseHandshake(bytes);
  if (!message) return refuse(message.error());
  const auto* hello = std::get_if<wire::Hello>(&message->body);
  if (hello == nullptr) return refuse(AbortReason::kUnexpectedMid);
  if (const auto reason = CheckPeer(hello->maj_v, hello->max_adverts, hello->loc_ird, hello->loc_ord,
                                    message->bsdh.bufs, hello->local_rcv_sz);
      reason != AbortReason::kNone) {
    return refuse(reason);
  }
  hello_done = true;
  peer_max_adverts = hello->max_adverts;
  peer_buffer_size = hello->local_rcv_sz;
  minor_version = std::min(hello->min_v, wire::kMinorVersion);  // 8.1.1, 3b
  ord = std::min(options.ord, hello->loc_ird);                  // 8.1.1, 4e
  credit.SetPeerBufs(message->bsdh.bufs);
  return {};
}

std::array<std::byte, kHelloAckSize> Rep::HelloAck() {
  SDP_CHECK(role == Role::kAccepting && hello_done);
  wire::Message message;
  message.bsdh.bufs = static_cast<uint16_t>(credit.posted());
  message.bsdh.len = kHelloAckSize;
  message.body = wire::HelloAck{.max_adverts = options.max_adverts,
                                .act_rcv_sz = options.receive_buffer_size,
                                .loc_ird = options.ird,
                                .loc_ord = ord};
  std::array<std::byte, kHelloAckSize> bytes;
  wire::SerializeTo(message, bytes);
  return bytes;
}

AbortReason Rep::HandleHelloAck(const wire::Message& message) {
  const auto* ack = std::get_if<wire::HelloAck>(&message.body);
  if (ack == nullptr) return AbortReason::kUnexpectedMid;
  if (const auto reason = CheckPeer(ack->maj_v, ack->max_adverts, ack->loc_ird, ack->loc_ord,
                                    message.bsdh.bufs, ack->act_rcv_sz);
      reason != AbortReason::kNone) {
    return reason;
  }
  peer_max_adverts = ack->max_adverts;
  peer_buffer_size = ack->act_rcv_sz;
  minor_version = std::min(ack->min_v, wire::kMinorVersion);  // 8.1.1, 7b
  ord = std::min(options.ord, ack->loc_ird);                  // 8.1.1, 7d
  credit.SetPeerBufs(message.bsdh.bufs);
  Establish();
  return AbortReason::kNone;
}

void Rep::Establish() {
  established = true;
  pipelined_due = options.begin_pipelined;
  if (role == Role::kConnecting) BeginPipelined();
}

void Rep::BeginPipelined() {
  if (!std::exchange(pipelined_due, false)) return;
  (void)modes.Request(Half::kSource, FlowMode::kPipelined, credit.acknowledged());
}

// --- the façade's part

std::array<std::byte, kHelloSize> Engine::Hello() {
  const auto bytes = rep_->Hello();
  rep_->End();
  return bytes;
}

Result<void, AbortReason> Engine::HandleHello(Bytes hello) {
  auto result = rep_->HandleHello(hello);
  rep_->End();
  return result;
}

std::array<std::byte, kHelloAckSize> Engine::HelloAck() {
  const auto bytes = rep_->HelloAck();
  rep_->Establish();
  rep_->End();
  return bytes;
}

void Engine::SendHelloAck() {
  SDP_CHECK(rep_->role == Role::kAccepting && rep_->hello_done);
  rep_->hello_ack_due = true;
  rep_->Establish();
  rep_->End();
}

void Engine::SendUpdate() {
  rep_->update_asked = true;
  rep_->End();
}

Result<void, AbortReason> Engine::HandleReply(Bytes private_data) {
  SDP_CHECK(rep_->role == Role::kConnecting && rep_->hello_done && !rep_->established);
  if (private_data.empty()) return {};
  const auto message = ParseHandshake(private_data);
  const AbortReason reason = message ? rep_->HandleHelloAck(*message) : message.error();
  if (reason != AbortReason::kNone) rep_->Fail(reason);
  rep_->End();
  if (reason != AbortReason::kNone) return unexpected(reason);
  return {};
}

}  // namespace sdp::engine
