"""A peer that shares nothing with the library: it speaks MPA, DDP, RDMAP and SDP by hand, as the
specifications say, and as wrongly as a test wants it to. With markers and CRC where a test or the program
asks for them."""

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
MARKERS, CRC, REJECTED, ENHANCED = 0x80, 0x40, 0x20, 0x10  # flags of an MPA frame
MARKER, INTERVAL = struct.Struct(">HH"), 512  # reserved, FPDUPTR; octets from one to the next
PEER_TO_PEER = 0x8000  # in the word with IRD (RFC 6581)
BY_WRITE, BY_READ = 0x8000, 0x4000  # RTR, in the word with ORD
BY_SEND = 0x4000  # RTR, in the word with IRD
# RDMAP's operation codes
(
    RDMA_WRITE,
    READ_REQUEST,
    READ_RESPONSE,
    SEND,
    SEND_INVALIDATE,
    SEND_SE,
    SEND_SE_INVALIDATE,
    TERMINATE,
) = range(8)
SENDS = SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE
# SDP, 14.2: sent with Solicited Event; so is Data with a flag of Out-Of-Band data, and nothing else.
SOLICITED = {
    HELLO_ACK,
    ABORT_CONN,
    SEND_SM,
    RDMA_WR_COMPL,
    RDMA_RD_COMPL,
    SRC_AVAIL_CANCEL,
    SINK_AVAIL_CANCEL,
    SINK_CANCEL_ACK,
    SUSP_COMM,
    SUSP_COMM_ACK,
}
READ = struct.Struct(">IQIIQ")  # RDMA Read Request: sink STag and offset, size, source STag and offset
BUFF_MODE, COMB_MODE, PIPE_MODE = range(3)
SEGMENT = 32768  # payload of a tagged one

BUFFERS, BUFFER_SIZE = 24, 16384


def hello(max_adverts=16, versions=0x11, desired=32784, size=BUFFER_SIZE, ird=8, ord=7, buffers=BUFFERS):
    header = struct.pack(">HBBIIHH", max_adverts, 0, versions, desired, size, ird, ord)
    return BSDH.pack(buffers, 0, HELLO, BSDH.size + len(header), 0, 0) + header


def hello_ack(max_adverts=16, versions=0x11, size=BUFFER_SIZE, ird=8, ord=7, buffers=BUFFERS):
    header = struct.pack(">HBBIHH", max_adverts, 0, versions, size, ird, ord)
    return BSDH.pack(buffers, 0, HELLO_ACK, BSDH.size + len(header), 0, 0) + header


def crc32c(data):
    """As iSCSI has it (RFC 3720, B.4), in the order in which its bytes travel."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def with_markers(frame, position):
    """An FPDU that begins at this octet of the stream (RFC 5044, 4.3). All of its parts are multiples of four
    octets, and so are the places of markers."""
    marked, start = b"", position if position % INTERVAL else position + MARKER.size
    for place in range(0, len(frame), MARKER.size):
        here = position + len(marked)
        if here % INTERVAL == 0:
            marked += MARKER.pack(0, max(here - start, 0))
        marked += frame[place : place + MARKER.size]
    return marked


def fpdu(ulpdu, crc=False, position=None):
    """With markers where `position` says at which octet of the stream it begins."""
    frame = struct.pack(">H", len(ulpdu)) + ulpdu + bytes(-(len(ulpdu) + 2) % 4)
    if position is not None:
        frame = with_markers(frame + bytes(4), position)[:-4]
    return frame + (crc32c(frame) if crc else bytes(4))


def untagged(opcode, queue=0, msn=1, offset=0, control=0x41, version=0x40, invalidated=0):
    """The header of a DDP segment, which is a message's last where `control` does not say otherwise.
    `invalidated`: an STag."""
    return struct.pack(">BBIIII", control, version | opcode, invalidated, queue, msn, offset)


def mode_change(mode, send_half=False):
    """Body of a ModeChange, for the program's receive half or its send half."""
    return struct.pack(">I", mode << 1 | send_half)


@dataclasses.dataclass(frozen=True)
class Memory:
    """What is advertised: a buffer, or (`size` alone) room for one."""

    stag: int
    offset: int
    size: int
    data: bytes = b""

    @classmethod
    def of(cls, data, stag):
        return cls(stag, 0x7FFFFFF01, len(data), data)  # of no alignment, in more than 32 bits

    @classmethod
    def advertised(cls, message):
        """By a SrcAvail or a SinkAvail."""
        size, stag, offset = struct.unpack_from(">IIQ", message.payload)
        return cls(stag, offset, size)

    def header(self):
        """The SrcAH, or the SinkAH without NonDiscards."""
        return struct.pack(">IIQ", self.size, self.stag, self.offset)


