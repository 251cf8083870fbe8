// Messages from where they are noted to where they are drawn: recorder, trace file, follower, ladder,
// capture.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/wire/message.h"
#include "preload/stats_message_text.h"
#include "preload/stats_recorder.h"
#include "preload/stats_segment.h"
#include "test/tools/stats_fixture.h"
#include "tools/trace/capture.h"
#include "tools/trace/follower.h"
#include "tools/trace/ladder.h"

namespace sdp::trace {
namespace {

using namespace stats;

std::vector<std::byte> Serialized(const wire::Body& body, uint32_t mseq, uint32_t payload = 0) {
  wire::Message message{.bsdh = {.bufs = 24, .mseq = MSeq(mseq), .mseq_ack = MSeq(3)}, .body = body};
  message.bsdh.len = static_cast<uint32_t>(message.header_size()) + payload;
  std::vector<std::byte> bytes(message.header_size());
  wire::SerializeTo(message, bytes);
  return bytes;
}

class Process {
 public:
  explicit Process(const SystemCalls& calls = PlainSystemCalls()) {
    std::string error;
    segment = StatsSegment::Open(directory.path(), calls, &error);
    REQUIRE(segment != nullptr);
    record = EstablishedConnection();
    record.connection = 5;
    slot = segment->AcquireSlot(record);
  }
  void Attach() { recorder.Attach(segment.get(), slot, record); }
  void Send(uint32_t mseq, uint32_t payload = 0) {
    const std::vector<std::byte> body(payload, std::byte{0x55});
    const Bytes piece(body);
    recorder.NoteSent(Serialized(wire::Data{}, mseq, payload), {&piece, 1}, false, {});
  }
  Follower Follow() {
    std::string why;
    auto found = FindProcess({directory.path()}, getpid(), O_RDWR, &why);
    INFO(why);
    REQUIRE(found.has_value());
    return Follower(*std::move(found));
  }
  bool traced() const {
    return std::filesystem::exists(std::filesystem::path(segment->path()).replace_extension("trace"));
  }

