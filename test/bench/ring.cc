// What shared memory alone can do between two processes: the limit of a local link. There are no sockets and
// no faults to mind here, only bytes that one process copies into a ring and another copies out.
//
//   ring stream SIZE MESSAGES    one side writes, the other reads
//   ring turns SIZE MESSAGES     SIZE bytes there, SIZE bytes back, in turns
//
// A further argument "eventfd": an end that finds nothing sleeps at once, and the other end wakes it. Without
// it both ends look for ever. Prints "SECONDS CPU_SECONDS BYTES" for all messages, both ends together, as
// test/programs/transfer does.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "test/programs/places.h"

namespace {

using programs_test::Fail;

constexpr size_t kRing = 256 << 10;  // with both ends' buffers it stays in a processor's cache
constexpr size_t kPiece = 64 << 10;  // so the reader copies out while the writer copies in

// One direction. The counts of bytes only grow; a byte's place is its number modulo kRing.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::atomic<bool> reader_sleeps{false};
  alignas(64) std::atomic<bool> writer_sleeps{false};
  alignas(64) char bytes[kRing];
  int readers_bell = eventfd(0, 0);
  int writers_bell = eventfd(0, 0);
};

bool sleeps = false;  // rather than looks for ever

// Returns once ready() holds. The other end rings `bell` if it finds `asleep`.
template <typename Ready>
void Await(Ready ready, std::atomic<bool>& asleep, int bell) {
  while (!ready()) {
    if (!sleeps) {
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
      continue;
    }
    asleep.store(true, std::memory_order_seq_cst);
    uint64_t rings;
    if (!ready() && read(bell, &rings, sizeof rings) != sizeof rings) Fail("read of an eventfd");
    asleep.store(false, std::memory_order_relaxed);
  }
}

void Wake(std::atomic<bool>& asleep, int bell) {
  if (!sleeps) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!asleep.load(std::memory_order_relaxed) || !asleep.exchange(false)) return;
  const uint64_t one = 1;
  if (write(bell, &one, sizeof one) != sizeof one) Fail("write of an eventfd");
}

void WriteAll(Ring& ring, const char* data, size_t size) {
  while (size > 0) {
    const uint64_t at = ring.written.load(std::memory_order_relaxed);
    const auto room = [&] { return kRing - (at - ring.read.load(std::memory_order_acquire)); };
    Await([&] { return room() > 0; }, ring.writer_sleeps, ring.writers_bell);
    const size_t n = std::min({size, room(), kPiece, kRing - at % kRing});
    memcpy(ring.bytes + at % kRing, data, n);
    ring.written.store(at + n, std::memory_order_release);
    Wake(ring.reader_sleeps, ring.readers_bell);
    data += n;
    size -= n;
  }
}

void ReadAll(Ring& ring, char* data, size_t size) {
  while (size > 0) {
    const uint64_t at = ring.read.load(std::memory_order_relaxed);
    const auto held = [&] { return ring.written.load(std::memory_order_acquire) - at; };
    Await([&] { return held() > 0; }, ring.reader_sleeps, ring.readers_bell);
    const size_t n = std::min({size, held(), kPiece, kRing - at % kRing});
    memcpy(data, ring.bytes + at % kRing, n);
    ring.read.store(at + n, std::memory_order_release);
    Wake(ring.writer_sleeps, ring.writers_bell);
    data += n;
    size -= n;
  }
}

double CpuSeconds(int whose) {
  rusage usage{};
  getrusage(whose, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const bool turns = argc > 1 && strcmp(argv[1], "turns") == 0;
  const size_t size = argc > 3 ? strtoull(argv[2], nullptr, 10) : 0;
  const uint64_t messages = argc > 3 ? strtoull(argv[3], nullptr, 10) : 0;
  sleeps = argc > 4 && strcmp(argv[4], "eventfd") == 0;
  if (size == 0 || messages == 0 || (!turns && strcmp(argv[1], "stream") != 0) || (argc > 4 && !sleeps)) {
    fputs("usage: ring {stream|turns} SIZE MESSAGES [eventfd]\n", stderr);
    return 2;
  }
  void* memory = mmap(nullptr, 2 * sizeof(Ring), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Fail("mmap");
  Ring& there = *new (memory) Ring;
  Ring& back = *new (static_cast<char*>(memory) + sizeof(Ring)) Ring;
  std::vector<char> message(size, 'x');
  const pid_t reader = fork();
  if (reader < 0) Fail("fork");
  if (reader == 0) {
    for (uint64_t i = 0; i < messages; ++i) {
      ReadAll(there, message.data(), size);
      if (turns) WriteAll(back, message.data(), size);
    }
    WriteAll(back, "", 1);
    _exit(0);
  }
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < messages; ++i) {
    WriteAll(there, message.data(), size);
    if (turns) ReadAll(back, message.data(), size);
  }
  char end;
  ReadAll(back, &end, 1);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (waitpid(reader, nullptr, 0) != reader) Fail("waitpid");
  printf("%.6f %.6f %llu\n", seconds, CpuSeconds(RUSAGE_SELF) + CpuSeconds(RUSAGE_CHILDREN),
         static_cast<unsigned long long>(size * messages * (turns ? 2 : 1)));
  return 0;
}