@dataclasses.dataclass(frozen=True)
class Message:
    """Of the program's library. `mid` None: an RDMAP Terminate, RDMA Read Request or (a segment of an) RDMA
    Write, which is the payload."""

    opcode: int
    mid: int = None
    bufs: int = 0
    flags: int = 0
    mseq: int = 0
    ack: int = 0
    payload: bytes = b""
    invalidated: int = 0

    @property
    def number(self):
        """What RdmaRdCompl, RdmaWrCompl and ChRcvBufAck say."""
        return struct.unpack(">I", self.payload)[0]

    @property
    def read(self):
        """(size, STag, offset) of an RDMA Read Request."""
        return READ.unpack(self.payload)[2:]

    @property
    def written(self):
        """(STag, offset, data) of an RDMA Write."""
        return *struct.unpack_from(">IQ", self.payload), self.payload[12:]


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
        self.msn = 0
        self.reads = 0  # of this peer's
        self.mseq = -1
        self.last = -1  # MSeq that was heard
        self.posted = self.acked = 0  # Bufs and MSeqAck as it said them last
        self.private = b""  # of the MPA frame that it sent
        self.flags = 0
        self.crc = False  # of both directions
        self.gives_markers = self.wants_markers = False
        self.given = self.heard = 0  # octets of FPDUs, markers included

    @classmethod
    def request(cls, address, flags=0, revision=1, private=None):
        """As connecting peer, up to the MPA Reply. With revision 1 the HelloAck comes as its private data."""
        peer = cls(socket.create_connection(address, timeout=30))
        private = hello() if private is None else private
        peer.link.sendall(REQUEST + struct.pack(">BBH", flags, revision, len(private)) + private)
        key, peer.flags, _, size = struct.unpack(">16sBBH", peer.read(20))
        assert key == REPLY, key
        peer.crc = bool((flags | peer.flags) & CRC)
        peer.wants_markers, peer.gives_markers = bool(flags & MARKERS), bool(peer.flags & MARKERS)
        peer.private = peer.read(size)
        if len(peer.private) >= BSDH.size:
            peer.posted = BSDH.unpack_from(peer.private)[0]
        return peer

    @classmethod
    def request_peer_to_peer(cls, address, words=(PEER_TO_PEER | 8, BY_WRITE | 7), **fields):
        """With revision 2, and an RTR by RDMA Write announced (RFC 6581), unless the `words` of IRD and ORD
        say otherwise; the HelloAck is a Send behind that. The Hello has the `fields`."""
        private = struct.pack(">HH", *words) + hello(**fields)
        peer = cls.request(address, flags=ENHANCED, revision=2, private=private)
        peer.words = struct.unpack_from(">HH", peer.private)
        return peer

    def ready_to_receive(self):
        """The RTR: an RDMA Write of no bytes."""
        self.tagged(RDMA_WRITE, 1, 0, b"")

    @classmethod
    def connect(cls, address, flags=0, private=None, bufs=BUFFERS):
        """As connecting peer."""
        peer = cls.request(address, flags, private=private)
        # Before the initiator's first FPDU the responder sends none (RFC 5044, 7.1.2).
        peer.say(DATA, bufs=bufs)
        return peer

    @classmethod
    def accept(cls, listener, private=None, words=(8, 7), behind=b"", wanted=0):
        """As accepting peer: MPA Request of either revision, answered without peer-to-peer mode, unless the
        `words` of IRD and ORD say so. What is `behind` the Reply goes with it in one piece. `wanted`: CRC,
        MARKERS."""
        peer = cls(listener.accept()[0])
        key, flags, revision, size = struct.unpack(">16sBBH", peer.read(20))
        assert key == REQUEST, key
        peer.private = peer.read(size)
        answer = b""
        if flags & ENHANCED:  # IRD and ORD ahead of the private data
            peer.words = struct.unpack_from(">HH", peer.private)
            answer, peer.private = struct.pack(">HH", *words), peer.private[4:]
        answer += hello_ack() if private is None else private
        peer.crc = bool((flags | wanted) & CRC)
        peer.wants_markers, peer.gives_markers = bool(wanted & MARKERS), bool(flags & MARKERS)
        reply = REPLY + struct.pack(">BBH", flags & ENHANCED | wanted, revision, len(answer)) + answer
        peer.link.sendall(reply + behind)
        return peer

    @property
    def credit(self):
        """10.2. An MSeqAck of zero may say that nothing has come."""
        return self.posted - (self.mseq - self.acked) - (self.acked == 0)

    @property
    def buffer_size(self):
        """As the HelloAck in its private data says."""
        return struct.unpack_from(">I", self.private, BSDH.size + 4)[0]

    def await_input(self, size):
        """At least so much, or Ended."""
        while len(self.input) < size:
            try:
                piece = self.link.recv(65536)
            except ConnectionError:
                raise Ended(reset=True) from None
            if not piece:
                raise Ended(reset=False)
            self.input += piece
        return self.input

    def read(self, size):
        """Exactly so much, or Ended."""
        self.await_input(size)
        result, self.input = self.input[:size], self.input[size:]
        return result

    # --- saying

    def fpdu(self, ulpdu):
        """The next one of this direction, as both sides have agreed on it."""
        frame = fpdu(ulpdu, self.crc, self.given if self.gives_markers else None)
        self.given += len(frame)
        return frame

    def frame(self, message, opcode=SEND):
        self.msn += 1
        return self.fpdu(untagged(opcode, msn=self.msn) + message)

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

    def tagged(self, opcode, stag, offset, data):
        for start in range(0, len(data), SEGMENT) or [0]:
            piece = data[start : start + SEGMENT]
            last = 0x40 if start + len(piece) == len(data) else 0
            header = struct.pack(">BBIQ", 0x81 | last, 0x40 | opcode, stag, offset + start)
            self.link.sendall(self.fpdu(header + piece))

    def answer(self, request, memory):
        """An RDMA Read Request of what `memory` advertised."""
        sink, to, size, stag, offset = READ.unpack(request.payload)
        assert stag == memory.stag, (stag, memory.stag)
        start = offset - memory.offset
        assert 0 <= start and start + size <= memory.size, (start, size, memory.size)
        self.tagged(READ_RESPONSE, sink, to, memory.data[start : start + size])

    def read_request(self, stag, offset, size):
        """RDMA Read of the program's memory."""
        self.reads += 1
        body = READ.pack(0x5EAD, 0, size, stag, offset)
        return self.fpdu(untagged(READ_REQUEST, queue=1, msn=self.reads) + body)

    def hear_answer(self, size):
        """Of an RDMA Read, where nothing else is to come."""
        data, last = b"", False
        while not last:
            ulpdu = self.hear_ulpdu(30)
            last = ulpdu[0] & 0x40
            assert ulpdu[0] & 0x80 and ulpdu[1] & 15 == READ_RESPONSE, ulpdu[:34]
            assert struct.unpack_from(">IQ", ulpdu, 2) == (0x5EAD, len(data))
            data += ulpdu[14:]
        assert len(data) == size, (len(data), size)
        return data

    def fetch(self, memory, start, size):
        """RDMA Read of advertised memory, where nothing but its answer is to come."""
        self.link.sendall(self.read_request(memory.stag, memory.offset + start, size))
        return self.hear_answer(size)

    # --- hearing

    def hear_ulpdu(self, timeout):
        self.link.settimeout(timeout)
        position = self.heard if self.wants_markers else None
        start = MARKER.size if self.wants_markers and self.heard % INTERVAL == 0 else 0
        (size,) = struct.unpack_from(">H", self.await_input(start + 2), start)
        frame = self.read(len(fpdu(bytes(size), position=position)))
        self.heard += len(frame)
        if not self.wants_markers:
            ulpdu = frame[2 : 2 + size]
        else:
            words = range(0, len(frame), MARKER.size)
            kept = (frame[at : at + MARKER.size] for at in words if (position + at) % INTERVAL)
            ulpdu = b"".join(kept)[2 : 2 + size]
        wanted = fpdu(ulpdu, self.crc, position)
        assert frame[:-4] == wanted[:-4], (frame, wanted)
        assert not self.crc or frame == wanted, (frame, wanted)
        return ulpdu

    def hear(self, timeout=30):
        """The next message. Raises Ended, or TimeoutError."""
        ulpdu = self.hear_ulpdu(timeout)
        opcode = ulpdu[1] & 15
        if opcode == RDMA_WRITE:
            return Message(opcode, payload=ulpdu[2:])
        if opcode == TERMINATE:
            assert ulpdu[:18] == untagged(TERMINATE, queue=2), ulpdu
        if opcode in (TERMINATE, READ_REQUEST):
            return Message(opcode, payload=ulpdu[18:])
        assert opcode in SENDS and ulpdu[0] & 0x40, ulpdu
        (invalidated,) = struct.unpack_from(">I", ulpdu, 2)
        bufs, flags, mid, length, mseq, ack = BSDH.unpack(ulpdu[18:34])
        assert length == len(ulpdu) - 18, (length, ulpdu)
        assert mid == HELLO_ACK or mseq == self.last + 1, (mseq, self.last)
        assert flags & ~7 == 0 and (flags & OOB_PRES == 0 or mid == DATA), (flags, mid)
        solicited = mid in SOLICITED or mid == DATA and flags & (OOB_PRES | OOB_PEND) != 0
        assert (opcode in (SEND_SE, SEND_SE_INVALIDATE)) == solicited, (opcode, mid, flags)
        assert ack <= max(self.mseq, 0), (ack, self.mseq)
        if mid != HELLO_ACK:
            self.last = mseq
        self.posted, self.acked = bufs, ack
        return Message(opcode, mid, bufs, flags, mseq, ack, ulpdu[34:], invalidated)

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

    def reset(self):
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.link.close()
