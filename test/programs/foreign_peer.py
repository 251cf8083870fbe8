"""A peer that shares nothing with the library: it speaks MPA, DDP, RDMAP and SDP by hand, as the
specifications say, and as wrongly as a test wants it to. Without CRC, markers and RDMA."""

import dataclasses
import socket
import struct
import time

HELLO, HELLO_ACK, DIS_CONN, ABORT_CONN, SEND_SM, RDMA_WR_COMPL, RDMA_RD_COMPL, MODE_CHANGE = range(8)
SRC_AVAIL_CANCEL, SINK_AVAIL_CANCEL, SINK_CANCEL_ACK, CH_RCV_BUF, CH_RCV_BUF_ACK = range(8, 13)
SUSP_COMM, SUSP_COMM_ACK = range(13, 15)
SINK_AVAIL, SRC_AVAIL, DATA = 0xFD, 0xFE, 0xFF
BSDH = struct.Struct(">HBBIII")  # Bufs, Flags, MID, Len, MSeq, MSeqAck
OOB_PRES, OOB_PEND, REQ_PIPE = 1, 2, 4
REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
REJECTED = 0x20
SEND, SEND_SE, TERMINATE = 3, 5, 7  # RDMAP's operation codes

BUFFERS, BUFFER_SIZE = 24, 16384


def hello(max_adverts=16, versions=0x11, desired=32784, size=BUFFER_SIZE, ird=8, ord=7, buffers=BUFFERS):
    header = struct.pack(">HBBIIHH", max_adverts, 0, versions, desired, size, ird, ord)
    return BSDH.pack(buffers, 0, HELLO, BSDH.size + len(header), 0, 0) + header


def hello_ack(max_adverts=16, versions=0x11, size=BUFFER_SIZE, ird=8, ord=7, buffers=BUFFERS):
    header = struct.pack(">HBBIHH", max_adverts, 0, versions, size, ird, ord)
    return BSDH.pack(buffers, 0, HELLO_ACK, BSDH.size + len(header), 0, 0) + header


def fpdu(ulpdu):
    return struct.pack(">H", len(ulpdu)) + ulpdu + bytes(-(len(ulpdu) + 2) % 4) + bytes(4)


@dataclasses.dataclass(frozen=True)
class Message:
    """Of the program's library. `mid` None: an RDMAP Terminate, which is the payload."""

    opcode: int
    mid: int = None
    bufs: int = 0
    flags: int = 0
    mseq: int = 0
    ack: int = 0
    payload: bytes = b""


class Ended(Exception):
    """By a FIN, or (`reset`) not so."""

    def __init__(self, reset):
        super().__init__("reset" if reset else "FIN")
        self.reset = reset


