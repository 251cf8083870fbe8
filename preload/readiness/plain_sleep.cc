#include "preload/readiness/plain_sleep.h"

#include <array>

#include "preload/descriptor_array.h"

namespace sdp::preload {
namespace {

constinit DescriptorArray<uint32_t> groups;
constinit std::atomic<uint32_t> last_group{0};
constinit std::atomic<int> highest{-1};  // the highest number that ever had a group

constinit std::array<std::atomic<int>, 64> sleepers{};
constinit std::atomic<int> sleepers_of_several{0};
std::atomic<int>& SleepersOf(uint32_t group) { return sleepers[group % sleepers.size()]; }

void Enter(int fd, uint32_t group) {
  std::atomic<uint32_t>* const entry = groups.FindOrAdd(fd);
  if (entry == nullptr) return;
  entry->store(group, std::memory_order_relaxed);
  int seen = highest.load(std::memory_order_relaxed);
  while (seen < fd && !highest.compare_exchange_weak(seen, fd, std::memory_order_relaxed)) {
  }
}

}  // namespace

void EpollNumbers::Created(int epfd) {
  if (epfd >= 0) Enter(epfd, last_group.fetch_add(1, std::memory_order_relaxed) + 1);
}

void EpollNumbers::Duplicated(int from, int to) {
  if (to < 0) return;
  const uint32_t group = GroupOf(from);
  if (group != GroupOf(to)) Enter(to, group);
}

void EpollNumbers::Closed(int fd) {
  if (GroupOf(fd) != 0) Enter(fd, 0);
}

uint32_t EpollNumbers::GroupOf(int fd) {
  const std::atomic<uint32_t>* const entry = groups.Find(fd);
  return entry == nullptr ? 0 : entry->load(std::memory_order_relaxed);
}

bool EpollNumbers::AreDuplicates(int one, int other) {
  const uint32_t group = GroupOf(one);
  return one == other || (group != 0 && group == GroupOf(other));
}

int EpollNumbers::AnotherOf(int fd) {
  const uint32_t group = GroupOf(fd);
  if (group == 0) return -1;
  const int end = highest.load(std::memory_order_relaxed) + 1;
  for (int other = 0; other < end; other = groups.SkipAbsent(other + 1)) {
    if (other != fd && GroupOf(other) == group) return other;
  }
  return -1;
}

bool EpollNumbers::Any() { return last_group.load(std::memory_order_relaxed) != 0; }

PlainSleep::PlainSleep(int epfd) : sleepers_(&SleepersOf(EpollNumbers::GroupOf(epfd))) {
  sleepers_->fetch_add(1);
}

PlainSleep::PlainSleep() : sleepers_(&sleepers_of_several) { sleepers_->fetch_add(1); }

PlainSleep::~PlainSleep() {
  if (sleepers_ != nullptr) sleepers_->fetch_sub(1);
}

bool PlainSleep::Any(uint32_t group) {
  return SleepersOf(group).load() != 0 || sleepers_of_several.load() != 0;
}

void PlainSleep::ForgetAll() {
  for (auto& count : sleepers) count = 0;
  sleepers_of_several = 0;
}

}  // namespace sdp::preload
