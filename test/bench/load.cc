// A load of small requests, for servers that the benchmark has no other client for, and for AF_UNIX.
//
//   load echo PLACE                                       the other end of "turns": a thread a connection
//   load turns PLACE CONNECTIONS SECONDS                  64 bytes there and back, a thread a connection
//   load requests PLACE CONNECTIONS SECONDS REQUEST END   one thread and epoll: each connection sends REQUEST
//                                                         and waits for an answer that ends with END
//
// PLACE is a port of loopback, or the path of a Unix socket. REQUEST and END may have "\r\n" in them. The
// clients print how many answers they got, and in how many seconds.
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "test/programs/places.h"

namespace {

using Clock = std::chrono::steady_clock;
using programs_test::Fail;
using programs_test::Place;

constexpr size_t kTurn = 64;

void Send(int fd, const char* data, size_t size) {
  // A request is small, and a connection has one under way: there is room for the whole.
  if (send(fd, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) Fail("send");
}

// False: the peer has closed the connection.
bool ReceiveTurn(int fd, char* data) {
  const ssize_t n = recv(fd, data, kTurn, MSG_WAITALL);
  if (n < 0 && errno != ECONNRESET) Fail("recv");
  return n == kTurn;
}

int Connect(const Place& place) {
  const int fd = place.Connect();
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // fails on AF_UNIX, which needs none
  return fd;
}

int Echo(Place place) {
  const int listener = place.Listen();
  while (true) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) Fail("accept");
    std::thread([fd] {
      char data[kTurn];
      while (ReceiveTurn(fd, data)) Send(fd, data, kTurn);
      close(fd);
    }).detach();
  }
}

uint64_t Turns(const Place& place, int connections, Clock::time_point until) {
  std::atomic<uint64_t> answers = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < connections; ++i) {
    threads.emplace_back([&answers, until, fd = Connect(place)] {
      char data[kTurn] = {};
      uint64_t count = 0;
      for (; count % 16 != 0 || Clock::now() < until; ++count) {  // looks at the clock now and then
        Send(fd, data, kTurn);
        if (!ReceiveTurn(fd, data)) Fail("the peer has gone");
      }
      answers += count;
      close(fd);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

std::string WithLineEnds(std::string_view words) {
  std::string out;
  for (size_t at; (at = words.find("\\r\\n")) != words.npos; words.remove_prefix(at + 4)) {
    out.append(words.substr(0, at)).append("\r\n");
  }
  return out.append(words);
}

uint64_t Requests(const Place& place, int connections, Clock::time_point until, const std::string& request,
                  const std::string& end) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::string> got(static_cast<size_t>(connections));
  std::vector<int> fds;
  for (int i = 0; i < connections; ++i) {
    fds.push_back(Connect(place));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(i);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds.back(), &event) != 0) Fail("epoll_ctl");
    Send(fds.back(), request.data(), request.size());
  }
  uint64_t answers = 0;
  std::vector<epoll_event> events(fds.size());
  char data[64 << 10];
  while (Clock::now() < until) {
    const int count = epoll_wait(epoll, events.data(), connections, 1000);
    if (count < 0 && errno != EINTR) Fail("epoll_wait");
    for (int k = 0; k < count; ++k) {
      const size_t i = events[static_cast<size_t>(k)].data.u32;
      const ssize_t n = recv(fds[i], data, sizeof data, 0);
      if (n <= 0) Fail("recv");
      got[i].append(data, static_cast<size_t>(n));
      if (!got[i].ends_with(end)) continue;
      ++answers;
      got[i].clear();
      Send(fds[i], request.data(), request.size());
    }
  }
  return answers;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[1] : "";
  if (what == "echo") return Echo(Place(argv[2]));
  if (!(what == "turns" && argc == 5) && !(what == "requests" && argc == 7)) {
    fputs(
        "usage: load echo PLACE | turns PLACE CONNECTIONS SECONDS |\n"
        "       requests PLACE CONNECTIONS SECONDS REQUEST END\n",
        stderr);
    return 2;
  }
  const Place place(argv[2]);
  const int connections = atoi(argv[3]);
  const Clock::time_point start = Clock::now();
  const Clock::time_point until = start + std::chrono::seconds(atoi(argv[4]));
  const uint64_t answers =
      what == "turns" ? Turns(place, connections, until)
                      : Requests(place, connections, until, WithLineEnds(argv[5]), WithLineEnds(argv[6]));
  printf("%llu %.6f\n", static_cast<unsigned long long>(answers),
         std::chrono::duration<double>(Clock::now() - start).count());
  return 0;
}
