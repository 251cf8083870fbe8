#include "portmapper/engine/registry.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace sdp::pm {
namespace {

constexpr size_t kMaxErrors = 100;
constexpr std::string_view kBlank = " \t\r";

struct Word {
  std::string_view text;
  size_t column;
};

std::vector<Word> Split(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<Word> words;
  size_t position = 0;
  while ((position = line.find_first_not_of(kBlank, position)) != std::string_view::npos) {
    const size_t end = std::min(line.find_first_of(kBlank, position), line.size());
    words.push_back({line.substr(position, end - position), position + 1});
    position = end;
  }
  return words;
}

// The words of one statement, taken from the left. The first mistake is kept; what follows it is not looked
// at.
class Statement {
 public:
  Statement(std::vector<Word> words, size_t line, size_t end)
      : words_(std::move(words)), line_(line), end_(end) {}

  [[nodiscard]] bool AtEnd() const { return next_ == words_.size(); }
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  [[nodiscard]] const std::optional<RegistryError>& error() const { return error_; }

  void Fail(std::string text) {
    if (error_) return;
    const size_t column = AtEnd() ? end_ : words_[next_].column;
    const std::string found = AtEnd() ? "the line ends" : "\"" + std::string(words_[next_].text) + "\"";
    error_ = RegistryError{
        line_, column, "expected " + std::move(text) + ", but " + found + (AtEnd() ? "" : " stands there")};
  }
  // True if the next word is this one; then it is taken.
  bool Take(std::string_view word) {
    if (!ok() || AtEnd() || words_[next_].text != word) return false;
    ++next_;
    return true;
  }
  void Require(std::string_view word) {
    if (!Take(word)) Fail("\"" + std::string(word) + "\"");
  }
  // The next word as `parse` understands it.
  template <typename T>
  T Parse(std::optional<T> (*parse)(std::string_view), const char* wanted) {
    if (!ok()) return {};
    const auto value = AtEnd() ? std::nullopt : parse(words_[next_].text);
    if (!value) {
      Fail(wanted);
      return {};
    }
    ++next_;
    return *value;
  }
  // The same, if `parse` understands the next word, which is not taken otherwise.
  template <typename T>
  std::optional<T> TakeIf(std::optional<T> (*parse)(std::string_view)) {
    if (!ok() || AtEnd()) return std::nullopt;
    auto value = parse(words_[next_].text);
    if (value) ++next_;
    return value;
  }
  void RequireEnd() {
    if (!AtEnd()) Fail("the end of the line");
  }

 private:
  std::vector<Word> words_;
  size_t line_;
  size_t end_;
  size_t next_ = 0;
  std::optional<RegistryError> error_;
};

bool CanBeConnectedTo(const Endpoint& endpoint) {
  return endpoint.port != 0 && !endpoint.IsWildcard() && !endpoint.IsMulticastOrBroadcast();
}

std::optional<Endpoint> ParseService(std::string_view text) {
  const auto endpoint = ParseEndpoint(text);
  if (!endpoint || !CanBeConnectedTo(NormalizeMapped(*endpoint))) return std::nullopt;
  return NormalizeMapped(*endpoint);
}

std::optional<Endpoint> ParseHost(std::string_view text) {
  if (text.find_first_of("[]") != std::string_view::npos) return std::nullopt;
  const auto prefix = ParsePrefix(text);
  if (!prefix || prefix->any || prefix->length != (prefix->network.version == IpVersion::kV4 ? 32 : 128) ||
      text.find('/') != std::string_view::npos) {
    return std::nullopt;
  }
  const Endpoint host = NormalizeMapped(prefix->network);
  if (host.IsWildcard() || host.IsMulticastOrBroadcast()) return std::nullopt;
  return host;
}

// HOST:PORT or HOST:PORT-PORT.
std::optional<Backend> ParseSdpAddress(std::string_view text) {
  const size_t dash = text.rfind('-');
  const auto address = ParseService(text.substr(0, dash));
  if (!address) return std::nullopt;
  Backend backend{BackendKind::kSdpAddress, *address, address->port, 1, 0};
  if (dash == std::string_view::npos) return backend;
  const auto last = ParsePortRange(text.substr(dash + 1));
  if (!last || last->low != last->high || last->low < address->port ||
      last->low - address->port >= kMaxPoolPorts) {
    return std::nullopt;
  }
  backend.last_port = last->low;
  return backend;
}

template <typename T, unsigned kLeast, unsigned kMost>
std::optional<T> ParseNumber(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < kLeast || value > kMost) {
    return std::nullopt;
  }
  return static_cast<T>(value);
}

constexpr const char* kHostWanted = "an address, such as 10.0.0.1 or 2001:db8::1";
constexpr const char* kServiceWanted = "an address with a port, such as 10.0.0.1:80 or [2001:db8::1]:80";
constexpr const char* kPrefixWanted =
    "a prefix, such as 10.0.0.0/8, 2001:db8::/32 or *, with no bits beyond its length";
constexpr const char* kServicesWanted =
    "services, such as 10.0.0.0/8, 10.0.0.1:80-90, [2001:db8::/32]:80 or *:80";

// [weight N] [priority N]
void ParseShare(Statement& statement, Backend* backend) {
  while (statement.ok() && !statement.AtEnd()) {
    if (statement.Take("weight")) {
      backend->weight = statement.Parse(ParseNumber<uint16_t, 1, 65535>, "a weight from 1 to 65535");
    } else if (statement.Take("priority")) {
      backend->priority = statement.Parse(ParseNumber<uint8_t, 0, 255>, "a priority from 0 to 255");
    } else {
      statement.Fail("\"weight\", \"priority\" or the end of the line");
    }
  }
}

