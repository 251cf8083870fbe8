#include "verbs/softiwarp/local/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "verbs/descriptor_calls.h"
#include "verbs/softiwarp/local/random.h"

namespace sdp::iwarp {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// A process that may have fewer has none for local links.
constexpr rlim_t kFewestDescriptors = 256;
constexpr size_t kPage = 4096;
constexpr size_t kFirstWindow = 1024;
static_assert(2 * sizeof(RingControl) + sizeof(LocalMemory::Id) <= kFirstWindow);
static_assert(kFirstWindow + 2 * kSmallestWindow <= kPage);

// A program may interpose the C library's fcntl and close.
int Control(int fd, int command, int value) {
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, value));
}

std::string Because(const char* what) { return std::string(what) + ": " + strerrordesc_np(errno); }

// On other files an access may fail, as for huge pages that are not there.
bool IsMemfd(int fd) {
  struct stat status {};
  struct statfs system {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<size_t>(status.st_size) == LocalMemory::kSize && ::fstatfs(fd, &system) == 0 &&
         static_cast<uint64_t>(system.f_type) == TMPFS_MAGIC;
}

}  // namespace

constinit std::atomic<void (*)(LocalMemory*)> LocalMemory::at_end{[](LocalMemory* ended) { delete ended; }};

bool NearLimit(int fd) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         (limit.rlim_cur < kFewestDescriptors ||
          static_cast<rlim_t>(fd) >= limit.rlim_cur - limit.rlim_cur / 4);
}

std::shared_ptr<LocalMemory> LocalMemory::Make(std::string* why) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kSize) {
    *why = "the limit of file size (RLIMIT_FSIZE) is too small";
    return nullptr;
  }
  const int fd = static_cast<int>(::syscall(SYS_memfd_create, "sdp-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) {
    *why = Because("memfd_create");
    return nullptr;
  }
  if (NearLimit(fd)) {
    *why = "few descriptors are left";
    verbs::CloseUnseen(fd);
    return nullptr;
  }
  if (::ftruncate(fd, kSize) != 0 || Control(fd, F_ADD_SEALS, kSeals) != 0) {
    *why = Because("sizing a memfd");
    verbs::CloseUnseen(fd);
    return nullptr;
  }
  std::shared_ptr<LocalMemory> memory = Map(fd, Need::kSpare, why);
  if (memory == nullptr) return nullptr;
  Id id;
  FillRandom(id);
  std::memcpy(memory->id_at(), id.data(), id.size());
  memory->Renew();
  memory->MayBeKept();
  return memory;
}

std::shared_ptr<LocalMemory> LocalMemory::Take(int fd, std::string* why) {
  auto memory = Take(fd, Need::kSpare, why);
  if (memory != nullptr) memory->MayBeKept();
  return memory;
}

void LocalMemory::MayBeKept() {
  std::memcpy(id_.data(), id_at(), id_.size());
  kept_since_fork_ = id_ == Id{} ? 0 : forks.load(std::memory_order_relaxed);
}

void LocalMemory::Renew() {
  InitializeRing(control(LocalEnd::kConnecting));
  InitializeRing(control(LocalEnd::kAccepting));
}

uint64_t LocalMemory::carried() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return std::max(control(LocalEnd::kConnecting)->head.load(kRelaxed),
                  control(LocalEnd::kAccepting)->head.load(kRelaxed));
}

std::shared_ptr<LocalMemory> LocalMemory::Take(int fd, Need need, std::string* why) {
  const int seals = Control(fd, F_GET_SEALS, 0);
  if (seals < 0 || (seals & kSeals) != kSeals || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0 ||
      !IsMemfd(fd)) {
    *why = "the peer's descriptor is no sealed memory of the right size";
    verbs::CloseUnseen(fd);
    return nullptr;
  }
  return Map(fd, need, why);
}

std::shared_ptr<LocalMemory> LocalMemory::Map(int fd, Need need, std::string* why) {
  void* const base = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    *why = Because("mmap");
    verbs::CloseUnseen(fd);
    return nullptr;
  }
  std::shared_ptr<LocalMemory> memory = Own(new (std::nothrow) LocalMemory(static_cast<std::byte*>(base)));
  if (memory == nullptr || !verbs::descriptor_calls().keep(fd, &memory->fd_, need)) {
    *why = "no descriptor or memory is left";
    if (memory == nullptr) {
      ::munmap(base, kSize);
      verbs::CloseUnseen(fd);
    }
    return nullptr;
  }
  return memory;
}

LocalMemory::~LocalMemory() {
  ::munmap(base_, kSize);
  CloseDescriptors();
}

void LocalMemory::CloseDescriptors() {
  CloseDescriptor(&fd_);
  CloseDescriptor(&socket_);
}

void LocalMemory::CloseDescriptor(std::atomic<int>* slot) {
  if (const int fd = slot->exchange(-1, std::memory_order_relaxed); fd >= 0)
    verbs::descriptor_calls().close_kept(fd);
}

void LocalMemory::KeepSocket(int fd, const Name& name) {
  socket_name_ = name;
  (void)verbs::descriptor_calls().keep(fd, &socket_, Need::kSpare);
}

RingControl* LocalMemory::control(LocalEnd writer) const {
  return reinterpret_cast<RingControl*>(base_) + (writer == LocalEnd::kConnecting ? 0 : 1);
}

RingMemory LocalMemory::ring(LocalEnd writer) const {
  const size_t number = writer == LocalEnd::kConnecting ? 0 : 1;
  return {.control = control(writer),
          .first = {base_ + kFirstWindow + number * kSmallestWindow, kSmallestWindow},
          .data = {base_ + kPage + number * kRingSize, kRingSize},
          .used = used_};
}

RingWriter LocalMemory::Writer(LocalEnd end) { return RingWriter(ring(end)); }

RingReader LocalMemory::Reader(LocalEnd end) {
  return RingReader(ring(end == LocalEnd::kConnecting ? LocalEnd::kAccepting : LocalEnd::kConnecting));
}

void LocalMemory::GiveBack(MutableBytes unused) { ::madvise(unused.data(), unused.size(), MADV_REMOVE); }

}  // namespace sdp::iwarp
