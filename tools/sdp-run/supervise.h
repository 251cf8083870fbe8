// sdp-run --pmd: a port mapper that lives exactly as long as the program.
#ifndef SDP_TOOLS_SDP_RUN_SUPERVISE_H_
#define SDP_TOOLS_SDP_RUN_SUPERVISE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace sdp::run {

// A port mapper started by this process, with a directory of its own for its socket.
class PrivateDaemon {
 public:
  ~PrivateDaemon() { Stop(); }
  // Starts `program` and waits until it is ready. Empty, or a sentence that says what went wrong.
  std::string Start(const std::string& program);
  // Asks it to stop, waits up to two seconds, then kills it; removes the directory.
  void Stop();
  [[nodiscard]] std::string socket_path() const { return directory_ + "/pmd.sock"; }

 private:
  pid_t pid_ = -1;
  std::string directory_;
};

// Runs the program as a child: passes on the signals that other processes send to this one, stops when it
// stops, and ends as it ended. Returns the exit status for main; does not return if the program was killed by
// a signal (then this process dies by the same). `before_end` runs once the program is gone.
int RunAsChild(const std::vector<char*>& arguments, PrivateDaemon* daemon);

// execvp, and the exit status that says why it failed: 127 not found, 126 anything else.
int Execute(const std::vector<char*>& arguments);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_SUPERVISE_H_
