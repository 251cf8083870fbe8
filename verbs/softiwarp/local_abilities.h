// What a queue pair can do because its link is memory: verbs::Pollable and verbs::Direct. The queue pair owns
// this object, and its owner's lock guards both.
#ifndef SDP_VERBS_SOFTIWARP_LOCAL_ABILITIES_H_
#define SDP_VERBS_SOFTIWARP_LOCAL_ABILITIES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/base/types.h"
#include "verbs/abilities.h"
#include "verbs/softiwarp/local_link.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class SoftQp;

class LocalAbilities final : public verbs::Pollable, public verbs::Direct {
 public:
  LocalAbilities(SoftQp& qp, std::shared_ptr<LocalMemory> memory, LocalEnd end)
      : qp_(qp), link_(std::move(memory), end) {}

  [[nodiscard]] LocalLink& link() { return link_; }
  [[nodiscard]] const LocalLink& link() const { return link_; }
  // Reads the link without waiting. `came`: the caller has just read something.
  LinkResult Read(std::span<const MutableBytes> parts, bool came);
  // Returns true if the caller of this read comes again soon.
  [[nodiscard]] bool polling() const { return polling_.has_value(); }

  using Pollable::PollLink;
  verbs::ReadStatus PollLink(PollFor wanted) override;
  [[nodiscard]] bool may_sleep() override;
  verbs::ReadStatus ReadForSolicited() override;
  [[nodiscard]] bool has_untold() const override;
  [[nodiscard]] bool always_told() const override { return true; }
  [[nodiscard]] std::shared_ptr<const verbs::Peek> peek() override { return link_.peek(); }
  [[nodiscard]] bool HearByBell(const verbs::BellName& bell, uint64_t cookie) override {
    return may_sleep() && link_.HearByBell(bell, cookie);
  }
  [[nodiscard]] std::optional<verbs::FutexBell> HearByFutex() override {
    return may_sleep() ? link_.HearByFutex() : std::nullopt;
  }
  [[nodiscard]] bool HearByLink() override { return link_.HearByLink(); }
  void GiveBack() override { link_.GiveBack(); }

  [[nodiscard]] bool MaySendDirect(size_t size) override;
  void SendDirect(Bytes header, std::span<const Bytes> payload) override;
  [[nodiscard]] std::optional<Arrived> LookDirect(MutableBytes header, const Arrived* before) override;
  [[nodiscard]] uint64_t InLink() const override { return link_.InRing(); }
  void TakeDirect(size_t header, std::span<const MutableBytes> payload) override;
  [[nodiscard]] std::array<Bytes, 2> LendDirect(size_t header) override;
  void ReturnLent() override;

 private:
  // The message that LookDirect() has found is the stream's next.
  void NoteDirect();

  SoftQp& qp_;
  LocalLink link_;
  // What LookDirect() has found: in the ring, the message there, and its first bytes.
  struct Found {
    RingReader::Unread there;
    Arrived message;
    std::array<std::byte, kMostHeader> header{};
    bool still_next = false;
  };
  Found found_;
  std::optional<PollFor> polling_;  // the caller of this read comes again soon
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_LOCAL_ABILITIES_H_
