-- SDP (Sockets Direct Protocol) over iWARP for Wireshark and tshark, from 3.6 on. What lies below (MPA, DDP and
-- RDMAP) they know by themselves.
--
--     wireshark -X lua_script:/usr/share/sdp/sdp.lua trace.pcap
--
-- Or copy it to ~/.local/lib/wireshark/plugins. The filter's name is iwarp_sdp, as sdp is another protocol's.
-- The layouts are those of draft-pinkerton-iwarp-sdp-01, section 6.

local sdp = Proto("iwarp_sdp", "Sockets Direct Protocol over iWARP")

local BSDH = 16 -- bytes of the base header
local HELLO, HELLO_ACK = 0x00, 0x01
local SINK_AVAIL, SRC_AVAIL, DATA = 0xfd, 0xfe, 0xff

-- By MID: the message's name, and the bytes of its extended header.
local messages = {
  [HELLO] = { "Hello", 16 },
  [HELLO_ACK] = { "HelloAck", 12 },
  [0x02] = { "DisConn", 0 },
  [0x03] = { "AbortConn", 0 },
  [0x04] = { "SendSm", 0 },
  [0x05] = { "RdmaWrCompl", 4 },
  [0x06] = { "RdmaRdCompl", 4 },
  [0x07] = { "ModeChange", 4 },
  [0x08] = { "SrcAvailCancel", 0 },
  [0x09] = { "SinkAvailCancel", 0 },
  [0x0a] = { "SinkCancelAck", 0 },
  [0x0b] = { "ChRcvBuf", 4 },
  [0x0c] = { "ChRcvBufAck", 4 },
  [0x0d] = { "SuspComm", 8 },
  [0x0e] = { "SuspCommAck", 0 },
  [SINK_AVAIL] = { "SinkAvail", 20 },
  [SRC_AVAIL] = { "SrcAvail", 16 },
  [DATA] = { "Data", 0 },
}
local names = {}
for mid, message in pairs(messages) do
  names[mid] = message[1]
end
local modes = { [0] = "Buffered", [1] = "Combined", [2] = "Pipelined" }

local f = {
  bufs = ProtoField.uint16("iwarp_sdp.bufs", "Bufs"),
  flags = ProtoField.uint8("iwarp_sdp.flags", "Flags", base.HEX),
  oob_pres = ProtoField.bool("iwarp_sdp.flags.oob_pres", "OOB_PRES", 8, nil, 0x01),
  oob_pend = ProtoField.bool("iwarp_sdp.flags.oob_pend", "OOB_PEND", 8, nil, 0x02),
  req_pipe = ProtoField.bool("iwarp_sdp.flags.req_pipe", "REQ_PIPE", 8, nil, 0x04),
  mid = ProtoField.uint8("iwarp_sdp.mid", "MID", base.HEX, names),
  len = ProtoField.uint32("iwarp_sdp.len", "Len"),
  mseq = ProtoField.uint32("iwarp_sdp.mseq", "MSeq"),
  mseq_ack = ProtoField.uint32("iwarp_sdp.mseq_ack", "MSeqAck"),
  max_adverts = ProtoField.uint16("iwarp_sdp.max_adverts", "MaxAdverts"),
  min_v = ProtoField.uint8("iwarp_sdp.min_v", "MinV", base.DEC, nil, 0xf0),
  maj_v = ProtoField.uint8("iwarp_sdp.maj_v", "MajV", base.DEC, nil, 0x0f),
  des_rem_rcv_sz = ProtoField.uint32("iwarp_sdp.des_rem_rcv_sz", "DesRemRcvSz"),
  local_rcv_sz = ProtoField.uint32("iwarp_sdp.local_rcv_sz", "LocalRcvSz"),
  act_rcv_sz = ProtoField.uint32("iwarp_sdp.act_rcv_sz", "ActRcvSz"),
  loc_ird = ProtoField.uint16("iwarp_sdp.loc_ird", "LocIRD"),
  loc_ord = ProtoField.uint16("iwarp_sdp.loc_ord", "LocORD"),
  buffer_len = ProtoField.uint32("iwarp_sdp.buffer_len", "Len of the buffer"),
  stag = ProtoField.uint32("iwarp_sdp.stag", "STag", base.HEX),
  va = ProtoField.uint64("iwarp_sdp.va", "VA", base.HEX),
  non_discards = ProtoField.uint32("iwarp_sdp.non_discards", "NonDiscards"),
  moved = ProtoField.uint32("iwarp_sdp.moved", "Len moved"),
  mode = ProtoField.uint8("iwarp_sdp.mode", "Mode", base.DEC, modes, 0x0e),
  mode_s = ProtoField.bool("iwarp_sdp.mode_s", "S: the receiver's send half-connection", 8, nil, 0x01),
  des_sz = ProtoField.uint32("iwarp_sdp.des_sz", "DesSz"),
  act_sz = ProtoField.uint32("iwarp_sdp.act_sz", "ActSz"),
  constant1 = ProtoField.uint32("iwarp_sdp.constant1", "Constant1"),
  port = ProtoField.uint16("iwarp_sdp.port", "Destination TCP Port"),
  constant2 = ProtoField.uint16("iwarp_sdp.constant2", "Constant2"),
  payload = ProtoField.bytes("iwarp_sdp.payload", "Payload"),
  rest = ProtoField.bytes("iwarp_sdp.rest", "More private data"),
}
sdp.fields = f

local bad_len = ProtoExpert.new("iwarp_sdp.bad_len", "Len is not the message's length", expert.group.MALFORMED,
  expert.severity.ERROR)
