"""The dissector for Wireshark, packaging/wireshark/sdp.lua, by tshark: on a capture with every message,
written here as the draft has them, and on one that sdpstat trace writes of programs."""

import re
import struct
import subprocess
import unittest

import harness
from sdp_world import ROOT, SDPSTAT

DISSECTOR = ROOT / "packaging/wireshark/sdp.lua"
CLIENT, SERVER = 0, 1
PORTS = (40000, 45000)
SYN, ACK, PSH = 2, 16, 8
HELLO = struct.pack(">HBBIIHH", 16, 0, 0x11, 70000, 64528, 15, 14)
HELLO_ACK = struct.pack(">HBBIHH", 13, 0, 0x11, 64000, 12, 11)
ADVERT = struct.pack(">IIQ", 300_000, 0xABCD01, 0x7FFF12345678)
# MID, extended header, payload, and what of it tshark has to show; besides Hello, which is private data.
MESSAGES = {
    "HelloAck": (
        0x01,
        HELLO_ACK,
        b"",
        {"max_adverts": "13", "act_rcv_sz": "64000", "loc_ird": "12", "loc_ord": "11"},
    ),
    "DisConn": (0x02, b"", b"", {}),
    "AbortConn": (0x03, b"", b"", {}),
    "SendSm": (0x04, b"", b"", {}),
    "RdmaWrCompl": (0x05, struct.pack(">I", 299_999), b"", {"moved": "299999"}),
    "RdmaRdCompl": (0x06, struct.pack(">I", 1234), b"", {"moved": "1234"}),
    "ModeChange": (0x07, struct.pack(">I", 2 << 1 | 1), b"", {"mode": "2", "mode_s": "1"}),
    "SrcAvailCancel": (0x08, b"", b"", {}),
    "SinkAvailCancel": (0x09, b"", b"", {}),
    "SinkCancelAck": (0x0A, b"", b"", {}),
    "ChRcvBuf": (0x0B, struct.pack(">I", 32768), b"", {"des_sz": "32768"}),
    "ChRcvBufAck": (0x0C, struct.pack(">I", 16384), b"", {"act_sz": "16384"}),
    "SuspComm": (
        0x0D,
        struct.pack(">IHH", 0, 7777, 1),
        b"",
        {"constant1": "0", "port": "7777", "constant2": "1"},
    ),
    "SuspCommAck": (0x0E, b"", b"", {}),
    "SinkAvail": (
        0xFD,
        ADVERT + struct.pack(">I", 9),
        b"",
        {"buffer_len": "300000", "stag": "0x00abcd01", "va": "0x00007fff12345678", "non_discards": "9"},
    ),
    "SrcAvail": (
        0xFE,
        ADVERT,
        b"begin",
        {"buffer_len": "300000", "stag": "0x00abcd01", "va": "0x00007fff12345678", "payload": b"begin".hex()},
    ),
    "Data": (0xFF, b"", b"hello", {"payload": b"hello".hex()}),
}


def message(mid, header, payload, mseq, flags=0):
    return (
        struct.pack(">HBBIII", 24, flags, mid, 16 + len(header) + len(payload), mseq, mseq + 1)
        + header
        + payload
    )


