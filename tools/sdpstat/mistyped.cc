#include "tools/sdpstat/mistyped.h"

#include <string_view>

#include "core/base/closest_word.h"

namespace sdp::sdpstat {

std::string CommandLike(const std::string& word) {
  constexpr std::string_view kCommands[] = {"why", "trace", "doctor"};
  return ClosestWord(word, kCommands);
}

}  // namespace sdp::sdpstat
