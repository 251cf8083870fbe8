#include "tools/sdpstat/filter.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace sdp::sdpstat {
namespace {

using stats::ConnectionRecord;
using stats::ProcessStats;
using stats::State;

constexpr int kDeepest = 64;

// Words, and signs that need no space around them.
std::vector<std::string> Tokens(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    size_t at = 0;
    while (at < word.size()) {
      const char c = word[at];
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at;
      } else if (c == '(' || c == ')') {
        out.emplace_back(1, c);
        ++at;
      } else if (std::strchr("=!<>", c) != nullptr) {
        const size_t length = at + 1 < word.size() && word[at + 1] == '=' ? 2 : 1;
        out.push_back(word.substr(at, length));
        at += length;
      } else {
        const size_t end = std::min(word.find_first_of("()=!<> \t\n", at), word.size());
        out.push_back(word.substr(at, end - at));
        at = end;
      }
    }
  }
  return out;
}

enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

std::optional<Comparison> ToComparison(const std::string& word) {
  if (word == "=" || word == "==" || word == "eq") return Comparison::kEqual;
  if (word == "!=" || word == "ne" || word == "neq") return Comparison::kNotEqual;
  if (word == "<" || word == "lt") return Comparison::kLess;
  if (word == "<=" || word == "le") return Comparison::kLessEqual;
  if (word == ">" || word == "gt") return Comparison::kGreater;
  if (word == ">=" || word == "ge") return Comparison::kGreaterEqual;
  return std::nullopt;
}

bool Holds(int left, Comparison comparison, int right) {
  switch (comparison) {
    case Comparison::kEqual:
      return left == right;
    case Comparison::kNotEqual:
      return left != right;
    case Comparison::kLess:
      return left < right;
    case Comparison::kLessEqual:
      return left <= right;
    case Comparison::kGreater:
      return left > right;
    case Comparison::kGreaterEqual:
      return left >= right;
  }
  return false;
}

std::optional<int> ToInt(std::string_view text, int most) {
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size() || number < 0 || number > most)
    return std::nullopt;
  return number;
}

// A number, or the name of a TCP service.
std::optional<int> ToPort(const std::string& text) {
  if (const auto number = ToInt(text, 65535)) return number;
  const servent* const service = getservbyname(text.c_str(), "tcp");
  return service != nullptr ? std::optional<int>(ntohs(static_cast<uint16_t>(service->s_port)))
                            : std::nullopt;
}

struct HostPattern {
  stats::Address address;  // family 0: any
  int bits = 0;
  std::optional<int> port;