class Pcap:
    """A TCP connection as raw IPv4, which begins with MPA's start-up."""

    def __init__(self, private_data):
        self.bytes = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
        self.sequence = [1000, 2000]
        self.msn = [0, 0]
        for end, flags in (CLIENT, SYN), (SERVER, SYN | ACK), (CLIENT, ACK):
            self.packet(end, flags, b"")
            self.sequence[end] += flags & SYN != 0
        for end, key in (CLIENT, b"MPA ID Req Frame"), (SERVER, b"MPA ID Rep Frame"):
            data = private_data[end]
            self.packet(end, PSH | ACK, key + struct.pack(">BBH", 0, 1, len(data)) + data)

    def packet(self, end, flags, payload):
        addresses = bytes([10, 0, 0, 1 + end, 10, 0, 0, 2 - end])
        ip = struct.pack(">BBHIBBH", 0x45, 0, 40 + len(payload), 0x4000, 64, 6, 0) + addresses
        tcp = struct.pack(
            ">HHIIBBHHH",
            PORTS[end],
            PORTS[1 - end],
            self.sequence[end],
            self.sequence[1 - end] if flags & ACK else 0,
            0x50,
            flags,
            65535,
            0,
            0,
        )
        size = len(ip) + len(tcp) + len(payload)
        self.bytes += struct.pack(">IIII", 0, len(self.bytes), size, size) + ip + tcp + payload
        self.sequence[end] += len(payload)

    def send(self, end, data, segment=1 << 16):
        """An RDMAP Send in segments of at most that many bytes, a packet for each."""
        self.msn[end] += 1
        for at in range(0, len(data), segment):
            last = at + segment >= len(data)
            ddp = struct.pack(">BBIIII", 0x41 if last else 0x01, 0x43, 0, 0, self.msn[end], at)
            ulpdu = ddp + data[at : at + segment]
            frame = struct.pack(">H", len(ulpdu)) + ulpdu
            self.packet(end, PSH | ACK, frame + bytes(-len(frame) % 4) + bytes(4))


