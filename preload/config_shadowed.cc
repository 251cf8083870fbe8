// Finds the rules of libsdp.conf that can never match. Pure.
#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "preload/config_file.h"

namespace sdp::preload {
namespace {

// The most comparisons of rules in a whole file. Bounds the cost of a file, far above what real files need.
constexpr size_t kMostLooks = 200'000;

bool Covers(const AddressPattern& wide, const AddressPattern& narrow) {
  if (wide.family == 0) return true;
  return wide.family == narrow.family && wide.prefix <= narrow.prefix &&
         SamePrefix(wide.bytes.data(), narrow.bytes.data(), wide.prefix);
}

// Returns whether `wide` takes every program that `narrow` does. Of two different patterns, only * is known
// to be wider.
bool CoversProgram(const std::string& wide, const std::string& narrow) {
  if (wide == "*" || wide == narrow) return true;
  return narrow.find_first_of("*?[\\") == std::string::npos && fnmatch(wide.c_str(), narrow.c_str(), 0) == 0;
}

bool CoversPorts(const Rule& wide, const Rule& narrow) {
  return wide.first_port <= narrow.first_port && wide.last_port >= narrow.last_port;
}

// Returns one half of an address pattern: IPv4 or IPv6, or one more bit of the prefix.
AddressPattern Half(const AddressPattern& whole, bool upper) {
  AddressPattern half = whole;
  if (whole.family == 0) {
    half.family = upper ? 6 : 4;
    return half;
  }
  if (upper) half.bytes[whole.prefix / 8] |= static_cast<uint8_t>(0x80 >> whole.prefix % 8);
  ++half.prefix;
  return half;
}

class Shadows {
 public:
  explicit Shadows(const std::vector<Rule>& rules) : rules_(rules) {}

  // Returns the rules before number `i` that together take everything it would, in the file's order. Returns
  // nothing if they leave something.
  std::vector<const Rule*> Of(size_t i) {
    const Rule& rule = rules_[i];
    std::vector<const Rule*> partial;
    for (size_t j = 0; j < i; ++j) {
      const Rule& before = rules_[j];
      if (before.role != rule.role || !CoversProgram(before.program, rule.program)) continue;
      const bool address = Covers(before.address, rule.address), ports = CoversPorts(before, rule);
      if (address && ports) return {&before};
      const bool touches = (address || Covers(rule.address, before.address)) &&
                           before.first_port <= rule.last_port && before.last_port >= rule.first_port;
      if (touches) partial.push_back(&before);
    }
    return partial.size() > 1 && CoverPorts(partial, rule) ? partial : std::vector<const Rule*>();
  }

 private:
  // Between two neighbouring ends of port ranges the set of matching rules does not change.
  bool CoverPorts(const std::vector<const Rule*>& candidates, const Rule& rule) {
    std::vector<uint32_t> starts = {rule.first_port};
    for (const Rule* candidate : candidates) {
      if (candidate->first_port > rule.first_port) starts.push_back(candidate->first_port);
      if (candidate->last_port < rule.last_port) starts.push_back(candidate->last_port + 1u);
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    return std::all_of(starts.begin(), starts.end(), [&](uint32_t port) {
      std::vector<const AddressPattern*> addresses;
      if (!MayLookAt(candidates.size())) return false;
      for (const Rule* candidate : candidates) {
        if (candidate->first_port <= port && port <= candidate->last_port)
          addresses.push_back(&candidate->address);
      }
      return CoverAddresses(addresses, rule.address);
    });
  }

  bool CoverAddresses(const std::vector<const AddressPattern*>& candidates, const AddressPattern& whole) {
    if (!MayLookAt(candidates.size())) return false;
    std::vector<const AddressPattern*> within;
    for (const AddressPattern* candidate : candidates) {
      if (Covers(*candidate, whole)) return true;
      if (Covers(whole, *candidate)) within.push_back(candidate);
    }
    return within.size() > 1 && CoverAddresses(within, Half(whole, false)) &&
           CoverAddresses(within, Half(whole, true));
  }

  bool MayLookAt(size_t rules) {
    looks_ += rules + 1;
    return looks_ <= kMostLooks;
  }

  const std::vector<Rule>& rules_;
  size_t looks_ = 0;
};

std::string Lines(const std::vector<const Rule*>& rules) {
  constexpr size_t kNamed = 8;
  std::string text = std::to_string(rules[0]->line);
  for (size_t i = 1; i < std::min(rules.size(), kNamed); ++i) {
    text += (i + 1 == rules.size() ? " and " : ", ") + std::to_string(rules[i]->line);
  }
  return rules.size() > kNamed ? text + " and others" : text;
}

}  // namespace

void WarnOfShadowed(ConfigFile* file) {
  Shadows shadows(file->rules);
  for (size_t i = 0; i < file->rules.size(); ++i) {
    const std::vector<const Rule*> by = shadows.Of(i);
    if (by.empty()) continue;
    const std::string who =
        by.size() == 1 ? "line " + std::to_string(by[0]->line) + " (" + ToString(*by[0]) + ") comes first"
                       : "lines " + Lines(by) + " come first and take all of it";
    file->problems.push_back({.kind = ConfigProblem::Kind::kWarning,
                              .line = file->rules[i].line,
                              .column = 1,
                              .text = "never matches: " + who + "; put the narrower rule above"});
  }
}

}  // namespace sdp::preload