  [[nodiscard]] bool Matches(const stats::Address& other) const {
    if (port && other.port != *port) return false;
    if (address.family == 0) return true;
    if (other.family != address.family) return false;
    for (int bit = 0; bit < bits; ++bit) {
      if (((address.ip[bit / 8] ^ other.ip[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
    }
    return true;
  }
};

// ADDRESS[/LENGTH][:PORT]; an IPv6 address with a port needs brackets.
std::optional<HostPattern> ToHost(std::string text) {
  HostPattern out;
  const bool brackets = text.starts_with("[");
  const size_t behind = brackets ? text.find(']') : 0;
  if (behind == std::string::npos) return std::nullopt;
  const size_t colon = text.find(':', behind);
  const bool has_port = colon != std::string::npos && (brackets || text.find(':') == text.rfind(':'));
  if (has_port) {
    const std::string port = text.substr(colon + 1);
    if (port != "*") {
      out.port = ToPort(port);
      if (!out.port) return std::nullopt;
    }
    text.resize(colon);
  }
  std::erase(text, '[');
  std::erase(text, ']');
  if (text.empty() || text == "*") return out;
  const size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  if (inet_pton(AF_INET, address.c_str(), out.address.ip) == 1) {
    out.address.family = 4;
  } else if (inet_pton(AF_INET6, address.c_str(), out.address.ip) == 1) {
    out.address.family = 6;
  } else {
    return std::nullopt;
  }
  const int most = out.address.family == 4 ? 32 : 128;
  const auto bits =
      slash == std::string::npos ? std::optional<int>(most) : ToInt(text.substr(slash + 1), most);
  if (!bits) return std::nullopt;
  out.bits = *bits;
  return out;
}

// ss's groups, our names, and those of TCP for what comes nearest.
std::optional<std::vector<State>> ToStates(const std::string& name) {
  using enum State;
  if (name == "syn-sent") return std::vector<State>{kConnecting};
  if (name == "syn-recv") return std::vector<State>{kHandshake};
  if (name == "fin-wait-1" || name == "fin-wait-2") return std::vector<State>{kSendClosed};
  if (name == "close-wait") return std::vector<State>{kReceiveClosed};
  if (name == "last-ack") return std::vector<State>{kClosing};
  if (name == "all") {
    return std::vector<State>{kListening, kConnecting, kHandshake, kEstablished, kSendClosed,  kReceiveClosed,
                              kClosing,   kAborted,    kTcp,       kFailed,      kUnregistered};
  }
  if (name == "connected") {
    return std::vector<State>{kConnecting, kHandshake, kEstablished, kSendClosed, kReceiveClosed, kClosing};
  }
  if (name == "synchronized") return std::vector<State>{kEstablished, kSendClosed, kReceiveClosed, kClosing};
  if (name == "listening") return std::vector<State>{kListening, kUnregistered};
  if (name == "sdp")
    return std::vector<State>{kListening,  kConnecting,    kHandshake, kEstablished,
                              kSendClosed, kReceiveClosed, kClosing};
  for (int i = 1; i <= static_cast<int>(kUnregistered); ++i) {
    if (name == stats::ToString(static_cast<State>(i))) return std::vector<State>{static_cast<State>(i)};
  }
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  Result<Filter, std::string> Parse() {
    auto filter = Either(0);
    if (!error_.empty()) return unexpected(error_);
    if (at_ != tokens_.size()) return unexpected("the filter ends before '" + tokens_[at_] + "'");
    return filter;
  }

 private:
  [[nodiscard]] bool Is(const char* word) const { return at_ < tokens_.size() && tokens_[at_] == word; }
  bool Take(const char* word) {
    if (!Is(word)) return false;
    ++at_;
    return true;
  }
  std::string Next() { return at_ < tokens_.size() ? tokens_[at_++] : ""; }
  Filter Fail(const std::string& expected, const std::string& got) {
    if (error_.empty())
      error_ = "expected " + expected + ", but there is " + (got.empty() ? "nothing" : "'" + got + "'");
    return {};
  }

  Filter Either(int depth) {
    Filter left = Both(depth);
    while (error_.empty() && (Take("or") || Take("|") || Take("||"))) {
      left = [left, right = Both(depth)](const auto& p, const auto& r) { return left(p, r) || right(p, r); };
    }
    return left;
  }

  Filter Both(int depth) {
    Filter left = Term(depth);
    while (error_.empty() && at_ < tokens_.size() && !Is(")") && !Is("or") && !Is("|") && !Is("||")) {
      if (!Take("and") && !Take("&")) Take("&&");
      left = [left, right = Term(depth)](const auto& p, const auto& r) { return left(p, r) && right(p, r); };
    }
    return left;
  }

  Filter Term(int depth) {
    if (depth > kDeepest) return Fail("fewer brackets", Next());
    if (Take("not") || Take("!")) {
      return [inner = Term(depth + 1)](const auto& p, const auto& r) { return !inner(p, r); };
    }
    if (Take("(")) {
      Filter inner = Either(depth + 1);
      if (error_.empty() && !Take(")")) return Fail("a closing bracket", Next());
      return inner;
    }
    const std::string word = Next();
    if (word == "state" || word == "exclude") return States(word == "exclude");
    if (word == "sport" || word == "dport") return Port(word == "sport");
    if (word == "src" || word == "dst") return Host(word == "src");
    if (word == "process") return Process();
    if (word == "reason") {
      const std::string code = Next();
      if (code.empty()) return Fail("a reason's code", code);
      return [code](const auto&, const ConnectionRecord& r) { return code == r.reason; };
    }
    return Fail("state, exclude, sport, dport, src, dst, process, reason, not or a bracket", word);
  }

  Filter States(bool excluded) {
    const std::string name = Next();
    const auto states = ToStates(name);
    if (!states)
      return Fail("a state (established, listen, closing, aborted, tcp, failed, all, connected, ...)", name);
    return [states = *states, excluded](const auto&, const ConnectionRecord& r) {
      return (std::find(states.begin(), states.end(), r.counters.state) != states.end()) != excluded;
    };
  }

  Filter Port(bool local) {
    Comparison comparison = Comparison::kEqual;
    if (at_ < tokens_.size()) {
      if (const auto named = ToComparison(tokens_[at_])) {
        comparison = *named;
        ++at_;
      }
    }
    const std::string text = Next();
    const bool equality = comparison == Comparison::kEqual || comparison == Comparison::kNotEqual;
    if (const size_t colon = text.rfind(':');
        text == "*" || text == ":*" || (colon != std::string::npos && colon != 0)) {
      const auto host = ToHost(text == "*" ? ":*" : text);
      if (!host || !equality) return Fail("a port, as in sport = :80", text);
      return [=, wanted = comparison == Comparison::kEqual](const auto&, const ConnectionRecord& r) {
        return host->Matches(local ? r.local : r.peer) == wanted;
      };
    }
    const auto port = ToPort(text.starts_with(":") ? text.substr(1) : text);
    if (!port) return Fail("a port, as in sport = :80 or dport = :ssh", text);
    return [=](const auto&, const ConnectionRecord& r) {
      return Holds((local ? r.local : r.peer).port, comparison, *port);
    };
  }

  Filter Host(bool local) {
    if (!Take("=")) Take("==");
    const std::string text = Next();
    const auto host = ToHost(text);
    if (text.empty() || !host) return Fail("an address, as in dst 10.0.0.0/8 or dst [::1]:80", text);
    return [=](const auto&, const ConnectionRecord& r) { return host->Matches(local ? r.local : r.peer); };
  }

  Filter Process() {
    if (!Take("=")) Take("==");
    const std::string name = Next();
    if (name.empty()) return Fail("a program's name, a pattern for it, or a process id", name);
    return [name](const ProcessStats& p, const auto&) {
      return std::to_string(p.pid) == name || fnmatch(name.c_str(), p.program.c_str(), 0) == 0;
    };
  }

  std::vector<std::string> tokens_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace

Result<Filter, std::string> ParseFilter(const std::vector<std::string>& words) {
  std::vector<std::string> tokens = Tokens(words);
  if (tokens.empty()) return Filter([](const ProcessStats&, const ConnectionRecord&) { return true; });
  return Parser(std::move(tokens)).Parse();
}

}  // namespace sdp::sdpstat
