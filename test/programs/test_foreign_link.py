"""What MPA, DDP and RDMAP demand of the link, below SDP: through the whole library, with a peer that shares
nothing with it (foreign_peer.py)."""

import os
import pathlib
import socket
import struct

import foreign_peer
import harness
from foreign_peer import (
    BY_READ,
    BY_SEND,
    BY_WRITE,
    CRC,
    DATA,
    DIS_CONN,
    HELLO_ACK,
    MARKERS,
    MODE_CHANGE,
    PEER_TO_PEER,
    RDMA_RD_COMPL,
    RDMA_WR_COMPL,
    RDMA_WRITE,
    READ,
    READ_REQUEST,
    READ_RESPONSE,
    SEND,
    SEND_INVALIDATE,
    SEND_SE,
    SEND_SM,
    SINK_AVAIL,
    SRC_AVAIL,
    TERMINATE,
    ForeignPeer,
    Memory,
    mode_change,
    untagged,
)
from test_foreign_peer import PATIENCE, ForeignTest


def tagged(opcode, control=0xC1, stag=0x1234, offset=0x10000):
    return struct.pack(">BBIQ", control, 0x40 | opcode, stag, offset)


class LinkTest(ForeignTest):
    def assert_terminated(self, peer, code, header=None):
        """By a Terminate with this code and what it is about, and nothing follows but the link's end."""
        terminate = peer.hear_until(lambda message: message.opcode == TERMINATE).payload
        self.assertEqual(terminate[:2].hex(), code)
        if header is None:
            self.assertEqual(terminate[2:], bytes(2))
        else:
            self.assertEqual(terminate[2] & 0xC0, 0xC0, "M and D")
            self.assertEqual(terminate[6 : 6 + len(header)].hex(), header.hex())
        with self.assertRaisesRegex(foreign_peer.Ended, "FIN"):
            self.fail(f"{peer.hear()} came behind the Terminate")

    def unread(self, peer):
        """Bytes that wait in the program's kernel."""
        ours, theirs = peer.link.getsockname()[1], self.sdp_address[1]
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if [int(end.rsplit(":", 1)[1], 16) for end in fields[1:3]] == [theirs, ours]:
                return int(fields[4].rsplit(":", 1)[1], 16)
        self.fail("the link is gone")

    def advertised(self, peer, size):
        """Memory that a thread of the program lends to RDMA Reads, and how much of it came already."""
        data = bytes(i % 251 for i in range(size))
        self.puppet.do(f"asleep(lambda: s.sendall(bytes(i % 251 for i in range({size}))))")
        said = peer.hear_until(lambda message: message.mid == SRC_AVAIL)
        memory = Memory.advertised(said)
        return Memory(memory.stag, memory.offset, memory.size, data), len(said.payload) - 16

    def room(self, peer, size):
        """Memory that a thread of the program lends to RDMA Writes."""
        peer.say(MODE_CHANGE, mode_change(foreign_peer.PIPE_MODE))
        self.puppet.do(f"asleep(lambda: s.recv({size}))")
        return Memory.advertised(peer.hear_until(lambda message: message.mid == SINK_AVAIL))


