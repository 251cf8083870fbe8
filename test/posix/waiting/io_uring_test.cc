// Programs that use io_uring where there is one, and other calls where there is none. A ring of bare system
// calls, as event loops have it.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "test/posix/support.h"

namespace posix_test {
namespace {

class Ring {
 public:
  Ring() {
    parameters_.flags = 0;
    fd_.reset(static_cast<int>(syscall(SYS_io_uring_setup, 4, &parameters_)));
    error_ = errno;
    if (fd_ < 0) return;
    rings_ = Map(std::max(parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe),
                          parameters_.sq_off.array + parameters_.sq_entries * sizeof(uint32_t)),
                 IORING_OFF_SQ_RING);
    entries_ =
        reinterpret_cast<io_uring_sqe*>(Map(parameters_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  }
  ~Ring() {
    for (const auto& [address, size] : maps_) munmap(address, size);
  }
  bool open() const { return fd_ >= 0; }
  int error() const { return error_; }

  // The result of one operation.
  int Do(uint8_t operation, int fd, void* data, size_t size) {
    io_uring_sqe& entry = entries_[0];
    entry = {};
    entry.opcode = operation;
    entry.fd = fd;
    entry.addr = reinterpret_cast<uint64_t>(data);
    entry.len = static_cast<uint32_t>(size);
    auto& tail = Word(parameters_.sq_off.tail);
    Word(parameters_.sq_off.array + (tail & (parameters_.sq_entries - 1)) * sizeof(uint32_t)) = 0;
    tail.store(tail.load() + 1);
    REQUIRE(syscall(SYS_io_uring_enter, fd_.get(), 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) == 1);
    auto& head = Word(parameters_.cq_off.head);
    REQUIRE(Word(parameters_.cq_off.tail).load() == head.load() + 1);
    auto* const completions = reinterpret_cast<io_uring_cqe*>(rings_ + parameters_.cq_off.cqes);
    const int result = completions[head.load() & (parameters_.cq_entries - 1)].res;
    head.store(head.load() + 1);
    return result;
  }

 private:
  char* Map(size_t size, off_t offset) {
    void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    REQUIRE(address != MAP_FAILED);
    maps_.emplace_back(address, size);
    return static_cast<char*>(address);
  }
  std::atomic<uint32_t>& Word(size_t offset) {
    return *reinterpret_cast<std::atomic<uint32_t>*>(rings_ + offset);
  }

  io_uring_params parameters_{};
  Fd fd_;
  int error_ = 0;
  char* rings_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  std::vector<std::pair<void*, size_t>> maps_;
};

TEST_CASE("io_uring: a program that uses a ring where it gets one has its bytes in either case") {
  Pair pair = MakePair();
  Ring ring;
  if (!ring.open()) REQUIRE((ring.error() == ENOSYS || ring.error() == EPERM));
  for (int round = 0; round < 20; ++round) {
    const std::string sent = Pattern(1000, static_cast<uint32_t>(round));
    std::string copy = sent;
    const auto written = ring.open() ? ring.Do(IORING_OP_SEND, pair.client, copy.data(), copy.size())
                                     : write(pair.client, copy.data(), copy.size());
    REQUIRE(written == static_cast<ssize_t>(sent.size()));
    std::string got;
    while (got.size() < sent.size()) {
      char buffer[2000];
      const auto n = ring.open() ? ring.Do(IORING_OP_RECV, pair.server, buffer, sizeof buffer)
                                 : read(pair.server, buffer, sizeof buffer);
      REQUIRE(n > 0);
      got.append(buffer, static_cast<size_t>(n));
    }
    REQUIRE(got == sent);
  }
}

}  // namespace
}  // namespace posix_test
