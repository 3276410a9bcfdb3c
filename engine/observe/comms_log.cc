#include "engine/observe/comms_log.h"

#include <algorithm>
#include <array>

#include "common/format.h"

namespace dsj::observe {
namespace {

using text::format;

/// DeepSpeed's names for the operations.
std::string plain(const std::string& name) {
  if (name == "all_gather_into_tensor" || name == "all_gather_base") return "all_gather";
  if (name == "reduce_scatter_tensor" || name == "reduce_scatter_base") return "reduce_scatter";
  return name;
}

}  // namespace

std::string size_text(int64_t bytes) {
  constexpr std::array names{"B", "KB", "MB", "GB", "TB", "PB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < names.size(); ++unit) size /= 1024;
  return bytes == 0 ? "0 B" : format("%.2f %s", size, names[unit]);
}

Bandwidth bandwidth(const std::string& operation, int64_t bytes, double ms, int world) {
  if (ms <= 0) return {};
  const double gigabits = static_cast<double>(bytes) * 8 / 1e6 / ms;
  const double share = static_cast<double>(world - 1) / world;
  if (operation == "all_gather") return {gigabits * world, gigabits * world * share};
  if (operation == "reduce_scatter") return {gigabits, gigabits * share};
  if (operation == "all_reduce") return {2 * gigabits, 2 * gigabits * share};
  return {gigabits, gigabits};
}

bool CommsLog::wanted(const std::string& operation) const {
  return config_.prof_all || std::ranges::any_of(config_.prof_ops, [&](const std::string& name) {
           return plain(name) == operation;
         });
}

std::optional<std::string> CommsLog::add(const CommsCall& call) {
  if (!wanted(call.operation)) return std::nullopt;
  const std::string record =
      call.operation + (config_.debug && !call.purpose.empty() ? " | " + call.purpose : "");
  const Bandwidth speed = bandwidth(call.operation, call.bytes, call.ms, world_);
  Sum& sum = sums_[record][call.bytes];
  ++sum.calls;
  sum.ms += call.ms;
  sum.algorithm += speed.algorithm;
  sum.bus += speed.bus;
  if (!config_.verbose) return std::nullopt;
  return "comm op: " + record +
         format(" | time (ms): %.2f | msg size: %s | algbw (Gbps): %.2f | busbw (Gbps): %.2f",
                call.ms, size_text(call.bytes).c_str(), speed.algorithm, speed.bus);
}

std::string CommsLog::table() const {
  if (sums_.empty()) return {};
  constexpr char kPattern[] = "%-20s%-16s%-10s%-20s%-18s%-18s%s\n";
  std::string text = format(kPattern, "Comm. Op", "Message Size", "Count", "Total Latency(ms)",
                            "Avg Latency(ms)", "tput_avg (Gbps)", "busbw_avg (Gbps)");
  for (const auto& [record, sizes] : sums_) {
    text += record + "\n";
    for (const auto& [bytes, sum] : sizes) {
      const double calls = static_cast<double>(sum.calls);
      text += format("%-20s%-16s%-10lld%-20.2f%-18.2f%-18.2f%.2f\n", "", size_text(bytes).c_str(),
                     static_cast<long long>(sum.calls), sum.ms, sum.ms / calls,
                     sum.algorithm / calls, sum.bus / calls);
    }
  }
  return text;
}

}  // namespace dsj::observe