class Framing(LinkTest):
    """RFC 5044"""

    def test_messages_are_found_whatever_the_split(self):
        """5: each byte is read alone."""
        self.serve()
        peer = self.connect()
        peer.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.puppet.tell("b''.join(iter(lambda: s.recv(10), b''))")
        stream = peer.framed(DATA, b"byte by byte") + peer.framed(DATA, b", in turn") + peer.framed(DIS_CONN)
        for place in range(len(stream)):
            peer.link.sendall(stream[place : place + 1])
            harness.wait_until(lambda: self.unread(peer) == 0, f"reading of byte {place}", PATIENCE)
        self.assertEqual(self.puppet.said(), b"byte by byte, in turn")
        self.puppet.do("s.send(b'back')")
        self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"back")

    def test_a_peer_that_wants_crc_has_it(self):
        """4.4: and so has a program that wants it of a peer that did not ask."""
        for flags, environment in ((foreign_peer.CRC, {}), (0, {"SDP_MPA_CRC": 1})):
            with self.subTest(flags=flags):
                self.serve(**environment)
                peer = ForeignPeer.connect(self.sdp_address, flags=flags)
                self.addCleanup(peer.close)
                self.assertTrue(peer.flags & foreign_peer.CRC)
                for size in (1, 2, 3, 4, 1000):
                    peer.say(DATA, bytes(size))
                self.assertEqual(
                    self.puppet.do("(s := l.accept()[0]).recv(1010, socket.MSG_WAITALL)"), bytes(1010)
                )
                self.puppet.do("s.send(b'back')")
                self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"back")

    def test_a_wrong_crc_ends_the_link(self):
        """4.4, 8 (2)"""
        self.serve()
        for what, place in (("header", 2), ("payload", 50), ("CRC", -1)):
            with self.subTest(what):
                peer = ForeignPeer.connect(self.sdp_address, flags=foreign_peer.CRC)
                self.addCleanup(peer.close)
                self.puppet.do("(s := l.accept()[0]) and None")
                self.puppet.tell("s.recv(1)")
                wrong = bytearray(peer.framed(DATA, b"x" * 100))
                wrong[place] ^= 1
                peer.link.sendall(wrong + peer.framed(DATA, b"right"))
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assert_terminated(peer, "2002")
                self.puppet.do("s.close()")

    def test_a_peer_that_wants_markers_has_them(self):
        """4.3: the peer finds each where it has to be, with what it has to say. The first is ahead of the
        first FPDU, and one that falls between two FPDUs belongs to the second."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        for flags in MARKERS, MARKERS | CRC:
            with self.subTest(flags=flags):
                peer = ForeignPeer.connect(self.sdp_address, flags=flags)
                self.addCleanup(peer.close)
                self.assertFalse(peer.flags & MARKERS, "the program wants none")
                self.puppet.do("(s := l.accept()[0]) and None")
                for size in (1, 2, 3, 4, 500, 3000, 15_000):
                    self.puppet.do(f"s.send(bytes({size}))")
                    self.assertEqual(len(peer.hear_until(lambda message: message.payload).payload), size)
                    peer.say(DATA)
                # An FPDU has 40 octets beside a Data message's payload: this one ends where a marker stands.
                left = -peer.heard % 512
                self.puppet.do(f"s.send(bytes({left - 40 if left > 40 else left + 468}))")
                peer.hear_until(lambda message: message.payload)
                self.assertEqual(peer.heard % 512, 0)
                self.puppet.do("s.send(b'behind the marker')")
                self.assertEqual(peer.hear().payload, b"behind the marker")
                memory, ahead = self.advertised(peer, 300_000)
                self.assertEqual(peer.fetch(memory, ahead, 300_000 - ahead), memory.data[ahead:])
                peer.say(RDMA_RD_COMPL, struct.pack(">I", 300_000 - ahead), opcode=SEND_SE)
                self.assertEqual(self.puppet.do("over()"), None)

    def test_a_program_that_wants_markers_has_them(self):
        """4.3: and those that it does not know from its peer's FPDUs reach nobody."""
        self.serve(SDP_MPA_MARKERS=1)
        for flags in 0, MARKERS | CRC:
            with self.subTest(flags=flags):
                peer = ForeignPeer.connect(self.sdp_address, flags=flags)
                self.addCleanup(peer.close)
                self.assertTrue(peer.flags & MARKERS)
                self.puppet.do("(s := l.accept()[0]) and None")
                sent = os.urandom(20_000)
                start = 0
                for size in (1, 2, 3, 4, 490, 500, 3000, 16_000):
                    peer.say(DATA, sent[start : start + size])
                    start += size
                self.assertEqual(self.puppet.do("s.recv(20_000, socket.MSG_WAITALL)"), sent)
                self.puppet.do("s.send(b'back')")
                self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"back")

    def test_a_program_that_connects_gives_and_takes_markers(self):
        """7.1.2 (7): the first octets of each direction are a marker."""
        self.dialled()
        self.dial(SDP_MPA_MARKERS=1)
        words = (PEER_TO_PEER | 8, BY_WRITE | 7)
        peer = self.accept(private=b"", words=words, wanted=MARKERS)
        self.assertTrue(peer.gives_markers)
        self.assertEqual(peer.await_input(4)[:4], bytes(4))
        self.assertEqual(peer.hear().opcode, RDMA_WRITE)
        peer.link.sendall(peer.frame(foreign_peer.hello_ack(), SEND_SE))
        peer.say(DATA, b"there" * 1000)
        self.assertEqual(self.puppet.said(), self.host)
        self.assertEqual(self.puppet.do("s.recv(5000, socket.MSG_WAITALL)"), b"there" * 1000)
        self.puppet.do("s.send(b'back' * 1000)")
        self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"back" * 1000)

    def test_a_marker_that_points_elsewhere_ends_the_link(self):
        """8 (3)"""
        self.serve(SDP_MPA_MARKERS=1)
        for flags in 0, CRC:
            with self.subTest(flags=flags):
                peer = ForeignPeer.connect(self.sdp_address, flags=flags)
                self.addCleanup(peer.close)
                self.puppet.do("(s := l.accept()[0]) and None")
                self.puppet.tell("s.recv(1)")
                marker = -peer.given % 512
                wrong = bytearray(peer.framed(DATA, b"x" * 1000))
                wrong[marker + 3] ^= 4
                if flags & CRC:
                    wrong[-4:] = foreign_peer.crc32c(wrong[:-4])
                peer.link.sendall(wrong)
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assert_terminated(peer, "2003")
                self.puppet.do("s.close()")

    def test_two_initiators_are_told_by_the_key(self):
        """7.1.2 (8): who hears a Request in the place of a Reply ends the link, and the program's connection
        is TCP."""
        self.dialled()
        self.dial()
        peer = ForeignPeer(self.sdp.accept()[0])
        self.addCleanup(peer.close)
        private = foreign_peer.hello()
        peer.link.sendall(foreign_peer.REQUEST + struct.pack(">BBH", 0, 1, len(private)) + private)
        with self.conventional.accept()[0]:
            self.assertEqual(self.puppet.said(), self.host)
        self.assertEqual(peer.read(16), foreign_peer.REQUEST)
        self.assertIn(peer.end(PATIENCE), ("FIN", "reset"))
        self.assertIn("no MPA Reply: wrong key", self.world.sdp_log())

    def test_private_data_of_the_largest_size_is_read(self):
        """7.1.1: whatever stands behind the Hello."""
        self.serve()
        private = foreign_peer.hello()
        peer = ForeignPeer.connect(self.sdp_address, private=private + bytes(512 - len(private)))
        self.addCleanup(peer.close)
        peer.say(DATA, b"there")
        self.assertEqual(self.puppet.do("(s := l.accept()[0]).recv(10)"), b"there")


