// Processes that a signal ends: children with connections to this one.
#ifndef SDP_TEST_POSIX_ENDED_PROCESS_H_
#define SDP_TEST_POSIX_ENDED_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "test/posix/processes.h"

namespace posix_test {

// In the child. The test framework has handlers; and nobody wants the core.
void TakeDefaults();
void Pause();
// `status` as Reap() gives it.
bool EndedBy(int status, int number);

// A child that connects to this process when it is told where. A case makes all that it needs before anything
// else: in a child of a process that has threads by then TSan runs no handlers.
class Connecting {
 public:
  // Its status. `connected`: one more connection, or -1.
  using Body = std::function<int(const std::function<int()>& connected)>;
  explicit Connecting(const Body& body);
  pid_t pid() const { return pid_; }
  // For `connections`; in any order.
  std::vector<Fd> Accept(size_t connections);

 private:
  Pipe where_;
  pid_t pid_ = -1;
};

// Sends of what Sendings() gives, `piece` at a time, all that is taken without blocking: how much. The socket
// is blocking before and after.
size_t FillWithPieces(int fd, size_t piece);

// A child that sends all that is taken without blocking, on each of its connections, and then does `rest`.
class Filler {
 public:
  static constexpr size_t kPiece = 10'000;
  static constexpr size_t kNothing = 0;

  // `pieces`: how much each connection's sends have.
  Filler(const std::vector<size_t>& pieces, const std::function<void(const std::vector<int>& fds)>& rest);
  void Fill();
  pid_t pid() const { return child_.pid(); }

  // The other ends, as the child has them, and what it has sent on each.
  std::vector<Fd> peers;
  std::vector<size_t> sent;

 private:
  struct Filled {
    size_t port;
    size_t bytes;
  };

  const size_t connections_;
  Pipe told_;
  Connecting child_;
};
using Fillers = std::vector<std::unique_ptr<Filler>>;

// What such a child sends, of which not all is ever taken.
const std::string& Sendings();
// It begins with `got`.
bool IsBeginning(const std::string& got);
// Exactly what was sent, and then the end. `got`: what has come already.
void RequireAll(int peer, size_t sent, std::string got = {});

// A signal ends the child, and all that it has sent on its first connection arrives.
void RequireDelivers(Filler& child, int number = SIGTERM);
// The end of a connection with nothing unsent, the second one, tells that the process is ending, and waits
// for who reads the other one.
void RequireEnding(const Filler& child);

// The first thread of a process, for good: what it does before has no reason to sleep for long.
void LetSleep(pid_t pid);

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_ENDED_PROCESS_H_
