// Blocking writes and reads of one size between two processes, for the benchmark of the transfer mechanisms.
//
//   transfer stream SIZE MESSAGES    one side writes, the other reads
//   transfer turns SIZE MESSAGES     SIZE bytes there, SIZE bytes back, in turns
//   transfer requests SIZE MESSAGES  64 bytes there, SIZE bytes back, in turns
//
// Further arguments: "whole", reads are for whole messages (MSG_WAITALL); "apart", each end stays on a
// processor of its own, if there are two; "cancelled", before the first message threads are cancelled that
// sleep in large writes; "polled", a poll comes before each read and write; "polled-beside", and waits for a
// listener, too; "unix", the connection is one of AF_UNIX.
//
// Opens a listener on loopback, forks a server, and prints "SECONDS CPU_SECONDS BYTES" for all messages, both
// ends together. Every message begins and ends with its number, and the reader checks that. Keeps the
// connection open until standard input ends, so that one can look at it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "test/programs/cancelled_writes.h"

namespace {

using programs_test::Fail;

enum class Shape { kStream, kTurns, kRequests };
constexpr size_t kRequest = 64;
int how_to_read = 0;  // flags
bool polls = false;
int also_polled = -1;

void Await(int fd, short events) {
  pollfd waits[] = {{.fd = fd, .events = events, .revents = 0},
                    {.fd = also_polled, .events = POLLIN, .revents = 0}};
  if (polls && poll(waits, std::size(waits), -1) != 1) Fail("poll");
}

void WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    Await(fd, POLLOUT);
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) Fail("send");
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void ReadAll(int fd, char* data, size_t size) {
  while (size > 0) {
    Await(fd, POLLIN);
    const ssize_t n = recv(fd, data, size, how_to_read);
    if (n < 0) Fail("recv");
    if (n == 0) {
      fputs("the peer went away\n", stderr);
      _exit(1);
    }
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void Mark(std::vector<char>& message, uint64_t number) {
  message.front() = message.back() = static_cast<char>(number);
}

void Check(const std::vector<char>& message, uint64_t number) {
  if (message.front() == static_cast<char>(number) && message.back() == static_cast<char>(number)) return;
  fputs("data of another message\n", stderr);
  _exit(1);
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int Serve(int listener, Shape shape, size_t size, uint64_t messages,
          const programs_test::CancelledWrites* cancelled) {
  const int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) Fail("accept");
  if (cancelled != nullptr) cancelled->Read(fd);
  std::vector<char> message(size);
  ReadAll(fd, message.data(), 1);
  WriteAll(fd, message.data(), 1);  // or TCP would keep the first message back until it has an ACK
  const double before = CpuSeconds();
  for (uint64_t i = 0; i < messages; ++i) {
    if (shape == Shape::kRequests) {
      char request[kRequest];
      ReadAll(fd, request, sizeof request);
      Mark(message, i);
    } else {
      ReadAll(fd, message.data(), size);
      Check(message, i);
    }
    if (shape != Shape::kStream) WriteAll(fd, message.data(), size);
  }
  const double used = CpuSeconds() - before;
  WriteAll(fd, reinterpret_cast<const char*>(&used), sizeof used);
  char end;
  (void)!recv(fd, &end, 1, 0);
  return 0;
}

// False: no shape has this name.
bool ParseShape(const char* name, Shape* shape) {
  constexpr const char* kNames[] = {"stream", "turns", "requests"};
  for (int i = 0; i < 3; ++i) {
    if (strcmp(name, kNames[i]) != 0) continue;
    *shape = static_cast<Shape>(i);
    return true;
  }
  return false;
}

// To the first or the last of the processors that `allowed` has.
void StayOn(const cpu_set_t& allowed, bool first) {
  int chosen = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE && !(first && chosen >= 0); ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) chosen = cpu;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(chosen, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) Fail("sched_setaffinity");
}

}  // namespace

int main(int argc, char** argv) {
  Shape shape{};
  bool understood = argc >= 4 && ParseShape(argv[1], &shape);
  const size_t size = understood ? strtoull(argv[2], nullptr, 10) : 0;
  const uint64_t messages = understood ? strtoull(argv[3], nullptr, 10) : 0;
  bool apart = false;
  bool cancels = false;
  bool unix_sockets = false;
  for (int i = 4; i < argc; ++i) {
    if (strcmp(argv[i], "whole") == 0) {
      how_to_read = MSG_WAITALL;
    } else if (strcmp(argv[i], "apart") == 0) {
      apart = true;
    } else if (strcmp(argv[i], "cancelled") == 0) {
      cancels = true;
    } else if (strcmp(argv[i], "polled") == 0) {
      polls = true;
    } else if (strcmp(argv[i], "polled-beside") == 0) {
      polls = true;
      also_polled = programs_test::Place(AF_INET).Listen();
    } else if (strcmp(argv[i], "unix") == 0) {
      unix_sockets = true;
    } else {
      understood = false;
    }
  }
  if (!understood || size == 0 || messages == 0) {
    fputs(
        "usage: transfer {stream|turns|requests} SIZE MESSAGES [whole] [apart] [cancelled] [polled] "
        "[polled-beside] [unix]\n",
        stderr);
    return 2;
  }
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) Fail("sched_getaffinity");
  if (apart) StayOn(allowed, true);  // before there is any thread of the library's
  // A connected pair of descriptors would be no SDP.
  programs_test::Place place(unix_sockets ? sa_family_t{AF_UNIX} : sa_family_t{AF_INET});
  const int listener = place.Listen();
  const programs_test::CancelledWrites cancelled;
  const pid_t server = fork();
  if (server < 0) Fail("fork");
  if (server == 0) {
    if (apart) StayOn(allowed, false);
    _exit(Serve(listener, shape, size, messages, cancels ? &cancelled : nullptr));
  }

  const int fd = place.Connect();
  if (cancels) cancelled.Write(fd);
  std::vector<char> message(size, 'x');
  WriteAll(fd, message.data(), 1);
  ReadAll(fd, message.data(), 1);
  const double before = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < messages; ++i) {
    if (shape == Shape::kRequests) {
      const char request[kRequest] = {};
      WriteAll(fd, request, sizeof request);
    } else {
      Mark(message, i);
      WriteAll(fd, message.data(), size);
    }
    if (shape == Shape::kStream) continue;
    ReadAll(fd, message.data(), size);
    Check(message, i);
  }
  auto end = std::chrono::steady_clock::now();
  double server_cpu = 0;
  ReadAll(fd, reinterpret_cast<char*>(&server_cpu), sizeof server_cpu);
  // Behind an answer TCP keeps this word back until the answer has its ACK.
  if (shape == Shape::kStream) end = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(end - start).count();
  const double cpu = CpuSeconds() - before + server_cpu;
  printf("%.6f %.6f %llu\n", seconds, cpu,
         static_cast<unsigned long long>(size * messages * (shape == Shape::kTurns ? 2 : 1)));
  fflush(stdout);
  while (getchar() != EOF) {
  }
  close(fd);
  int status = 0;
  if (waitpid(server, &status, 0) != server || status != 0) {
    fputs("the server failed\n", stderr);
    return 1;
  }
  return 0;
}