class ForeignPeer:
    """One connection, over a TCP socket that is connected already."""

    def __init__(self, link):
        self.link = link
        self.link.settimeout(30)
        self.input = b""
        self.heard = []
        self.msn = 0
        self.mseq = -1
        self.last = -1  # MSeq that was heard
        self.private = b""  # of the MPA frame that it sent
        self.flags = 0

    @classmethod
    def request(cls, address, flags=0, revision=1, private=None):
        """As connecting peer, up to the MPA Reply. With revision 1 the HelloAck comes as its private data."""
        peer = cls(socket.create_connection(address, timeout=30))
        private = hello() if private is None else private
        peer.link.sendall(REQUEST + struct.pack(">BBH", flags, revision, len(private)) + private)
        key, peer.flags, _, size = struct.unpack(">16sBBH", peer.read(20))
        assert key == REPLY, key
        peer.private = peer.read(size)
        return peer

    @classmethod
    def request_peer_to_peer(cls, address):
        """With revision 2, and an RTR by RDMA Write announced (RFC 6581); the HelloAck is a Send behind
        that."""
        words = struct.pack(">HH", 0x8000 | 8, 0x8000 | 7)
        return cls.request(address, flags=0x10, revision=2, private=words + hello())

    def ready_to_receive(self):
        """The RTR: an RDMA Write of no bytes."""
        self.link.sendall(fpdu(struct.pack(">BBIQ", 0xC1, 0x40, 1, 0)))

    @classmethod
    def connect(cls, address, flags=0, private=None, bufs=BUFFERS):
        """As connecting peer."""
        peer = cls.request(address, flags, private=private)
        # Before the initiator's first FPDU the responder sends none (RFC 5044, 7.1.2).
        peer.say(DATA, bufs=bufs)
        return peer

    @classmethod
    def accept(cls, listener, private=None):
        """As accepting peer: MPA Request of either revision, answered without peer-to-peer mode."""
        peer = cls(listener.accept()[0])
        key, flags, revision, size = struct.unpack(">16sBBH", peer.read(20))
        assert key == REQUEST, key
        peer.private = peer.read(size)
        words = b""
        if flags & 0x10:  # IRD and ORD ahead of the private data
            words, peer.private = struct.pack(">HH", 8, 7), peer.private[4:]
        private = words + (hello_ack() if private is None else private)
        peer.link.sendall(REPLY + struct.pack(">BBH", flags & 0x10, revision, len(private)) + private)
        return peer

    def read(self, size):
        """Exactly so much, or Ended."""
        while len(self.input) < size:
            try:
                piece = self.link.recv(65536)
            except ConnectionError:
                raise Ended(reset=True) from None
            if not piece:
                raise Ended(reset=False)
            self.input += piece
        result, self.input = self.input[:size], self.input[size:]
        return result

    # --- saying

    def frame(self, message, opcode=SEND):
        self.msn += 1
        return fpdu(struct.pack(">BBIIII", 0x41, 0x40 | opcode, 0, 0, self.msn, 0) + message)

    def message(self, mid, body=b"", bufs=BUFFERS, flags=0, mseq=None, ack=None, length=None):
        """Body: extended header and payload. As it has to be where nothing else is asked for."""
        self.mseq += 1
        length = BSDH.size + len(body) if length is None else length
        mseq = self.mseq if mseq is None else mseq
        return BSDH.pack(bufs, flags, mid, length, mseq, max(self.last, 0) if ack is None else ack) + body

    def framed(self, mid, body=b"", opcode=SEND, **fields):
        return self.frame(self.message(mid, body, **fields), opcode)

    def say(self, *args, **fields):
        self.link.sendall(self.framed(*args, **fields))

    # --- hearing

    def hear(self, timeout=30):
        """The next message. Raises Ended, or TimeoutError."""
        self.link.settimeout(timeout)
        (size,) = struct.unpack(">H", self.read(2))
        ulpdu = self.read(size)
        self.read(-(size + 2) % 4 + 4)
        opcode = ulpdu[1] & 15
        if opcode == TERMINATE:
            return Message(opcode, payload=ulpdu[18:])
        assert opcode in (SEND, SEND_SE, 4, 6) and ulpdu[0] & 0x40, ulpdu
        bufs, flags, mid, length, mseq, ack = BSDH.unpack(ulpdu[18:34])
        assert length == len(ulpdu) - 18, (length, ulpdu)
        assert mid == HELLO_ACK or mseq == self.last + 1, (mseq, self.last)
        assert flags & ~7 == 0 and (flags & 1 == 0 or mid == DATA), (flags, mid)
        assert ack <= max(self.mseq, 0), (ack, self.mseq)
        if mid != HELLO_ACK:
            self.last = mseq
        return Message(opcode, mid, bufs, flags, mseq, ack, ulpdu[34:])

    def hear_until(self, wanted, timeout=30):
        """The first message for which `wanted(message)` holds."""
        deadline = time.monotonic() + timeout
        while True:
            message = self.hear(max(deadline - time.monotonic(), 0.001))
            if wanted(message):
                return message

    def end(self, timeout=30):
        """How the link ends, whatever is said before: "FIN", or "reset"."""
        try:
            self.hear_until(lambda message: False, timeout)
        except Ended as ended:
            return str(ended)

    def flood(self, timeout=30):
        """Sends until the other end's kernel resets the link: how long that took."""
        self.link.settimeout(1)
        start = time.monotonic()
        while time.monotonic() - start < timeout:
            try:
                self.link.send(bytes(65536))
            except TimeoutError:
                continue
            except ConnectionError:
                return time.monotonic() - start
        raise AssertionError(f"the link is open after {timeout} s")

    def close(self):
        self.link.close()
