// The preloaded side: ordinary socket calls, as any program makes them.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/probe/probe.h"
#include "tools/probe/probe_words.h"

namespace sdp::probe {
namespace {

// Says how it went and stays, with what it has open, until whoever asked has looked.
int Answer(const char* word, const char* text) {
  std::printf("%s%s\n", word, text);
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

int Connect(const sockaddr* address, socklen_t length, int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, address, length) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int AnswerTime(std::chrono::steady_clock::time_point start) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f",
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  return Answer(kConnected, text);
}

int ConnectTo(const char* host, const char* port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host, port, &hints, &found);
  if (error != 0) return Answer(kFailed, gai_strerror(error));
  const auto start = std::chrono::steady_clock::now();
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (Connect(one->ai_addr, one->ai_addrlen, one->ai_family) >= 0) return AnswerTime(start);
  }
  return Answer(kFailed, strerror(errno));
}

int ConnectToSelf() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Answer(kFailed, strerror(errno));
  }
  std::thread server([listener] {
    const int fd = accept(listener, nullptr, nullptr);
    char byte;
    if (fd >= 0 && read(fd, &byte, 1) == 1) (void)!write(fd, &byte, 1);
  });
  const auto start = std::chrono::steady_clock::now();
  const int fd = Connect(reinterpret_cast<sockaddr*>(&address), length, AF_INET);
  if (fd < 0) {
    const int error = errno;
    shutdown(listener, SHUT_RD);
    server.join();
    return Answer(kFailed, strerror(error));
  }
  char byte = 'x';
  const bool echoed = write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1;
  server.join();
  return echoed ? AnswerTime(start) : Answer(kFailed, "the byte that was sent did not come back");
}

}  // namespace

bool ServeProbe(int argc, char** argv, int* status) {
  if (argc != 4 || strcmp(argv[1], kProbeOption) != 0) return false;
  alarm(60);  // whoever asked may be gone
  *status = argv[2][0] == '\0' ? ConnectToSelf() : ConnectTo(argv[2], argv[3]);
  return true;
}

}  // namespace sdp::probe