bool SameVersion(const Prefix& prefix, const Endpoint& host) {
  return prefix.any || prefix.network.version == host.version;
}

// PREFIX over HOST.
void ParseHostBalance(Statement& statement, const Prefix& asked, Registry* registry) {
  statement.Require("over");
  HostBalance balance{asked,
                      {.kind = BackendKind::kService, .address = statement.Parse(ParseHost, kHostWanted)}};
  ParseShare(statement, &balance.over);
  if (statement.ok() && !SameVersion(asked, balance.over.address))
    statement.Fail("both to be of one IP version");
  if (!statement.ok()) return;
  if (registry->host_balances.size() >= kMaxBackends) return statement.Fail("no more than 256 such lines");
  registry->host_balances.push_back(balance);
}

void ParseBackend(Statement& statement, BackendKind kind, Registry* registry) {
  const Endpoint service = statement.Parse(ParseService, kServiceWanted);
  statement.Require(kind == BackendKind::kSdpAddress ? "to" : "over");
  Backend backend;
  if (kind == BackendKind::kSdpAddress) {
    backend = statement.Parse(ParseSdpAddress,
                              "an address with a port or at most 4096 ports, such as 10.0.0.1:7000-7099");
  } else {
    backend.address = statement.Parse(ParseService, kServiceWanted);
    backend.last_port = backend.address.port;
  }
  backend.kind = kind;
  ParseShare(statement, &backend);
  if (statement.ok() && service.version != backend.address.version) {
    statement.Fail("both addresses to be of one IP version");
  }
  if (!statement.ok()) return;
  std::vector<Backend>& backends = registry->services[service];
  if (backends.size() >= kMaxBackends) return statement.Fail("no more than 256 answers for one service");
  backends.push_back(backend);
}

void ParseStatement(Statement& statement, Registry* registry) {
  if (statement.Take("serve")) {
    registry->serve.push_back(statement.Parse(ParsePrefix, kPrefixWanted));
  } else if (statement.Take("host")) {
    std::vector<Endpoint> addresses;
    do {
      addresses.push_back(statement.Parse(ParseHost, kHostWanted));
    } while (statement.ok() && (addresses.size() < 2 || !statement.AtEnd()));
    registry->hosts.push_back(std::move(addresses));
  } else if (statement.Take("map")) {
    ParseBackend(statement, BackendKind::kSdpAddress, registry);
  } else if (statement.Take("balance")) {
    if (const auto prefix = statement.TakeIf(ParsePrefix)) {
      ParseHostBalance(statement, *prefix, registry);
    } else {
      ParseBackend(statement, BackendKind::kService, registry);
    }
  } else if (const bool allow = statement.Take("allow"); allow || statement.Take("deny")) {
    AccessRule rule{allow, statement.Parse(ParsePrefix, kPrefixWanted), {}};
    if (statement.Take("to")) rule.to = statement.Parse(ParseServices, kServicesWanted);
    registry->access.push_back(rule);
  } else if (statement.Take("pmtime")) {
    PmTimeRule rule{PmTime(statement.Parse(ParseNumber<uint8_t, 0, 255>, "a PmTime from 0 to 255")), {}};
    if (statement.Take("for")) rule.services = statement.Parse(ParseServices, kServicesWanted);
    registry->pm_times.push_back(rule);
  } else {
    statement.Fail("\"serve\", \"host\", \"map\", \"balance\", \"allow\", \"deny\" or \"pmtime\"");
  }
  if (statement.ok()) statement.RequireEnd();
}

}  // namespace

Result<Registry, std::vector<RegistryError>> ParseRegistry(std::string_view text) {
  std::vector<RegistryError> errors;
  if (text.size() > kMaxRegistrySize) {
    errors.push_back({1, 1, "expected at most 4 MiB"});
    return unexpected(std::move(errors));
  }
  Registry registry;
  for (size_t line = 1; !text.empty() && errors.size() < kMaxErrors; ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::vector<Word> words = Split(content);
    if (words.empty()) continue;
    Statement statement(std::move(words), line, content.size() + 1);
    ParseStatement(statement, &registry);
    if (statement.error()) errors.push_back(*statement.error());
  }
  if (!errors.empty()) return unexpected(std::move(errors));
  return registry;
}

bool ParseServe(std::string_view text, Registry* registry) {
  const size_t equals = text.find('=');
  const auto prefix = ParsePrefix(text.substr(0, equals));
  if (!prefix) return false;
  if (equals == std::string_view::npos) {
    registry->serve.push_back(*prefix);
    return true;
  }
  std::vector<Endpoint> hosts;
  for (size_t at = equals; at != std::string_view::npos;) {
    const size_t comma = text.find(',', at + 1);
    const auto host =
        ParseHost(text.substr(at + 1, comma == std::string_view::npos ? comma : comma - at - 1));
    if (!host || !SameVersion(*prefix, *host)) return false;
    hosts.push_back(*host);
    at = comma;
  }
  if (registry->host_balances.size() + hosts.size() > kMaxBackends) return false;
  for (const Endpoint& host : hosts) {
    registry->serve.push_back({.any = false,
                               .network = host,
                               .length = static_cast<uint8_t>(host.version == IpVersion::kV4 ? 32 : 128)});
    registry->host_balances.push_back({*prefix, {.kind = BackendKind::kService, .address = host}});
  }
  return true;
}

}  // namespace sdp::pm
