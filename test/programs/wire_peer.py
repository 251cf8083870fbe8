"""A peer that speaks SDP over iWARP by hand, a message at a time: it may be slow, silent or wrong, as no
library of ours would be.

Plain Python sockets, and nothing of the library's: MPA (RFC 5044) without markers and CRC, untagged DDP
segments (RFC 5041), RDMAP Sends (RFC 5040), SDP messages (draft-pinkerton-iwarp-sdp-01, 6).
"""

import dataclasses
import socket
import struct
import time

MPA_KEY = b"MPA ID Req Frame"
HELLO, HELLO_ACK, DIS_CONN, ABORT_CONN, SEND_SM = range(5)
SRC_AVAIL_CANCEL, CH_RCV_BUF, CH_RCV_BUF_ACK, SUSP_COMM, SUSP_COMM_ACK = 0x08, 0x0B, 0x0C, 0x0D, 0x0E
SRC_AVAIL, DATA = 0xFE, 0xFF
TERMINATE = -1  # RDMAP's, in the place of a MID
BSDH = struct.Struct(">HBBIII")  # Bufs, flags, MID, Len, MSeq, MSeqAck (6.1)


@dataclasses.dataclass
class Message:
    mid: int
    bufs: int = 0
    ack: int = 0
    body: bytes = b""


class WirePeer:
    """Connects to an SDP listener. `bufs`: receives that it says it has posted."""

    def __init__(self, address, bufs=24, size=16384):
        self.bufs = bufs
        self.sent = self.heard = self.msn = 0
        self.bytes = b""
        self.socket = socket.create_connection(address, timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = BSDH.pack(bufs, 0, HELLO, 32, 0, 0) + struct.pack(">HBBIIHH", 16, 0, 0x11, 0x8010, size, 8, 7)
        self.socket.sendall(MPA_KEY + bytes([0x00, 1]) + struct.pack(">H", len(hello)) + hello)
        reply = self._take(20, 20)
        assert reply is not None and reply.startswith(b"MPA ID Rep Frame") and reply[16] == 0, reply
        ack = self._take(struct.unpack(">H", reply[18:20])[0], 20)
        self.hello_ack = self._message(ack)
        assert self.hello_ack.mid == HELLO_ACK

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, mid, body=b""):
        self.segment(0, BSDH.pack(self.bufs, 0, mid, BSDH.size + len(body), self.sent, self.heard) + body)
        self.sent += 1

    def segment(self, queue, message):
        """An FPDU with a whole Send for `queue`, of which 0 is the only one that there is for Sends."""
        self.msn += 1
        ulpdu = bytes([0x41, 0x43]) + struct.pack(">IIII", 0, queue, self.msn, 0) + message
        self.socket.sendall(struct.pack(">H", len(ulpdu)) + ulpdu + bytes(-(2 + len(ulpdu)) % 4) + bytes(4))

    def receive(self, seconds):
        """The next message, None when there is none within `seconds`, or the link has ended."""
        deadline = time.monotonic() + seconds
        length = self._take(2, seconds)
        if length is None:
            return None
        size = struct.unpack(">H", length)[0]
        rest = self._take(size + -(2 + size) % 4 + 4, max(deadline - time.monotonic(), 0.001))
        if rest is None:
            return None
        if rest[0] & 0x80:  # tagged: an RDMA Write, or the answer to a Read
            return self.receive(max(deadline - time.monotonic(), 0.001))
        return Message(TERMINATE) if rest[1] & 0x0F == 7 else self._message(rest[18:size])

    def await_message(self, wanted, seconds):
        """The first message for which wanted(message) holds. None: it does not come."""
        deadline = time.monotonic() + seconds
        while (message := self.receive(max(deadline - time.monotonic(), 0.001))) is not None:
            if wanted(message):
                return message
        return None

    def await_end(self, seconds):
        """True when the link ends within `seconds`, in whatever way."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def _message(self, data):
        bufs, _, mid, length, mseq, ack = BSDH.unpack(data[: BSDH.size])
        assert length == len(data), (length, data)
        self.heard = mseq
        return Message(mid, bufs, ack, data[BSDH.size :])

    def _take(self, size, seconds):
        deadline = time.monotonic() + seconds
        while len(self.bytes) < size:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                more = self.socket.recv(65536)
            except (TimeoutError, ConnectionError):
                return None
            if not more:
                return None
            self.bytes += more
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken
