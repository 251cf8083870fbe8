// What framing costs: a stream of Sends between two processes over loopback against plain TCP with the same
// size, in one run. Usage: verbs_bench [message bytes] [total MiB] [runs]
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "test/verbs/link_pair.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::iwarp::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHeader = 16;  // of the upper layer, in front of each message

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

void Wait(int fd, short events) {
  pollfd p{.fd = fd, .events = events, .revents = 0};
  ::poll(&p, 1, -1);
}

// Processor time of this process and of the children it has waited for: steadier than wall clock on a busy
// machine.
double CpuSeconds() {
  double total = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime}) {
      total += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    }
  }
  return total;
}

double last_cpu = 0;  // of the last InTwoProcesses, both together

// Runs `child` in a process of its own while `parent` measures.
template <typename Parent, typename Child>
double InTwoProcesses(Parent&& parent, Child&& child) {
  const double before = CpuSeconds();
  const pid_t pid = ::fork();
  if (pid == 0) {
    child();
    ::_exit(0);
  }
  const double result = parent();
  ::waitpid(pid, nullptr, 0);
  last_cpu = CpuSeconds() - before;
  return result;
}

double TcpStream(size_t message, uint64_t total) {
  auto fds = LoopbackPair(true);
  return InTwoProcesses(
      [&] {
        fds[1].Close();
        std::vector<std::byte> buffer(message);
        const auto start = Clock::now();
        for (uint64_t sent = 0; sent < total;)
          sent += static_cast<uint64_t>(::send(fds[0].value, buffer.data(), message, 0));
        ::shutdown(fds[0].value, SHUT_WR);
        char end;
        (void)!::recv(fds[0].value, &end, 1, 0);
        return static_cast<double>(total) / Seconds(start);
      },
      [&] {
        fds[0].Close();
        std::vector<std::byte> buffer(std::max<size_t>(message, 128 * 1024));
        while (::recv(fds[1].value, buffer.data(), buffer.size(), 0) > 0) {
        }
        fds[1].Close();
      });
}

struct Ends {
  std::array<Fd, 2> fds;
  std::unique_ptr<verbs::QueuePair> qp[2];
};

Ends Establish(size_t message) {
  Ends ends{.fds = LoopbackPair(true), .qp = {}};
  const verbs::QpOptions options{.receive_buffer_size = static_cast<uint32_t>(message + kHeader),
                                 .initial_receives = 1u << 30};
  auto a = Connect(ends.fds[0].value, {}, options, {}, Now());
  auto z = Listen(ends.fds[1].value, {}, Now());
  const auto established = [](auto& connector) {
    return connector->Step(Now()) == verbs::ConnectState::kEstablished;
  };
  while (!established(a) || !established(z)) {
    if (z->Step(Now()) == verbs::ConnectState::kRequested) z->Accept({}, options);
  }
  ends.qp[0] = a->TakeQueuePair();
  ends.qp[1] = z->TakeQueuePair();
  return ends;
}

double RnicStream(size_t message, uint64_t total) {
  Ends ends = Establish(message);
  return InTwoProcesses(
      [&] {
        ends.fds[1].Close();
        verbs::QueuePair& qp = *ends.qp[0];
        std::vector<std::byte> buffer(message);
        const std::byte header[kHeader] = {};
        const auto start = Clock::now();
        const Bytes payload(buffer);
        for (uint64_t sent = 0; sent < total; sent += message) {
          if (qp.PostSend({.id = WorkId(1), .header = header, .payload = std::span(&payload, 1)}) !=
              verbs::PostResult::kOk)
            break;
          while (!qp.Flush()) Wait(ends.fds[0].value, POLLOUT);
        }
        qp.Disconnect();
        char end;
        (void)!::recv(ends.fds[0].value, &end, 1, 0);
        return static_cast<double>(total) / Seconds(start);
      },
      [&] {
        ends.fds[0].Close();
        verbs::QueuePair& qp = *ends.qp[1];
        // The application's buffer, filled message by message as a read() would be.
        std::vector<std::byte> buffer(128 * 1024);
        size_t used = 0;
        for (;;) {
          const verbs::ReadStatus status = qp.ReadLink();
          if (status == verbs::ReadStatus::kEnded) break;
          if (status == verbs::ReadStatus::kWouldBlock) Wait(ends.fds[1].value, POLLIN);
          verbs::Completion c;
          while (qp.PollCompletion(&c)) {
            if (c.opcode != verbs::Opcode::kReceive) continue;
            size_t skip = kHeader;
            for (size_t i = 0; i < c.piece_count; ++i) {
              Bytes piece = c.pieces[i];
              const size_t n = std::min(skip, piece.size());
              skip -= n;
              piece = piece.subspan(n);
              while (!piece.empty()) {
                const size_t room = std::min(piece.size(), buffer.size() - used);
                std::memcpy(buffer.data() + used, piece.data(), room);
                used += room;
                piece = piece.subspan(room);
                if (used == buffer.size()) used = 0;
              }
            }
            qp.Release(c.token);
          }
        }
        if (std::getenv("VERBS_BENCH_COUNTERS") != nullptr) {
          const auto& k = qp.counters();
          std::printf("    receiver: %.1f KiB a read, %.0f%% placed\n",
                      static_cast<double>(k.bytes_in) / 1024 / static_cast<double>(k.read_calls),
                      100.0 * static_cast<double>(k.placed_in) / static_cast<double>(k.bytes_in));
          std::fflush(stdout);
        }
        ends.fds[1].Close();
      });
}

