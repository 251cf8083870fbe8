// A program that no preload reaches: statically linked. As the hidden cases of exec_test.cc, on the
// descriptor that POSIX_TEST_FD names.
//   echo    to the end of the stream, then "bye"
//   reset   reads one byte and ends with the connection reset
//   take    listens at the abstract Unix address POSIX_TEST_NAME, closes the descriptor, echoes on one
//           it is passed
//   wait    reads to the end, and says how that was: "end", or an error's number
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

int Echo(int fd) {
  static char buffer[65536];
  std::string all;
  ssize_t n;
  while ((n = read(fd, buffer, sizeof buffer)) > 0) all.append(buffer, static_cast<size_t>(n));
  return n == 0 && WriteAll(fd, all.data(), all.size()) && WriteAll(fd, "bye", 3) ? 0 : 1;
}

int Reset(int fd) {
  char c;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  return read(fd, &c, 1) == 1 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0 &&
                 close(fd) == 0
             ? 0
             : 1;
}

int Wait(int fd) {
  char buffer[256];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof buffer)) > 0) {
  }
  return n == 0 ? 200 : errno;
}

int Take(int ready) {
  const char* const name = getenv("POSIX_TEST_NAME");
  if (name == nullptr) return 2;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path + 1, name, std::strlen(name));
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0)
    return 3;
  close(ready);
  const int channel = accept(listener, nullptr, nullptr);
  char text[16];
  iovec piece{.iov_base = text, .iov_len = sizeof text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(channel, &message, 0) <= 0 || CMSG_FIRSTHDR(&message) == nullptr) return 4;
  int fd;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return Echo(fd);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const number = getenv("POSIX_TEST_FD");
  if (argc < 2 || number == nullptr) return 2;
  const int fd = atoi(number);
  if (std::strcmp(argv[1], "echo") == 0) return Echo(fd);
  if (std::strcmp(argv[1], "reset") == 0) return Reset(fd);
  if (std::strcmp(argv[1], "take") == 0) return Take(fd);
  if (std::strcmp(argv[1], "wait") == 0) return Wait(fd);
  return 2;
}
