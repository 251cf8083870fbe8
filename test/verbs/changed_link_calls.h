// Other calls of the links of the embedded RNIC, until the end of a scope.
#ifndef SDP_TEST_VERBS_CHANGED_LINK_CALLS_H_
#define SDP_TEST_VERBS_CHANGED_LINK_CALLS_H_

#include "verbs/softiwarp/link_calls.h"

namespace sdp::iwarp::test {

class ChangedLinkCalls {
 public:
  // `change` gets the calls in force, and changes them.
  template <typename Change>
  explicit ChangedLinkCalls(Change change) : before_(link_calls()) {
    LinkCalls calls = before_;
    change(calls);
    SetLinkCalls(calls);
  }
  ~ChangedLinkCalls() { SetLinkCalls(before_); }
  ChangedLinkCalls(const ChangedLinkCalls&) = delete;
  ChangedLinkCalls& operator=(const ChangedLinkCalls&) = delete;

 private:
  const LinkCalls before_;
};

}  // namespace sdp::iwarp::test

#endif  // SDP_TEST_VERBS_CHANGED_LINK_CALLS_H_