class PeerToPeer(LinkTest):
    """RFC 6581"""

    def test_the_first_fpdu_is_the_rtr(self):
        """4: the one that the Reply names."""
        self.dialled()
        for way, opcode in ((BY_WRITE, RDMA_WRITE), (BY_READ, READ_REQUEST)):
            with self.subTest(opcode=opcode):
                self.dial()
                peer = self.accept(private=b"", words=(PEER_TO_PEER | 8, way | 7))
                self.assertTrue(peer.words[0] & PEER_TO_PEER)
                self.assertTrue(peer.words[1] & way)
                rtr = peer.hear()
                self.assertEqual(rtr.opcode, opcode)
                if way == BY_WRITE:
                    self.assertEqual(rtr.written[2], b"")
                else:
                    sink, to, size, _, _ = READ.unpack(rtr.payload)
                    self.assertEqual(size, 0)
                    peer.tagged(READ_RESPONSE, sink, to, b"")
                peer.link.sendall(peer.frame(foreign_peer.hello_ack(), foreign_peer.SEND_SE))
                peer.say(DATA, b"there")
                self.assertEqual(self.puppet.said(), self.host)
                self.assertEqual(self.puppet.do("s.recv(10)"), b"there")
                self.puppet.do("s.send(b'back')")
                self.assertEqual(peer.hear_until(lambda message: message.payload).payload, b"back")

    def test_a_reply_that_cannot_be_is_terminated(self):
        """8: codes 6 and 7; the program's connection is TCP."""
        self.dialled()
        for code, words in (("2006", (8, 0x3000)), ("2007", (PEER_TO_PEER | 8, 7))):
            with self.subTest(code):
                self.dial()
                peer = self.accept(words=words)
                self.assert_terminated(peer, code)
                with self.conventional.accept()[0]:
                    self.assertEqual(self.puppet.said(), self.host)

    def test_the_rtr_is_one_of_those_that_were_offered(self):
        """5: the program accepts, and its Reply names one."""
        self.serve()
        ways = {
            RDMA_WRITE: ("write", lambda words: words[1] & BY_WRITE),
            READ_REQUEST: ("read", lambda words: words[1] & BY_READ),
            SEND: ("send", lambda words: words[0] & BY_SEND),
        }
        for offered in ((BY_SEND, BY_WRITE | BY_READ), (0, BY_READ), (BY_SEND, 0), (0, BY_WRITE)):
            with self.subTest(offered=offered):
                words = (PEER_TO_PEER | 8 | offered[0], 7 | offered[1])
                peer = ForeignPeer.request_peer_to_peer(self.sdp_address, words)
                self.addCleanup(peer.close)
                self.assertTrue(peer.words[0] & PEER_TO_PEER)
                chosen = [opcode for opcode, (_, named) in ways.items() if named(peer.words)]
                self.assertEqual(len(chosen), 1)
                self.assertTrue(ways[chosen[0]][1](words), "it was not offered")
                if chosen[0] == RDMA_WRITE:
                    peer.ready_to_receive()
                elif chosen[0] == READ_REQUEST:
                    peer.link.sendall(peer.read_request(0, 0, 0))
                else:
                    peer.link.sendall(peer.frame(b""))
                self.assertEqual(peer.hear().mid, HELLO_ACK)
                if chosen[0] == READ_REQUEST:
                    self.assertEqual(peer.hear_answer(0), b"")
                peer.say(DATA, b"there")
                self.assertEqual(self.puppet.do("(s := l.accept()[0]).recv(10)"), b"there")


