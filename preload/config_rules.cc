// Which program, role and address a rule of libsdp.conf is for.
#include <arpa/inet.h>
#include <fnmatch.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

#include "portmapper/endpoint.h"
#include "preload/config_file.h"

namespace sdp::preload {

bool SamePrefix(const uint8_t* a, const uint8_t* b, int bits) {
  if (std::memcmp(a, b, static_cast<size_t>(bits / 8)) != 0) return false;
  const int rest = bits % 8;
  return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

bool MatchesProgram(const Rule& rule, const char* program) {
  return fnmatch(rule.program.c_str(), program, 0) == 0;
}

const Rule* FindRule(std::span<const Rule> rules, RuleRole role, const sockaddr* address, socklen_t length) {
  const auto given = pm::FromSockaddr(address, length);
  if (!given) return nullptr;
  const pm::Endpoint plain = pm::NormalizeMapped(*given);
  for (const Rule& rule : rules) {
    if (rule.role != role || plain.port < rule.first_port || plain.port > rule.last_port) continue;
    const AddressPattern& pattern = rule.address;
    if (pattern.family == 0 || (pattern.family == static_cast<uint8_t>(plain.version) &&
                                SamePrefix(pattern.bytes.data(), plain.address.data(), pattern.prefix)))
      return &rule;
  }
  return nullptr;
}

bool AlwaysTcp(std::span<const Rule> rules, RuleRole role, Mode otherwise) {
  for (const Rule& rule : rules) {
    if (rule.role != role) continue;
    if (rule.mode != Mode::kTcp) return false;
    if (rule.address.family == 0 && rule.first_port == 0) return true;
  }
  return otherwise == Mode::kTcp;
}

const char* ToString(Mode mode) {
  switch (mode) {
    case Mode::kBoth:
      return "both";
    case Mode::kSdp:
      return "sdp";
    case Mode::kTcp:
      return "tcp";
  }
  return "both";
}

std::string ToString(const Rule& rule) {
  std::string text = std::string("use ") + ToString(rule.mode) +
                     (rule.role == RuleRole::kServer ? " server " : " client ") + rule.program + " ";
  if (rule.address.family == 0) {
    text += "*";
  } else {
    char address[INET6_ADDRSTRLEN] = "";
    const bool v4 = rule.address.family == 4;
    inet_ntop(v4 ? AF_INET : AF_INET6, rule.address.bytes.data(), address, sizeof address);
    text += address;
    if (rule.address.prefix != (v4 ? 32 : 128)) text += "/" + std::to_string(rule.address.prefix);
  }
  if (rule.first_port == 0) return text + ":*";
  text += ":" + std::to_string(rule.first_port);
  return rule.last_port == rule.first_port ? text : text + "-" + std::to_string(rule.last_port);
}

}  // namespace sdp::preload
