#include "preload/exec_target.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "preload/elf_facts.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

constexpr int kMostScripts = 5;  // the kernel's own limit
constexpr const char* kSystemList = "/etc/ld.so.preload";
constexpr std::string_view kDefaultPath = "/bin:/usr/bin";

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Returns this library's name as the loader was given it.
std::string_view OwnName() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&FindProgram), &info) != 0 && info.dli_fname != nullptr
             ? BaseName(info.dli_fname)
             : std::string_view{};
}

// Returns whether a name in `list`, separated as for the loader, is the library's and, if it is a path, leads
// to a file.
bool Names(std::string_view list, std::string_view library) {
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(": \t\n"), list.size());
    const std::string_view name = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (BaseName(name) != library) continue;
    if (name.find('/') == std::string_view::npos || access(std::string(name).c_str(), R_OK) == 0) return true;
  }
  return false;
}

bool SystemNames(std::string_view library) {
  const int fd = open(kSystemList, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, 4096> text;
  const ssize_t got = real.read(fd, text.data(), text.size());
  real.close(fd);
  return got > 0 && Names({text.data(), static_cast<size_t>(got)}, library);
}

bool IsPreloaded(char* const environment[]) {
  constexpr std::string_view kVariable = "LD_PRELOAD=";
  const std::string_view library = OwnName();
  if (library.empty()) return false;
  for (char* const* variable = environment; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(kVariable))
      return Names(text.substr(kVariable.size()), library) || SystemNames(library);
  }
  return SystemNames(library);
}

// The loader ignores the environment of a program that gets privileges, or that a privileged process runs.
bool HasPrivileges(int fd, const struct stat& status) {
  if (getuid() != geteuid() || getgid() != getegid() || getauxval(AT_SECURE) != 0) return true;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) return true;
  if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getegid())
    return true;
  std::array<char, 64> capabilities;
  return geteuid() != 0 && fgetxattr(fd, "security.capability", capabilities.data(), capabilities.size()) > 0;
}

// Returns the program after "#!", or nothing.
std::string InterpreterOf(std::string_view start) {
  start = start.substr(0, start.find('\n'));
  const size_t begin = start.find_first_not_of(" \t", 2);
  if (begin == std::string_view::npos) return {};
  return std::string(start.substr(begin, start.find_first_of(" \t", begin) - begin));
}

bool LoadsPreloads(const std::string& path, int scripts_left);

bool LoadsPreloads(int fd, int scripts_left) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || HasPrivileges(fd, status)) return false;
  std::array<char, 256> start;
  const ssize_t got = pread(fd, start.data(), start.size(), 0);
  if (got < 2) return false;
  const std::string_view line(start.data(), static_cast<size_t>(got));
  if (line.starts_with("#!")) return scripts_left > 0 && LoadsPreloads(InterpreterOf(line), scripts_left - 1);
  const auto elf = ReadElf([fd](uint64_t offset, std::span<std::byte> out) -> size_t {
    const ssize_t read = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    return read < 0 ? 0 : static_cast<size_t>(read);
  });
  // A file that is neither ELF nor a script can only go to the shell.
  if (!elf) return scripts_left > 0 && LoadsPreloads("/bin/sh", scripts_left - 1);
  return elf->is_native && !elf->interpreter.empty() &&
         elf->interpreter.find("ld-musl") == std::string::npos && !elf->is_go;
}

bool LoadsPreloads(const std::string& path, int scripts_left) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return false;
  const bool loads = LoadsPreloads(fd, scripts_left);
  real.close(fd);
  return loads;
}

}  // namespace

std::string FindProgram(const char* file) {
  if (file == nullptr || *file == '\0' || std::strchr(file, '/') != nullptr)
    return file == nullptr ? "" : file;
  const char* const variable = getenv("PATH");
  std::string_view path = variable != nullptr ? variable : kDefaultPath;
  for (bool more = true; more;) {
    const size_t end = path.find(':');
    more = end != std::string_view::npos;
    std::string candidate(path.substr(0, end));
    path.remove_prefix(more ? end + 1 : path.size());
    candidate += candidate.empty() ? "./" : "/";
    candidate += file;
    struct stat status {};
    if (stat(candidate.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        access(candidate.c_str(), X_OK) == 0)
      return candidate;
  }
  return file;
}

Target TargetOf(const std::string& path, char* const environment[]) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0)
    return Target::kNone;
  return IsPreloaded(environment) && LoadsPreloads(path, kMostScripts) ? Target::kWithLibrary
                                                                       : Target::kStranger;
}

Target TargetOf(int fd, char* const environment[]) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (real.fcntl(fd, F_GETFD) < 0) return Target::kNone;
  // Without /proc use the descriptor itself, which may not be readable.
  if (access(path, F_OK) == 0) return TargetOf(std::string(path), environment);
  return IsPreloaded(environment) && LoadsPreloads(fd, kMostScripts) ? Target::kWithLibrary
                                                                     : Target::kStranger;
}

}  // namespace sdp::preload