class Reads(LinkTest):
    """RFC 5040, 6.1; RFC 6581, 9.1: how many RDMA Reads are under way."""

    def connect_with(self, ird, ord):
        """Of the peer's, in the words of its Request. In its Hello neither is what leaves it open."""
        hello = {"ird": min(ird, 0x3FFE), "ord": min(ord, 0x3FFE)}
        words = (PEER_TO_PEER | ird, BY_WRITE | ord)
        peer = ForeignPeer.request_peer_to_peer(self.sdp_address, words, **hello)
        self.addCleanup(peer.close)
        peer.ready_to_receive()
        self.assertEqual(peer.hear().mid, HELLO_ACK)
        self.puppet.do("(s := l.accept()[0]) and None")
        return peer

    def test_the_program_reads_no_more_at_once_than_its_peer_answers(self):
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        for ird in (1, 2, 0x3FFF):
            with self.subTest(ird=ird):
                peer = self.connect_with(ird, 7)
                ord = peer.words[1] & 0x3FFF
                self.assertIn(ord, range(1, min(ird, 0x3FFE) + 1))
                self.puppet.tell("s.recv(3_000_000, socket.MSG_WAITALL)")
                memory = Memory.of(os.urandom(3_000_000), 0x1234)
                peer.say(SRC_AVAIL, memory.header() + memory.data[:100])
                told, waiting, most = 100, [], 0
                while told < memory.size:
                    try:
                        message = peer.hear_until(lambda message: message.mid != DATA, timeout=0.1)
                    except TimeoutError:
                        peer.answer(waiting.pop(0), memory)
                        continue
                    if message.opcode == READ_REQUEST:
                        waiting.append(message)
                        most = max(most, len(waiting))
                        self.assertLessEqual(len(waiting), ord)
                    else:
                        told += message.number
                self.assertGreaterEqual(most, min(ord, 2), "its limit was not met")
                self.assertEqual(self.puppet.said(), memory.data)

    def test_more_reads_than_the_program_answers_are_refused(self):
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        for size, many in ((300_000, False), (3_000_000, True)):
            with self.subTest(many=many):
                peer = self.connect_with(8, 7)
                ird = peer.words[0] & 0x3FFF
                self.assertGreater(ird, 0)
                memory, ahead = self.advertised(peer, size)
                # So many that the answers are more than the kernel holds at both ends.
                count = 6 * ird if many else ird
                read = lambda: peer.read_request(memory.stag, memory.offset, memory.size)
                peer.link.sendall(b"".join(read() for _ in range(count)))
                harness.wait_until(lambda: self.unread(peer) == 0, "reading of the requests", PATIENCE)
                if not many:
                    for _ in range(count):
                        self.assertEqual(peer.hear_answer(size), memory.data)
                    peer.say(RDMA_RD_COMPL, struct.pack(">I", size - ahead), opcode=SEND_SE)
                    self.assertEqual(self.puppet.do("over()"), None)
                    continue
                while (ulpdu := peer.hear_ulpdu(PATIENCE))[1] & 15 == READ_RESPONSE:
                    pass
                self.assertEqual((ulpdu[1] & 15, ulpdu[18:20].hex()), (TERMINATE, "1202"))
                self.assertIn(self.puppet.do("over()"), ("ECONNRESET", "EPIPE"))


