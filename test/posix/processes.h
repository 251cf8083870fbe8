// What the cases of several processes share: children that do not outlive their parent, what these tell one
// another, a client in another process, descriptors in messages, and another program that inherits a
// descriptor.
#ifndef SDP_TEST_POSIX_PROCESSES_H_
#define SDP_TEST_POSIX_PROCESSES_H_

#include <functional>
#include <string>
#include <vector>

#include "test/posix/support.h"

extern char** environ;

namespace posix_test {

// As Child(), and it dies with the thread that made it.
pid_t Fork(const std::function<int()>& body);
void Kill(pid_t pid);

// Close-on-exec.
struct Pipe {
  Pipe();
  void Tell() { REQUIRE(write(out, "x", 1) == 1); }
  // Also in a child: no assertion. False: nobody tells.
  bool Hear() {
    char c;
    return WaitFor(in, POLLIN) && read(in, &c, 1) == 1;
  }
  // Of the end: everybody else has closed `out`.
  bool HearEnd() {
    char c;
    return WaitFor(in, POLLIN | POLLHUP) && read(in, &c, 1) == 0;
  }
  Fd in, out;
};

// Two ends in two processes from the start: only `server`'s end is this one's.
struct RemoteClient {
  pid_t pid = -1;
  Fd server;
};
// A client process that runs `body` on its end.
RemoteClient ServeClient(const std::function<int(int)>& body);
// What such a client may do: sends `up` and then the end while it receives `down` to the end. 0, or 1.
int Exchange(int fd, const std::string& up, const std::string& down);

struct UnixPair {
  Fd a, z;
  explicit UnixPair(int type = SOCK_STREAM) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, type, 0, fds) == 0);
    a = Fd(fds[0]);
    z = Fd(fds[1]);
  }
};

// A descriptor in a message to a Unix socket, beside `text`.
bool Pass(int through, int fd, const char* text = "x");
// -1: none came.
int TakeFrom(int through, int flags = 0);

// --- Another program: this one again, in a hidden case, with a descriptor's number in the environment.

inline constexpr const char* kInheritedNumber = "POSIX_TEST_FD";
// In the hidden case.
int InheritedNumber();

struct Program {
  std::string path;
  std::string name;
  std::string number;
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;

  // `tag`: of the hidden case.
  Program(const char* tag, int fd);
  // Another program of this build.
  void Use(const char* other);
};

// The child's standard output is none of Catch's business.
void Silence();

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_PROCESSES_H_
