// Parses libsdp.conf: OFED libsdp's grammar, so that old files keep working, plus "set NAME VALUE" for
// settings that OFED did not have. libsdp.conf(5) is the manual page.
//
//   use {tcp|sdp|both} {server|listen|client|connect} PROGRAM {ADDRESS[/LENGTH]|*}:{PORT[-PORT]|*}
//   log [destination {stderr|syslog|file PATH}] [min-level 1..9]
//   set NAME VALUE
//
// This part is pure: text in, values out. A line that cannot be parsed is a problem and changes nothing; the
// other lines count. The tools use it too, to explain what the library would do.
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

enum class Mode : uint8_t { kBoth, kSdp, kTcp };  // SDP or else TCP; SDP only; TCP only

enum class RuleRole : uint8_t { kServer, kClient };

struct AddressPattern {
  uint8_t family = 0;  // 0: any, 4 or 6
  uint8_t prefix = 0;  // bits that have to match
  std::array<uint8_t, 16> bytes{};

  bool operator==(const AddressPattern&) const = default;
};
// Returns whether the first `bits` bits of two addresses are equal.
bool SamePrefix(const uint8_t* a, const uint8_t* b, int bits);

struct Rule {
  Mode mode = Mode::kBoth;
  RuleRole role = RuleRole::kServer;
  std::string program;  // a glob for the program's name without directories
  AddressPattern address;
  uint16_t first_port = 0;  // 0 to 65535: any
  uint16_t last_port = 65535;
  int line = 0;

  // Compares everything but the line number.
  [[nodiscard]] bool SameAs(const Rule& other) const {
    return mode == other.mode && role == other.role && program == other.program && address == other.address &&
           first_port == other.first_port && last_port == other.last_port;
  }
};

// A value under the name of the environment variable that overrides it: "private-buffers" is
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
  std::vector<Setting> settings;  // the last one of a name wins
  std::vector<ConfigProblem> problems;
};

inline constexpr size_t kLargestConfigFile = 1 << 20;  // bytes; the rest is not read
inline constexpr size_t kMostRules = 4096;

// Rules that can never match, because earlier rules take everything they would, are problems of kind
// kWarning.
ConfigFile ParseConfigFile(std::string_view text);

// Adds a warning for each rule whose addresses and ports are all taken by one or several earlier rules
// (config_shadowed.cc). Compares programs only by * and by names. Stops early in a file with very many
// overlapping rules.
void WarnOfShadowed(ConfigFile* file);

// Returns whether a rule applies to programs called `program`.
bool MatchesProgram(const Rule& rule, const char* program);
// Returns the first of `rules` that matches, whatever its program, or null. `address` is the one that a
// server is bound to or a client connects to. IPv4-mapped IPv6 addresses count as IPv4. A wildcard that a
// server is bound to matches only "*" and /0.
const Rule* FindRule(std::span<const Rule> rules, RuleRole role, const sockaddr* address, socklen_t length);
// Returns whether no socket of this role can be anything but TCP.
bool AlwaysTcp(std::span<const Rule> rules, RuleRole role, Mode otherwise);

// Returns the text as the file has it.
std::string ToString(const Rule& rule);
const char* ToString(Mode mode);

// Like getenv; the result lives until the next call.
using Lookup = std::function<const char*(const char* name)>;

// Returns the file's path: SDP_CONFIG, else LIBSDP_CONFIG_FILE, else /etc/sdp/libsdp.conf. *named receives
// whether the environment names it, so that a missing file is an error.
std::string ConfigFilePath(const Lookup& lookup, bool* named);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_FILE_H_
