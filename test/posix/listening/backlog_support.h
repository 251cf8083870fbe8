// Clients that wait for accept, and who serves them.
#ifndef SDP_TEST_POSIX_BACKLOG_SUPPORT_H_
#define SDP_TEST_POSIX_BACKLOG_SUPPORT_H_

#include <string>
#include <vector>

#include "test/posix/support.h"

namespace posix_test {

bool Connected(int fd);
// Non-blocking connects, all under way at once.
std::vector<Fd> StartClients(Listener& listener, int count);
// Nobody has accepted, and none of them needs that to connect and to send its number.
std::vector<Fd> ConnectClients(Listener& listener, int count);
// Accepts `count` connections and answers each with what it said and `name`.
bool Serve(int listener, int count, char name);
// The same, and all of them before it says anything: where one process alone is to answer, none of them waits
// for what another one sends.
bool ServeTogether(int listener, int count, char name);
// Who served each client, as a string.
std::string Servers(std::vector<Fd>& clients);
// Connections that wait for accept, as the listener tells.
bool HasWaiting(int listener, size_t count);

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_BACKLOG_SUPPORT_H_
