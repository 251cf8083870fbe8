#include "preload/socket/kept_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "preload/fail.h"
#include "preload/link_calls.h"
#include "preload/real_calls.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

#ifndef TCP_INQ
constexpr int TCP_INQ = 36;
#endif
#ifndef SO_BUF_LOCK
constexpr int SO_BUF_LOCK = 72;
#endif

// The kernel's least sizes, without its own structures.
constexpr int kLeastSendBuffer = 2304;
constexpr int kLeastReceiveBuffer = 1152;

// An option that the kernel judges, and the value that the link has instead.
struct Neutral {
  int level;
  int name;
  int value;
  const char* text = nullptr;  // a text in place of the number

  void Put(int fd) const {
    real.setsockopt(fd, level, name, text != nullptr ? text : static_cast<const void*>(&value), size());
  }
  [[nodiscard]] socklen_t size() const {
    return text != nullptr ? static_cast<socklen_t>(std::strlen(text)) : sizeof value;
  }
};
// Every kernel has reno, and lets every process choose it.
constexpr Neutral kNoCongestionControl = {IPPROTO_TCP, TCP_CONGESTION, 0, "reno"};
constexpr Neutral kNeutral[] = {
    {SOL_SOCKET, SO_RCVLOWAT, 1},
    // Completions of the link's own sends would fill its error queue, and no thread would empty it.
    {SOL_SOCKET, SO_ZEROCOPY, 0},
    {SOL_SOCKET, SO_TIMESTAMPING_OLD, 0},
    {SOL_SOCKET, SO_TIMESTAMPING_NEW, 0},
    {IPPROTO_IP, IP_RECVERR, 0},
    {IPPROTO_IPV6, IPV6_RECVERR, 0},
    // connect() has to connect.
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0},
};

const Neutral* FindNeutral(int level, int name) {
  const auto* const found = std::find_if(std::begin(kNeutral), std::end(kNeutral), [&](const Neutral& n) {
    return n.level == level && n.name == name;
  });
  return found == std::end(kNeutral) ? nullptr : found;
}

int ReadInt(const void* value) {
  int number;
  std::memcpy(&number, value, sizeof number);
  return number;
}

// Returns a buffer's size as the kernel has it: unsigned, twice the size asked for, and never too small.
int BufferSize(const void* value, int least) {
  const int wanted = ReadInt(value);
  return wanted < 0 || wanted > INT_MAX / 2 ? INT_MAX : std::max(2 * wanted, least);
}

bool IsTimestamp(int name) {
  return name == SO_TIMESTAMP_OLD || name == SO_TIMESTAMP_NEW || name == SO_TIMESTAMPNS_OLD ||
         name == SO_TIMESTAMPNS_NEW;
}

Duration ToDuration(const void* value) {
  timeval tv;
  std::memcpy(&tv, value, sizeof tv);
  // As in the kernel: a negative time is over at once, and a time that is too long counts as none.
  constexpr auto kLongest = std::chrono::duration_cast<std::chrono::seconds>(Duration::max()).count() / 2;
  if (tv.tv_sec < 0) return Duration(1);
  if (tv.tv_sec > kLongest) return Duration::zero();
  return std::chrono::seconds(tv.tv_sec) + std::chrono::microseconds(tv.tv_usec);
}

// Returns true for cubic. Cubic estimates no bandwidth either. Within a host it makes the link 4 to 7 %
// faster than reno (1 MiB in all shapes).
bool IsCubic(const auto& judged) {
  return std::strncmp(reinterpret_cast<const char*>(judged.value), "cubic", judged.length) == 0;
}

}  // namespace

// Options that are on or off, and need no system call.
int* KeptOptions::Switch(int level, int name) {
  if (level == SOL_SOCKET && name == SO_OOBINLINE) return &oob_inline_;
  if (level != IPPROTO_TCP) return nullptr;
  if (name == TCP_NODELAY) return &no_delay_;
  if (name == TCP_QUICKACK) return &quick_ack_;
  return name == TCP_CORK ? &cork_ : nullptr;
}

bool KeptOptions::Keeps(int level, int name) {
  return KeptOptions().Switch(level, name) != nullptr || (level == SOL_SOCKET && name == SO_LINGER) ||
         FindNeutral(level, name) != nullptr;
}

KeptOptions::Answer KeptOptions::Set(int fd, int level, int name, const void* value, socklen_t length) {
  if (FindNeutral(level, name) != nullptr || FindJudged(level, name) != nullptr)
    return Judge(fd, level, name, value, length);
  if (static_cast<int>(length) < static_cast<int>(sizeof(int)) || !MayRead(value, sizeof(int)))
    return Answer::kKernel;
  if (int* const on = Switch(level, name)) {
    *on = ReadInt(value) != 0 ? 1 : 0;
    return Answer::kKept;
  }
  if (level != SOL_SOCKET || name != SO_LINGER || length < sizeof linger_ || !MayRead(value, sizeof linger_))
    return Answer::kKernel;
  linger wanted;
  std::memcpy(&wanted, value, sizeof wanted);
  SetLinger(wanted);
  return Answer::kKept;
}

void KeptOptions::SetLinger(const linger& wanted) {
  linger_set_ = true;
  linger_.l_onoff = wanted.l_onoff != 0 ? 1 : 0;
  if (linger_.l_onoff != 0) linger_.l_linger = wanted.l_linger;  // when switched off, the time stays
}

