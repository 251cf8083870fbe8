// Large blocking writes of threads that are cancelled in their sleep. How much of one has left nobody knows:
// it is all zeros, and behind it stands a word.
#ifndef SDP_TEST_PROGRAMS_CANCELLED_WRITES_H_
#define SDP_TEST_PROGRAMS_CANCELLED_WRITES_H_

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "test/programs/places.h"

namespace programs_test {

// Made before the fork that makes the reader.
class CancelledWrites {
 public:
  CancelledWrites() {
    if (pipe(readers_turn_) != 0 || pipe(writers_turn_) != 0) Fail("pipe");
  }

  void Write(int fd) const {
    const int small = 64 << 10;  // no write of that size ends before its reader comes
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) != 0) Fail("SO_SNDBUF");
    for (int i = 0; i < kWrites; ++i) {
      CancelOne(fd);
      Give(readers_turn_);
      if (send(fd, &kWord, 1, MSG_NOSIGNAL) != 1) Fail("send");
      Await(writers_turn_);
    }
  }

  void Read(int fd) const {
    std::vector<char> room(1 << 16);
    for (int i = 0; i < kWrites; ++i) {
      Await(readers_turn_);
      for (bool word = false; !word;) {
        const ssize_t n = recv(fd, room.data(), room.size(), 0);
        if (n <= 0) Fail("recv");
        const auto end = room.begin() + n;
        const auto other = std::find_if(room.begin(), end, [](char c) { return c != 0; });
        word = other == end - 1 && *other == kWord;
        if (!word && other != end) Fail("data of another message");
      }
      Give(writers_turn_);
    }
  }

 private:
  static constexpr int kWrites = 8;
  static constexpr size_t kSize = 16 << 20;
  static constexpr char kWord = 'w';

  struct Writer {
    int fd;
    std::vector<char> zeros = std::vector<char>(kSize);
    std::atomic<pid_t> tid{0};

    static void* Run(void* argument) {
      auto* const self = static_cast<Writer*>(argument);
      self->tid = gettid();
      (void)!send(self->fd, self->zeros.data(), self->zeros.size(), MSG_NOSIGNAL);
      return nullptr;
    }
    bool IsAsleep() const {
      if (tid == 0) return false;
      std::string stat;
      std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/stat");
      std::getline(file, stat);
      const size_t end = stat.rfind(") ");
      return end != std::string::npos && stat[end + 2] == 'S';
    }
  };

  static void CancelOne(int fd) {
    Writer writer{.fd = fd};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &Writer::Run, &writer) != 0) Fail("pthread_create");
    // Again and again: what it does before has no reason to sleep for long.
    for (int looks = 0; looks < 20; looks = writer.IsAsleep() ? looks + 1 : 0) usleep(500);
    void* result = nullptr;
    if (pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0 || result != PTHREAD_CANCELED)
      Fail("a write was not cancelled");
  }

  static void Give(const int* turn) {
    if (write(turn[1], "x", 1) != 1) Fail("write");
  }
  static void Await(const int* turn) {
    char c;
    if (read(turn[0], &c, 1) != 1) Fail("read");
  }

  int readers_turn_[2];
  int writers_turn_[2];
};

}  // namespace programs_test

#endif  // SDP_TEST_PROGRAMS_CANCELLED_WRITES_H_
