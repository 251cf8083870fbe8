// What an ELF program's headers say about whether a library can be preloaded into it.
#ifndef SDP_PRELOAD_ELF_FACTS_H_
#define SDP_PRELOAD_ELF_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace sdp {

struct ElfFacts {
  bool is_64_bit = false;
  bool is_native = false;   // has this program's class, byte order and machine
  std::string interpreter;  // PT_INTERP; empty: statically linked
  bool is_go = false;       // built by the Go compiler, which makes system calls without libc
};

// Reads up to out.size() bytes of the file at `offset`. Returns how many there were.
using ReadAt = std::function<size_t(uint64_t offset, std::span<std::byte> out)>;

// Returns nothing if the file does not start with ELF's magic, or if its headers make no sense. Reads at most
// about 100 KiB.
std::optional<ElfFacts> ReadElf(const ReadAt& read);

}  // namespace sdp

#endif  // SDP_PRELOAD_ELF_FACTS_H_