double TcpPingPong(size_t message, int rounds) {
  auto fds = LoopbackPair(true);
  return InTwoProcesses(
      [&] {
        std::vector<std::byte> buffer(message);
        const auto start = Clock::now();
        for (int i = 0; i < rounds; ++i) {
          (void)!::send(fds[0].value, buffer.data(), message, 0);
          (void)!::recv(fds[0].value, buffer.data(), message, MSG_WAITALL);
        }
        return Seconds(start) / rounds / 2;
      },
      [&] {
        std::vector<std::byte> buffer(message);
        for (int i = 0; i < rounds; ++i) {
          (void)!::recv(fds[1].value, buffer.data(), message, MSG_WAITALL);
          (void)!::send(fds[1].value, buffer.data(), message, 0);
        }
      });
}

double RnicPingPong(size_t message, int rounds) {
  Ends ends = Establish(message);
  const auto turn = [&](int side, bool first) {
    verbs::QueuePair& qp = *ends.qp[side];
    std::vector<std::byte> buffer(message);
    const std::byte header[kHeader] = {};
    const Bytes payload(buffer);
    const auto send = [&] {
      qp.PostSend({.id = WorkId(1), .header = header, .payload = std::span(&payload, 1)});
      if (!qp.Flush()) qp.DetachBorrowed();
    };
    for (int i = 0; i < rounds; ++i) {
      if (first) send();
      verbs::Completion c;
      while (!qp.PollCompletion(&c)) {
        if (qp.ReadLink() == verbs::ReadStatus::kWouldBlock) Wait(ends.fds[side].value, POLLIN);
      }
      qp.Release(c.token);
      if (!first) send();
    }
  };
  return InTwoProcesses(
      [&] {
        const auto start = Clock::now();
        turn(0, true);
        return Seconds(start) / rounds / 2;
      },
      [&] { turn(1, false); });
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int Main(int argc, char** argv) {
  const size_t message = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 32768;
  const uint64_t total = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2048) << 20;
  const int runs = argc > 3 ? std::atoi(argv[3]) : 5;
  struct Row {
    std::vector<double> value, cpu;
    void Add(double v) {
      value.push_back(v);
      cpu.push_back(last_cpu);
    }
  } tcp, rnic, tcp_half, rnic_half;
  for (int i = 0; i < runs; ++i) {
    tcp.Add(TcpStream(message, total));
    rnic.Add(RnicStream(message, total));
    tcp_half.Add(TcpPingPong(64, 20000));
    rnic_half.Add(RnicPingPong(64, 20000));
  }
  const auto print = [](const char* name, const Row& row, const Row& base, double scale, const char* unit) {
    std::printf("  %-28s %7.2f %s (%.2f)   processor time %.3f s (%.2f)\n", name, Median(row.value) * scale,
                unit, Median(row.value) / Median(base.value), Median(row.cpu),
                Median(row.cpu) / Median(base.cpu));
  };
  std::printf("stream of %zu byte messages, %llu MiB, against TCP in brackets\n", message,
              static_cast<unsigned long long>(total >> 20));
  print("TCP", tcp, tcp, 1e-9, "GB/s");
  print("Sends", rnic, tcp, 1e-9, "GB/s");
  std::printf("64 byte ping-pong, half round trip\n");
  print("TCP", tcp_half, tcp_half, 1e6, "us");
  print("Sends", rnic_half, tcp_half, 1e6, "us");
  return 0;
}

}  // namespace
}  // namespace sdp::iwarp::test

int main(int argc, char** argv) { return sdp::iwarp::test::Main(argc, argv); }