sdp.experts = { bad_len }

local private_data = Field.new("iwarp_mpa.privatedata")

-- By MID: adds the extended header, which begins at `at`.
local extended = {
  [HELLO] = function(tree, tvb, at)
    tree:add(f.max_adverts, tvb(at, 2))
    tree:add(f.min_v, tvb(at + 3, 1))
    tree:add(f.maj_v, tvb(at + 3, 1))
    tree:add(f.des_rem_rcv_sz, tvb(at + 4, 4))
    tree:add(f.local_rcv_sz, tvb(at + 8, 4))
    tree:add(f.loc_ird, tvb(at + 12, 2))
    tree:add(f.loc_ord, tvb(at + 14, 2))
  end,
  [HELLO_ACK] = function(tree, tvb, at)
    tree:add(f.max_adverts, tvb(at, 2))
    tree:add(f.min_v, tvb(at + 3, 1))
    tree:add(f.maj_v, tvb(at + 3, 1))
    tree:add(f.act_rcv_sz, tvb(at + 4, 4))
    tree:add(f.loc_ird, tvb(at + 8, 2))
    tree:add(f.loc_ord, tvb(at + 10, 2))
  end,
  [0x05] = function(tree, tvb, at)
    tree:add(f.moved, tvb(at, 4))
  end,
  [0x06] = function(tree, tvb, at)
    tree:add(f.moved, tvb(at, 4))
  end,
  [0x07] = function(tree, tvb, at)
    tree:add(f.mode, tvb(at + 3, 1))
    tree:add(f.mode_s, tvb(at + 3, 1))
  end,
  [0x0b] = function(tree, tvb, at)
    tree:add(f.des_sz, tvb(at, 4))
  end,
  [0x0c] = function(tree, tvb, at)
    tree:add(f.act_sz, tvb(at, 4))
  end,
  [0x0d] = function(tree, tvb, at)
    tree:add(f.constant1, tvb(at, 4))
    tree:add(f.port, tvb(at + 4, 2))
    tree:add(f.constant2, tvb(at + 6, 2))
  end,
  [SRC_AVAIL] = function(tree, tvb, at)
    tree:add(f.buffer_len, tvb(at, 4))
    tree:add(f.stag, tvb(at + 4, 4))
    tree:add(f.va, tvb(at + 8, 8))
  end,
}
extended[SINK_AVAIL] = function(tree, tvb, at)
  extended[SRC_AVAIL](tree, tvb, at)
  tree:add(f.non_discards, tvb(at + 16, 4))
end

-- Whether a message with this base header may begin there.
local function is_message(tvb)
  if tvb:len() < BSDH then
    return false
  end
  local message = messages[tvb(3, 1):uint()]
  return message ~= nil and tvb(2, 1):uint() <= 0x07 and tvb(4, 4):uint() >= BSDH + message[2]
    and tvb:len() >= BSDH + message[2]
end

-- Adds the message at the start of `tvb`; `rest`: what the bytes behind it are.
local function add_message(tvb, pinfo, root, rest)
  local mid, len = tvb(3, 1):uint(), tvb(4, 4):uint()
  local name, size = messages[mid][1], messages[mid][2]
  local payload = math.max(math.min(len, tvb:len()) - BSDH - size, 0)
  local tree = root:add(sdp, tvb(0, tvb:len()))
  tree:append_text(", " .. name)
  tree:add(f.bufs, tvb(0, 2))
  local flags = tree:add(f.flags, tvb(2, 1))
  flags:add(f.oob_pres, tvb(2, 1))
  flags:add(f.oob_pend, tvb(2, 1))
  flags:add(f.req_pipe, tvb(2, 1))
  tree:add(f.mid, tvb(3, 1))
  local len_item = tree:add(f.len, tvb(4, 4))
  tree:add(f.mseq, tvb(8, 4))
  tree:add(f.mseq_ack, tvb(12, 4))
  if extended[mid] then
    extended[mid](tree, tvb, BSDH)
  end
  if payload > 0 then
    tree:add(f.payload, tvb(BSDH + size, payload))
  end
  if len ~= tvb:len() then
    if rest and len < tvb:len() then
      tree:add(rest, tvb(len))
    else
      len_item:add_proto_expert_info(bad_len)
    end
  end
  pinfo.cols.protocol = "SDP"
  pinfo.cols.info:append(string.format("  SDP %s bufs=%d mseq=%d ack=%d", name, tvb(0, 2):uint(),
    tvb(8, 4):uint(), tvb(12, 4):uint()))
  if payload > 0 then
    pinfo.cols.info:append(" payload=" .. payload)
  end
end

-- A Send's payload, whole: it was put together of its segments.
sdp:register_heuristic("iwarp_ddp_rdmap", function(tvb, pinfo, tree)
  if not is_message(tvb) then
    return false
  end
  add_message(tvb, pinfo, tree, nil)
  return true
end)

-- Hello and HelloAck as private data of the MPA Request and Reply; of revision 2 behind IRD and ORD.
function sdp.dissector(_, pinfo, tree)
  for _, info in ipairs({ private_data() }) do
    local range = info.range
    for _, at in ipairs({ 0, 4 }) do
      if range:len() >= at + BSDH then
        local tvb = range(at):tvb()
        if is_message(tvb) and tvb(3, 1):uint() <= HELLO_ACK then
          add_message(tvb, pinfo, tree, f.rest)
          break
        end
      end
    end
  end
end
register_postdissector(sdp)
