#include "verbs/ibv/ibv_connector.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/ibv/tcp_port.h"

namespace sdp::ibv {
namespace {

using verbs::ConnectState;
using verbs::LinkEnd;

constexpr uint32_t kSends = 256;
constexpr uint32_t kSmallestReceives = 64;
constexpr uint32_t kInline = 80;  // 64 bytes of payload, with SDP's header
// See BeginConfirmation. An embedded RNIC answers when its owner reads, perhaps after the longest
// confirmation.
constexpr Duration kFirstOpeningInterval = std::chrono::milliseconds(5);
constexpr Duration kLongestConfirmation = std::chrono::milliseconds(100);
// See TryAnotherPort.
constexpr int kMostPorts = 8;

// Errors of the peer or of the path to it. Any other error is this host's own, including ENETDOWN: a local
// interface is down.
bool IsOnTheWay(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

int MillisecondsTo(Time deadline, Time now) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::max<int64_t>(left, 1));
}

}  // namespace

IbvConnector::IbvConnector(const Api& api, std::shared_ptr<EventDescriptor> events, const sockaddr* local,
                           const sockaddr* target, Bytes private_data, const verbs::QpOptions& qp,
                           Duration timeout, Time now)
    : connecting_(true),
      api_(api),
      resources_(std::make_unique<Resources>(api, std::move(events))),
      options_(qp),
      private_data_(private_data.begin(), private_data.end()),
      deadline_(now + timeout),
      port_is_chosen_(local == nullptr || PortOf(*local) == 0) {
  Resolve(local, target, now);
}

IbvConnector::IbvConnector(const Api& api, rdma_cm_id* id, const rdma_conn_param& request, Duration timeout,
                           Time now)
    : connecting_(false), api_(api), resources_(std::make_unique<Resources>(api)), deadline_(now + timeout) {
  TakePrivateData(request);
  ird_ = request.responder_resources;
  ord_ = request.initiator_depth;
  const bool open = resources_->Open();
  if (!resources_->AdoptId(id) || !open) {
    Fail(LinkEnd::kFailed, resources_->failure(), errno);
    return;
  }
  state_ = ConnectState::kRequested;
}

IbvConnector::~IbvConnector() = default;

void IbvConnector::Resolve(const sockaddr* local, const sockaddr* target, Time now) {
  if (!resources_->Open() || !resources_->MakeId())
    return Fail(LinkEnd::kFailed, resources_->failure(), errno);
  if (api_.rdma_resolve_addr(resources_->id, const_cast<sockaddr*>(local), const_cast<sockaddr*>(target),
                             MillisecondsTo(deadline_, now)) != 0) {
    FailHere("rdma_resolve_addr");
  }
}

// The connection manager chooses a source port that RDMA has free. siw then binds a TCP socket of the
// kernel's to it (siw_connect). That fails where a program's socket has the port, or where a connection
// between the same two addresses has just ended.
bool IbvConnector::MayTryAnotherPort(int error) const {
  return (error == EADDRINUSE || error == EADDRNOTAVAIL) && port_is_chosen_ && ports_tried_ < kMostPorts;
}

// Starts again, with a new id and a port that no TCP socket has now. The port may be in use by RDMA, or taken
// a moment later, so the loop tries further ports.
void IbvConnector::TryAnotherPort(Time now) {
  const rdma_addr addresses = resources().id->route.addr;
  sockaddr_storage local = addresses.src_storage;
  const std::shared_ptr<EventDescriptor> events = resources().events();  // kept: the owner waits on it
  qp_.reset();
  do {
    ++ports_tried_;
    SetPort(&local, FreeTcpPort(local));
    resources_ = std::make_unique<Resources>(api_, events);
    state_ = ConnectState::kInProgress;
    cause_ = {};
    Resolve(reinterpret_cast<const sockaddr*>(&local), &addresses.dst_addr, now);
  } while (state_ == ConnectState::kFailed && MayTryAnotherPort(cause_.os_error));
}

Time IbvConnector::deadline() const {
  if (over()) return kNever;
  return std::min({deadline_, quiet_until_, next_opening_});
}