  TemporaryDirectory directory;
  std::unique_ptr<StatsSegment> segment;
  ConnectionRecord record;
  Slot* slot = nullptr;
  MessageRecorder recorder;
};

uint32_t MSeqOf(const MessageNote& note) {
  return wire::Bsdh::Parse(Bytes(note.bytes).first<wire::Bsdh::kSize>()).mseq.value();
}

TEST_CASE("a Data message noted in short is noted as any other") {
  const std::vector<std::byte> bsdh = Serialized(wire::Data{}, 0x01020304, 5000);
  for (const NoteDirection direction : {NoteDirection::kIn, NoteDirection::kOut}) {
    MessageNote note;
    note.time_ns = 0x1122334455667788;
    note.kind = NoteKind::kSend;
    note.direction = direction;
    note.size = wire::Bsdh::kSize;
    note.flags = kNoteSolicited;
    note.length = 0xa1b2c3d4;
    std::copy(bsdh.begin(), bsdh.end(), note.bytes);
    MessageEntry any, data;
    std::memset(static_cast<void*>(&data), 0x5a, sizeof data);
    StoreNote(&any, 7, 9, note);
    StoreDataNote(&data, 7, 9, note.time_ns, direction, note.flags, note.length, bsdh.data());
    CHECK(std::memcmp(&any, &data, sizeof any) == 0);
  }
}

TEST_CASE("a connection keeps its last messages, and readers see them in order") {
  Process process;
  process.Attach();
  for (uint32_t i = 0; i < 40; ++i) process.Send(i, i);
  const auto own = process.recorder.Recent();
  REQUIRE(own.size() == kRecentMessages);
  CHECK(MSeqOf(own.front()) == 40 - kRecentMessages);
  const auto connections = process.Follow().Connections();
  REQUIRE(connections.size() == 1);
  CHECK(connections[0].record.fd == 7);
  REQUIRE(connections[0].recent.size() == kRecentMessages);
  for (size_t i = 0; i < kRecentMessages; ++i) {
    CHECK(connections[0].recent[i].connection == 5);
    CHECK(std::memcmp(&connections[0].recent[i].note, &own[i], sizeof own[i]) == 0);
  }
  CHECK_FALSE(process.traced());
}

TEST_CASE("what a connection noted before it had a slot comes with it") {
  Process process;
  std::vector<std::byte> hello = Serialized(wire::Hello{}, 0);
  hello.resize(hello.size() + 10);  // more private data
  process.recorder.NotePrivateData(NoteDirection::kIn, hello);
  for (uint32_t i = 0; i < 20; ++i) process.Send(i);
  CHECK(process.recorder.Recent().empty());
  process.Attach();
  const auto notes = process.recorder.Recent();
  REQUIRE(notes.size() == 8);
  CHECK(notes[0].kind == NoteKind::kPrivateData);
  CHECK(ToText(notes[0]).name == "Hello");
  CHECK(MSeqOf(notes[7]) == 6);
}

TEST_CASE("a slot that is used again shows nothing of the connection before") {
  Process process;
  process.Attach();
  process.Send(1);
  process.recorder.Detach();
  process.Send(2);
  MessageRecorder next;
  next.Attach(process.segment.get(), process.slot, process.record);
  CHECK(next.Recent().empty());
  CHECK(process.Follow().Connections()[0].recent.empty());
}

TEST_CASE("payload is not noted, wherever the link cut the message") {
  const auto header = Serialized(wire::SrcAvail{.len = 100, .stag = STag(9), .va = 5}, 7, 30);
  std::vector<std::byte> message = header;
  message.insert(message.end(), 30, std::byte{0x77});
  const size_t cut = GENERATE(0, 1, 15, 16, 17, 31, 32, 33, 50);
  Process process;
  process.Attach();
  const Bytes pieces[] = {Bytes(message).first(cut), Bytes(message).subspan(cut)};
  process.recorder.NoteReceived(pieces, static_cast<uint32_t>(message.size()), true, STag(4));
  const MessageNote note = process.recorder.Recent().at(0);
  CHECK(note.size == header.size());
  for (const std::byte b : note.bytes) CHECK(b != std::byte{0x77});
  CHECK(ToText(note).details == "bufs=24 mseq=7 ack=3 len=100 stag=9 va=5 payload=30 SE invalidates=4");
}

TEST_CASE("messages shorter than any header are noted as they are") {
  Process process;
  process.Attach();
  const std::byte bytes[3] = {};
  const Bytes piece(bytes);
  process.recorder.NoteReceived({&piece, 1}, 3, false, {});
  process.recorder.NoteReceived({}, 0, false, {});
  for (const MessageNote& note : process.recorder.Recent()) CHECK(ToText(note).name == "not SDP");
}

TEST_CASE("transfers are counted by mechanism") {
  MessageRecorder recorder;
  const std::byte byte{};
  const Bytes payload(&byte, 1);
  const auto received = [&](const wire::Body& body, bool with_payload) {
    const auto header = Serialized(body, 1, with_payload ? 1 : 0);
    const Bytes pieces[] = {header, payload};
    recorder.NoteReceived({pieces, with_payload ? 2u : 1u},
                          static_cast<uint32_t>(header.size() + (with_payload ? 1 : 0)), false, {});
  };
  const auto sent = [&](const wire::Body& body, bool with_payload) {
    recorder.NoteSent(Serialized(body, 1, with_payload ? 1 : 0), {&payload, with_payload ? 1u : 0u}, false,
                      {});
  };
  for (const bool with_payload : {false, true}) {
    received(wire::Data{}, with_payload);
    received(wire::SrcAvail{.len = 9}, with_payload);
    received(wire::SinkAvail{.len = 9}, with_payload);
    sent(wire::Data{}, with_payload);
    sent(wire::SinkAvail{.len = 9}, with_payload);
  }
  received(wire::RdmaRdCompl{9}, false);
  received(wire::RdmaWrCompl{9}, false);
  sent(wire::RdmaRdCompl{9}, false);
  sent(wire::RdmaWrCompl{9}, false);
  sent(wire::ModeChange{}, false);
  received(wire::ModeChange{}, false);
  recorder.NoteRdma(NoteKind::kRdmaRead, 9, {});
  recorder.NoteReadDone();
  recorder.NoteReadDone();
  for (int i = 0; i < 3; ++i) recorder.NoteRdma(NoteKind::kRdmaWrite, 9, {});
  const TransferCounts& counts = recorder.transfers();
  CHECK(std::vector(std::begin(counts.in), std::end(counts.in)) == std::vector<uint64_t>{2, 2, 1, 1});
  CHECK(std::vector(std::begin(counts.out), std::end(counts.out)) == std::vector<uint64_t>{1, 1, 3, 1});
  CHECK(counts.mode_changes == 2);
}

TEST_CASE("a trace is made when it is asked for, and ends by itself") {
  Process process;
  process.Attach();
  process.Send(0);
  CHECK_FALSE(process.traced());
  Follower follower = process.Follow();
  REQUIRE(follower.Ask());
  for (uint32_t i = 1; i < 4; ++i) process.Send(i, 10);
  CHECK(process.traced());
  auto messages = follower.Poll();
  REQUIRE(messages.size() == 3);
  CHECK(MSeqOf(messages[2].note) == 3);
  CHECK(messages[2].connection == 5);
  CHECK(follower.Poll().empty());
  // A second one sees what comes after it.
  Follower second = process.Follow();
  process.Send(4);
  CHECK(second.Poll().size() == 1);
  CHECK(follower.Poll().size() == 1);
  // Nobody asks any more: as if the lease had run out.
  auto* until = const_cast<std::atomic<uint64_t>*>(process.segment->trace_until());
  until->store(1);
  process.Send(5);
  CHECK(follower.Poll().empty());
  CHECK(until->load() == 0);
  // And again.
  REQUIRE(follower.Ask());
  process.Send(6);
  CHECK(follower.Poll().size() == 1);
  process.segment->Remove();
  CHECK_FALSE(process.traced());
}

TEST_CASE("opening and closing are traced, with both pairs of names") {
  Process process;
  Follower follower = process.Follow();
  REQUIRE(follower.Ask());
  process.Attach();
  process.Send(0, 100);
  process.recorder.Detach();
  Ladder ladder({});
  std::string text;
  std::vector<NoteKind> kinds;
  for (NotedMessage& message : follower.Poll()) {
    kinds.push_back(message.note.kind);
    message.note.time_ns = 1'000'000'000 + kinds.size() * 2000;
    text += ladder.Draw(message);
  }
  CHECK(kinds == std::vector{NoteKind::kOpened, NoteKind::kOpenedSdp, NoteKind::kSend, NoteKind::kClosed});
  CHECK(text ==
        "  0.000000    7 opened: 10.0.0.1:40000 -> 10.0.0.2:80\n"
        "  0.000004    7 |-- Data ----------->| bufs=24 mseq=0 ack=3 payload=100\n"
        "  0.000006    7 closed\n");
}

TEST_CASE("a reader that is too slow knows what it lost") {
  Process process;
  process.Attach();
  Follower follower = process.Follow();
  REQUIRE(follower.Ask());
  process.Send(0);
  REQUIRE(follower.Poll().size() == 1);
  const uint32_t sent = kTraceEntries + 1000;
  for (uint32_t i = 1; i <= sent; ++i) process.Send(i);
  auto messages = follower.Poll();
  CHECK(messages.size() + follower.lost() == sent);
  CHECK(follower.lost() >= 1000);
  REQUIRE_FALSE(messages.empty());
  CHECK(MSeqOf(messages.back().note) == sent);
}

TEST_CASE("a disk that is full is reported to who asked") {
  SystemCalls calls = PlainSystemCalls();
  static bool full;
  full = false;
  calls.pwrite = [](int fd, const void* data, size_t size, off_t offset) -> ssize_t {
    if (!full) return pwrite(fd, data, size, offset);
    errno = ENOSPC;
    return -1;
  };
  Process process(calls);
  process.Attach();
  Follower follower = process.Follow();
  REQUIRE(follower.Ask());
  full = true;
  process.Send(1);
  full = false;
  CHECK(follower.error() == ENOSPC);
  CHECK(process.segment->trace_until()->load() == 0);
  CHECK_FALSE(process.traced());
  REQUIRE(follower.Ask());
  process.Send(2);
  CHECK(follower.error() == 0);
  CHECK(follower.Poll().size() == 1);
}

TEST_CASE("a forked child writes nothing into its parent's trace") {
  Process process;
  process.Attach();
  Follower follower = process.Follow();
  REQUIRE(follower.Ask());
  process.Send(0);
  process.segment->PrepareFork();
  const pid_t child = fork();
  if (child == 0) {
    process.recorder.ForgetAfterFork();
    process.segment->ForkChild();
    process.Send(1);
    process.segment->Trace({}, 1);
    process.segment->Remove();
    _exit(0);
  }
  process.segment->ForkParent();
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(follower.Poll().size() == 1);
  process.Send(2);
  CHECK(follower.Poll().size() == 1);
}

TEST_CASE("many threads write to one trace", "[threads]") {
  Process process;
  Follower follower = process.Follow();
  REQUIRE(follower.Ask());
  constexpr uint32_t kThreads = 3, kEach = 4000;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&process, t] {
      ConnectionRecord record = process.record;
      record.connection = 100 + t;
      MessageRecorder recorder;
      Slot* const slot = process.segment->AcquireSlot(record);
      recorder.Attach(process.segment.get(), slot, record);
      for (uint32_t i = 0; i < kEach; ++i) recorder.NoteSent(Serialized(wire::Data{}, i), {}, false, {});
      recorder.Detach();
      process.segment->ReleaseSlot(slot);
    });
  }
  std::map<uint32_t, uint32_t> next;
  uint64_t seen = 0;
  bool in_order = true;
  const auto take = [&] {
    for (const NotedMessage& message : follower.Poll()) {
      ++seen;
      if (message.note.kind != NoteKind::kSend) continue;
      uint32_t& expected = next[message.connection];
      in_order = in_order && MSeqOf(message.note) >= expected;
      expected = MSeqOf(message.note) + 1;
    }
  };
  while (seen < kEach) take();
  for (std::thread& thread : threads) thread.join();
  take();
  CHECK(in_order);
  // The file is made by one while the others send: those messages are in no trace.
  CHECK(seen + follower.lost() <= kThreads * (kEach + 3));
  for (const auto& [connection, after] : next) CHECK(after == kEach);
}

