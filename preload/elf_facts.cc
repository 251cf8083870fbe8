#include "preload/elf_facts.h"

#include <elf.h>

#include <bit>
#include <cstring>
#include <vector>

namespace sdp {
namespace {

constexpr size_t kMaxProgramHeaders = 128;
constexpr size_t kMaxInterpreter = 4096;
constexpr size_t kMaxNotes = 64 * 1024;

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#elif defined(__s390x__)
constexpr uint16_t kMachine = EM_S390;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#else
#error "name this machine's EM_ number"
#endif

constexpr uint8_t kByteOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

template <typename T>
bool ReadObject(const ReadAt& read, uint64_t offset, T* out) {
  return read(offset, std::as_writable_bytes(std::span(out, 1))) == sizeof *out;
}

std::vector<std::byte> ReadBytes(const ReadAt& read, uint64_t offset, uint64_t size, size_t limit) {
  std::vector<std::byte> out(size < limit ? static_cast<size_t>(size) : limit);
  if (!out.empty()) out.resize(read(offset, out));
  return out;
}

// Returns whether there is a note named "Go", which holds the build's id. Go puts it into every program, even
// a stripped one.
bool HasGoNote(const std::vector<std::byte>& notes) {
  size_t at = 0;
  while (notes.size() - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    at += sizeof note;
    size_t left = notes.size() - at;
    if (note.n_namesz == 4 && left >= 4 && std::memcmp(notes.data() + at, "Go\0", 4) == 0) return true;
    uint64_t skip =
        ((uint64_t{note.n_namesz} + 3) & ~uint64_t{3}) + ((uint64_t{note.n_descsz} + 3) & ~uint64_t{3});
    if (skip > left) break;
    at += static_cast<size_t>(skip);
  }
  return false;
}

void ReadProgramHeaders(const ReadAt& read, const Elf64_Ehdr& header, ElfFacts* facts) {
  for (size_t i = 0; i < header.e_phnum && i < kMaxProgramHeaders; ++i) {
    Elf64_Phdr program;
    if (!ReadObject(read, header.e_phoff + i * sizeof program, &program)) return;
    if (program.p_type == PT_INTERP) {
      std::vector<std::byte> bytes = ReadBytes(read, program.p_offset, program.p_filesz, kMaxInterpreter);
      const char* text = reinterpret_cast<const char*>(bytes.data());
      if (!bytes.empty()) facts->interpreter.assign(text, strnlen(text, bytes.size()));
    } else if (program.p_type == PT_NOTE && !facts->is_go) {
      facts->is_go = HasGoNote(ReadBytes(read, program.p_offset, program.p_filesz, kMaxNotes));
    }
  }
}

}  // namespace

std::optional<ElfFacts> ReadElf(const ReadAt& read) {
  unsigned char ident[EI_NIDENT];
  if (!ReadObject(read, 0, &ident) || std::memcmp(ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  ElfFacts facts;
  facts.is_64_bit = ident[EI_CLASS] == ELFCLASS64;
  if (!facts.is_64_bit || ident[EI_DATA] != kByteOrder) return facts;
  Elf64_Ehdr header;
  if (!ReadObject(read, 0, &header) || (header.e_type != ET_EXEC && header.e_type != ET_DYN) ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return std::nullopt;
  }
  facts.is_native = header.e_machine == kMachine;
  ReadProgramHeaders(read, header, &facts);
  return facts;
}

}  // namespace sdp
