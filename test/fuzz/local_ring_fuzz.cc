// A local link's ring whose peer writes anything into the shared memory at any time. The input is a list of
// steps: writes, reads and arms of this end, and the peer's stores between them. Nothing may be touched
// outside the ring, and what this end wrote last is read back unless the peer has stored in between.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/check.h"
#include "verbs/softiwarp/local/meeting.h"
#include "verbs/softiwarp/local/ring.h"

namespace {

using namespace sdp;
using namespace sdp::iwarp;

constexpr size_t kSize = 16 * 1024;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool done() const { return at_ >= size_; }
  uint64_t Take(size_t bytes) {
    uint64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | (at_ < size_ ? data_[at_++] : 0);
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// Fills `bytes` with a pattern that goes on from call to call.
void Fill(std::vector<std::byte>* bytes, uint8_t* next) {
  static const std::vector<std::byte> pattern = [] {
    std::vector<std::byte> made(2 * kSize + 256);
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(i);
    return made;
  }();
  std::copy_n(pattern.begin() + *next, bytes->size(), bytes->begin());
  *next = static_cast<uint8_t>(*next + bytes->size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)LocalOffer::Parse(std::as_bytes(std::span(data, size)));
  Input input(data, size);
  const auto control = std::make_unique<RingControl>();
  InitializeRing(control.get());
  // Apart from each other, so that the sanitizer sees what goes beyond the ring.
  const std::unique_ptr<std::byte[]> ring(new std::byte[kSize]());
  const std::unique_ptr<std::byte[]> first(new std::byte[kSmallestWindow]());
  const RingMemory memory{
      .control = control.get(), .first = {first.get(), kSmallestWindow}, .data = {ring.get(), kSize}};
  RingWriter writer(memory);
  RingReader reader(memory);
  bool peer_lied = false;
  std::vector<std::byte> unread;
  std::vector<std::byte> bytes;
  uint8_t next = 0;
  const auto lie = [&] {
    control->head = input.Take(input.Take(1) % 9);
    control->tail = input.Take(input.Take(1) % 9);
    control->window = static_cast<uint32_t>(input.Take(4));
    peer_lied = true;
  };
  while (!input.done()) {
    const uint8_t step = input.Take(1) % 13;
    switch (step) {
      case 0: {
        bytes.resize(input.Take(2) % (2 * kSize));
        Fill(&bytes, &next);
        const size_t cut = bytes.size() / 3;
        const iovec parts[] = {{bytes.data(), cut}, {bytes.data() + cut, bytes.size() - cut}};
        const auto written = writer.Write(parts);
        SDP_CHECK(peer_lied || written);
        if (written)
          unread.insert(unread.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*written));
        break;
      }
      case 1: {
        bytes.assign(input.Take(2) % (2 * kSize), std::byte{});
        const MutableBytes room(bytes);
        const auto read = reader.Read(std::span(&room, 1));
        SDP_CHECK(peer_lied || read);
        if (!read) break;
        SDP_CHECK(*read <= bytes.size());
        if (peer_lied) break;
        SDP_CHECK(*read <= unread.size() &&
                  std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*read), unread.begin()));
        unread.erase(unread.begin(), unread.begin() + static_cast<ptrdiff_t>(*read));
        break;
      }
      case 2:
        reader.Arm();
        (void)reader.empty();
        break;
      case 3:
        writer.Arm();
        (void)writer.has_room();
        break;
      case 4:
        (void)writer.TakeReader();
        (void)reader.TakeWriter();
        break;
      case 5: {
        const MutableBytes unused = writer.Shrink();
        std::fill(unused.begin(), unused.end(), std::byte{0xee});
        break;
      }
      case 6:
        control->head = input.Take(input.Take(1) % 9);
        peer_lied = true;
        break;
      case 7:
        control->tail = input.Take(input.Take(1) % 9);
        peer_lied = true;
        break;
      case 8:
        control->window =
            static_cast<uint32_t>(input.Take(1) % 2 == 0 ? uint64_t{1} << input.Take(1) % 32 : input.Take(4));
        control->reader = static_cast<uint32_t>(input.Take(1));
        control->writer = static_cast<uint32_t>(input.Take(1));
        peer_lied = true;
        break;
      case 9:
      case 10: {  // a write in steps; 10: the peer stores between them
        bytes.resize(input.Take(2) % (2 * kSize));
        Fill(&bytes, &next);
        if (!writer.Reserve(bytes.size())) break;
        if (step == 10) lie();
        const size_t cut = bytes.size() / 3;
        writer.Put(Bytes(bytes).first(cut));
        writer.Put(Bytes(bytes).subspan(cut));
        SDP_CHECK(writer.Show() == bytes.size());
        unread.insert(unread.end(), bytes.begin(), bytes.end());
        break;
      }
      default: {  // a read in steps; 12: the peer stores between them
        const auto there = reader.Look();
        SDP_CHECK(peer_lied || there);
        if (!there) break;
        bytes.assign(input.Take(2) % (2 * kSize), std::byte{});
        const uint64_t from = input.Take(2);
        if (step == 12) lie();
        const size_t read = reader.Copy(*there, from, bytes);
        SDP_CHECK(read <= bytes.size() && (read == 0 || from + read <= there->size));
        if (read > 0) reader.Take(*there, from + read);
        if (peer_lied) break;
        const size_t end = read > 0 ? from + read : 0;
        SDP_CHECK(end <= unread.size() &&
                  std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(read),
                             unread.begin() + static_cast<ptrdiff_t>(end - read)));
        unread.erase(unread.begin(), unread.begin() + static_cast<ptrdiff_t>(end));
        break;
      }
    }
  }
  return 0;
}
