// The peer as a program: a command a line from standard input, "ok" (or "lost": the session ended, as it
// should) when it is done.
//   listen | accept | accept-badly | plain-end | connect PORT | send BYTES | receive BYTES |
//   exchange OUT IN SUSPENSIONS PORT | urgent CHARACTER | suspend PORT | close | receive-end | finish | quit
//   PORT: new, same, closed, rejects, silent, held
// "listen" answers "ok" and the conventional port.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "test/posix/suspension/asking_peer.h"

namespace {

using sdp::suspension_test::AskingPeer;
using sdp::suspension_test::Port;

Port ToPort(const std::string& word) {
  static const std::map<std::string, Port> ports = {{"new", Port::kNew},       {"same", Port::kSame},
                                                    {"closed", Port::kClosed}, {"rejects", Port::kRejects},
                                                    {"silent", Port::kSilent}, {"held", Port::kHeld}};
  return ports.at(word);
}

// One line from standard input; the link is tended to meanwhile. Empty: the end.
std::string NextLine(AskingPeer& peer) {
  std::string line;
  for (;;) {
    pollfd in{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&in, 1, 0) == 0) {
      peer.Idle(STDIN_FILENO);
      continue;
    }
    char c = 0;
    if (::read(STDIN_FILENO, &c, 1) != 1) return {};
    if (c == '\n') return line;
    line += c;
  }
}

// What is answered.
std::string Run(AskingPeer& peer, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::string port;
  uint64_t a = 0;
  uint64_t b = 0;
  int times = 0;
  words >> command;
  if (command == "listen") {
    peer.Listen();
    return "ok " + std::to_string(peer.conventional_port());
  }
  if (command == "accept") {
    peer.AcceptFirst();
  } else if (command == "accept-badly") {
    peer.AcceptBadly();
  } else if (command == "plain-end") {
    if (!peer.PlainEndsInOrder()) return "reset";
  } else if (command == "connect") {
    words >> a;
    peer.Connect(static_cast<uint16_t>(a));
  } else if (command == "send") {
    words >> a;
    peer.Send(a);
  } else if (command == "receive") {
    words >> a;
    peer.Receive(a);
  } else if (command == "exchange") {
    words >> a >> b >> times >> port;
    peer.Exchange(a, b, times, ToPort(port));
  } else if (command == "urgent") {
    words >> port;
    peer.SendUrgent(port.at(0));
  } else if (command == "suspend") {
    words >> port;
    if (!peer.Suspend(ToPort(port))) return "lost";
  } else if (command == "close") {
    peer.CloseSend();
  } else if (command == "receive-end") {
    peer.ReceiveEnd();
  } else if (command == "finish") {
    peer.Finish();
  } else {
    return "unknown command: " + line;
  }
  return "ok";
}

}  // namespace

int main() {
  AskingPeer peer;
  for (std::string line = NextLine(peer); !line.empty() && line != "quit"; line = NextLine(peer)) {
    std::cout << Run(peer, line) << std::endl;
  }
  return 0;
}
