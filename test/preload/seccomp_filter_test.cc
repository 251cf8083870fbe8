#include "preload/seccomp_filter.h"

#include <linux/audit.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "preload/confinement.h"

namespace sdp::preload {
namespace {

constexpr sock_filter kNumber = BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr));
constexpr sock_filter Return(uint32_t what) { return BPF_STMT(BPF_RET + BPF_K, what); }

uint32_t Run(const std::vector<sock_filter>& filter, int number, uint64_t argument = 0) {
  seccomp_data call{};
  call.nr = number;
  call.args[0] = argument;
  return RunFilter(filter, call);
}

TEST_CASE("A filter answers for each system call") {
  const std::vector<sock_filter> filter = {kNumber,
                                           BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_read, 2, 0),
                                           BPF_JUMP(BPF_JMP + BPF_JGE + BPF_K, SYS_close, 0, 2),
                                           Return(SECCOMP_RET_ERRNO | EPERM),
                                           Return(SECCOMP_RET_ALLOW),
                                           Return(SECCOMP_RET_KILL_PROCESS)};
  CHECK(Run(filter, SYS_read) == SECCOMP_RET_ALLOW);
  CHECK(Run(filter, SYS_write) == SECCOMP_RET_KILL_PROCESS);
  CHECK(Run(filter, SYS_close) == (SECCOMP_RET_ERRNO | EPERM));
}

TEST_CASE("A filter computes, remembers and jumps") {
  const std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, args)),  // 20
      BPF_STMT(BPF_ST, 3),
      BPF_STMT(BPF_LDX + BPF_W + BPF_IMM, 7),
      BPF_STMT(BPF_ALU + BPF_MUL + BPF_X, 0),   // 140
      BPF_STMT(BPF_ALU + BPF_SUB + BPF_K, 40),  // 100
      BPF_STMT(BPF_MISC + BPF_TAX, 0),
      BPF_STMT(BPF_LD + BPF_MEM, 3),           // 20
      BPF_STMT(BPF_ALU + BPF_LSH + BPF_K, 1),  // 40
      BPF_STMT(BPF_ALU + BPF_ADD + BPF_X, 0),  // 140
      BPF_JUMP(BPF_JMP + BPF_JA, 1, 0, 0),
      Return(SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET + BPF_A, 0),
  };
  CHECK(Run(filter, 0, 20) == 140);
}

TEST_CASE("What the kernel takes for a filter") {
  using Filter = std::vector<sock_filter>;
  CHECK(IsFilter(Filter{Return(SECCOMP_RET_ALLOW)}));
  CHECK(IsFilter(Filter{kNumber, BPF_JUMP(BPF_JMP + BPF_JSET + BPF_X, 0, 1, 0),
                        BPF_STMT(BPF_ALU + BPF_NEG, 0), BPF_STMT(BPF_RET + BPF_A, 0)}));
  CHECK_FALSE(IsFilter({}));
  CHECK_FALSE(IsFilter(Filter{kNumber}));
  const Filter wrong = {
      BPF_STMT(BPF_LD + BPF_B + BPF_ABS, 0),
      BPF_STMT(BPF_LD + BPF_W + BPF_ABS, 2),
      BPF_STMT(BPF_LD + BPF_W + BPF_ABS, sizeof(seccomp_data)),
      BPF_STMT(BPF_LD + BPF_MEM, BPF_MEMWORDS),
      BPF_STMT(BPF_ALU + BPF_DIV + BPF_K, 0),
      BPF_STMT(BPF_ALU + BPF_LSH + BPF_K, 32),
      BPF_STMT(BPF_ALU + 0x90 + BPF_K, 3),  // a remainder, which packets' filters know
      BPF_JUMP(BPF_JMP + BPF_JA, 1, 0, 0),
      BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, 0, 0, 1),
  };
  for (const sock_filter& instruction : wrong)
    CHECK_FALSE(IsFilter(Filter{instruction, Return(SECCOMP_RET_ALLOW)}));
}

TEST_CASE("A filter that divides by what is 0 ends with 0") {
  CHECK(Run({BPF_STMT(BPF_ALU + BPF_DIV + BPF_X, 0), Return(SECCOMP_RET_ALLOW)}, SYS_read) ==
        SECCOMP_RET_KILL_THREAD);
}

TEST_CASE("What is no filter allows nothing") {
  CHECK(Run({}, SYS_read) == SECCOMP_RET_KILL_PROCESS);
  CHECK(Run({kNumber}, SYS_read) == SECCOMP_RET_KILL_PROCESS);
  CHECK(Run({BPF_STMT(BPF_LD + BPF_W + BPF_ABS, sizeof(seccomp_data)), Return(SECCOMP_RET_ALLOW)},
            SYS_read) == SECCOMP_RET_KILL_PROCESS);
  CHECK(Run({BPF_STMT(BPF_LD + BPF_MEM, BPF_MEMWORDS), Return(SECCOMP_RET_ALLOW)}, SYS_read) ==
        SECCOMP_RET_KILL_PROCESS);
  CHECK(Run({BPF_STMT(BPF_ALU + BPF_DIV + BPF_K, 0), Return(SECCOMP_RET_ALLOW)}, SYS_read) ==
        SECCOMP_RET_KILL_PROCESS);
  CHECK(Run({BPF_JUMP(BPF_JMP + BPF_JA, 0xffffffff, 0, 0), Return(SECCOMP_RET_ALLOW)}, SYS_read) ==
        SECCOMP_RET_KILL_PROCESS);
}

bool Confines(std::vector<sock_filter> filter) {
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return ComingFilter(&program).confines();
}

TEST_CASE("A filter confines that forbids something which a socket may take") {
  CHECK(ComingFilter(nullptr).confines());
  CHECK_FALSE(Confines({Return(SECCOMP_RET_ALLOW)}));
  CHECK_FALSE(Confines({Return(SECCOMP_RET_LOG)}));
  CHECK(Confines({Return(SECCOMP_RET_ERRNO | EPERM)}));
  for (const int number : {SYS_mount, SYS_ptrace, SYS_reboot}) {
    CHECK_FALSE(Confines({kNumber, BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, static_cast<uint32_t>(number), 1, 0),
                          Return(SECCOMP_RET_ALLOW), Return(SECCOMP_RET_KILL_PROCESS)}));
  }
  for (const int number : {SYS_sendmsg, SYS_eventfd2, SYS_socket, SYS_getpid, SYS_ppoll}) {
    CHECK(Confines({kNumber, BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, static_cast<uint32_t>(number), 1, 0),
                    Return(SECCOMP_RET_ALLOW), Return(SECCOMP_RET_KILL_PROCESS)}));
  }
  // As the kernel refuses them.
  const sock_fprog none = {0, nullptr};
  CHECK_FALSE(ComingFilter(&none).confines());
}

}  // namespace
}  // namespace sdp::preload
