// Listeners, local connections and a temporary directory, for the tests that use real sockets.
#ifndef SDP_TEST_PORTMAPPER_LOCAL_SOCKETS_H_
#define SDP_TEST_PORTMAPPER_LOCAL_SOCKETS_H_

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/local_protocol.h"
#include "test/support/eventually.h"

namespace sdp::pm::test {

// Removed with what is in it (no directories) at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

using sdp::test::Eventually;

// A bound TCP socket; port 0 lets the kernel choose. Listens unless told otherwise.
enum class Listening { kYes, kNo };
[[nodiscard]] UniqueFd TcpSocket(std::string_view address, Listening listening = Listening::kYes);
[[nodiscard]] Endpoint LocalAddress(int fd);

// A conventional listener and its SDP listener on one address.
struct ListenerPair {
  explicit ListenerPair(const std::string& address);
  UniqueFd conventional;
  UniqueFd sdp;
};

// A local connection without a registrar, for clients that misbehave.
[[nodiscard]] UniqueFd ConnectLocal(const std::string& path);
// False if the message could not be sent.
bool SendLocal(int connection, Bytes data, std::span<const int> descriptors);
// Empty at the end of the connection; waits for 10 s at most.
[[nodiscard]] std::optional<RegisterReply> AwaitReply(int connection);
// Whether the connection ends, within 10 s.
[[nodiscard]] bool AwaitEnd(int connection);

// Open descriptors of a process.
[[nodiscard]] size_t CountDescriptors(pid_t pid);

}  // namespace sdp::pm::test

#endif  // SDP_TEST_PORTMAPPER_LOCAL_SOCKETS_H_
