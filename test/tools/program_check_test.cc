#include "tools/sdp-run/program_check.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "preload/elf_facts.h"
#include "test/support/skipped.h"
#include "test/tools/stats_fixture.h"
#include "tools/sdp-run/library.h"

namespace sdp::run {
namespace {

// A program as a linker would begin it: headers only.
struct FakeElf {
  Elf64_Ehdr header{};
  Elf64_Phdr programs[2]{};
  char interpreter[64] = {};
  struct {
    Elf64_Nhdr note{.n_namesz = 4, .n_descsz = 4, .n_type = 4};
    char name[4] = {'G', 'o', 0, 0};
    char id[4] = {};
  } go;

  FakeElf() {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    self.read(reinterpret_cast<char*>(&header), sizeof header);  // this machine's numbers
    header.e_phoff = offsetof(FakeElf, programs);
    header.e_phnum = 2;
    programs[0].p_type = programs[1].p_type = PT_NULL;
  }
  FakeElf& Dynamic(const char* loader) {
    programs[0].p_type = PT_INTERP;
    programs[0].p_offset = offsetof(FakeElf, interpreter);
    programs[0].p_filesz = strlen(loader) + 1;
    strcpy(interpreter, loader);
    return *this;
  }
  FakeElf& Go() {
    programs[1].p_type = PT_NOTE;
    programs[1].p_offset = offsetof(FakeElf, go);
    programs[1].p_filesz = sizeof go;
    return *this;
  }
};

class Directory {
 public:
  std::string Write(const char* name, const std::string& text, mode_t mode = 0755) {
    std::string path = directory_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string Write(const char* name, const FakeElf& elf) {
    return Write(name, std::string(reinterpret_cast<const char*>(&elf), sizeof elf));
  }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }

