#include "tools/sdp-run/program_check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "preload/elf_facts.h"

namespace sdp::run {
namespace {

constexpr int kMaxScripts = 5;  // the kernel's own limit

Check Refuse(const std::string& path, const char* code, const std::string& why) {
  return {.verdict = Verdict::kNotPreloadable, .path = path, .why = why, .code = code};
}

// The kernel starts a program with privileges of its own in secure mode, in which the loader ignores
// LD_PRELOAD.
std::string PrivilegeOf(const std::string& path, const struct stat& status) {
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) {
    return "is setuid, and the loader ignores LD_PRELOAD for it";
  }
  if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getegid()) {
    return "is setgid, and the loader ignores LD_PRELOAD for it";
  }
  std::array<char, 64> capabilities;
  if (geteuid() != 0 &&
      getxattr(path.c_str(), "security.capability", capabilities.data(), capabilities.size()) > 0) {
    return "has file capabilities, and the loader ignores LD_PRELOAD for it";
  }
  return "";
}

Check CheckElf(const std::string& path, const ElfFacts& elf) {
  if (!elf.is_64_bit) return Refuse(path, "foreign-machine", "is a 32-bit program, and libsdp.so is 64-bit");
  if (!elf.is_native) return Refuse(path, "foreign-machine", "is a program for another machine");
  if (elf.interpreter.empty()) {
    return Refuse(path, elf.is_go ? "go-binary" : "static-binary",
                  elf.is_go ? "is a static Go program: there is no loader that could preload a library"
                            : "is statically linked: there is no loader that could preload a library");
  }
  if (elf.is_go)
    return Refuse(path, "go-binary",
                  "is a Go program: it makes its system calls without libc, unseen by a preloaded library");
  if (elf.interpreter.find("ld-musl") != std::string::npos) {
    return Refuse(path, "musl", "is linked with musl, and libsdp.so needs the GNU C library");
  }
  return {.verdict = Verdict::kFine, .path = path, .why = "", .code = ""};
}

struct Script {
  std::string interpreter;
  std::string argument;  // everything behind the interpreter, as the kernel passes it
};

Script ParseScript(std::string line) {
  line = line.substr(0, line.find('\n'));
  size_t start = line.find_first_not_of(" \t", 2);
  if (start == std::string::npos) return {};
  size_t end = line.find_first_of(" \t", start);
  Script out{line.substr(start, end - start), ""};
  size_t argument = end == std::string::npos ? end : line.find_first_not_of(" \t", end);
  if (argument != std::string::npos) out.argument = line.substr(argument);
  return out;
}

// "#!/usr/bin/env [-S] [NAME=VALUE...] PROGRAM ...": the PROGRAM.
std::string ProgramOfEnv(const Script& script) {
  if (!script.interpreter.ends_with("/env")) return "";
  std::istringstream words(script.argument);
  for (std::string word; words >> word;) {
    if (word.starts_with("-S") && word.size() > 2) return word.substr(2);
    if (!word.starts_with("-") && word.find('=') == std::string::npos) return word;
  }
  return "";
}

Check CheckPath(const std::string& path, int scripts_left);

Check CheckScript(const std::string& path, const Script& script, int scripts_left) {
  if (scripts_left == 0) return Refuse(path, "other", "starts too long a chain of interpreters");
  Check check = CheckPath(script.interpreter, scripts_left - 1);
  if (check.verdict == Verdict::kFine) {
    std::string program = ProgramOfEnv(script);
    std::string found = program.empty() ? "" : FindProgram(program);
    if (!found.empty()) check = CheckPath(found, scripts_left - 1);
  }
  if (check.verdict != Verdict::kFine) {
    check.why = "is a script whose interpreter " + check.path + " " + check.why;
    // A missing interpreter is not a missing program.
    if (check.verdict == Verdict::kNotFound) check.verdict = Verdict::kNotExecutable;
  }
  check.path = path;
  return check;
}

Check CheckPath(const std::string& path, int scripts_left) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    return {.verdict = errno == ENOENT ? Verdict::kNotFound : Verdict::kNotExecutable,
            .path = path,
            .why = std::string("cannot be run: ") + strerror(errno),
            .code = ""};
  }
  if (S_ISDIR(status.st_mode) || access(path.c_str(), X_OK) != 0) {
    return {.verdict = Verdict::kNotExecutable, .path = path, .why = "is not an executable file", .code = ""};
  }
  std::string privilege = PrivilegeOf(path, status);
  if (!privilege.empty()) return Refuse(path, "privileged", privilege);

  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return {.verdict = Verdict::kFine,
            .path = path,
            .why = "",
            .code = ""};  // executable but unreadable: nothing to check
  auto read = [fd](uint64_t offset, std::span<std::byte> out) -> size_t {
    ssize_t got = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    return got < 0 ? 0 : static_cast<size_t>(got);
  };
  std::array<std::byte, 512> start{};
  size_t size = read(0, start);
  std::string line(reinterpret_cast<const char*>(start.data()), size);
  auto elf = line.starts_with("#!") ? std::nullopt : ReadElf(read);
  close(fd);
  if (elf) return CheckElf(path, *elf);
  if (line.starts_with("#!")) return CheckScript(path, ParseScript(line), scripts_left);
  // execvp hands what the kernel does not know to the shell.
  return CheckScript(path, {"/bin/sh", ""}, scripts_left);
}

}  // namespace

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* variable = getenv("PATH");
  std::istringstream path(variable == nullptr ? "/bin:/usr/bin" : variable);
  std::string not_executable;
  for (std::string directory; std::getline(path, directory, ':');) {
    std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    struct stat status {};
    if (stat(candidate.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) continue;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (not_executable.empty()) not_executable = candidate;
  }
  return not_executable;
}

Check CheckProgram(const std::vector<std::string>& arguments) {
  std::string path = arguments.front().empty() ? "" : FindProgram(arguments.front());
  if (path.empty()) {
    return {
        .verdict = Verdict::kNotFound, .path = arguments.front(), .why = "is not found in PATH", .code = ""};
  }
  return CheckPath(path, kMaxScripts);
}

}  // namespace sdp::run
