#include "preload/stats_message_text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/wire/message.h"

namespace sdp::stats {
namespace {

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

MessageText SdpText(const MessageNote& note) {
  const Bytes header = Bytes(note.bytes).first(std::min<size_t>(note.size, kNotedBytes));
  const auto message = wire::Parse(header, note.length);
  if (!message) {
    return {"not SDP",
            std::string(wire::ToString(message.error())) + ", " + std::to_string(note.length) + " bytes"};
  }
  const std::string line = wire::ToString(*message);
  const size_t space = line.find(' ');
  MessageText text{line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1)};
  if (note.kind == NoteKind::kPrivateData) text.details += " (private data)";
  if (note.flags & kNoteSolicited) text.details += " SE";
  if (note.flags & kNoteInvalidates) text.details += " invalidates=" + std::to_string(note.invalidated);
  return text;
}

}  // namespace

MessageText ToText(const MessageNote& note) {
  RdmaNote work;
  std::memcpy(&work, note.bytes, sizeof work);
  const std::string length = "len=" + std::to_string(note.length);
  switch (note.kind) {
    case NoteKind::kPrivateData:
    case NoteKind::kSend:
      return SdpText(note);
    case NoteKind::kRdmaRead:
      return {"RDMA Read",
              length + " stag=" + std::to_string(work.remote_stag) + " va=" + Hex(work.remote_to)};
    case NoteKind::kRdmaReadDone:
      return {"Read Response", ""};
    case NoteKind::kRdmaWrite:
      return {"RDMA Write",
              length + " stag=" + std::to_string(work.remote_stag) + " va=" + Hex(work.remote_to)};
    case NoteKind::kOpened:
    case NoteKind::kOpenedSdp:
      return {"opened", ""};
    case NoteKind::kClosed:
      return {"closed", ""};
    case NoteKind::kNone:
      break;
  }
  return {"nothing", ""};
}

}  // namespace sdp::stats
