// The word that a user who mistyped one probably meant, for messages that suggest a correction.
#ifndef SDP_CORE_BASE_CLOSEST_WORD_H_
#define SDP_CORE_BASE_CLOSEST_WORD_H_

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace sdp {

// Returns how many letters must be inserted, removed or changed to turn one word into the other.
inline size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Returns the closest of `words` that begins with `typed`, or that differs from it by at most one mistake for
// each three letters, and three in all. Returns the first of several; empty if there is none.
template <typename Words>
std::string ClosestWord(std::string_view typed, const Words& words) {
  constexpr size_t kLongest = 64;
  constexpr size_t kMostMistakes = 3;
  std::string best;
  size_t least = kMostMistakes + 1;
  if (typed.size() < 2 || typed.size() > kLongest) return best;
  for (const std::string_view word : words) {
    if (word.size() > kLongest) continue;
    const size_t mistakes = word.starts_with(typed) ? 0 : EditDistance(typed, word);
    if (mistakes >= least || mistakes > std::min(kMostMistakes, (word.size() + 1) / 3)) continue;
    least = mistakes;
    best = word;
  }
  return best;
}

}  // namespace sdp

#endif  // SDP_CORE_BASE_CLOSEST_WORD_H_