ConnectState IbvConnector::Step(Time now) {
  if (over()) return state_;
  if (confirming_) {
    StepConfirmation(now);
    return state_;
  }
  while (rdma_cm_event* event = resources().NextCmEvent()) {
    HandleEvent(*event, now);
    api_.rdma_ack_cm_event(event);
    if (std::exchange(port_is_taken_, false))
      TryAnotherPort(now);  // only now: destroying the id waits for the acknowledgement
    if (over()) return state_;
  }
  if (qp_ != nullptr) {
    resources().Look();
    if (const char* const why = resources().device_failure(); why != nullptr) {
      Fail(LinkEnd::kFailed, why);
      return state_;
    }
  }
  if (confirming_) {
    StepConfirmation(now);
  } else if (quiet_until_ != kNever) {
    StepSilence(now);
  } else if (now >= deadline_) {
    Fail(LinkEnd::kReset, "connection set-up timed out", ETIMEDOUT);
  }
  return state_;
}

// siw does not report when the accepting siw has handed its socket from the MPA start-up to the queue pair.
// What arrives in between lies there until further bytes come (siw_accept sends the reply first). So the
// connecting side sends a read that the peer's RNIC answers. It repeats its empty RDMA Write until the answer
// comes, or for longer than that gap lasts.
void IbvConnector::BeginConfirmation(Time now) {
  qp_->OpenPeer();
  if (!qp_->AskPeer()) {
    state_ = ConnectState::kEstablished;
    return;
  }
  confirming_ = true;
  asked_at_ = now;
  opening_interval_ = kFirstOpeningInterval;
  next_opening_ = now + opening_interval_;
  deadline_ = std::min(deadline_, now + kLongestConfirmation);
}

void IbvConnector::StepConfirmation(Time now) {
  const bool ended = qp_->ReadLink() == verbs::ReadStatus::kEnded;
  // A received message also counts as an answer.
  const bool answered = qp_->has_answer() || qp_->pollable()->has_untold();
  if (ended && !answered) {
    Fail(LinkEnd::kReset, "connection lost during set-up: " + qp_->cause().text);
  } else if (answered || now >= deadline_) {
    qp_->link().SetRoundTrip(now - asked_at_);
    confirming_ = false;
    state_ = ConnectState::kEstablished;
  } else if (now >= next_opening_) {
    qp_->OpenPeer();
    opening_interval_ *= 2;
    next_opening_ = now + opening_interval_;
  }
}

// The accepting side's first FPDU must not reach a peer that still processes our MPA Reply: siw then ends the
// connection (siw_recv_mpa_rr). MPA has the accepting side wait for the peer's first FPDU, but the kernel
// hides an FPDU without a message. So this side waits for the peer's first message, or for
// QpOptions::accept_silence.
void IbvConnector::StepSilence(Time now) {
  if (!qp_->HasReceived() && now < quiet_until_) return;
  // An upper bound: one round trip or more has passed since the reply.
  if (now < quiet_until_) qp_->link().SetRoundTrip(now - asked_at_);
  quiet_until_ = kNever;
  state_ = ConnectState::kEstablished;
}

void IbvConnector::HandleEvent(const rdma_cm_event& event, Time now) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (api_.rdma_resolve_route(resources_->id, MillisecondsTo(deadline_, now)) != 0)
        FailHere("rdma_resolve_route");
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return Connect();
    case RDMA_CM_EVENT_ESTABLISHED:
      if (connecting_) {
        TakePrivateData(event.param.conn);
        if (event.param.conn.initiator_depth > 0)
          ord_ = std::min<uint16_t>(ord_, event.param.conn.initiator_depth);
        qp_->Establish(ird_, ord_);
        BeginConfirmation(now);
      } else if (qp_ != nullptr) {
        qp_->Establish(ird_, ord_);
        asked_at_ = now;
        quiet_until_ = std::min(deadline_, now + options_.accept_silence);
      }
      return;
    case RDMA_CM_EVENT_REJECTED:
      TakePrivateData(event.param.conn);
      // The connection manager also reports a rejection when no program listens there.
      if (event.status == -ECONNREFUSED || event.status == ECONNREFUSED || event.status == -ECONNRESET) {
        cause_.os_error = ECONNREFUSED;
      }
      cause_.end = LinkEnd::kReset;
      cause_.text = "rejected by the peer";
      state_ = ConnectState::kRejected;
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
      return FailOnTheWay("no RDMA device leads there", -event.status);
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return FailOnTheWay("no route to the peer", -event.status);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return Fail(LinkEnd::kFailed, "the RDMA device was removed");
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_DISCONNECTED:
      return Fail(LinkEnd::kReset, "connection lost during set-up", -event.status);
    default:
      return;
  }
}

