#include "preload/socket/shared_connection.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// How long a dead holder may go unnoticed where nothing depends on it.
constexpr Duration kLivenessCheck = std::chrono::milliseconds(50);
constexpr uint64_t kWindowStep = 256 * 1024;

}  // namespace

std::unique_ptr<SharedConnection> SharedConnection::Make() {
  SharedArena* const arena = SharedArena::Own();
  SharedSlot* const slot = arena != nullptr ? arena->Take() : nullptr;
  if (slot == nullptr) return nullptr;
  return std::unique_ptr<SharedConnection>(new SharedConnection(arena, slot, arena->self(), -1));
}

std::unique_ptr<SharedConnection> SharedConnection::Join(SharedArena* arena, uint32_t number, Member member,
                                                         int membership) {
  SharedSlot* const slot = arena->At(number);
  const Member self = IsInFlight(member) ? arena->self() : member;
  if (slot == nullptr || self == 0) {
    HiddenFds::Close(membership);
    return nullptr;
  }
  std::unique_ptr<SharedConnection> joined(new SharedConnection(arena, slot, self, membership));
  (void)joined->Lock();
  auto& holders = slot->holders;
  const auto place = std::find(holders.begin(), holders.end(), member);
  // A holder cannot join again: two sockets of one process would not see each other.
  const bool invited = place != holders.end() &&
                       (member == self || std::find(holders.begin(), holders.end(), self) == holders.end());
  if (invited) *place = self;
  if (!invited && place != holders.end() && IsInFlight(member)) *place = 0;  // it has come, and is not needed
  joined->left_ = !invited;
  joined->Unlock();
  if (IsInFlight(member)) joined->CloseMembership();
  return invited ? std::move(joined) : nullptr;
}

SharedConnection::SharedConnection(SharedArena* arena, SharedSlot* slot, Member self, int membership)
    : arena_(arena), slot_(slot), self_(self), membership_(membership) {
  arena_->Ref();
}

SharedConnection::~SharedConnection() {
  if (!left_) {
    if (!locked_) Lock();
    Leave();
  }
  if (locked_) Unlock();
  CloseMembership();
  ForgetAwaited();
  if (window_ != nullptr) munmap(window_, window_size_);
  arena_->Unref();
}

void SharedConnection::CloseMembership() { HiddenFds::Close(std::exchange(membership_, -1)); }

void SharedConnection::AdoptAfterFork() {
  CloseMembership();
  ForgetAwaited();
  self_ = arena_->self();
}

SharedConnection::View SharedConnection::Lock() {
  if (pthread_mutex_lock(&slot_->mutex) == EOWNERDEAD) {
    pthread_mutex_consistent(&slot_->mutex);
    slot_->broken = 1;
  }
  locked_ = true;
  if (slot_->exclusive != 0 && slot_->exclusive != self_) {
    if (arena_->Alive(slot_->exclusive)) return slot_->broken != 0 ? View::kBroken : View::kElsewhere;
    slot_->broken = 1;
  }
  if (slot_->broken != 0) return View::kBroken;
  return slot_->version == version_ ? View::kCurrent : View::kStale;
}

void SharedConnection::Unlock() {
  locked_ = false;
  if (left_ && std::all_of(slot_->holders.begin(), slot_->holders.end(), [](Member m) { return m == 0; })) {
    slot_->used = SharedSlot::kChanging;
    pthread_mutex_unlock(&slot_->mutex);
    arena_->Free(slot_);
    return;
  }
  pthread_mutex_unlock(&slot_->mutex);
}

bool SharedConnection::Add(Member member) {
  if (member == 0) return false;
  const auto free = [this] { return std::find(slot_->holders.begin(), slot_->holders.end(), Member{0}); };
  auto place = free();
  if (place == slot_->holders.end()) {
    (void)HasOthers(/*sure=*/true);  // a holder that was killed or has called exec says nothing
    place = free();
  }
  if (place == slot_->holders.end()) return false;
  *place = member;
  return true;
}