class Access(LinkTest):
    """RFC 5041, 8; RFC 5040, 8.1.1: what a peer can reach is what was advertised to it, while it is."""

    def assert_refused(self, peer, ulpdu, header, code, calls=("over()", "s.recv(1)")):
        """One of the program's `calls` says so."""
        peer.link.sendall(peer.fpdu(ulpdu))
        self.assertTrue({self.puppet.do(call) for call in calls} & {"ECONNRESET", "EPIPE"})
        self.assert_terminated(peer, code, header)
        self.puppet.do("s.close()")

    def assert_read_refused(self, peer, memory, code, start=0, size=1, **calls):
        header = untagged(READ_REQUEST, queue=1, msn=peer.reads + 1)
        body = READ.pack(0x5EAD, 0, size, memory.stag, memory.offset + start)
        self.assert_refused(peer, header + body, header, code, **calls)

    def assert_write_refused(self, peer, memory, code, start=0, size=1, **calls):
        header = tagged(RDMA_WRITE, stag=memory.stag, offset=memory.offset + start)
        self.assert_refused(peer, header + b"!" * size, header, code, **calls)

    def test_an_stag_is_valid_on_its_own_connection_alone(self):
        """Neither memory is touched, and the connection whose it is goes on."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        owner = self.connect()
        memory, ahead = self.advertised(owner, 300_000)
        calls = ("s.recv(1)",)  # of the other connection
        self.assert_read_refused(self.connect(), memory, "0100", calls=calls)
        self.assert_write_refused(self.connect(), memory, "1100", calls=calls)
        other = self.connect()
        header = untagged(SEND_INVALIDATE, msn=other.msn + 1, invalidated=memory.stag)
        self.assert_refused(other, header + other.message(DATA, b"data"), header, "0109", calls)
        self.assertEqual(owner.fetch(memory, ahead, 300_000 - ahead), memory.data[ahead:])
        owner.say(RDMA_RD_COMPL, struct.pack(">I", 300_000 - ahead), opcode=SEND_SE)
        self.assertEqual(self.puppet.do("over()"), None)

        self.serve(SDP_FORCE="write")
        owner = self.connect()
        room = self.room(owner, 100_000)
        self.assert_write_refused(self.connect(), room, "1100", size=1000, calls=calls)
        self.assert_read_refused(self.connect(), room, "0100", calls=calls)
        owner.tagged(RDMA_WRITE, room.stag, room.offset + 1000, bytes(99_000))
        owner.tagged(RDMA_WRITE, room.stag, room.offset, b"x")
        owner.say(RDMA_WR_COMPL, struct.pack(">I", 100_000), opcode=SEND_SE)
        self.assertEqual(self.puppet.do("over()[:1]"), b"x")

    def test_memory_that_was_taken_back_is_out_of_reach(self):
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        for what in "RdmaRdCompl", "SendSm":
            with self.subTest(what):
                peer = self.connect()
                memory, received = self.advertised(peer, 300_000)
                if what == "RdmaRdCompl":
                    peer.fetch(memory, received, 300_000 - received)
                    peer.say(RDMA_RD_COMPL, struct.pack(">I", 300_000 - received), opcode=SEND_SE)
                else:
                    peer.say(SEND_SM, opcode=SEND_SE)
                    while received < 300_000:
                        received += len(peer.hear().payload)
                        peer.say(DATA)
                self.assertEqual(self.puppet.do("over()"), None)
                self.assert_read_refused(peer, memory, "0100")
        self.serve(SDP_FORCE="write")
        peer = self.connect()
        room = self.room(peer, 100_000)
        peer.tagged(RDMA_WRITE, room.stag, room.offset, bytes(100_000))
        peer.say(RDMA_WR_COMPL, struct.pack(">I", 100_000), opcode=SEND_SE)
        self.assertEqual(self.puppet.do("over()"), bytes(100_000))
        self.assert_write_refused(peer, room, "1100")

    def test_no_more_can_be_reached_than_was_advertised(self):
        """And by no other way than it was advertised for."""
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        for start, size in ((-1, 2), (299_999, 2), (300_000, 1), (0, 300_001)):
            with self.subTest("read", start=start, size=size):
                peer = self.connect()
                memory, _ = self.advertised(peer, 300_000)
                self.assert_read_refused(peer, memory, "0101", start, size)
        with self.subTest("a write to what may be read"):
            peer = self.connect()
            memory, _ = self.advertised(peer, 300_000)
            self.assert_write_refused(peer, memory, "1100")
        self.serve(SDP_FORCE="write")
        for start, size in ((-1, 2), (99_999, 2), (100_000, 1)):
            with self.subTest("write", start=start, size=size):
                peer = self.connect()
                self.assert_write_refused(peer, self.room(peer, 100_000), "1101", start, size)
        with self.subTest("a read of what may be written"):
            peer = self.connect()
            self.assert_read_refused(peer, self.room(peer, 100_000), "0102")

    def test_stags_are_not_guessed_from_one_another(self):
        self.serve(SDP_BCOPY_THRESHOLD=65536)
        stags = [self.advertised(self.connect(), 100_000)[0].stag for _ in range(12)]
        # Twenty bits of each are random.
        self.assertEqual(len({stag >> 12 for stag in stags}), 12)
        self.assertEqual(len({(later - earlier) % 2**32 for earlier, later in zip(stags, stags[1:])}), 11)


class Segments(LinkTest):
    """RFC 5041, 7; RFC 5040, 5.3 and 7: what is wrong with a segment ends the link and says so, and what
    follows it is dropped."""

    def wrong(self, msn):
        """What it is, the Terminate's layer, type and code, header, payload. `msn`: the next one's."""
        message = foreign_peer.BSDH.pack(24, 0, DATA, 20, 1, 0) + b"data"
        read = READ.pack(1, 2, 10, 0x1234, 0x10000)
        return (
            ("a Send longer than the Private Buffers", "1205", untagged(SEND, msn=msn), bytes(64_529)),
            ("a Send's second segment alone", "1204", untagged(SEND, msn=msn, offset=4), message),
            ("an MSN that was", "1203", untagged(SEND, msn=msn - 1), message),
            ("an MSN ahead", "1203", untagged(SEND, msn=msn + 1), message),
            ("queue 3", "1201", untagged(SEND, queue=3, msn=msn), message),
            ("a Send for Read Requests' queue", "0206", untagged(SEND, queue=1, msn=1), message),
            ("a Send for Terminate's queue", "0206", untagged(SEND, queue=2, msn=1), message),
            ("DDP's version", "1206", untagged(SEND, msn=msn, control=0x42), message),
            ("RDMAP's version", "0205", untagged(SEND, msn=msn, version=0x80), message),
            ("an opcode that is reserved", "0206", untagged(9, msn=msn), message),
            ("RDMA Write in an untagged segment", "0206", untagged(RDMA_WRITE, msn=msn), message),
            ("a Send in a tagged segment", "0206", tagged(SEND), message),
            ("RDMA Write to what was not advertised", "1100", tagged(RDMA_WRITE), message),
            ("a tagged segment of another version", "1104", tagged(RDMA_WRITE, control=0xC2), message),
            ("RDMA Read of what was not advertised", "0100", untagged(READ_REQUEST, queue=1), read),
            ("a Read Response without a request", "0206", tagged(READ_RESPONSE), message),
            ("an STag that cannot be invalidated", "0109", untagged(SEND_INVALIDATE, msn=msn), message),
        )

    def test_reserved_bits_are_not_looked_at(self):
        """RFC 5041, 4.1; RFC 5040, 4.1"""
        self.serve()
        peer = self.connect()
        header = untagged(SEND, msn=peer.msn + 1, control=0x7D, version=0x70)
        peer.msn += 1
        peer.link.sendall(peer.fpdu(header + peer.message(DATA, b"untagged")))
        self.assertEqual(self.puppet.do("s.recv(10)"), b"untagged")
        peer.link.sendall(peer.fpdu(struct.pack(">BBIQ", 0xFD, 0x70 | RDMA_WRITE, 0, 0)))
        peer.say(DATA, b"tagged")
        self.assertEqual(self.puppet.do("s.recv(10)"), b"tagged")

    def test_of_a_tagged_message_of_no_bytes_stag_and_offset_are_not_looked_at(self):
        """RFC 5041, 5.2; RFC 5040, 5.1 and 5.2: and a Read Response has those of its request."""
        self.serve()
        peer = self.connect()
        for stag, offset in ((0, 0), (0xFFFFFFFF, 2**64 - 1)):
            peer.tagged(RDMA_WRITE, stag, offset, b"")
            peer.link.sendall(peer.read_request(stag, offset, 0))
            self.assertEqual(peer.hear_answer(0), b"")
        peer.say(DATA, b"behind them")
        self.assertEqual(self.puppet.do("s.recv(20)"), b"behind them")

    def test_the_first_error_is_the_one_that_is_told(self):
        """RFC 5040, 7.1: of two that come in one piece."""
        self.serve()
        for first, second in ((4, 0), (5, 14), (14, 5), (16, 7)):
            peer = self.connect()
            wrong = self.wrong(peer.msn + 1)
            what, code, header, payload = wrong[first]
            with self.subTest(what, behind=wrong[second][0]):
                self.assertNotEqual(code, wrong[second][1])
                self.puppet.tell("s.recv(1)")
                frames = (header + payload, wrong[second][2] + wrong[second][3])
                peer.link.sendall(b"".join(foreign_peer.fpdu(ulpdu) for ulpdu in frames))
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assert_terminated(peer, code, header)
                self.puppet.do("s.close()")

    def test_a_terminate_that_is_none_is_told_to_the_program(self):
        """RFC 5040, 5.4: it ends the connection like any other error."""
        self.serve()
        whole = bytes.fromhex("0101 c000 002e") + untagged(READ_REQUEST, queue=1)
        for what, header, payload in (
            ("no bytes", untagged(TERMINATE, queue=2), b""),
            ("fewer bytes than it says", untagged(TERMINATE, queue=2), whole[:-1]),
            ("the second of its queue", untagged(TERMINATE, queue=2, msn=2), whole),
            ("the queue of Sends", untagged(TERMINATE, msn=2), whole),
        ):
            with self.subTest(what):
                peer = self.connect()
                self.puppet.tell("s.recv(1)")
                peer.link.sendall(foreign_peer.fpdu(header + payload))
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assertEqual(peer.end(PATIENCE), "FIN")
                self.await_end_of_link(peer)
                self.puppet.do("s.close()")

    def test_what_is_wrong_is_terminated(self):
        self.serve()
        for number in range(len(self.wrong(1))):
            peer = self.connect()
            what, code, header, payload = self.wrong(peer.msn + 1)[number]
            with self.subTest(what):
                self.assertLessEqual(peer.buffer_size, 64_528)
                self.puppet.tell("s.recv(1)")
                peer.link.sendall(foreign_peer.fpdu(header + payload) + peer.framed(DATA, b"behind it"))
                self.assertEqual(self.puppet.said(), "ECONNRESET")
                self.assert_terminated(peer, code, header)
                self.puppet.do("s.close()")


if __name__ == "__main__":
    harness.main()
