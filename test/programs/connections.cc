// Many connections with plain sockets, for the benchmark: how fast they open and close, and what they cost
// while they are idle.
//
//   connections serve PLACE           echoes one byte at a time on each connection, prints "ready"
//   connections idle PLACE COUNT      opens COUNT connections, one byte to and fro on each, prints "ready",
//                                     holds them until its standard input ends
//   connections rate PLACE SECONDS    connects, one byte to and fro, closes, again and again; prints
//                                     connections per second
//
// PLACE is a port of loopback, or the path of a Unix socket.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "test/programs/places.h"

namespace {

using programs_test::Fail;
using programs_test::Place;

void ToAndFro(int fd) {
  char byte = 'x';
  if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) Fail("send");
  if (recv(fd, &byte, 1, 0) != 1) Fail("recv");
}

void Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) Fail("epoll_ctl");
}

int Serve(Place place) {
  int listener = place.Listen();
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  Watch(epoll, listener);
  puts("ready");
  fflush(stdout);
  std::vector<epoll_event> events(256);
  while (true) {
    int count = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno != EINTR) Fail("epoll_wait");
    for (int i = 0; i < count; ++i) {
      int fd = events[i].data.fd;
      if (fd == listener) {
        int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection >= 0) Watch(epoll, connection);
        continue;
      }
      char buffer[64];
      ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0 || send(fd, buffer, static_cast<size_t>(got), MSG_NOSIGNAL) != got) close(fd);
    }
  }
}

int Idle(const Place& place, int count) {
  for (int i = 0; i < count; ++i) ToAndFro(place.Connect());
  puts("ready");
  fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

int Rate(const Place& place, double seconds) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now(), now = start;
  long count = 0;
  while (now - start < std::chrono::duration<double>(seconds)) {
    int fd = place.Connect();
    ToAndFro(fd);
    close(fd);
    ++count;
    now = Clock::now();
  }
  printf("%.1f\n", static_cast<double>(count) / std::chrono::duration<double>(now - start).count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::string what = argc > 2 ? argv[1] : "";
  if (what == "serve") return Serve(Place(argv[2]));
  if (what == "idle" && argc > 3) return Idle(Place(argv[2]), atoi(argv[3]));
  if (what == "rate" && argc > 3) return Rate(Place(argv[2]), atof(argv[3]));
  fprintf(stderr, "usage: connections serve PLACE | idle PLACE COUNT | rate PLACE SECONDS\n");
  return 2;
}
