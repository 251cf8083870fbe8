// What sdpstat --metrics prints.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/sdpstat/render.h"

namespace sdp::sdpstat {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;
constexpr const char* kMechanismNames[stats::kMechanisms] = {"bcopy", "read_zcopy", "write_zcopy",
                                                             "transaction"};

// What one process has to tell: closed connections and living ones together.
struct ProcessCounts {
  uint64_t connections[stats::kLinkKinds] = {};
  uint64_t listeners = 0, unregistered = 0;
  stats::TotalsValues totals;
};

ProcessCounts CountsOf(const stats::ProcessStats& process) {
  ProcessCounts out{.totals = process.totals};
  for (const stats::ConnectionRecord& record : process.records) {
    if (stats::IsUnregisteredListener(record)) {
      ++out.unregistered;
    } else if (record.kind == stats::Kind::kListener) {
      out.listeners += stats::IsKernelListener(record) ? 0 : 1;
    }
    if (record.kind != stats::Kind::kConnection) continue;
    const stats::LinkKind link = stats::LinkKindOf(record);
    ++out.connections[link];
    for (size_t i = 0; i < stats::kMechanisms; ++i) {
      out.totals.link_in[link][i] += record.counters.bytes_in[i];
      out.totals.link_out[link][i] += record.counters.bytes_out[i];
    }
    out.totals.send_stalls += record.counters.send_stalls;
  }
  return out;
}

std::string Escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

class Exposition {
 public:
  void Family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void Sample(const Labels& labels, uint64_t value) {
    text_ += name_;
    const char* before = "{";
    for (const auto& [label, text] : labels) {
      text_ += std::string(before) + label + "=\"" + Escaped(text) + "\"";
      before = ",";
    }
    text_ += (labels.empty() ? " " : "} ") + std::to_string(value) + "\n";
  }
  [[nodiscard]] std::string Text() && { return std::move(text_); }

 private:
  const char* name_ = "";
  std::string text_;
};

void AddBytes(Exposition* out, Labels labels, const char* direction,
              const uint64_t (&bytes)[stats::kLinkKinds][stats::kMechanisms]) {
  const size_t own = labels.size();
  for (size_t link = 0; link < stats::kLinkKinds; ++link) {
    for (size_t i = 0; i < stats::kMechanisms; ++i) {
      if (bytes[link][i] == 0) continue;
      labels.resize(own);
      labels.insert(
          labels.end(),
          {{"direction", direction}, {"link", stats::kLinkNames[link]}, {"mechanism", kMechanismNames[i]}});
      out->Sample(labels, bytes[link][i]);
    }
  }
}

Labels With(Labels labels, const char* name, const char* value) {
  labels.emplace_back(name, value);
  return labels;
}

}  // namespace

std::string RenderMetrics(const stats::Snapshot& snapshot) {
  std::vector<std::pair<Labels, ProcessCounts>> processes;
  for (const stats::ProcessStats& process : snapshot.processes) {
    processes.emplace_back(Labels{{"program", process.program}, {"pid", std::to_string(process.pid)}},
                           CountsOf(process));
  }
  Exposition out;
  const auto each = [&](const char* name, const char* type, const char* help,
                        const std::function<void(const Labels&, const ProcessCounts&)>& add) {
    out.Family(name, type, help);
    for (const auto& [labels, counts] : processes) add(labels, counts);
  };
  out.Family("sdp_processes", "gauge", "Processes that run over SDP.");
  out.Sample({}, processes.size());
  each("sdp_connections", "gauge", "SDP connections that are open, by link.",
       [&](const Labels& labels, const ProcessCounts& counts) {
         for (size_t link = 0; link < stats::kLinkKinds; ++link)
           out.Sample(With(labels, "link", stats::kLinkNames[link]), counts.connections[link]);
       });
  each("sdp_connections_closed_total", "counter", "SDP connections that were established and have ended.",
       [&](const Labels& labels, const ProcessCounts& counts) {
         out.Sample(labels, counts.totals.connections_closed);
       });
  each("sdp_connections_aborted_total", "counter", "Among them those that ended with an error.",
       [&](const Labels& labels, const ProcessCounts& counts) {
         out.Sample(labels, counts.totals.connections_aborted);
       });
  each("sdp_payload_bytes_total", "counter", "Bytes of the programs over SDP, by link and mechanism.",
       [&](const Labels& labels, const ProcessCounts& counts) {
         AddBytes(&out, labels, "in", counts.totals.link_in);
         AddBytes(&out, labels, "out", counts.totals.link_out);
       });
  each("sdp_send_stalls_total", "counter", "Sends that had to wait for the peer's buffers.",
       [&](const Labels& labels, const ProcessCounts& counts) {
         out.Sample(labels, counts.totals.send_stalls);
       });
  each("sdp_fallbacks_total", "counter", "Sockets that are TCP instead, by the reason's code.",
       [&](const Labels& labels, const ProcessCounts& counts) {
         for (size_t i = 0; i < static_cast<size_t>(stats::FallbackReason::kCount); ++i) {
           if (counts.totals.fallbacks[i] == 0) continue;
           const char* const reason = stats::ToString(static_cast<stats::FallbackReason>(i));
           out.Sample(With(labels, "reason", reason), counts.totals.fallbacks[i]);
         }
       });
  each("sdp_listeners", "gauge", "Listeners that clients reach over SDP.",
       [&](const Labels& labels, const ProcessCounts& counts) { out.Sample(labels, counts.listeners); });
  each("sdp_unregistered_listeners", "gauge", "Listeners that no port mapper knows: their clients use TCP.",
       [&](const Labels& labels, const ProcessCounts& counts) { out.Sample(labels, counts.unregistered); });
  return std::move(out).Text();
}

}  // namespace sdp::sdpstat
