// Many connections with plain sockets, for the benchmark: how fast they open and close, and what they cost
// while they are idle.
//
//   connections serve PORT           echoes one byte at a time on each connection, prints "ready"
//   connections idle PORT COUNT      opens COUNT connections, one byte to and fro on each, prints "ready",
//   holds them until its
//                                    standard input ends
//   connections rate PORT SECONDS    connects, one byte to and fro, closes, again and again; prints
//   connections per second
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
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

namespace {

[[noreturn]] void Fail(const char* what) {
  perror(what);
  exit(1);
}

sockaddr_in Loopback(const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(atoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Connect(const char* port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("socket");
  sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Fail("connect");
  return fd;
}

void ToAndFro(int fd) {
  char byte = 'x';
  if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) Fail("send");
  if (recv(fd, &byte, 1, 0) != 1) Fail("recv");
}

int Listen(const char* port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("socket");
  int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address = Loopback(port);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Fail("bind");
  if (listen(fd, 1024) != 0) Fail("listen");
  return fd;
}

void Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) Fail("epoll_ctl");
}

int Serve(const char* port) {
  int listener = Listen(port);
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

int Idle(const char* port, int count) {
  for (int i = 0; i < count; ++i) ToAndFro(Connect(port));
  puts("ready");
  fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

int Rate(const char* port, double seconds) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now(), now = start;
  long count = 0;
  while (now - start < std::chrono::duration<double>(seconds)) {
    int fd = Connect(port);
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
  if (what == "serve") return Serve(argv[2]);
  if (what == "idle" && argc > 3) return Idle(argv[2], atoi(argv[3]));
  if (what == "rate" && argc > 3) return Rate(argv[2], atof(argv[3]));
  fprintf(stderr, "usage: connections serve PORT | idle PORT COUNT | rate PORT SECONDS\n");
  return 2;
}
