#include "verbs/softiwarp/link_calls.h"

#include <sys/sendfile.h>

namespace sdp::iwarp {
namespace {

constinit LinkCalls calls{::recvmsg, ::sendmsg, ::shutdown,   ::setsockopt, ::getsockopt,
                          ::recv,    ::send,    ::sendfile64, ::connect};

}  // namespace

void SetLinkCalls(const LinkCalls& replacement) { calls = replacement; }
const LinkCalls& link_calls() { return calls; }

}  // namespace sdp::iwarp
