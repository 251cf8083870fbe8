#include "test/posix/processes.h"

#include <sys/prctl.h>
#include <sys/un.h>

#include <cstdlib>

namespace posix_test {
namespace {

// A message of one piece with room for one descriptor.
struct Message {
  iovec piece;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  Message(void* data, size_t size) : piece{data, size} {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

}  // namespace

pid_t Fork(const std::function<int()>& body) {
  return Child([&] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return body();
  });
}

void Kill(pid_t pid) {
  REQUIRE(kill(pid, SIGKILL) == 0);
  Reap(pid);
}

Pipe::Pipe() {
  int fds[2];
  REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
  in.reset(fds[0]);
  out.reset(fds[1]);
}

RemoteClient ServeClient(const std::function<int(int)>& body) {
  Listener listener = Listen();
  RemoteClient remote;
  remote.pid = Fork([&] {
    listener.fd.reset();
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 100;
    return body(client);
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  remote.server = Fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(remote.server >= 0);
  return remote;
}

int Exchange(int fd, const std::string& up, const std::string& down) {
  auto sender = Async([&] { return SendAll(fd, up) && shutdown(fd, SHUT_WR) == 0; });
  const std::string got = ReceiveToEnd(fd);
  return sender.get() && Hash(got) == Hash(down) ? 0 : 1;
}

bool Pass(int through, int fd, const char* text) {
  Message message(const_cast<char*>(text), strlen(text));
  cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return sendmsg(through, &message.header, 0) == static_cast<ssize_t>(strlen(text));
}

int TakeFrom(int through, int flags) {
  char text[16];
  Message message(text, sizeof text);
  if (recvmsg(through, &message.header, flags) <= 0) return -1;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(sizeof(int)))
    return -1;
  int fd;
  memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  return fd;
}

int InheritedNumber() {
  const char* const number = getenv(kInheritedNumber);
  REQUIRE(number != nullptr);
  return atoi(number);
}

Program::Program(const char* tag, int fd)
    : name(tag), number(std::string(kInheritedNumber) + "=" + std::to_string(fd)) {
  char target[4096];
  const ssize_t length = readlink("/proc/self/exe", target, sizeof target - 1);
  REQUIRE(length > 0);
  path = std::string(target, static_cast<size_t>(length));
  for (char** v = environ; *v != nullptr; ++v) {
    if (strncmp(*v, kInheritedNumber, strlen(kInheritedNumber)) != 0) environment.emplace_back(*v);
  }
  environment.push_back(number);
  argv = {path.data(), name.data(), nullptr};
  for (std::string& v : environment) envp.push_back(v.data());
  envp.push_back(nullptr);
}

void Program::Use(const char* other) {
  path = path.substr(0, path.rfind('/') + 1) + other;
  argv[0] = path.data();
}

void Silence() {
  Fd null(open("/dev/null", O_WRONLY));
  dup2(null, STDOUT_FILENO);
}

}  // namespace posix_test