void SharedConnection::Remove(Member member) {
  const auto place =
      std::find(slot_->holders.begin(), slot_->holders.end(), member);  // one of those in flight
  if (place != slot_->holders.end()) *place = 0;
}

void SharedConnection::Await(Member member, int watched) {
  const int own = HiddenFds::Duplicate(watched);
  if (own >= 0) awaited_.push_back({.member = member, .watched = own});
}

void SharedConnection::ForgetLost() {
  const NoCancellation no_cancellation;
  std::erase_if(awaited_, [this](const Awaited& awaited) {
    pollfd passed{.fd = awaited.watched, .events = 0, .revents = 0};
    const bool over = real.poll(&passed, 1, 0) == 1;
    if (over) {
      Remove(awaited.member);  // unless it has come, then under its own number
      HiddenFds::Close(awaited.watched);
    }
    return over;
  });
  auto& holders = slot_->holders;
  const auto strange = [this](Member holder) {
    const auto own = [holder](const Awaited& awaited) { return awaited.member == holder; };
    return IsInFlight(holder) && std::none_of(awaited_.begin(), awaited_.end(), own);
  };
  if (std::any_of(holders.begin(), holders.end(), strange) && !arena_->LivesBesides(holders))
    std::replace_if(holders.begin(), holders.end(), strange, Member{0});
}

void SharedConnection::ForgetAwaited() {
  for (const Awaited& awaited : awaited_) HiddenFds::Close(awaited.watched);
  awaited_.clear();
}

bool SharedConnection::HasOthers(bool sure) {
  const Time now = Now();
  const bool check = sure || now - checked_ >= kLivenessCheck;
  if (check) checked_ = now;
  if (check && !Confined()) ForgetLost();
  bool others = false;
  for (Member& holder : slot_->holders) {
    if (holder == 0 || holder == self_) continue;
    if (check && !arena_->Alive(holder)) {
      holder = 0;
    } else {
      others = true;
    }
  }
  return others;
}

void SharedConnection::Leave() {
  std::replace(slot_->holders.begin(), slot_->holders.end(), self_, Member{0});
  if (Keeps()) {
    slot_->exclusive = 0;
    slot_->broken = 1;  // what was published is old
  }
  left_ = true;
}

// Mapped, not written: a process may have limited the size of its files, and would die of pwrite.
std::byte* SharedConnection::Window(uint64_t size) {
  if (size > SharedArena::kMostState) return nullptr;
  if (size > window_size_) {
    const uint64_t whole = (size + kWindowStep - 1) / kWindowStep * kWindowStep;
    std::byte* const mapped = arena_->MapState(slot_, whole);
    if (mapped == nullptr) return nullptr;
    if (window_ != nullptr) munmap(window_, window_size_);
    window_ = mapped;
    window_size_ = whole;
  }
  return window_;
}

bool SharedConnection::Read(std::vector<std::byte>* state) {
  const uint64_t size = slot_->size;
  const std::byte* const window = Window(size);
  if (window == nullptr) return false;
  state->assign(window, window + size);
  version_ = slot_->version;
  return true;
}

bool SharedConnection::Publish(const Writer& state) {
  std::byte* to = Window(state.size());
  if (to == nullptr) return false;
  const std::byte* is = to;
  const bool same =
      slot_->exclusive == 0 && slot_->size == state.size() && state.ForEachPiece([&is](Bytes piece) {
        const bool equal = piece.empty() || std::memcmp(is, piece.data(), piece.size()) == 0;
        is += piece.size();
        return equal;
      });
  if (same) return true;
  state.ForEachPiece([&to](Bytes piece) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
    return true;
  });
  slot_->size = state.size();
  slot_->version = ++version_;
  slot_->exclusive = 0;
  return true;
}

void SharedConnection::Keep() {
  slot_->exclusive = self_;
  if (slot_->version == version_) slot_->version = ++version_;
}

}  // namespace sdp::preload
