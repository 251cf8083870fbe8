// A program that has no memory left when it makes its first socket. Connects to the port of 127.0.0.1 that
// its argument names. Exits with 0, with 1 without a socket, with 2 if the connect has failed for another
// reason than the memory, and with 9 if it cannot limit its memory. Uses the C library alone.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

bool LimitMemory() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY);
  if (read(file, text, sizeof text - 1) <= 0) return false;
  close(file);
  const rlim_t size = strtoul(text, nullptr, 10) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const rlimit limit{.rlim_cur = size, .rlim_max = size};
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !LimitMemory()) return 9;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<in_port_t>(atoi(argv[1])));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return 1;
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return connected || errno == ENOMEM ? 0 : 2;
}
