// How a look-up takes a reference without a lock while another thread may remove the entry:
//
// A word of the table is a Socket's address with a count of references in its upper 16 bits. When a socket
// enters the table, the table adds kBatch references to it at once. A look-up takes one of them by counting
// up in the word, with a single compare-and-exchange that proves the address is still there. Removing the
// entry swaps the word for zero. The old word tells how many references of the batch were given out, and the
// rest is returned. So the object cannot die between the read of the address and the taking of the reference.
// No look-up ever waits, so a signal handler may look up the descriptor that its own thread is looking up. A
// look-up costs one atomic operation. If it finds half of the batch used, it adds as many references to the
// object and returns the count to zero.
#include "preload/fd_table.h"

#include "core/base/check.h"
#include "preload/descriptor_array.h"
#include "preload/log.h"

namespace sdp::preload {
namespace {

static_assert(sizeof(void*) == 8, "the table keeps a count above a 48-bit address");

constexpr int kAddressBits = 48;
constexpr uint64_t kOneTaken = uint64_t{1} << kAddressBits;
constexpr uint32_t kBatch = 1 << 14;

// Leaves room for kBatch / 2 threads between counting up and topping up: the batch cannot run out.
constexpr uint32_t kTopUpAt = kBatch / 2;

constinit DescriptorArray<uint64_t> table;
// One more than the highest number ever entered.
constinit std::atomic<int> end_of_numbers{0};

Socket* AddressIn(uint64_t word) { return reinterpret_cast<Socket*>(word & (kOneTaken - 1)); }
uint32_t TakenIn(uint64_t word) { return static_cast<uint32_t>(word >> kAddressBits); }

void RaiseEnd(int end) {
  int seen = end_of_numbers.load(std::memory_order_relaxed);
  while (seen < end && !end_of_numbers.compare_exchange_weak(seen, end, std::memory_order_release)) {
  }
}

}  // namespace

SocketRef FdTable::Get(int fd) {
  std::atomic<uint64_t>* word = table.Find(fd);
  if (word == nullptr) return {};
  // Acquire: a thread that finds an entry gone also sees what its remover did with the descriptor.
  uint64_t seen = word->load(std::memory_order_acquire);
  do {
    if (AddressIn(seen) == nullptr) return {};
  } while (!word->compare_exchange_weak(seen, seen + kOneTaken, std::memory_order_acquire));
  Socket* socket = AddressIn(seen);
  const uint32_t taken = TakenIn(seen) + 1;
  if (taken >= kTopUpAt) [[unlikely]] {
    socket->references_.fetch_add(taken, std::memory_order_relaxed);
    uint64_t now = word->load(std::memory_order_relaxed);
    while (AddressIn(now) == socket && TakenIn(now) >= taken &&
           !word->compare_exchange_weak(now, now - taken * kOneTaken, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
    // Another thread topped up or removed the entry. These are never the last references: this look-up holds
    // one.
    if (AddressIn(now) != socket || TakenIn(now) < taken)
      socket->references_.fetch_sub(taken, std::memory_order_relaxed);
  }
  return SocketRef(socket);
}

bool FdTable::Has(int fd) {
  std::atomic<uint64_t>* word = table.Find(fd);
  return word != nullptr && word->load(std::memory_order_acquire) != 0;  // acquire as in Get
}

void FdTable::Set(int fd, Socket* socket) {
  std::atomic<uint64_t>* word = table.FindOrAdd(fd);
  if (word == nullptr) {
    SDP_LOG(kError, "no memory to manage descriptor %d", fd);
    return;
  }
  SDP_CHECK(AddressIn(reinterpret_cast<uint64_t>(socket)) == socket);
  socket->references_.fetch_add(kBatch, std::memory_order_relaxed);
  RaiseEnd(fd + 1);
  const uint64_t before = word->exchange(reinterpret_cast<uint64_t>(socket), std::memory_order_acq_rel);
  ReturnBatch(before);
}

SocketRef FdTable::Remove(int fd, const Socket* expected) {
  std::atomic<uint64_t>* word = table.Find(fd);
  if (word == nullptr) return {};
  uint64_t seen = word->load(std::memory_order_acquire);
  do {
    if (AddressIn(seen) == nullptr) return {};
    if (expected != nullptr && AddressIn(seen) != expected) return {};
  } while (!word->compare_exchange_weak(seen, 0, std::memory_order_acq_rel, std::memory_order_acquire));
  return ReturnBatch(seen);
}

SocketRef FdTable::ReturnBatch(uint64_t word) {
  Socket* socket = AddressIn(word);
  if (socket == nullptr) return {};
  const uint32_t rest = kBatch - TakenIn(word) - 1;
  socket->references_.fetch_sub(rest, std::memory_order_release);
  return SocketRef(socket);
}

void FdTable::ForEach(void (*visit)(int fd, Socket* socket, void* context), void* context) {
  const int end = end_of_numbers.load(std::memory_order_acquire);
  for (int fd = 0; fd < end; fd = table.SkipAbsent(fd + 1)) {
    if (!Has(fd)) continue;
    if (SocketRef socket = Get(fd)) visit(fd, socket.get(), context);
  }
}

}  // namespace sdp::preload
