// A queue pair as bytes and back: magic number, version, construction parameters, then the state of its
// parts. The reader is the same build of the library in another process, so it knows or refuses the version.
#include <algorithm>

#include "core/base/archive.h"
#include "core/base/check.h"
#include "verbs/softiwarp/proto/freeze.h"
#include "verbs/softiwarp/soft_qp.h"

namespace sdp::iwarp {
namespace {

constexpr uint32_t kMagic = 0x53515031;  // "SQP1"
constexpr uint16_t kVersion = 2;
constexpr uint32_t kLongestText = 4096;

}  // namespace

struct FrozenQp {
  template <typename Archive>
  static void Visit(Archive& ar, verbs::LinkCause& c) {
    ar.Enum(c.end, verbs::LinkEnd::kFailed);
    ar.Flag(c.local);
    ar.Number(c.layer);
    ar.Number(c.etype);
    ar.Number(c.ecode);
    auto os_error = static_cast<uint32_t>(c.os_error);
    ar.Number(os_error);
    c.os_error = static_cast<int>(os_error);
    auto size = static_cast<uint32_t>(std::min<size_t>(c.text.size(), kLongestText));
    ar.Number(size);
    ar.Require(size <= kLongestText);
    if constexpr (Archive::kReads) c.text.resize(ar.ok() ? size : 0);
    ar.Octets(std::as_writable_bytes(std::span(c.text.data(), std::min<size_t>(c.text.size(), size))));
  }

  template <typename Archive>
  static void Visit(Archive& ar, SoftQp& q) {
    ar.Flag(q.send_open_);
    ar.Flag(q.facts_.send_failed);
    ar.Flag(q.read_ended_);
    ar.Flag(q.link_full_);
    ar.Enum(q.ending_, SoftQp::Ending::kFinSent);
    Visit(ar, q.facts_.cause);
    Frozen::Visit(ar, q.buffers_);
    if (!ar.ok()) return;
    Frozen::Visit(ar, q.stream_, q.read_ended_);
    if (!ar.ok()) return;
    Frozen::Visit(ar, q.send_queue_);
    for (uint64_t* counter : {&q.counters_.bytes_in, &q.counters_.bytes_out, &q.counters_.read_calls,
                              &q.counters_.write_calls, &q.counters_.copied_out}) {
      ar.Number(*counter);
    }
  }
};

bool PortableAbility::freezable() const {
  return qp_.ready_.empty() && qp_.reads_.size() == 0 && qp_.stags_.empty();
}

void PortableAbility::StaysHere() {
  if (qp_.local_) qp_.local_->link().StaysHere();
}

void PortableAbility::Freeze(Writer& ar) const {
  SDP_CHECK(freezable());
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  ar.Number(magic);
  ar.Number(version);
  SendOptions sending = qp_.send_queue_.options();
  ReceiveOptions receiving = qp_.stream_.options();
  ar.Flag(sending.crc);
  ar.Flag(sending.markers);
  ar.Flag(receiving.markers);
  bool local = qp_.local_ != nullptr;
  if (local) qp_.local_->link().LeaveBell();  // the bell is this process's
  bool accepting = local && qp_.local_->link().end() == LocalEnd::kAccepting;
  ar.Flag(local);
  ar.Flag(accepting);
  ar.Number(sending.max_ulpdu);
  ar.Number(qp_.facts_.ird);
  ar.Number(qp_.facts_.ord);
  FrozenQp::Visit(ar, qp_);
}

std::unique_ptr<SoftQp> SoftQp::Thaw(int fd, Bytes frozen, std::shared_ptr<LocalMemory> memory) {
  Reader ar(frozen);
  uint32_t magic = 0;
  uint16_t version = 0;
  uint32_t max_ulpdu = 0;
  MpaAgreement agreement{.role = MpaRole::kResponder};
  bool local = false;
  bool accepting = false;
  ar.Number(magic);
  ar.Number(version);
  ar.Require(magic == kMagic && version == kVersion);
  ar.Flag(agreement.crc);
  ar.Flag(agreement.send_markers);
  ar.Flag(agreement.receive_markers);
  ar.Flag(local);
  ar.Flag(accepting);
  ar.Number(max_ulpdu);
  ar.Number(agreement.ird);
  ar.Number(agreement.ord);
  ar.Require(max_ulpdu >= kSmallestUlpdu && max_ulpdu <= kMaxSentUlpdu);
  if (!ar.ok() || (local && memory == nullptr)) return nullptr;
  if (!local) memory.reset();  // the connection has left that link meanwhile
  if (local && !accepting) agreement.role = MpaRole::kInitiator;  // without an RTR it posts nothing
  auto qp = std::make_unique<SoftQp>(fd, agreement, verbs::QpOptions{}, max_ulpdu, std::move(memory));
  FrozenQp::Visit(ar, *qp);
  if (!ar.ok() || ar.left() != 0) return nullptr;
  qp->placed_then_ = qp->stream_.placed();
  return qp;
}

}  // namespace sdp::iwarp