bool IbvConnector::MakeQueuePair() {
  const Depths depths{.sends = kSends,
                      .receives = std::max(kSmallestReceives, 2 * options_.initial_receives),
                      .inline_bytes = kInline};
  if (!resources_->MakeQueuePair(depths)) {
    Fail(LinkEnd::kFailed, resources_->failure(), errno);
    return false;
  }
  qp_ = std::make_unique<IbvQp>(std::move(resources_), options_);
  if (!qp_->Prepare()) {
    Fail(LinkEnd::kFailed, qp_->resources().failure(), errno);
    return false;
  }
  return true;
}

rdma_conn_param IbvConnector::Parameters(Bytes private_data) const {
  rdma_conn_param parameters{};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(std::min<size_t>(private_data.size(), UINT8_MAX));
  parameters.responder_resources = static_cast<uint8_t>(ird_);
  parameters.initiator_depth = static_cast<uint8_t>(ord_);
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  return parameters;
}

void IbvConnector::Connect() {
  ibv_device_attr limits{};
  if (api_.ibv_query_device(resources_->id->verbs, &limits) != 0) return FailHere("ibv_query_device");
  ird_ = std::min<uint16_t>({options_.ird, static_cast<uint16_t>(limits.max_qp_rd_atom), UINT8_MAX});
  ord_ = std::min<uint16_t>({options_.ord, static_cast<uint16_t>(limits.max_qp_init_rd_atom), UINT8_MAX});
  if (!MakeQueuePair()) return;
  rdma_conn_param parameters = Parameters(private_data_);
  if (api_.rdma_connect(resources().id, &parameters) == 0) return;
  port_is_taken_ = MayTryAnotherPort(errno);
  if (!port_is_taken_) FailHere("rdma_connect");
}

void IbvConnector::Accept(Bytes private_data, const verbs::QpOptions& options) {
  if (state_ != ConnectState::kRequested) return;
  options_ = options;
  ibv_device_attr limits{};
  if (api_.ibv_query_device(resources_->id->verbs, &limits) != 0) return FailHere("ibv_query_device");
  // No more than the peer asks for. A peer's 0 means that it named no limit (MPA revision 1).
  const auto lower = [](uint16_t peers, uint16_t ours, int device) {
    const uint16_t mine = std::min<uint16_t>({ours, static_cast<uint16_t>(device), UINT8_MAX});
    return peers == 0 ? mine : std::min(peers, mine);
  };
  ird_ = lower(ird_, options.ird, limits.max_qp_rd_atom);
  ord_ = lower(ord_, options.ord, limits.max_qp_init_rd_atom);
  state_ = ConnectState::kInProgress;
  if (!MakeQueuePair()) return;
  rdma_conn_param parameters = Parameters(private_data);
  if (api_.rdma_accept(resources().id, &parameters) != 0) FailHere("rdma_accept");
}

void IbvConnector::Reject(Bytes private_data) {
  if (state_ != ConnectState::kRequested) return;
  const auto size = static_cast<uint8_t>(std::min<size_t>(private_data.size(), UINT8_MAX));
  api_.rdma_reject(resources().id, private_data.data(), size);
  state_ = ConnectState::kRejected;
}

void IbvConnector::TakePrivateData(const rdma_conn_param& parameters) {
  const auto* const data = static_cast<const std::byte*>(parameters.private_data);
  if (data == nullptr) return;
  peer_private_data_.assign(data, data + parameters.private_data_len);
}

void IbvConnector::Fail(LinkEnd end, std::string text, int os_error) {
  state_ = ConnectState::kFailed;
  cause_.end = end;
  cause_.text = std::move(text);
  cause_.os_error = os_error;
}

void IbvConnector::FailHere(const char* what) {
  const int error = errno;
  FailOnTheWay(std::string(what) + ": " + strerrordesc_np(error), error);
}

void IbvConnector::FailOnTheWay(std::string text, int status) {
  Fail(IsOnTheWay(status) ? LinkEnd::kReset : LinkEnd::kFailed, std::move(text), status);
}

}  // namespace sdp::ibv
