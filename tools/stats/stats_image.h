// The bytes of a stats file, checked and taken apart. Nothing in them is trusted: the file belongs to a
// process that may be broken or hostile, and root reads everybody's.
#ifndef SDP_TOOLS_STATS_STATS_IMAGE_H_
#define SDP_TOOLS_STATS_STATS_IMAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/types.h"
#include "preload/stats_layout.h"

namespace sdp::stats {

struct TotalsValues {
  uint64_t connections_closed = 0;
  uint64_t connections_aborted = 0;
  uint64_t bytes_in[kMechanisms] = {};
  uint64_t bytes_out[kMechanisms] = {};
  uint64_t fallbacks[kMaxReasons] = {};
  uint64_t slots_refused = 0;
  uint64_t link_in[kLinkKinds][kMechanisms] = {};
  uint64_t link_out[kLinkKinds][kMechanisms] = {};
  uint64_t send_stalls = 0;
};

struct ProcessStats {
  uint32_t pid = 0;
  uint32_t uid = 0;
  uint64_t start_time = 0;                // clock ticks since boot
  uint64_t opened_at_ns = 0;              // CLOCK_REALTIME
  uint64_t ended_at_ns = 0;               // when its death was noticed; 0: it runs
  std::string program;                    // printable
  std::string title;                      // process_title.h; only of a process that runs
  TotalsValues totals;                    // of what is over; add the records for everything
  std::vector<ConnectionRecord> records;  // live connections and listeners, and recent fall-backs
};

enum class ImageError : uint8_t {
  kTooShort,
  kNotOurs,  // no magic: another file, or one being made
  kVersion,
  kBadLayout,  // sizes of the header and the slots are not this version's
};
const char* ToString(ImageError error);

// How many slots the image holds: what the header says, but no more than the bytes that are there.
Result<size_t, ImageError> CountSlots(Bytes image);
// A slot's sequence; odd while it is written.
uint64_t SlotSequence(Bytes image, size_t index);

// What slot `index`, which has to be in the image, holds, sanitised as below; empty if it is free or in the
// middle of a publish.
std::optional<ConnectionRecord> ParseRecord(Bytes image, size_t index);
// Everything in the image. Records are sanitised: texts end and are printable, enumerations are in range.
// Slots that are free or in the middle of a publish are left out.
Result<ProcessStats, ImageError> ParseImage(Bytes image);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_STATS_IMAGE_H_
