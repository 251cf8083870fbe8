"""What MPA, DDP and RDMAP demand of the link, below SDP: through the whole library, with a peer that shares
nothing with it (foreign_peer.py)."""

import pathlib
import socket
import struct

import foreign_peer
import harness
from foreign_peer import (
    BY_READ,
    BY_WRITE,
    DATA,
    DIS_CONN,
    PEER_TO_PEER,
    RDMA_WRITE,
    READ,
    READ_REQUEST,
    READ_RESPONSE,
    SEND,
    SEND_INVALIDATE,
    TERMINATE,
    ForeignPeer,
    untagged,
)
from test_foreign_peer import PATIENCE, ForeignTest


def tagged(opcode, control=0xC1):
    return struct.pack(">BBIQ", control, 0x40 | opcode, 0x1234, 0x10000)


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


class PeerToPeer(LinkTest):
    """RFC 6581: the program connects."""

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