 private:
  stats::TemporaryDirectory directory_;
};

constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";

TEST_CASE("a library of ours is known by its name within it, wherever that stands") {
  const stats::TemporaryDirectory directory;
  const std::string path = directory.path() + "/lib.so";
  const auto looks_like_ours = [&](std::string_view magic, size_t before, std::string_view name) {
    std::ofstream(path, std::ios::binary) << magic << std::string(before, 'x') << name << '\0' << "behind";
    return LooksLikeOurs(path);
  };
  CHECK_FALSE(LooksLikeOurs(path));
  for (const size_t before : {10, 256 * 1024 - 8, 256 * 1024 - 4, 512 * 1024 - 12, 3'000'000}) {
    CAPTURE(before);
    CHECK(looks_like_ours("\177ELF", before, "libsdp.so"));
    CHECK_FALSE(looks_like_ours("\177ELF", before, "libsdp.so.1"));
    CHECK_FALSE(looks_like_ours("#!/bin/sh", before, "libsdp.so"));
  }
  CHECK_FALSE(LooksLikeOurs(directory.path()));
}

TEST_CASE("programs that can be preloaded") {
  Directory directory;
  CHECK(CheckProgram({"/bin/sh"}).verdict == Verdict::kFine);
  CHECK(CheckProgram({"sh", "-c", "true"}).verdict == Verdict::kFine);
  CHECK(CheckProgram({directory.Write("dynamic", FakeElf().Dynamic(kLoader))}).verdict == Verdict::kFine);
  CHECK(CheckProgram({directory.Write("script", "#!/bin/sh -e\ntrue\n")}).verdict == Verdict::kFine);
  CHECK(CheckProgram({directory.Write("env", "#! /usr/bin/env -S A=1 sh\ntrue\n")}).verdict ==
        Verdict::kFine);
  CHECK(CheckProgram({directory.Write("bare", "true\n")}).verdict == Verdict::kFine);
}

TEST_CASE("programs without a loader, or that do not use libc") {
  Directory directory;
  auto refused = [&](const FakeElf& elf, const char* word) {
    Check check = CheckProgram({directory.Write("program", elf)});
    INFO(check.why);
    return check.verdict == Verdict::kNotPreloadable && check.why.find(word) != std::string::npos;
  };
  CHECK(refused(FakeElf(), "statically linked"));
  CHECK(refused(FakeElf().Go(), "static Go program"));
  CHECK(refused(FakeElf().Dynamic(kLoader).Go(), "Go program"));
  CHECK(refused(FakeElf().Dynamic("/lib/ld-musl-x86_64.so.1"), "musl"));
  FakeElf other;
  other.header.e_machine = EM_68K;
  CHECK(refused(other, "another machine"));
  FakeElf small;
  small.header.e_ident[EI_CLASS] = ELFCLASS32;
  CHECK(refused(small, "32-bit"));
}

TEST_CASE("scripts are as their interpreter is") {
  Directory directory;
  std::string program = directory.Write("static", FakeElf());
  std::string script = directory.Write("one", "#!" + program + "\n");
  Check check = CheckProgram({directory.Write("two", "#!" + script + " x\n")});
  CHECK(check.verdict == Verdict::kNotPreloadable);
  CHECK(check.why.find("statically linked") != std::string::npos);
  CHECK(CheckProgram({directory.Write("gone", "#!/no/such/interpreter\n")}).verdict ==
        Verdict::kNotExecutable);
  std::string loop = directory.path() + "/loop";
  CHECK(CheckProgram({directory.Write("loop", "#!" + loop + "\n")}).verdict == Verdict::kNotPreloadable);
  check = CheckProgram({directory.Write("byenv", "#!/usr/bin/env " + program + "\n")});
  CHECK(check.verdict == Verdict::kNotPreloadable);
}

TEST_CASE("programs that are not there, or not programs") {
  Directory directory;
  CHECK(CheckProgram({directory.path() + "/none"}).verdict == Verdict::kNotFound);
  CHECK(CheckProgram({"no-such-program-anywhere"}).verdict == Verdict::kNotFound);
  CHECK(CheckProgram({""}).verdict == Verdict::kNotFound);
  CHECK(CheckProgram({directory.Write("data", "x", 0644)}).verdict == Verdict::kNotExecutable);
  CHECK(CheckProgram({directory.path()}).verdict == Verdict::kNotExecutable);
}

TEST_CASE("programs that run with privileges of their own") {
  if (geteuid() != 0) return sdp::test::Skipped("only root makes programs another user's");
  Directory directory;
  std::string setuid = directory.Write("setuid", FakeElf().Dynamic(kLoader));
  REQUIRE(chown(setuid.c_str(), 54321, getegid()) == 0);
  chmod(setuid.c_str(), 04755);
  CHECK(CheckProgram({setuid}).why.find("setuid") != std::string::npos);
  REQUIRE(chown(setuid.c_str(), geteuid(), 54321) == 0);
  chmod(setuid.c_str(), 02755);
  CHECK(CheckProgram({setuid}).why.find("setgid") != std::string::npos);
  chmod(setuid.c_str(), 04755);  // to the user who runs it: no change of user, no secure mode
  CHECK(CheckProgram({setuid}).verdict == Verdict::kFine);
}

TEST_CASE("every truncation of a program is read without harm") {
  FakeElf elf = FakeElf().Dynamic(kLoader).Go();
  std::span<const std::byte> bytes = std::as_bytes(std::span(&elf, 1));
  for (size_t size = 0; size <= bytes.size(); ++size) {
    auto facts = ReadElf([&](uint64_t offset, std::span<std::byte> out) -> size_t {
      if (offset >= size) return 0;
      size_t count = std::min<size_t>(out.size(), size - offset);
      memcpy(out.data(), bytes.data() + offset, count);
      return count;
    });
    CHECK(facts.has_value() == (size >= sizeof(Elf64_Ehdr)));
  }
}

}  // namespace
}  // namespace sdp::run
