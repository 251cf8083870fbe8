// How many questions a second sdp-pmd answers, beside a plain UDP echo in the same run.
//
//   pm_load [--seconds S] [--rounds N] [--window W] [--listen ADDR]
//
// Each round loads the echo, then sdp-pmd with questions it accepts, then with such it denies, from one
// socket that keeps W datagrams under way; server and generator run on a processor each where there are two.
// Besides the rate, which other work on the machine disturbs, it reports what an answer costs the server in
// processor time, as the scheduler counts it. The last line is the result: the median of the rounds' ratios,
// sdp-pmd to echo.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/registrar.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBatch = 64;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "pm_load: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void RunOnProcessor(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) sched_setaffinity(0, sizeof set, &set);
}

UniqueFd Loopback(int type) {
  UniqueFd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(*ParseEndpoint("127.0.0.1:0"), &name);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) Die("bind");
  if (type == SOCK_STREAM && listen(fd.get(), 1) != 0) Die("listen");
  const int buffer = 1 << 20;
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  return fd;
}

Endpoint LocalAddress(int fd) {
  sockaddr_storage name;
  socklen_t length = sizeof name;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) Die("getsockname");
  return *FromSockaddr(name);
}

// Datagrams, their addresses and the kernel's descriptions of them.
struct Batch {
  Batch() {
    for (size_t i = 0; i < kBatch; ++i) {
      data[i] = {bytes[i].data(), bytes[i].size()};
      headers[i] = {};
      headers[i].msg_hdr.msg_iov = &data[i];
      headers[i].msg_hdr.msg_iovlen = 1;
    }
  }
  std::array<Datagram, kBatch> bytes{};
  std::array<sockaddr_storage, kBatch> peers{};
  std::array<iovec, kBatch> data;
  std::array<mmsghdr, kBatch> headers;
};

// The plainest server there is: what came goes back.
[[noreturn]] void Echo(int fd) {
  Batch batch;
  while (true) {
    for (size_t i = 0; i < kBatch; ++i) {
      batch.headers[i].msg_hdr.msg_name = &batch.peers[i];
      batch.headers[i].msg_hdr.msg_namelen = sizeof batch.peers[i];
    }
    const int received = recvmmsg(fd, batch.headers.data(), kBatch, MSG_WAITFORONE, nullptr);
    for (int sent = 0; sent < received;) {
      const int n = sendmmsg(fd, batch.headers.data() + sent, static_cast<unsigned>(received - sent), 0);
      sent += std::max(n, 1);
    }
  }
}

struct Server {
  pid_t pid = -1;
  Endpoint address;
  ~Server() {
    if (pid > 0) kill(pid, SIGKILL);
    if (pid > 0) waitpid(pid, nullptr, 0);
  }
};

void StartEcho(Server* server) {
  const UniqueFd fd = Loopback(SOCK_DGRAM);
  server->address = LocalAddress(fd.get());
  server->pid = fork();
  if (server->pid != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  RunOnProcessor(0);
  Echo(fd.get());
}

void StartPmd(Server* server, const std::string& listen_on, const std::string& socket_path) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) Die("pipe");
  const UniqueFd from_pmd(out[0]);
  UniqueFd to_us(out[1]);
  server->pid = fork();
  if (server->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    RunOnProcessor(0);
    dup2(to_us.get(), STDOUT_FILENO);
    execl(SDP_PMD_BINARY, SDP_PMD_BINARY, "--listen", listen_on.c_str(), "--socket", socket_path.c_str(),
          "--log-level", "error", "--limit-source", "100000000", "--limit-total", "100000000", nullptr);
    _exit(127);
  }
  to_us.Reset();
  std::string line;
  char c;
  while (read(from_pmd.get(), &c, 1) == 1 && c != '\n') line += c;
  constexpr std::string_view kPrefix = "sdp-pmd: ready, ";
  if (line.compare(0, kPrefix.size(), kPrefix) != 0) Die("sdp-pmd does not start");
  server->address =
      *ParseEndpoint(line.substr(kPrefix.size(), line.find(',', kPrefix.size()) - kPrefix.size()));
  if (server->address.IsWildcard())
    server->address = *ParseEndpoint("127.0.0.1:" + std::to_string(server->address.port));
}

// Nanoseconds this process has run.
uint64_t ProcessorTime(pid_t pid) {
  uint64_t nanoseconds = 0;
  std::ifstream("/proc/" + std::to_string(pid) + "/schedstat") >> nanoseconds;
  return nanoseconds;
}