MessageNote NoteOf(const wire::Body& body, NoteDirection direction, uint32_t payload = 0) {
  const auto bytes = Serialized(body, 1, payload);
  MessageNote note;
  note.kind = NoteKind::kSend;
  note.direction = direction;
  note.size = static_cast<uint8_t>(bytes.size());
  note.length = note.size + payload;
  std::memcpy(note.bytes, bytes.data(), bytes.size());
  return note;
}

TEST_CASE("rungs are broken to the screen, and modes are followed") {
  Ladder ladder({.width = 80, .descriptors = false});
  ConnectionRecord record = EstablishedConnection();
  record.connection = 1;
  CHECK(ladder.Introduce(record) == "fd 7: 10.0.0.1:40000 -> 10.0.0.2:80  established  soft/tcp  C/C\n");
  CHECK(ladder.Draw({1, NoteOf(wire::SinkAvail{.len = 1 << 20, .stag = STag(0xffffffff), .va = 1ull << 40},
                               NoteDirection::kIn, 5)}) ==
        "  0.000000 |<------ SinkAvail --| bufs=24 mseq=1 ack=3 len=1048576\n"
        "                                  stag=4294967295 va=1099511627776\n"
        "                                  non_discards=0 payload=5\n");
  const auto change = [&](uint8_t mode, bool receivers_source, NoteDirection direction) {
    const std::string line = ladder.Draw({1, NoteOf(wire::ModeChange{mode, receivers_source}, direction)});
    return line.substr(line.find("now"));
  };
  CHECK(change(wire::ModeChange::kPipelined, false, NoteDirection::kOut) == "now P/C\n");
  CHECK(change(wire::ModeChange::kBuffered, false, NoteDirection::kIn) == "now P/B\n");
  CHECK(change(wire::ModeChange::kCombined, true, NoteDirection::kOut) == "now P/C\n");
}

