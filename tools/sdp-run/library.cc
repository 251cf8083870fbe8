#include "tools/sdp-run/library.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>

namespace sdp::run {
namespace {

namespace fs = std::filesystem;

std::string FirstOf(std::initializer_list<const char*> relative) {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  for (const char* path : relative) {
    fs::path candidate = fs::weakly_canonical(self.parent_path() / path, error);
    if (!error && fs::is_regular_file(candidate, error)) return candidate.string();
  }
  return "";
}

}  // namespace

std::string FindLibrary() {
#if defined(__x86_64__)
#define SDP_TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define SDP_TRIPLET "aarch64-linux-gnu"
#else
#define SDP_TRIPLET "."
#endif
  return FirstOf({"../preload/libsdp.so", "../lib/" SDP_TRIPLET "/libsdp.so",
                  "../lib/" SDP_TRIPLET "/sdp/libsdp.so", "../lib/libsdp.so", "../lib/sdp/libsdp.so",
                  "../lib64/libsdp.so", "../lib64/sdp/libsdp.so"});
#undef SDP_TRIPLET
}

bool LooksLikeOurs(const std::string& library) {
  std::error_code error;
  if (!fs::is_regular_file(library, error)) return false;
  std::ifstream file(library, std::ios::binary);
  // The name stands near the beginning, and debug information makes the file long: piece by piece, each with
  // the end of the one before.
  const std::string name("libsdp.so", sizeof "libsdp.so");
  std::string bytes;
  for (bool first = true;; first = false) {
    std::string piece(256 * 1024, '\0');
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    piece.resize(static_cast<size_t>(file.gcount()));
    if (first && !piece.starts_with("\177ELF")) return false;
    bytes = bytes.substr(bytes.size() - std::min(bytes.size(), name.size() - 1)) + piece;
    if (bytes.find(name) != std::string::npos) return true;
    if (piece.empty()) return false;
  }
}

std::string FindDaemon() {
  return FirstOf({"../portmapper/sdp-pmd", "sdp-pmd", "../sbin/sdp-pmd", "../libexec/sdp/sdp-pmd"});
}

std::string PreloadWith(const std::string& library) {
  const char* before = getenv("LD_PRELOAD");
  return before == nullptr || *before == '\0' ? library : library + ":" + before;
}

}  // namespace sdp::run
