#include "preload/config_file.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace sdp::preload {
namespace {

constexpr size_t kLongestWord = 1024;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

template <typename Enum>
using Words = std::initializer_list<std::pair<std::string_view, Enum>>;

// Parses a number as OFED's scanner does: digits without leading zeros.
std::optional<uint32_t> ToNumber(std::string_view text) {
  uint32_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return number;
}

// Returns what a message shows of the file's own text: short, and without characters that move a cursor.
std::string Quote(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > 40) shown += "...";
  return shown + "'";
}

// One line, parsed word by word. The first problem ends it.
class Line {
 public:
  Line(std::string_view text, int number, ConfigFile* out) : text_(text), number_(number), out_(out) {}

  void Parse() {
    if (AtEnd()) return;
    if (text_.substr(at_).starts_with("match") && RefuseMatch()) return;
    enum class Statement : uint8_t { kUse, kLog, kSet };
    Statement statement{};
    if (!Choice<Statement>({{"use", Statement::kUse}, {"log", Statement::kLog}, {"set", Statement::kSet}},
                           &statement))
      return;
    switch (statement) {
      case Statement::kUse:
        return ParseUse();
      case Statement::kLog:
        return ParseLog();
      case Statement::kSet:
        return ParseSet();
    }
  }

 private:
  struct Word {
    std::string_view text;
    int column;
  };