TEST_CASE("a connection both of whose ends are the process's is captured once, with the RDMA work of both") {
  // TCP payloads of the packets that have one, by direction.
  struct Packets {
    std::vector<size_t> of_client, of_server;
  };
  const auto packets_of = [](const std::string& capture) {
    Packets packets;
    for (size_t at = 0; at < capture.size();) {
      const auto byte = [&](size_t i) { return static_cast<uint8_t>(capture.at(at + i)); };
      const size_t size = byte(10) << 8 | byte(11);
      const bool from_client = byte(16 + 20) == 40000 >> 8;  // the source port
      if (size > 40) (from_client ? packets.of_client : packets.of_server).push_back(size - 40);
      at += 16 + size;
    }
    return packets;
  };
  ConnectionRecord client = EstablishedConnection();
  client.connection = 1;
  client.sdp_local = Ipv4(1, 40000);
  client.sdp_peer = Ipv4(2, 50002);
  ConnectionRecord server = client;
  server.connection = 2;
  server.role = Role::kAccepting;
  std::swap(server.sdp_local, server.sdp_peer);
  MessageNote read{
      .kind = NoteKind::kRdmaRead, .direction = NoteDirection::kOut, .size = sizeof(RdmaNote), .length = 100};
  MessageNote done{.kind = NoteKind::kRdmaReadDone, .direction = NoteDirection::kIn};
  MessageNote closed{.kind = NoteKind::kClosed};
  Capture capture;
  capture.Introduce(client);
  capture.Introduce(server);
  std::string out;
  for (const NotedMessage& message :
       {NotedMessage{1, NoteOf(wire::Data{}, NoteDirection::kOut, 9)},
        NotedMessage{2, NoteOf(wire::Data{}, NoteDirection::kIn, 9)},
        NotedMessage{2, NoteOf(wire::Data{}, NoteDirection::kOut, 5)}, NotedMessage{2, read},
        NotedMessage{2, done}, NotedMessage{1, NoteOf(wire::Data{}, NoteDirection::kIn, 5)},
        NotedMessage{1, closed}, NotedMessage{2, NoteOf(wire::DisConn{}, NoteDirection::kOut)},
        NotedMessage{2, closed}})
    out += capture.Add(message);
  const Packets packets = packets_of(out);
  // An MPA frame each; FPDUs of Data, the Read Response, Data, the Read Request, and what was said when one
  // end had gone.
  CHECK(packets.of_client == std::vector<size_t>{20, 2 + 18 + 16 + 9 + 3 + 4, 2 + 14 + 100 + 4});
  CHECK(packets.of_server ==
        std::vector<size_t>{20, 2 + 18 + 28 + 4, 2 + 18 + 16 + 5 + 3 + 4, 2 + 18 + 16 + 4});
}

TEST_CASE("hostile notes are drawn and captured without harm") {
  Ladder ladder({.width = 80});
  Capture capture;
  std::string text;
  for (int kind = 0; kind < 256; kind += kind < 12 ? 1 : 61) {
    std::byte entry[sizeof(MessageEntry)];
    std::memset(entry, 0xff, sizeof entry);
    const uint64_t tag = 1ull << 32 | 3;
    std::memcpy(entry, &tag, sizeof tag);
    entry[sizeof tag + offsetof(MessageNote, kind)] = static_cast<std::byte>(kind);
    CHECK_FALSE(ParseEntry(entry, 2).has_value());
    const auto message = ParseEntry(entry, 1);
    REQUIRE(message.has_value());
    CHECK(message->note.size <= kNotedBytes);
    text += ladder.Draw(*message);
    CHECK(capture.Add(*message).size() < 8u << 20);
  }
  for (const char c : text) CHECK((c == '\n' || (c >= ' ' && c <= '~')));
}

}  // namespace
}  // namespace sdp::trace
