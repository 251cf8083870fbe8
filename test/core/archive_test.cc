// What a Writer was given a Reader finds again, however much it is.
#include "core/base/archive.h"

#include <catch2/catch.hpp>
#include <vector>

namespace sdp {

TEST_CASE("Archive: numbers, short runs and long ones come back in order, of any size") {
  constexpr uint64_t kNumbers = 3000;
  const std::vector<std::byte> few(100, std::byte{3});
  const std::vector<std::byte> many(5000, std::byte{4});
  Writer writer;
  writer.Sized([&](Writer& to) {
    for (uint64_t i = 0; i < kNumbers; ++i) {
      to.Number(i);
      if (i % 100 == 0) to.Append(i % 200 == 0 ? Bytes(few) : Bytes(many));
    }
  });
  const std::vector<std::byte> all = writer.Take();
  CHECK(all.size() == writer.size());
  Reader reader(all);
  uint64_t size = 0;
  reader.Number(size);
  CHECK(size == all.size() - sizeof size);
  bool same = true;
  for (uint64_t i = 0; i < kNumbers; ++i) {
    uint64_t number = 0;
    reader.Number(number);
    same = same && number == i;
    if (i % 100 != 0) continue;
    const std::vector<std::byte>& run = i % 200 == 0 ? few : many;
    const Bytes taken = reader.Take(run.size());
    same = same && std::vector<std::byte>(taken.begin(), taken.end()) == run;
  }
  CHECK(same);
  CHECK(reader.ok());
  CHECK(reader.left() == 0);
}

TEST_CASE("Archive: nothing written is nothing") {
  Writer writer;
  CHECK(writer.size() == 0);
  CHECK(writer.Take().empty());
}

}  // namespace sdp
