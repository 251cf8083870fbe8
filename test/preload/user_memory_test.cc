#include "preload/user_memory.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

namespace sdp::preload {
namespace {

constexpr size_t kPage = 4096;

// Pages that are there, that may only be read, and that are not there: in this order, so many of each.
class Pages {
 public:
  Pages(size_t writable, size_t readable, size_t absent) : size_((writable + readable + absent) * kPage) {
    memory_ =
        static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    memset(memory_, 'm', size_);
    REQUIRE(mprotect(memory_ + writable * kPage, readable * kPage, PROT_READ) == 0);
    REQUIRE(mprotect(memory_ + (writable + readable) * kPage, absent * kPage, PROT_NONE) == 0);
  }
  ~Pages() { munmap(memory_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* At(size_t page, ptrdiff_t offset = 0) { return memory_ + page * kPage + offset; }

 private:
  size_t size_;
  char* memory_;
};

TEST_CASE("user memory: a block knows the pages that were added, and no others") {
  static KnownPages known;
  const uintptr_t block = 0x7f0012340000;
  CHECK_FALSE(known.Has(block, block));
  for (const uintptr_t page : {3, 4, 5}) known.Add(block + page * kPage);
  CHECK(known.Has(block + 3 * kPage, block + 6 * kPage - 1));
  CHECK(known.Has(block + 4 * kPage + 7, block + 4 * kPage + 7));
  CHECK_FALSE(known.Has(block + 2 * kPage + 100, block + 3 * kPage));
  CHECK_FALSE(known.Has(block + 3 * kPage, block + 6 * kPage));
  known.Add(block + 15 * kPage);
  CHECK(known.Has(block + 15 * kPage, block + 16 * kPage - 1));
  CHECK_FALSE(
      known.Has(block + 15 * kPage, block + 16 * kPage));  // in two blocks it is asked for page by page
  const uintptr_t same_place = block + (uintptr_t{1024} << 16);
  known.Add(same_place);
  CHECK(known.Has(same_place, same_place));
  CHECK_FALSE(known.Has(block + 3 * kPage, block + 3 * kPage));
}

TEST_CASE("user memory: what may be read and written, to the byte of the last page, and errno stays") {
  Pages pages(40, 2, 2);
  errno = ENOTTY;
  for (int round = 0; round < 2; ++round) {  // asked, and known
    CHECK(MayRead(pages.At(0), 42 * kPage));
    CHECK_FALSE(MayRead(pages.At(0), 42 * kPage + 1));
    CHECK(MayRead(pages.At(41, 4095), 1));
    CHECK_FALSE(MayRead(pages.At(41, 4095), 2));
    CHECK_FALSE(MayRead(pages.At(42), 1));
    CHECK(MayWrite(pages.At(0, 1), 40 * kPage - 1));
    CHECK_FALSE(MayWrite(pages.At(0), 40 * kPage + 1));
    CHECK_FALSE(MayWrite(pages.At(41), 1));
    CHECK(MayRead(pages.At(42), 0));
    CHECK_FALSE(MayRead(nullptr, 1));
    CHECK_FALSE(MayWrite(reinterpret_cast<void*>(8), 1));
    CHECK_FALSE(MayRead(reinterpret_cast<void*>(UINTPTR_MAX), 1));
    CHECK_FALSE(MayRead(pages.At(0), SIZE_MAX));
  }
  CHECK(errno == ENOTTY);
  for (size_t page = 0; page < 42; ++page) REQUIRE(memcmp(pages.At(page), "mmmm", 4) == 0);
}

TEST_CASE("user memory: strings, and lists of them") {
  Pages pages(2, 0, 1);
  CHECK_FALSE(MayReadString(pages.At(1)));  // without an end
  *pages.At(2, -1) = '\0';
  CHECK(MayReadString(pages.At(0)));
  CHECK_FALSE(MayReadString(nullptr));
  const char* list[] = {"one", pages.At(1), nullptr};
  CHECK(MayReadStrings(list));
  list[1] = pages.At(2);
  CHECK_FALSE(MayReadStrings(list));
  const char** const endless = reinterpret_cast<const char**>(pages.At(2)) - 1;
  *endless = list[0];
  CHECK_FALSE(MayReadStrings(endless));
}

}  // namespace
}  // namespace sdp::preload
