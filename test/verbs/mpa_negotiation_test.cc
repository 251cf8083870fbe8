// MPA's start-up: what each side may ask for, what both get.
#include "verbs/softiwarp/proto/mpa_negotiation.h"

#include <catch2/catch.hpp>
#include <string>

#include "test/verbs/bytes.h"

namespace sdp::iwarp::test {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{};

Bytes View(const char* text) { return std::as_bytes(std::span(text, std::char_traits<char>::length(text))); }

// Carries a's output to z; in pieces of `step` bytes.
void Carry(MpaNegotiation* from, MpaNegotiation* to, size_t step = SIZE_MAX) {
  while (!from->output().empty()) {
    const auto piece = Copy(from->output().first(std::min(step, from->output().size())));
    from->HandleSent(piece.size());
    to->HandleBytes(piece);
  }
}

TEST_CASE("what both sides agree on") {
  const bool a_crc = GENERATE(false, true), z_crc = GENERATE(false, true);
  const bool a_markers = GENERATE(false, true), z_markers = GENERATE(false, true);
  const uint8_t revision = GENERATE(1, 2);
  const bool peer_to_peer = GENERATE(false, true), by_read = GENERATE(false, true);
  MpaNegotiation a({.want_crc = a_crc,
                    .want_markers = a_markers,
                    .peer_to_peer = peer_to_peer,
                    .rtr_by_read = by_read,
                    .revision = revision},
                   View("request"), 4, 8, kStart);
  MpaNegotiation z({.want_crc = z_crc, .want_markers = z_markers}, kStart);
  Carry(&a, &z, GENERATE(1, 1000));
  REQUIRE(z.state() == MpaState::kRequested);
  CHECK(Copy(z.peer_private_data()) == Copy(View("request")));
  z.Accept(View("reply"), 6, 16);
  Carry(&z, &a);
  REQUIRE(a.state() == MpaState::kEstablished);
  REQUIRE(z.state() == MpaState::kEstablished);
  CHECK(Copy(a.peer_private_data()) == Copy(View("reply")));
  const MpaAgreement& at_a = a.agreement();
  const MpaAgreement& at_z = z.agreement();
  CHECK(at_a.crc == (a_crc || z_crc));
  CHECK(at_z.crc == at_a.crc);
  CHECK(at_a.receive_markers == a_markers);
  CHECK(at_z.send_markers == a_markers);
  CHECK(at_a.send_markers == z_markers);
  CHECK(at_z.receive_markers == z_markers);
  const Rtr expected = revision == 1 || !peer_to_peer ? Rtr::kNone : by_read ? Rtr::kRead : Rtr::kWrite;
  CHECK(at_a.rtr == expected);
  CHECK(at_z.rtr == expected);
  if (revision == 2) {
    CHECK(at_a.ord == 6);  // no more than the peer takes
    CHECK(at_z.ird == 6);
    CHECK(at_a.ird == 4);
    CHECK(at_z.ord == 4);
  } else {
    CHECK(at_a.ord == 8);
    CHECK(at_z.ird == 6);
  }
}

TEST_CASE("rejection carries private data") {
  MpaNegotiation a({.revision = GENERATE(uint8_t{1}, uint8_t{2})}, View("x"), 1, 1, kStart);
  MpaNegotiation z({}, kStart);
  Carry(&a, &z);
  z.Reject(View("no"));
  Carry(&z, &a);
  CHECK(a.state() == MpaState::kRejected);
  CHECK(Copy(a.peer_private_data()) == Copy(View("no")));
  CHECK(z.state() == MpaState::kRejected);
}

TEST_CASE("private data of the largest size") {
  const uint8_t revision = GENERATE(uint8_t{1}, uint8_t{2});
  const std::vector<std::byte> data(MpaNegotiation::max_private_data(revision), std::byte{7});
  CHECK(data.size() == (revision == 1 ? 512 : 508));
  MpaNegotiation a({.revision = revision}, data, 1, 1, kStart);
  MpaNegotiation z({}, kStart);
  Carry(&a, &z);
  REQUIRE(z.state() == MpaState::kRequested);
  CHECK(Copy(z.peer_private_data()) == data);
  z.Accept(data, 1, 1);
  Carry(&z, &a);
  REQUIRE(a.state() == MpaState::kEstablished);
  CHECK(Copy(a.peer_private_data()) == data);
}

TEST_CASE("the responder chooses an RTR the peer offers") {
  struct Row {
    const char* words;  // IRD and ORD with their flags
    Rtr rtr;
    const char* reply;  // as answered to IRD 16, ORD 16 here
  };
  const Row row =
      GENERATE(Row{"8004 8004", Rtr::kWrite, "8004 8004"}, Row{"8004 4004", Rtr::kRead, "8004 4004"},
               Row{"8004 c004", Rtr::kWrite, "8004 8004"}, Row{"c004 0004", Rtr::kSend, "c004 0004"},
               Row{"8004 0004", Rtr::kWrite, "8004 8004"}, Row{"0004 0004", Rtr::kNone, "0004 0004"},
               Row{"3fff 3fff", Rtr::kNone, "0010 0010"}, Row{"8000 4000", Rtr::kRead, "8001 4000"});
  CAPTURE(row.words);
  MpaNegotiation z({}, kStart);
  auto request = Hex("4d504120494420526571204672616d65 10 02 0004");
  Append(&request, Hex(row.words));
  z.HandleBytes(request);
  REQUIRE(z.state() == MpaState::kRequested);
  CHECK(z.agreement().rtr == row.rtr);
  z.Accept({}, 16, 16);
  auto reply = Hex("4d504120494420526570204672616d65 10 02 0004");
  Append(&reply, Hex(row.reply));
  CHECK(Copy(z.output()) == reply);
}

TEST_CASE("replies that the initiator does not take") {
  struct Row {
    const char* reply;  // behind the key
    const char* why;
    std::optional<TerminateCause> terminate;
  };
  const Row row =
      GENERATE(Row{"10 02 0004 8004 0004", "the peer takes none of our RTR messages", cause::kNoMatchingRtr},
               Row{"10 02 0004 c004 0004", "the peer takes none of our RTR messages", cause::kNoMatchingRtr},
               Row{"10 02 0004 8004 8005", "the peer wants ORD 5, our IRD is 4", cause::kInsufficientIrd},
               Row{"00 02 0000", "MPA Reply without IRD and ORD", std::nullopt},
               Row{"00 01 0000", "MPA Reply has revision 1, ours is 2", std::nullopt},
               Row{"10 02 0201", "MPA frame with more than 512 bytes of private data", std::nullopt},
               Row{"10 02 0002 0000", "enhanced MPA frame without IRD and ORD", std::nullopt});
  CAPTURE(row.reply);
  MpaNegotiation a({}, {}, 4, 4, kStart);
  a.HandleSent(a.output().size());
  auto reply = Hex("4d504120494420526570204672616d65");
  Append(&reply, Hex(row.reply));
  a.HandleBytes(reply);
  REQUIRE(a.state() == MpaState::kFailed);
  CHECK(a.failure() == row.why);
  CHECK(a.terminate() == row.terminate);
}

TEST_CASE("what comes behind a reply is the owner's to judge") {
  MpaNegotiation a({}, {}, 4, 4, kStart);
  a.HandleBytes(Hex("4d504120494420526570204672616d65 10 02 0004 8004 8004 0102"));
  CHECK(a.state() == MpaState::kEstablished);
  CHECK(Copy(a.behind_reply()) == Hex("0102"));
}

TEST_CASE("a reply without peer-to-peer is taken as it is") {
  MpaNegotiation a({}, {}, 4, 4, kStart);
  a.HandleBytes(Hex("4d504120494420526570204672616d65 10 02 0004 0004 0004"));
  CHECK(a.state() == MpaState::kEstablished);
  CHECK(a.agreement().rtr == Rtr::kNone);
}

TEST_CASE("requests that the responder does not take") {
  struct Row {
    const char* bytes;
    const char* why;
  };
  const Row row =
      GENERATE(Row{"474554202f20485454502f312e310d0a", "no MPA Request: wrong key"},
               Row{"4d504120494420526570204672616d65 00 01 0000", "no MPA Request: wrong key"},
               Row{"4d504120494420526571204672616d65 00 00 0000", "MPA revision 0 is not spoken here"},
               Row{"4d504120494420526571204672616d65 00 03 0000", "MPA revision 3 is not spoken here"},
               Row{"4d504120494420526571204672616d65 00 01 ffff",
                   "MPA frame with more than 512 bytes of private data"},
               Row{"4d504120494420526571204672616d65 00 01 0000 00", "bytes behind the MPA frame"});
  CAPTURE(row.bytes);
  MpaNegotiation z({}, kStart);
  z.HandleBytes(Hex(row.bytes));
  REQUIRE(z.state() == MpaState::kFailed);
  CHECK(z.failure() == row.why);
  CHECK(z.output().empty());
}

// RFC 5044, 7.1.1: R is reserved in a Request, and not checked; so are the four bits beside it.
TEST_CASE("the reserved bits of a request are not checked") {
  const char* const flags = GENERATE("20", "01", "2f");
  MpaNegotiation z({}, kStart);
  z.HandleBytes(Hex(std::string("4d504120494420526571204672616d65") + flags + "01 0000"));
  CHECK(z.state() == MpaState::kRequested);
}

TEST_CASE("a request by trickle is dropped in time") {
  MpaNegotiation z({.timeout = 5s}, kStart);
  CHECK(z.deadline() == kStart + 5s);
  z.HandleBytes(Hex("4d50"));
  z.HandleTime(kStart + 4s);
  CHECK(z.state() == MpaState::kWaiting);
  z.HandleTime(kStart + 5s);
  CHECK(z.state() == MpaState::kFailed);
  CHECK(z.failure() == "MPA start-up timed out");
  CHECK(z.deadline() == kNever);
}

TEST_CASE("the peer closes during start-up") {
  MpaNegotiation z({}, kStart);
  SECTION("before anything") {
    z.HandleEof();
    CHECK(z.failure() == "closed by the peer before any MPA frame");
  }
  SECTION("in the middle of a frame") {
    z.HandleBytes(Hex("4d50"));
    z.HandleEof();
    CHECK(z.failure() == "closed by the peer during MPA start-up");
  }
  SECTION("or sends on before our answer") {
    z.HandleBytes(Hex("4d504120494420526571204672616d65 00 01 0000"));
    z.HandleBytes(Hex("00"));
    CHECK(z.failure() == "the peer sent more before our MPA Reply");
  }
  CHECK(z.state() == MpaState::kFailed);
}

}  // namespace
}  // namespace sdp::iwarp::test
