#include "tools/trace/ladder.h"

#include <cctype>
#include <cstdio>
#include <cstring>
#include <variant>

#include "core/wire/message.h"
#include "preload/stats_message_text.h"
#include "tools/stats/address_text.h"

namespace sdp::trace {
namespace {

using stats::MessageNote;
using stats::NoteDirection;
using stats::NoteKind;

constexpr size_t kRung = 20;              // between the rails; the longest name is SinkAvailCancel
constexpr size_t kMaxConnections = 4096;  // remembered; a liar may name any number of them

char Initial(stats::FlowMode mode) { return static_cast<char>(std::toupper(stats::ToString(mode)[0])); }

// "-- Data ---------->", "<---------- Data --".
std::string Arrow(const std::string& name, NoteDirection direction) {
  const size_t used = name.size() + 5;
  const std::string rest(used < kRung ? kRung - used : 1, '-');
  if (direction == NoteDirection::kOut) return "-- " + name + " " + rest + ">";
  return "<" + rest + " " + name + " --";
}

stats::Address ToAddress(const uint8_t (&ip)[16], uint16_t port, uint8_t flags) {
  stats::Address address;
  address.family = (flags & stats::kNoteIpv6) != 0 ? 6 : 4;
  address.port = port;
  std::memcpy(address.ip, ip, sizeof address.ip);
  return address;
}

std::string Names(const stats::Address& local, const stats::Address& peer, bool connecting) {
  return stats::ToString(local) + (connecting ? " -> " : " <- ") + stats::ToString(peer);
}

}  // namespace

std::string Ladder::Introduce(const stats::ConnectionRecord& record) {
  Connection& connection = connections_[record.connection];
  connection.fd = record.fd;
  connection.names = Names(record.local, record.peer, record.role == stats::Role::kConnecting);
  connection.source = record.counters.source_mode;
  connection.sink = record.counters.sink_mode;
  std::string line = "fd " + std::to_string(record.fd) + ": " + connection.names + "  " +
                     stats::ToString(record.counters.state) + "  " + record.rnic + "/" + record.link + "  " +
                     Initial(connection.source) + "/" + Initial(connection.sink);
  return line + "\n";
}

std::string Ladder::Draw(const NotedMessage& message) {
  const MessageNote& note = message.note;
  if (note.kind == NoteKind::kNone || note.kind == NoteKind::kOpenedSdp) return "";
  if (!start_ns_) start_ns_ = note.time_ns;
  if (connections_.size() >= kMaxConnections && !connections_.contains(message.connection))
    connections_.clear();
  if (note.kind == NoteKind::kOpened) {
    stats::NamesNote names;
    std::memcpy(&names, note.bytes, sizeof names);
    Connection connection;
    connection.fd = static_cast<int>(note.length);
    connection.names = Names(ToAddress(names.local_ip, names.local_port, note.flags),
                             ToAddress(names.peer_ip, names.peer_port, note.flags),
                             (note.flags & stats::kNoteConnecting) != 0);
    connections_[message.connection] = connection;
    return Prefix(message) + "opened: " + connection.names + "\n";
  }
  if (note.kind != NoteKind::kClosed) return Rung(message);
  const std::string line = Prefix(message) + "closed\n";
  connections_.erase(message.connection);
  return line;
}

std::string Ladder::Prefix(const NotedMessage& message) {
  const double seconds = static_cast<double>(static_cast<int64_t>(message.note.time_ns - *start_ns_)) / 1e9;
  char text[48];
  std::snprintf(text, sizeof text, "%10.6f ", seconds);
  std::string prefix = text;
  if (!options_.descriptors) return prefix;
  const auto found = connections_.find(message.connection);
  std::snprintf(text, sizeof text, "%4d ", found == connections_.end() ? -1 : found->second.fd);
  return prefix + text;
}

std::string Ladder::Rung(const NotedMessage& message) {
  const MessageNote& note = message.note;
  const stats::MessageText text = stats::ToText(note);
  const auto found = connections_.find(message.connection);
  std::string words = text.details;
  if (found != connections_.end()) words += FollowMode(note, &found->second);
  return Broken(Prefix(message) + "|" + Arrow(text.name, note.direction) + "| ", words);
}

std::string Ladder::FollowMode(const MessageNote& note, Connection* connection) const {
  if (note.kind != NoteKind::kSend) return "";
  const auto message = wire::Parse(Bytes(note.bytes).first(note.size), note.length);
  if (!message) return "";
  const auto* change = std::get_if<wire::ModeChange>(&message->body);
  if (change == nullptr) return "";
  // S names the half-connection in which the receiver of the message is the Data Source.
  const bool ours = change->receivers_source == (note.direction == NoteDirection::kIn);
  (ours ? connection->source : connection->sink) = static_cast<stats::FlowMode>(change->mode);
  return std::string(" now ") + Initial(connection->source) + "/" + Initial(connection->sink);
}

// Words that do not fit go below the first.
std::string Ladder::Broken(std::string line, const std::string& words) const {
  const size_t indent = line.size();
  std::string out;
  bool first = true;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    const size_t needed = line.size() + (first ? 0 : 1) + (end - at);
    if (!first && options_.width > indent && needed > options_.width) {
      out += line + "\n";
      line.assign(indent, ' ');
      first = true;
    }
    line += (first ? "" : " ") + words.substr(at, end - at);
    first = false;
    at = end + 1;
  }
  return out + line + "\n";
}

}  // namespace sdp::trace
