#include "portmapper/daemon/foreign_descriptors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

namespace sdp::pm {

struct ForeignDescriptors::Shared {
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::pair<int, uid_t>> queue;
  absl::flat_hash_map<uid_t, size_t> pending;  // no zeros
  bool started = false;
  bool stop = false;
};

LocalMessage ReceiveLocalMessage(int connection, void* buffer, size_t size) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPassedDescriptors * sizeof(int))> control;
  iovec data{buffer, size};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  LocalMessage message;
  message.length = recvmsg(connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (message.length < 0) return message;
  message.truncated = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = message.descriptors.size();
    message.descriptors.resize(before + count);
    std::memcpy(message.descriptors.data() + before, CMSG_DATA(c), count * sizeof(int));
  }
  return message;
}

ForeignDescriptors::ForeignDescriptors() : shared_(std::make_shared<Shared>()) {}

ForeignDescriptors::~ForeignDescriptors() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->wake.notify_all();
}

void ForeignDescriptors::Close(int fd, uid_t owner) {
  int family = 0;
  socklen_t length = sizeof family;
  const linger off{0, 0};
  const bool internet = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 &&
                        (family == AF_INET || family == AF_INET6);
  if (internet && setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off) == 0) {
    close(fd);
    return;
  }
  const std::lock_guard lock(shared_->mutex);
  shared_->queue.emplace_back(fd, owner);
  ++shared_->pending[owner];
  if (!std::exchange(shared_->started, true)) std::thread(CloseInBackground, shared_).detach();
  shared_->wake.notify_one();
}

void ForeignDescriptors::CloseConnection(int connection, uid_t owner) {
  // Nothing more can be sent to us, so the loop ends: what is under way is bounded by the sender's buffer.
  shutdown(connection, SHUT_RDWR);
  std::byte scratch[1];
  while (true) {
    const LocalMessage message = ReceiveLocalMessage(connection, scratch, sizeof scratch);
    for (const int fd : message.descriptors) Close(fd, owner);
    if (message.length <= 0 && message.descriptors.empty()) break;
  }
  close(connection);
}

size_t ForeignDescriptors::Pending(uid_t owner) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->pending.find(owner);
  return found == shared_->pending.end() ? 0 : found->second;
}

void ForeignDescriptors::CloseInBackground(const std::shared_ptr<Shared>& argument) {
  const std::shared_ptr<Shared> shared = argument;
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->wake.wait(lock, [&] { return shared->stop || !shared->queue.empty(); });
    if (shared->stop) return;  // the process ends and closes the rest
    const auto [fd, owner] = shared->queue.front();
    shared->queue.pop_front();
    lock.unlock();
    close(fd);
    lock.lock();
    if (--shared->pending[owner] == 0) shared->pending.erase(owner);
  }
}

}  // namespace sdp::pm
