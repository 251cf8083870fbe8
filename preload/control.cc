#include "preload/control.h"

#include <errno.h>
#include <linux/net_tstamp.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

bool HasInt(const cmsghdr& message) { return message.cmsg_len == CMSG_LEN(sizeof(int)); }

int IntIn(const cmsghdr& message) {
  int number;
  std::memcpy(&number, CMSG_DATA(&message), sizeof number);
  return number;
}

int CheckOne(const cmsghdr& message) {
  if (message.cmsg_level != SOL_SOCKET) return 0;
  switch (message.cmsg_type) {
    case SCM_RIGHTS:
    case SCM_CREDENTIALS:
      return 0;  // for Unix sockets, ignored by others
    case SO_TIMESTAMPING_OLD:
    case SO_TIMESTAMPING_NEW: {
      constexpr int kRecords = SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_TX_SOFTWARE |
                               SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK;
      return HasInt(message) && (IntIn(message) & ~kRecords) == 0 ? 0 : EINVAL;
    }
    case SO_MARK:
      return HasInt(message) ? 0 : EINVAL;
    default:
      return EINVAL;
  }
}

}  // namespace

void ControlRoom::Put(int level, int type, const void* data, size_t size) {
  if (left_ < sizeof(cmsghdr)) {
    flags_ |= MSG_CTRUNC;
    return;
  }
  size_t length = CMSG_LEN(size);
  if (!MayWrite(next_, std::min(length, left_))) return;  // the kernel reports no error here
  if (left_ < length) {
    flags_ |= MSG_CTRUNC;
    length = left_;
  }
  cmsghdr header{};
  header.cmsg_level = level;
  header.cmsg_type = type;
  header.cmsg_len = length;
  std::memcpy(next_, &header, sizeof header);
  std::memcpy(next_ + sizeof header, data, length - sizeof header);
  const size_t space = std::min(CMSG_SPACE(size), left_);
  next_ += space;
  left_ -= space;
  used_ += space;
}

int CheckControl(const msghdr& message) {
  if (message.msg_controllen == 0) return 0;
  if (message.msg_controllen > INT_MAX) return ENOBUFS;
  if (!MayRead(message.msg_control, message.msg_controllen)) return EFAULT;
  const char* at = static_cast<const char*>(message.msg_control);
  for (size_t left = message.msg_controllen; left >= sizeof(cmsghdr);) {
    const auto& one = *reinterpret_cast<const cmsghdr*>(at);
    if (one.cmsg_len < sizeof(cmsghdr) || one.cmsg_len > left) return EINVAL;
    if (const int error = CheckOne(one); error != 0) return error;
    const size_t step = CMSG_ALIGN(one.cmsg_len);
    if (step >= left) break;
    at += step;
    left -= step;
  }
  return 0;
}

}  // namespace sdp::preload