struct Result {
  double rate;  // answers a second
  double cost;  // of an answer to the server, in nanoseconds
};

// Keeps `window` questions about `target` under way for `seconds`. Every question is a new one: a new handle,
// a port of many.
Result Load(const Server& server, const Endpoint& target, double seconds, size_t window) {
  const UniqueFd fd = Loopback(SOCK_DGRAM);
  sockaddr_storage name;
  const socklen_t length = ToSockaddr(server.address, &name);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) Die("connect");
  Endpoint source = LocalAddress(fd.get());
  Batch out;
  Batch in;
  uint64_t handle = 0;
  uint64_t answers = 0;
  size_t under_way = 0;
  const uint64_t before = ProcessorTime(server.pid);
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    while (under_way + kBatch <= window) {
      for (size_t i = 0; i < kBatch; ++i, ++handle) {
        source.port = static_cast<uint16_t>(1024 + handle % 64000);
        out.bytes[i] = Serialize({MessageType::kReq, PmTime(0), AssocHandle(handle), source, target});
      }
      under_way += static_cast<size_t>(std::max(sendmmsg(fd.get(), out.headers.data(), kBatch, 0), 0));
    }
    pollfd readable{fd.get(), POLLIN, 0};
    if (poll(&readable, 1, 50) == 0) under_way = 0;  // lost: begin afresh
    const int received = recvmmsg(fd.get(), in.headers.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (received <= 0) continue;
    answers += static_cast<uint64_t>(received);
    under_way -= std::min(under_way, static_cast<size_t>(received));
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  const auto spent = static_cast<double>(ProcessorTime(server.pid) - before);
  const auto count = static_cast<double>(std::max<uint64_t>(answers, 1));
  return {count / elapsed, spent / count};
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int Run(double seconds, int rounds, size_t window, const std::string& listen_on) {
  char directory[] = "/tmp/sdp-pm-load-XXXXXX";
  if (mkdtemp(directory) == nullptr) Die("mkdtemp");
  const std::string socket_path = std::string(directory) + "/pmd.sock";
  const UniqueFd conventional = Loopback(SOCK_STREAM);
  const UniqueFd sdp = Loopback(SOCK_STREAM);
  Server echo;
  Server pmd;
  StartEcho(&echo);
  StartPmd(&pmd, listen_on, socket_path);
  const auto registration =
      RegisterListener(socket_path, conventional.get(), sdp.get(), std::chrono::seconds(5));
  std::filesystem::remove_all(directory);
  if (!registration) Die("no registration");
  const UniqueFd keep(*registration);
  const Endpoint served = LocalAddress(conventional.get());
  const Endpoint unserved = LocalAddress(sdp.get());

  RunOnProcessor(1);
  std::vector<double> rate_ratios;
  std::vector<double> cost_ratios;
  std::printf("%-8s %14s %14s %14s %10s %10s\n", "", "echo", "accepted", "denied", "rate", "cost");
  for (int round = 0; round < rounds; ++round) {
    const Result e = Load(echo, served, seconds, window);
    const Result a = Load(pmd, served, seconds, window);
    const Result d = Load(pmd, unserved, seconds, window);
    rate_ratios.push_back(a.rate / e.rate);
    cost_ratios.push_back(e.cost / a.cost);
    std::printf("%-8s %12.0f/s %12.0f/s %12.0f/s %10.2f\n", "", e.rate, a.rate, d.rate, rate_ratios.back());
    std::printf("%-8s %11.0f ns %11.0f ns %11.0f ns %10s %10.2f\n", "", e.cost, a.cost, d.cost, "",
                cost_ratios.back());
    std::fflush(stdout);
  }
  std::printf(
      "sdp-pmd answers %.2f of what an echo answers in the same time, %.2f for the same processor time "
      "(wanted: 0.80)\n",
      Median(rate_ratios), Median(cost_ratios));
  return 0;
}

}  // namespace
}  // namespace sdp::pm

int main(int argc, char** argv) {
  double seconds = 1;
  int rounds = 5;
  size_t window = 256;
  std::string listen_on = "127.0.0.1:0";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const double value = std::atof(argv[i + 1]);
    if (option == "--listen") listen_on = std::string(argv[i + 1]) + ":0";
    if (option == "--seconds") seconds = value;
    if (option == "--rounds") rounds = std::max(static_cast<int>(value), 1);
    if (option == "--window") window = std::max<size_t>(static_cast<size_t>(value), sdp::pm::kBatch);
  }
  return sdp::pm::Run(seconds, rounds, window, listen_on);
}