KeptOptions::Answer KeptOptions::Judge(int fd, int level, int name, const void* value, socklen_t length) {
  const int saved = errno;
  if (real.setsockopt(fd, level, name, value, length) != 0) return Answer::kFailed;
  Judged judged{.level = level, .name = name, .length = sizeof judged.value, .value = {}};
  real.getsockopt(fd, level, name, judged.value, &judged.length);
  const Neutral* const neutral = FindNeutral(level, name);
  (neutral != nullptr ? *neutral : kNoCongestionControl).Put(fd);
  errno = saved;
  Keep(judged);
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) receive_low_water_ = ReadInt(judged.value);
  if (level == SOL_SOCKET && name == SO_ZEROCOPY) zero_copy_ = ReadInt(judged.value);
  return Answer::kKept;
}

const KeptOptions::Judged* KeptOptions::FindJudged(int level, int name) const {
  const auto found = std::find_if(judged_.begin(), judged_.end(),
                                  [&](const Judged& j) { return j.level == level && j.name == name; });
  return found == judged_.end() ? nullptr : &*found;
}

void KeptOptions::Keep(const Judged& judged) {
  std::erase_if(judged_, [&](const Judged& j) { return j.level == judged.level && j.name == judged.name; });
  judged_.push_back(judged);
}

bool KeptOptions::ReadCongestionControl(int fd, Judged* judged) {
  *judged = {.level = IPPROTO_TCP, .name = TCP_CONGESTION, .length = sizeof judged->value, .value = {}};
  return LinkGetOption(fd, judged->level, judged->name, judged->value, &judged->length) == 0;
}

bool KeptOptions::Unpace(int fd, const Judged& had) {
  return IsCubic(had) || LinkSetOption(fd, IPPROTO_TCP, TCP_CONGESTION, kNoCongestionControl.text,
                                       kNoCongestionControl.size()) == 0;
}

void KeptOptions::ForgoCongestionControl(int fd) {
  if (FindJudged(IPPROTO_TCP, TCP_CONGESTION) != nullptr) return;
  const KeepErrno keep;
  Judged had;
  if (ReadCongestionControl(fd, &had) && Unpace(fd, had)) Keep(had);
}

void KeptOptions::ForgoForAccepted(int fd) {
  Judged had;
  if (ReadCongestionControl(fd, &had)) Unpace(fd, had);
}

void KeptOptions::InheritCongestionControl(int listener) {
  const KeepErrno keep;
  Judged has;
  if (ReadCongestionControl(listener, &has)) Keep(has);
}

void KeptOptions::RestoreCongestionControl(int fd) {
  const Judged* const judged = FindJudged(IPPROTO_TCP, TCP_CONGESTION);
  if (judged == nullptr) return;
  const KeepErrno keep;
  // Setting it may take a privilege that the process has dropped since. Then the program reads the kept
  // value.
  if (LinkSetOption(fd, judged->level, judged->name, judged->value, judged->length) == 0)
    judged_.erase(judged_.begin() + (judged - judged_.data()));
}

KeptOptions::Answer KeptOptions::Get(int level, int name, void* value, socklen_t* length) const {
  if (!MayWrite(length, sizeof *length) || static_cast<int>(*length) < 0) return Answer::kKernel;
  const void* source = const_cast<KeptOptions*>(this)->Switch(level, name);
  size_t size = sizeof(int);
  if (level == SOL_SOCKET && name == SO_LINGER) {
    source = &linger_;
    size = sizeof linger_;
  }
  if (const Judged* const judged = FindJudged(level, name)) {
    source = judged->value;
    size = judged->length;
  }
  if (source == nullptr) return Answer::kKernel;
  // For less than an int, the small numbers of ip(7) fit into one byte.
  if (level == IPPROTO_IP && *length < sizeof(int)) size = 1;
  const auto given = std::min<socklen_t>(*length, size);
  if (!MayWrite(value, given)) return Answer::kKernel;
  *length = given;
  std::memcpy(value, source, given);
  return Answer::kKept;
}

void KeptOptions::Note(int level, int name, const void* value) {
  if (level == IPPROTO_TCP && name == TCP_INQ) tells_queue_ = ReadInt(value) != 0;
  if (level != SOL_SOCKET) return;
  if (name == SO_RCVTIMEO_OLD || name == SO_RCVTIMEO_NEW) receive_timeout_ = ToDuration(value);
  if (name == SO_SNDTIMEO_OLD || name == SO_SNDTIMEO_NEW) send_timeout_ = ToDuration(value);
  if (name == SO_SNDBUF || name == SO_SNDBUFFORCE) send_buffer_ = BufferSize(value, kLeastSendBuffer);
  if (name == SO_RCVBUF || name == SO_RCVBUFFORCE)
    tuning_.SetReceiveBuffer(static_cast<uint32_t>(BufferSize(value, kLeastReceiveBuffer)));
  if (name == SO_BUF_LOCK) {  // without the lock, the kernel chooses the size again
    if ((ReadInt(value) & 1) == 0) send_buffer_ = 0;
    if ((ReadInt(value) & 2) == 0) tuning_.SetReceiveBuffer(0);
  }
  // The last one set counts, and each of them switches all off.
  if (IsTimestamp(name)) timestamp_option_ = ReadInt(value) != 0 ? name : 0;
}

void KeptOptions::Apply(int fd) const {
  if (linger_set_) real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger_, sizeof linger_);
  if (oob_inline_ != 0) real.setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &oob_inline_, sizeof(int));
  real.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay_, sizeof(int));
  if (quick_ack_ == 0) real.setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &quick_ack_, sizeof(int));
  if (cork_ != 0) real.setsockopt(fd, IPPROTO_TCP, TCP_CORK, &cork_, sizeof(int));
  for (const Judged& judged : judged_)
    real.setsockopt(fd, judged.level, judged.name, judged.value, judged.length);
}

}  // namespace sdp::preload
