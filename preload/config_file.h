// libsdp.conf: OFED libsdp's grammar, which old files keep working with, and "set NAME VALUE" for what OFED
// had not. libsdp.conf(5) describes it for people.
//
//   use {tcp|sdp|both} {server|listen|client|connect} PROGRAM {ADDRESS[/LENGTH]|*}:{PORT[-PORT]|*}
//   log [destination {stderr|syslog|file PATH}] [min-level 1..9]
//   set NAME VALUE
//
// Pure: text in, values out. A line that is not understood is a problem and changes nothing; the others
// count. Shared with the tools, which explain what the library would do.
#ifndef SDP_PRELOAD_CONFIG_FILE_H_
#define SDP_PRELOAD_CONFIG_FILE_H_

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sdp::preload {

enum class Mode : uint8_t { kBoth, kSdp, kTcp };  // SDP with fall-back to TCP, SDP or nothing, TCP

enum class RuleRole : uint8_t { kServer, kClient };

struct AddressPattern {
  uint8_t family = 0;  // 0: any, 4 or 6
  uint8_t prefix = 0;  // bits that have to agree
  std::array<uint8_t, 16> bytes{};

  bool operator==(const AddressPattern&) const = default;
};
// Whether the first `bits` bits of two addresses agree.
bool SamePrefix(const uint8_t* a, const uint8_t* b, int bits);

struct Rule {
  Mode mode = Mode::kBoth;
  RuleRole role = RuleRole::kServer;
  std::string program;  // a glob for the program's name, without directories
  AddressPattern address;
  uint16_t first_port = 0;  // 0 to 65535: any
  uint16_t last_port = 65535;
  int line = 0;

  // Alike, wherever they stand.
  [[nodiscard]] bool SameAs(const Rule& other) const {
    return mode == other.mode && role == other.role && program == other.program && address == other.address &&
           first_port == other.first_port && last_port == other.last_port;
  }
};

// A value under the name of the environment variable that stands above it: "private-buffers" is
// SDP_PRIVATE_BUFFERS.
struct Setting {
  std::string variable;
  std::string value;
  int line = 0;
  int column = 0;  // of the value
};

struct ConfigProblem {
  enum class Kind : uint8_t { kError, kWarning };
  Kind kind = Kind::kError;
  int line = 0;  // from 1
  int column = 0;
  std::string text;
};

struct ConfigFile {
  std::vector<Rule> rules;
  std::vector<Setting> settings;  // a later one of the same name wins
  std::vector<ConfigProblem> problems;
};

inline constexpr size_t kLargestConfigFile = 1 << 20;  // bytes; what is beyond is not read
inline constexpr size_t kMostRules = 4096;

// Rules that can never match, because those before them take everything they would, are problems of kind
// kWarning.
ConfigFile ParseConfigFile(std::string_view text);

// Adds a warning for each rule whose addresses and ports are all taken by rules before it, by one or by
// several together (config_shadowed.cc). Of programs only * and names are compared. Files with very many
// rules that overlap are not looked through to the end.
void WarnOfShadowed(ConfigFile* file);

// Whether a rule speaks of programs called `program`.
bool MatchesProgram(const Rule& rule, const char* program);
// The first of `rules` that matches, whatever its program; null if none does. `address`: the one the server
// is bound to, or the one the client connects to; IPv4-mapped IPv6 addresses count as IPv4. A wildcard that a
// server is bound to matches "*" and /0 alone.
const Rule* FindRule(std::span<const Rule> rules, RuleRole role, const sockaddr* address, socklen_t length);
// True if no socket of this role could be anything but TCP.
bool AlwaysTcp(std::span<const Rule> rules, RuleRole role, Mode otherwise);

// As in the file.
std::string ToString(const Rule& rule);
const char* ToString(Mode mode);

// As getenv; what it returns lives until the next call.
using Lookup = std::function<const char*(const char* name)>;

// Where the file is: SDP_CONFIG, else LIBSDP_CONFIG_FILE, else /etc/sdp/libsdp.conf. *named: by the
// environment, so that its absence is an error.
std::string ConfigFilePath(const Lookup& lookup, bool* named);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_FILE_H_
