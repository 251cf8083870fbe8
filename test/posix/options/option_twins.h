// Options of a socket, beside the same of one that the kernel alone knows: in each of its states, what is
// set, what is read.
#ifndef SDP_TEST_POSIX_OPTION_TWINS_H_
#define SDP_TEST_POSIX_OPTION_TWINS_H_

#include <algorithm>
#include <string>

#include "test/posix/twins.h"

namespace posix_test {

// --- One socket in each state, and its twin.

enum class Stage { kNew, kListening, kClient, kServer };
inline constexpr Stage kStages[] = {Stage::kNew, Stage::kListening, Stage::kClient, Stage::kServer};
inline const char* Name(Stage stage) {
  constexpr const char* kNames[] = {"new", "listening", "connecting end", "accepted"};
  return kNames[static_cast<int>(stage)];
}

struct Twins {
  explicit Twins(int family)
      : listener(Listen(family, 8)),
        pair(ConnectTo(listener)),
        fresh(TcpSocket(family)),
        bare(BareConnection(family, BareSocket(family))),
        bare_fresh(BareSocket(family)) {}
  int ours(Stage stage) const {
    switch (stage) {
      case Stage::kNew:
        return fresh;
      case Stage::kListening:
        return listener.fd;
      case Stage::kClient:
        return pair.client;
      default:
        return pair.server;
    }
  }
  int oracle(Stage stage) const {
    switch (stage) {
      case Stage::kNew:
        return bare_fresh.get();
      case Stage::kListening:
        return bare.listener.get();
      case Stage::kClient:
        return bare.client.get();
      default:
        return bare.server.get();
    }
  }

  Listener listener;
  Pair pair;
  Fd fresh;
  BarePair bare;
  BareFd bare_fresh;
};

struct Outcome {
  long result;
  int error;
  socklen_t length;
  std::string value;

  bool operator==(const Outcome&) const = default;
  std::string ToString() const {
    if (result != 0) return std::string(strerrorname_np(error));
    std::string text = "length " + std::to_string(length) + ":";
    for (const char c : value.substr(0, 16)) text += " " + std::to_string(static_cast<unsigned char>(c));
    return text;
  }
};

inline constexpr size_t kRoom = 512;

template <typename Call>
Outcome Query(Call call, int level, int name, socklen_t length) {
  char room[kRoom] = {};
  Outcome outcome{.result = 0, .error = 0, .length = length, .value = {}};
  errno = 0;
  outcome.result = call(level, name, room, &outcome.length);
  if (outcome.result != 0) {
    outcome.error = errno;
    outcome.length = 0;
  } else {
    outcome.value.assign(room, std::min<size_t>(outcome.length, kRoom));
  }
  return outcome;
}

inline Outcome GetOurs(int fd, int level, int name, socklen_t length) {
  return Query([fd](auto... a) { return getsockopt(fd, a...); }, level, name, length);
}
inline Outcome GetBare(int fd, int level, int name, socklen_t length) {
  return Query([fd](auto... a) { return syscall(SYS_getsockopt, fd, a...); }, level, name, length);
}

template <typename Call>
Outcome Result(Call call) {
  errno = 0;
  const long result = call();
  return {.result = result, .error = result != 0 ? errno : 0, .length = 0, .value = {}};
}

inline Outcome SetOurs(int fd, int level, int name, const void* value, socklen_t length) {
  return Result([&] { return setsockopt(fd, level, name, value, length); });
}
inline Outcome SetBare(int fd, int level, int name, const void* value, socklen_t length) {
  return Result([&] { return syscall(SYS_setsockopt, fd, level, name, value, length); });
}

// Differences, one a line: a sweep says everything at once.
class Differences {
 public:
  void Note(const std::string& where, const Outcome& ours, const Outcome& oracle) {
    if (ours == oracle) return;
    if (++count_ <= 40)
      text_ += "\n  " + where + ": " + ours.ToString() + ", where TCP says " + oracle.ToString();
  }
  void Check() const {
    INFO(text_);
    REQUIRE(count_ == 0);
  }

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_OPTION_TWINS_H_
