#include "test/portmapper/pmd_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <random>

#include "portmapper/engine/assoc_handle.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"

extern char** environ;

namespace sdp::pm::test {

namespace {

// Our end, and the daemon's.
void OpenOutput(PmdProcess::Output output, int (&ends)[2]) {
  if (output == PmdProcess::Output::kPipe) {
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    return;
  }
  ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ends[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
  REQUIRE(ends[0] >= 0);
  REQUIRE(ends[1] >= 0);
}

// Opened before a test becomes another user, who may not be able to enter the build tree.
const UniqueFd pmd_binary(open(SDP_PMD_BINARY, O_PATH | O_CLOEXEC));

}  // namespace

PmdProcess::PmdProcess(std::vector<std::string> arguments, Output output)
    : log_(memfd_create("log", MFD_CLOEXEC)) {
  int out[2];
  OpenOutput(output, out);
  UniqueFd from_pmd(out[0]);
  UniqueFd to_us(out[1]);
  arguments.insert(arguments.begin(), SDP_PMD_BINARY);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_us.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log_.get(), STDERR_FILENO);
  int error = posix_spawn(&pid_, SDP_PMD_BINARY, &actions, nullptr, argv.data(), environ);
  if (error == EACCES) {
    const std::string opened = "/proc/self/fd/" + std::to_string(pmd_binary.get());
    error = posix_spawn(&pid_, opened.c_str(), &actions, nullptr, argv.data(), environ);
  }
  REQUIRE(error == 0);
  posix_spawn_file_actions_destroy(&actions);
  to_us.Reset();
  char c;
  while (read(from_pmd.get(), &c, 1) == 1 && c != '\n') ready_line_ += c;
}

PmdProcess::~PmdProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Endpoint PmdProcess::listen_address(size_t i) const {
  constexpr std::string_view kPrefix = "sdp-pmd: ready, ";
  REQUIRE(ready_line_.substr(0, kPrefix.size()) == kPrefix);
  size_t start = kPrefix.size();
  for (; i > 0; --i) start = ready_line_.find(' ', start) + 1;
  const std::string text = ready_line_.substr(start, ready_line_.find_first_of(" ,", start) - start);
  return At(text);
}

std::string PmdProcess::Log() const {
  std::string text(1 << 20, '\0');
  const ssize_t length = pread(log_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

void PmdProcess::Signal(int signal) const { REQUIRE(kill(pid_, signal) == 0); }

int PmdProcess::AwaitExit() {
  int status = 0;
  REQUIRE(Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }));
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Answer Ask(const Endpoint& mapper, const Endpoint& target) {
  static AssocHandleGenerator handles({std::random_device()(), std::random_device()()});
  const UniqueFd udp(
      socket(mapper.version == IpVersion::kV4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(mapper, &name);
  REQUIRE(connect(udp.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  const auto now = [] { return Time(std::chrono::steady_clock::now().time_since_epoch()); };
  PmClientOptions options;
  options.first_timeout = std::chrono::milliseconds(500);
  options.overall_limit = std::chrono::seconds(5);
  Endpoint local = LocalAddress(udp.get());
  local.version = target.version;
  PmClient client({handles.Next(), local, target}, options, now());
  while (true) {
    while (const auto datagram = client.PollTransmit())
      (void)!send(udp.get(), datagram->data(), datagram->size(), 0);
    if (client.state() != QueryState::kAsking) return {client.state(), client.sdp_address()};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(client.NextTimeout() - now()).count();
    pollfd readable{udp.get(), POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(std::max<decltype(wait)>(wait, 0))) == 1) {
      std::array<std::byte, 64> buffer;
      const ssize_t received = recv(udp.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (received >= 0) client.HandleDatagram(Bytes(buffer).first(static_cast<size_t>(received)), now());
      if (received < 0 && errno == ECONNREFUSED) client.HandleUnreachable(now());
    }
    client.HandleTimeout(now());
  }
}

}  // namespace sdp::pm::test