  // Skips blanks. Returns true at the line's end or at a comment.
  bool AtEnd() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
    return at_ == text_.size() || text_[at_] == '#';
  }
  // Takes the name as it stands: a name may begin with #.
  Word NextName() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
    const size_t start = at_;
    while (at_ < text_.size() && !IsBlank(text_[at_])) ++at_;
    return {text_.substr(start, at_ - start), static_cast<int>(start) + 1};
  }
  Word NextWord() {
    if (AtEnd()) return {"", static_cast<int>(at_) + 1};
    const size_t start = at_;
    while (at_ < text_.size() && !IsBlank(text_[at_]) && text_[at_] != '#') ++at_;
    return {text_.substr(start, at_ - start), static_cast<int>(start) + 1};
  }

  // Returns whether the statement is one of libsdp before OFED 1.4, whose meaning "use" has now.
  bool RefuseMatch() {
    const size_t start = at_;
    const Word word = NextWord();
    if (word.text != "match") {
      at_ = start;
      return false;
    }
    out_->problems.push_back(
        {.line = number_,
         .column = word.column,
         .text = "'match' is of libsdp before OFED 1.4; write use sdp, then client for destination or server "
                 "for listen, then PROGRAM ADDRESS:PORT"});
    return true;
  }

  bool Fail(int column, const std::string& expected, std::string_view got) {
    out_->problems.push_back(
        {.line = number_,
         .column = column,
         .text = "expected " + expected + ", but there is " + (got.empty() ? "nothing" : Quote(got))});
    return false;
  }

  template <typename Enum>
  bool Choice(Words<Enum> choices, Enum* out) {
    const Word word = NextWord();
    for (const auto& [name, meaning] : choices) {
      if (name == word.text) {
        *out = meaning;
        return true;
      }
    }
    std::string names;
    for (const auto& choice : choices) {
      if (!names.empty()) names += &choice == choices.end() - 1 ? " or " : ", ";
      names += choice.first;
    }
    return Fail(word.column, names, word.text);
  }

  bool Name(const char* what, std::string* out) {
    const Word word = NextName();
    if (word.text.empty() || word.text.size() > kLongestWord ||
        word.text.find('\0') != std::string_view::npos) {
      return Fail(word.column, what, word.text);
    }
    *out = word.text;
    return true;
  }

  bool End() {
    if (AtEnd()) return true;
    const int column = static_cast<int>(at_) + 1;
    return Fail(column, "the end of the line", NextWord().text);
  }

  void ParseUse() {
    Rule rule;
    rule.line = number_;
    if (!Choice<Mode>({{"tcp", Mode::kTcp}, {"sdp", Mode::kSdp}, {"both", Mode::kBoth}}, &rule.mode)) return;
    if (!Choice<RuleRole>({{"server", RuleRole::kServer},
                           {"listen", RuleRole::kServer},
                           {"client", RuleRole::kClient},
                           {"connect", RuleRole::kClient}},
                          &rule.role)) {
      return;
    }
    if (!Name("a program's name, or a pattern for it", &rule.program) || !ParseTarget(&rule)) return;
    if (out_->rules.size() >= kMostRules) {
      out_->problems.push_back(
          {.line = number_, .column = 1, .text = "more than " + std::to_string(kMostRules) + " rules"});
      return;
    }
    out_->rules.push_back(std::move(rule));
  }

  // ADDRESS[/LENGTH]:PORTS. OFED allows blanks between the parts, so this joins them first.
  bool ParseTarget(Rule* rule) {
    std::string text;
    std::vector<int> columns;
    while (!AtEnd()) {
      text += text_[at_];
      columns.push_back(static_cast<int>(at_++) + 1);
    }
    columns.push_back(static_cast<int>(at_) + 1);
    // The last colon: OFED writes IPv6 addresses without brackets.
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos)
      return Fail(columns[0], "ADDRESS[/LENGTH]:PORT[-PORT], each part may be *", text);
    const std::string_view all = text;
    return ParseAddress(all.substr(0, colon), columns, &rule->address) &&
           ParsePorts(all, colon + 1, columns, rule);
  }

  bool ParseAddress(std::string_view text, const std::vector<int>& columns, AddressPattern* out) {
    if (text == "*") return true;
    const size_t slash = text.find('/');
    std::string address(text.substr(0, slash));
    std::string_view length = slash == std::string_view::npos ? "" : text.substr(slash + 1);
    // [ADDRESS]/LENGTH, [ADDRESS/LENGTH]
    if (address.starts_with("[")) {
      if (address.ends_with("]") && !length.ends_with("]")) {
        address = address.substr(1, address.size() - 2);
      } else if (length.ends_with("]")) {
        address.erase(0, 1);
        length.remove_suffix(1);
      }
    }
    if (inet_pton(AF_INET, address.c_str(), out->bytes.data()) == 1) {
      out->family = 4;
    } else if (inet_pton(AF_INET6, address.c_str(), out->bytes.data()) == 1) {
      out->family = 6;
    } else {
      return Fail(columns[0], "an IPv4 or IPv6 address, or *, ahead of the port", text);
    }
    const uint32_t most = out->family == 4 ? 32 : 128;
    const auto prefix = slash == std::string_view::npos ? std::optional<uint32_t>(most) : ToNumber(length);
    if (!prefix || *prefix > most) {
      return Fail(columns[slash + 1], "a prefix length from 0 to " + std::to_string(most), length);
    }
    out->prefix = static_cast<uint8_t>(*prefix);
    // IPv4-mapped addresses count as IPv4.
    constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (out->family == 6 && *prefix >= 96 && std::memcmp(out->bytes.data(), kMapped, sizeof kMapped) == 0) {
      out->family = 4;
      out->prefix = static_cast<uint8_t>(*prefix - 96);
      std::copy(out->bytes.begin() + 12, out->bytes.end(), out->bytes.begin());
    }
    // Bits after the prefix mean nothing. Cleared, they let equal patterns compare equal.
    for (uint32_t bit = out->prefix; bit < 128; ++bit)
      out->bytes[bit / 8] &= static_cast<uint8_t>(~(0x80 >> (bit % 8)));
    return true;
  }

  bool ParsePorts(std::string_view all, size_t start, const std::vector<int>& columns, Rule* rule) {
    const std::string_view text = all.substr(start);
    if (text == "*") return true;
    const size_t dash = text.find('-');
    const auto first = ToNumber(text.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : ToNumber(text.substr(dash + 1));
    if (!first || *first == 0 || *first > 65535) {
      return Fail(columns[start], "a port from 1 to 65535, or *", text.substr(0, dash));
    }
    if (!last || *last > 65535 || *last < *first) {
      return Fail(columns[start + dash + 1], "a port from " + std::to_string(*first) + " to 65535",
                  text.substr(dash + 1));
    }
    rule->first_port = static_cast<uint16_t>(*first);
    rule->last_port = static_cast<uint16_t>(*last);
    return true;
  }

  void ParseLog() {
    enum class Option : uint8_t { kDestination, kLevel };
    std::vector<Setting> settings;
    auto set = [&](const char* variable, std::string value, int column) {
      settings.push_back(
          {.variable = variable, .value = std::move(value), .line = number_, .column = column});
    };
    while (!AtEnd()) {
      Option option{};
      if (!Choice<Option>({{"destination", Option::kDestination}, {"min-level", Option::kLevel}}, &option))
        return;
      AtEnd();
      const int column = static_cast<int>(at_) + 1;
      if (option == Option::kLevel) {
        const Word word = NextWord();
        const auto level = ToNumber(word.text);
        if (!level || *level < 1 || *level > 9)
          return (void)Fail(word.column, "a level from 1 (everything) to 9 (errors)", word.text);
        // OFED: 9 errors, 8 warnings, 7 connects and listens, 4 and 3 matches, 2 calls, 1 debug.
        set("SDP_LOG", *level >= 8 ? "error" : *level >= 4 ? "info" : "debug", column);
        continue;
      }
      std::string_view destination;
      if (!Choice<std::string_view>({{"stderr", "stderr"}, {"syslog", "syslog"}, {"file", "file"}},
                                    &destination))
        return;
      set("SDP_LOG_DESTINATION", std::string(destination), column);
      if (destination != "file") continue;
      std::string path;
      if (!Name("the log file's path", &path)) return;
      set("SDP_LOG_FILE", std::move(path), column);
    }
    // Takes all of the statement or nothing.
    for (Setting& setting : settings) out_->settings.push_back(std::move(setting));
  }

  void ParseSet() {
    const Word name = NextWord();
    const auto is_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    if (name.text.empty() || !std::all_of(name.text.begin(), name.text.end(), is_name)) {
      return (void)Fail(name.column, "a setting's name", name.text);
    }
    std::string value;
    AtEnd();
    const int column = static_cast<int>(at_) + 1;
    if (!Name("a value", &value) || !End()) return;
    std::string variable = "SDP_";
    std::string_view rest = name.text;
    if (rest.starts_with("sdp-")) rest.remove_prefix(4);  // sdp-ports is ports
    for (const char c : rest)
      variable += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    out_->settings.push_back(
        {.variable = std::move(variable), .value = std::move(value), .line = number_, .column = column});
  }

  const std::string_view text_;
  const int number_;
  ConfigFile* const out_;
  size_t at_ = 0;
};

}  // namespace

ConfigFile ParseConfigFile(std::string_view text) {
  ConfigFile file;
  if (text.size() > kLargestConfigFile) text = text.substr(0, kLargestConfigFile);
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Line(text.substr(0, end), ++number, &file).Parse();
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  WarnOfShadowed(&file);
  return file;
}

std::string ConfigFilePath(const Lookup& lookup, bool* named) {
  for (const char* variable : {"SDP_CONFIG", "LIBSDP_CONFIG_FILE"}) {
    const char* path = lookup(variable);
    *named = path != nullptr && *path != '\0';
    if (*named) return path;
  }
  return "/etc/sdp/libsdp.conf";
}

}  // namespace sdp::preload
