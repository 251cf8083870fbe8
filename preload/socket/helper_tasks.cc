#include "preload/socket/helper_tasks.h"

#include <algorithm>
#include <new>
#include <utility>

namespace sdp::preload {
namespace {

// How soon a task runs again after it found no memory.
constexpr Duration kShortOfMemory = std::chrono::milliseconds(50);

}  // namespace

void TaskList::Append(TaskList* others) {
  items_.insert(items_.end(), others->items_.begin(), others->items_.end());
  others->items_.clear();
}

TaskList TaskList::TakeOwned() {
  TaskList owned;
  const auto first = std::stable_partition(items_.begin(), items_.end(),
                                           [](const Item& item) { return item.task->owner() == nullptr; });
  owned.items_.assign(first, items_.end());
  items_.erase(first, items_.end());
  return owned;
}

bool TaskList::AnyOwned() const {
  return std::any_of(items_.begin(), items_.end(),
                     [](const Item& item) { return item.task->owner() != nullptr; });
}

bool TaskList::AnyAddedAgain() const {
  return std::any_of(items_.begin(), items_.end(),
                     [](const Item& item) { return item.task->again_ != kNever; });
}

void TaskList::AppendOwners(std::vector<SocketRef>* out) const {
  for (const Item& item : items_) {
    Socket* const owner = item.task->owner();
    if (owner == nullptr) continue;
    owner->Ref();
    out->emplace_back(owner);
  }
}

Time TaskList::AppendPolled(std::vector<pollfd>* fds) const {
  Time first = kNever;
  for (const Item& item : items_) {
    if (item.wait.fd >= 0) fds->push_back({.fd = item.wait.fd, .events = item.wait.events, .revents = 0});
    if (item.wait.also_fd >= 0) fds->push_back({.fd = item.wait.also_fd, .events = POLLOUT, .revents = 0});
    first = std::min(first, item.wait.deadline);
  }
  return first;
}

void TaskList::MakeAllDue(Time now) {
  for (Item& item : items_) item.wait.deadline = now;
}

Time TaskList::NextLook(Time now, Duration descriptors) const {
  Time next = kNever;
  for (const Item& item : items_) {
    if (item.task->owner() == nullptr) continue;
    next = std::min(next, item.wait.deadline);
    if (item.wait.fd >= 0) next = std::min(next, now + descriptors);
  }
  return next;
}

void TaskList::RunReady(const std::vector<pollfd>& fds, Time now) {
  size_t polled = 0;
  for (Item& item : items_) {
    bool ready = false;
    for (const int fd : {item.wait.fd, item.wait.also_fd}) {
      if (fd < 0) continue;
      ready = ready || (polled < fds.size() && fds[polled].fd == fd && fds[polled].revents != 0);
      ++polled;
    }
    if (!ready && item.wait.deadline > now) continue;
    try {
      item.wait = item.task->Run(now);
    } catch (const std::bad_alloc&) {
      item.wait = {.deadline = now + kShortOfMemory};
    }
  }
}

std::vector<Socket*> TaskList::TakeDone() {
  std::vector<Socket*> done;  // owners: a task may be destroyed as soon as it is not held
  const auto over =
      std::count_if(items_.begin(), items_.end(), [](const Item& item) { return item.wait.done; });
  done.reserve(static_cast<size_t>(over));
  std::erase_if(items_, [&](Item& item) {
    if (item.task->again_ != kNever) {  // the task may have seen an old state: run it once more
      item.wait.done = false;
      item.wait.deadline = std::min(item.wait.deadline, std::exchange(item.task->again_, kNever));
    }
    if (!item.wait.done) return false;
    item.task->queued_in_ = 0;
    if (Socket* const owner = item.task->owner()) done.push_back(owner);
    return true;
  });
  return done;
}

}  // namespace sdp::preload