class Dissector(harness.ProgramTest):
    def setUp(self):
        harness.need("tshark")
        super().setUp()

    def tshark(self, capture, *fields, options=()):
        """A row for each packet, a list of values for each field; nothing is malformed."""
        wanted = ["_ws.malformed", "_ws.expert.message", *fields]
        got = subprocess.run(
            [
                *("tshark", "-X", f"lua_script:{DISSECTOR}", "-r", capture, *options),
                *("-T", "fields", "-E", "separator=|"),
                *(word for field in wanted for word in ("-e", field)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        self.assertNotRegex(got.stderr, r"(?i)lua|sdp", "an error of the dissector")
        rows = [
            [column.split(",") if column else [] for column in row.split("|")]
            for row in got.stdout.splitlines()
        ]
        for malformed, expert, *_ in rows:
            self.assertEqual(malformed, [])
            self.assertTrue(all(text.startswith("Connection") for text in expert), expert)
        return [row[2:] for row in rows]

    def test_every_message(self):
        table = re.findall(r"X\((\w+), (0x\w\w), (\d+),", (ROOT / "core/wire/mid.h").read_text())
        sizes = {name: (int(mid, 16), int(size)) for name, mid, size in table}
        self.assertEqual(
            {**{name: (m[0], len(m[1])) for name, m in MESSAGES.items()}, "Hello": (0, 16)}, sizes
        )

        pcap = Pcap((message(0, HELLO, b"", 1) + b"more", message(1, HELLO_ACK, b"", 1)))
        for number, (mid, header, payload, _) in enumerate(MESSAGES.values()):
            pcap.send(number % 2, message(mid, header, payload, 100 + number, flags=number % 8))
        capture = self.world.directory / "every.pcap"
        capture.write_bytes(pcap.bytes)
        names = sorted({field for _, _, _, shown in MESSAGES.values() for field in shown})
        names = ["bufs", "flags", "mid", "len", "mseq", "mseq_ack", *names]
        rows = self.tshark(
            capture, *(f"iwarp_sdp.{name}" for name in names), "_ws.col.Info", "_ws.col.Protocol"
        )[5:]
        self.assertEqual(len(rows), len(MESSAGES))
        for number, (row, (name, (mid, header, payload, shown))) in enumerate(zip(rows, MESSAGES.items())):
            with self.subTest(name):
                found = dict(zip(names, row))
                wanted = {field: [value] for field, value in shown.items()} | {
                    "bufs": ["24"],
                    "flags": [f"0x{number % 8:02x}"],
                    "mid": [f"0x{mid:02x}"],
                    "len": [str(16 + len(header) + len(payload))],
                    "mseq": [str(100 + number)],
                    "mseq_ack": [str(101 + number)],
                }
                self.assertEqual({field: found[field] for field in wanted}, wanted)
                self.assertTrue(
                    all(not values for field, values in found.items() if field not in wanted), found
                )
                self.assertIn(f"SDP {name} bufs=24", ",".join(row[-2]))
                self.assertEqual(row[-1], ["SDP"])

    def test_hello_is_private_data(self):
        hello, ack = message(0, HELLO, b"", 1), message(1, HELLO_ACK, b"", 1)
        capture = self.world.directory / "hello.pcap"
        fields = [
            "mid",
            "max_adverts",
            "maj_v",
            "min_v",
            "des_rem_rcv_sz",
            "local_rcv_sz",
            "loc_ird",
            "loc_ord",
            "rest",
        ]
        for before in b"", bytes([0, 15, 0, 14]):  # IRD and ORD of revision 2
            capture.write_bytes(Pcap((before + hello + b"more", before + ack)).bytes)
            request, reply = self.tshark(
                capture, *(f"iwarp_sdp.{field}" for field in fields), "iwarp_sdp.act_rcv_sz"
            )[3:]
            values = ["0x00", "16", "1", "1", "70000", "64528", "15", "14", b"more".hex()]
            self.assertEqual(request, [*([value] for value in values), []])
            self.assertEqual((reply[0], reply[-1]), (["0x01"], ["64000"]))

    def test_one_in_several_segments(self):
        pcap = Pcap((message(0, HELLO, b"", 1), b""))
        pcap.send(SERVER, message(0xFF, b"", b"x" * 5000, 7), segment=1400)
        capture = self.world.directory / "segments.pcap"
        capture.write_bytes(pcap.bytes)
        rows = self.tshark(capture, "iwarp_sdp.mseq", "iwarp_sdp.payload")[5:]
        self.assertEqual(rows, [*([[[], []]] * 3), [["7"], ["78" * 5000]]])

    def test_what_is_no_message_is_left_alone(self):
        pcap = Pcap((b"", b""))
        for data in bytes(10), message(0x20, b"", b"", 1), message(0xFE, b"", b"", 1):
            pcap.send(CLIENT, data)
        capture = self.world.directory / "other.pcap"
        capture.write_bytes(pcap.bytes)
        # tshark itself takes one of these for RPC.
        rows = self.tshark(capture, "iwarp_sdp.mid", options=("--disable-protocol", "rpcordma"))
        self.assertEqual(rows, [[[]]] * 8)

    def test_who_captures_is_told_of_it(self):
        told = subprocess.run([SDPSTAT, "trace", "--help"], capture_output=True, text=True).stdout
        self.assertIn("wireshark -X lua_script:/usr/share/sdp/sdp.lua FILE", told)

    def test_a_trace_of_programs(self):
        port = harness.free_port()
        self.world.peer("echo-server", port)
        self.world.wait_for_listener(port)
        client = self.world.peer("echo-client", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(client.popen.stdout.readline(), b"connected\n")
        client.popen.stdin.write(b"1000\n")
        client.popen.stdin.flush()
        self.assertEqual(client.popen.stdout.readline(), b"ok 1000\n")
        capture = self.world.directory / "trace.pcap"
        subprocess.run(
            [SDPSTAT, "trace", str(client.pid), "--last", "--pcap", capture, "--dir", self.world.stats_dir],
            check=True,
            capture_output=True,
            timeout=30,
        )
        rows = self.tshark(capture, "iwarp_rdma.opcode", "iwarp_sdp.mid", "iwarp_sdp.len")
        mids = [mid for _, row, _ in rows for mid in row]
        self.assertEqual(mids[:2], ["0x00", "0x01"])
        self.assertIn(["0xff"], [row for _, row, size in rows if size == ["1016"]])
        for opcode, row, _ in rows:
            self.assertTrue(row or not opcode, "a Send that is no message")


if __name__ == "__main__":
    harness.main()
