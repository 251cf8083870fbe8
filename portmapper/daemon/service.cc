#include "portmapper/daemon/service.h"

#include <algorithm>
#include <string>

#include "portmapper/daemon/log.h"
#include "portmapper/wire/announcement.h"

namespace sdp::pm {
namespace {

constexpr const char* kBegins = " (it begins: a line in a minute counts the others)";

}  // namespace

std::optional<Datagram> Service::Serve(Bytes datagram, const Endpoint& source, Time now) {
  if (admission_.Judge(source, now) != Verdict::kHear) return std::nullopt;
  const auto message = Parse(datagram);
  std::optional<Datagram> reply;
  if (!message) {
    const auto announcement = directory_.IsCentral() ? ParseAnnouncement(datagram) : std::nullopt;
    if (announcement) return directory_.HandleAnnouncement(*announcement, source, now);
    server_.HandleMalformed();
  } else if (message->type == MessageType::kReq) {
    reply = server_.HandleRequest(*message, AnswerTo(*message, source, now), now);
  } else if (server_.HandleOther(*message)) {
    directory_.HandleAck(message->ap);
  }
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "%s: %s%s%s", source.ToString(),
        message ? ToString(*message) : std::string(ToString(message.error())), reply ? " answered " : "",
        reply ? ToString(*Parse(*reply)) : std::string());
  }
  return reply;
}

std::optional<PmAnswer> Service::AnswerTo(const PmMessage& request, const Endpoint& source, Time now) {
  if (!directory_.Allows(source, request.ap)) return std::nullopt;
  std::optional<Endpoint> sdp;
  if (directory_.IsConfigured(request.ap)) {
    const auto here = [&](const Endpoint& service) {
      PmMessage about = request;
      about.ap = service;
      return FindLocal(about, now);
    };
    sdp = directory_.FindConfigured(request.ap, request.handle.value(), server_.PriorAnswer(request), here,
                                    now);
  } else if (!directory_.Serves(request.ap)) {
    sdp = FindLocal(request, now);
  } else {
    sdp = directory_.FindAnnounced(request.ap, request.handle.value(), now);
    if (sdp && request.ap.version == IpVersion::kV6) sdp = ToMapped(*sdp);
    // A listener of ours on the wildcard is not there for the other hosts we serve.
    if (!sdp && own_addresses_.Contains(request.ap, now)) sdp = FindLocal(request, now);
  }
  if (!sdp || sdp->version != request.ap.version) return std::nullopt;
  // A client that kept one of several answers would go to that listener alone.
  if (server_.registrations().IsSpread(request.ap)) return PmAnswer{*sdp, PmTime(0)};
  return PmAnswer{*sdp, directory_.PmTimeFor(request.ap, server_.pm_time())};
}

std::optional<Endpoint> Service::FindLocal(const PmMessage& request, Time now) {
  // A registration whose listener has gone must not answer for whoever has the port now. Each round removes
  // one.
  while (const auto local = server_.FindLocal(request)) {
    if (local_->VerifyAlive(local->registration, now)) return local->sdp;
  }
  return std::nullopt;
}

void Service::HandleTimeout(Time now) {
  server_.HandleTimeout(now);
  directory_.HandleTimeout(now);
  RaiseAlarms(now);
}

Time Service::NextTimeout() const {
  return std::min({server_.NextTimeout(), directory_.NextTimeout(), evicted_alarm_.NextTimeout(),
                   unheard_alarm_.NextTimeout(), pool_alarm_.NextTimeout()});
}

// SDP 15.2.1: raise an alarm when requests come faster than is plausible.
void Service::RaiseAlarms(Time now) {
  if (const auto line = evicted_alarm_.HandleCount(server_.counters().evicted, now)) {
    Log(LogLevel::kError,
        "requests come faster than their acknowledgements: %d waiting ones discarded since the last line%s",
        line->since, line->begins ? kBegins : "");
  }
  const AdmissionCounters& a = admission_.counters();
  const uint64_t unheard = a.privileged_port + a.source_limit + a.total_limit;
  if (const auto line = unheard_alarm_.HandleCount(unheard, now)) {
    Log(LogLevel::kError,
        "datagrams not heard: %d since the last line%s; in all %d above the limit of their source, %d above "
        "the limit of all, %d from ports below 1024",
        line->since, line->begins ? kBegins : "", a.source_limit, a.total_limit, a.privileged_port);
  }
  if (const auto line = pool_alarm_.HandleCount(directory_.counters().pool_exhausted, now)) {
    Log(LogLevel::kError, "a pool had no free port for %d requests since the last line%s", line->since,
        line->begins ? kBegins : "");
  }
}

}  // namespace sdp::pm
