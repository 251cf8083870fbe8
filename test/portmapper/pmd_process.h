// A real sdp-pmd on loopback, and a client that asks it.
#ifndef SDP_TEST_PORTMAPPER_PMD_PROCESS_H_
#define SDP_TEST_PORTMAPPER_PMD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/pm_client.h"

namespace sdp::pm::test {

class PmdProcess {
 public:
  // Runs sdp-pmd with these arguments; `ready_line` has what it printed when ready, empty if it ended
  // instead.
  // kNowhere: standard output is /dev/null, and ready_line stays empty.
  enum class Output { kPipe, kNowhere };
  explicit PmdProcess(std::vector<std::string> arguments, Output output = Output::kPipe);
  // Killed if still running.
  ~PmdProcess();
  PmdProcess(const PmdProcess&) = delete;
  PmdProcess& operator=(const PmdProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& ready_line() const { return ready_line_; }
  // The i-th --listen address, with the port it got.
  [[nodiscard]] Endpoint listen_address(size_t i = 0) const;
  // All it logged until now.
  [[nodiscard]] std::string Log() const;

  void Signal(int signal) const;
  // Its exit status, or -1 if a signal ended it. Waits for 10 s at most.
  int AwaitExit();

 private:
  pid_t pid_ = -1;
  UniqueFd log_;
  std::string ready_line_;
};

// Asks the mapper at `mapper` for `target`; waits as a client does, with time-outs for a slow machine.
struct Answer {
  QueryState state;
  Endpoint sdp_address;
};
[[nodiscard]] Answer Ask(const Endpoint& mapper, const Endpoint& target);

}  // namespace sdp::pm::test

#endif  // SDP_TEST_PORTMAPPER_PMD_PROCESS_H_
