#ifndef SDP_CORE_BASE_RESULT_H_
#define SDP_CORE_BASE_RESULT_H_

#include <tl/expected.hpp>

namespace sdp {

// A value, or the typed reason for its absence.
template <typename T, typename E>
using Result = tl::expected<T, E>;
using tl::unexpected;

}  // namespace sdp

#endif  // SDP_CORE_BASE_RESULT_H_
