#include "cli/roofline.h"

#include <cstdlib>

#include "cli/check/limits.h"
#include "common/format.h"
#include "job/roofline/roofline.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

/// Rounds to four digits; the assumed efficiency of a GPU is known to two.
double rounded(double value) {
  return std::strtod(text::format("%.4g", value).c_str(), nullptr);
}

json facts_of(const roofline::Gpu& gpu) {
  return {{"name", gpu.shown},
          {"memoryBytes", gpu.memory},
          {"usableBytes", roofline::usable_memory(gpu)},
          {"teraflopsPerSecond", rounded(gpu.flops / 1e12)},
          {"gigabytesPerSecond",
           {{"memory", rounded(gpu.bandwidth / 1e9)},
            {"otherGpus", rounded(gpu.link / 1e9)},
            {"otherMachines", rounded(gpu.network / 1e9)},
            {"host", rounded(gpu.host_link / 1e9)},
            {"hostMemory", rounded(gpu.host_memory / 1e9)}}},
          {"reached",
           {{"products", gpu.product_share},
            {"attention", gpu.attention_share},
            {"memory", gpu.bandwidth_share},
            {"links", gpu.link_share}}}};
}

json part_json(const roofline::Part& part) {
  json one = {{"part", part.name},
              {"milliseconds", rounded(1e3 * part.seconds)},
              {"hiddenMilliseconds", rounded(1e3 * part.hidden)}};
  if (part.flops > 0) one["teraflop"] = rounded(part.flops / 1e12);
  if (part.bytes > 0) one["gigabytes"] = rounded(part.bytes / 1e9);
  if (part.launches > 0) one["launches"] = part.launches;
  return one;
}

}  // namespace

Result<json> roofline_json(const jobspec::Job& job, const plan::MemoryInput& input,
                           const roofline::Gpu& gpu) {
  if (const auto not_counted = roofline::uncounted(input))
    return bad_input("--device: " + not_counted->what, not_counted->path, not_counted->hint);
  const roofline::Roofline line = roofline::roofline(input, gpu, ranks_per_host(job));
  json parts = json::array();
  for (const roofline::Part& part : line.parts)
    if (part.seconds > 0) parts.push_back(part_json(part));
  return json{{"computedNotMeasured", true},
              {"device", facts_of(gpu)},
              {"step",
               {{"milliseconds", rounded(1e3 * line.seconds)},
                {"tokens", line.tokens},
                {"tokensPerSecond", rounded(line.tokens_per_second())},
                {"neededTeraflopPerRank", rounded(line.needed_flops / 1e12)},
                {"shareOfPeak", rounded(line.share_of_peak)},
                {"launchesPerRank", line.launches},
                {"boundBy", line.bound}}},
              {"parts", parts}};
}

}  // namespace dsj::cli
