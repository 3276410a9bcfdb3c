#include "cli/plan_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/format.h"
#include "common/grouped.h"
#include "job/plan/fit.h"

namespace dsj::cli {
namespace {

using nlohmann::json;
using plan::show_bytes;
using text::format;

std::string grouped(const json& value) {
  return text::grouped(value.get<int64_t>());
}

std::string bytes_of(const json& value) {
  return show_bytes(value.get<int64_t>());
}

std::string counted(int64_t count, const char* noun) {
  return text::grouped(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string heading(const json& plan) {
  const json& config = plan["config"];
  const json& topology = plan["topology"];
  const int64_t workers = topology["replicas"], ranks = topology["worldSize"];
  return plan["name"].get<std::string>() + ": " + counted(workers, "worker") + ", " +
         counted(ranks, "rank") + ", ZeRO stage " + config["zero_optimization"]["stage"].dump() +
         "; behaves as " + plan["behavesAs"].get<std::string>() + "\n";
}

/// A bar of 20 characters.
std::string bar(double share) {
  const auto full = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * 20 + 0.5);
  return "[" + std::string(full, '#') + std::string(20 - full, '.') + "]";
}

/// The share of a host's memory that its ranks take, or of an accelerator's that one rank takes.
std::string against_limit(const json& memory, int64_t peak, int64_t host, int64_t ranks) {
  const json& limits = memory["limits"];
  const bool device = limits.contains("device");
  const char* name = device ? "device" : "host";
  if (!limits.contains(name)) return "  no limit is known here\n";
  const int64_t taken = device ? peak : ranks * (peak + host);
  const int64_t limit = limits[name]["bytes"];
  const double share = static_cast<double>(taken) / static_cast<double>(limit);
  return "  " +
         (device || ranks == 1 ? "one rank takes "
                               : "the " + std::to_string(ranks) + " ranks of a host take ") +
         show_bytes(taken) + " of " + show_bytes(limit) + " (" +
         limits[name]["from"].get<std::string>() + ")  " + bar(share) +
         format(" %.3g %%\n", 100 * share);
}

std::string rows_line(const json& rows) {
  const std::string largest =
      grouped(rows["largestMicroBatch"]["tokens"]) + " tokens in the largest micro-batch";
  if (rows["from"] != "data") return largest + ", if every row has maxSeqLength";
  return largest + ", of " + grouped(rows["count"]) + " rows that were measured";
}

std::string memory_part(const json& plan) {
  const json& memory = plan["memory"];
  if (memory.is_null()) return "MEMORY\n  the model is not known\n";
  const json& bytes = memory["bytesPerRank"];
  std::string out = "MEMORY of one rank, at most\n";
  for (const char* name : {"parameters", "gradients", "optimizer", "buckets", "activations"}) {
    out += format("  %-12s %10s", name, bytes_of(bytes[name]).c_str());
    if (std::string(name) == "parameters")
      out += "   " + grouped(memory["trainableParameters"]) + " of " +
             grouped(memory["parametersOfTheModel"]) + " are trained";
    if (std::string(name) == "parameters" &&
        memory["activeParameters"] != memory["parametersOfTheModel"])
      out += ", " + grouped(memory["activeParameters"]) + " for one token";
    if (std::string(name) == "activations") out += "   " + rows_line(memory["rows"]);
    out += "\n";
    if (const json base = memory.value("baseIn4BitsBytes", json());
        std::string(name) == "parameters" && !base.is_null())
      out += "    of these, the base in 4 bits: codes " + bytes_of(base["codes"]) + ", scales " +
             bytes_of(base["scales"]) + "\n";
  }
  out +=
      format("  %-12s %10s   all classes at one moment\n", "peak", bytes_of(bytes["peak"]).c_str());
  for (const auto& [name, what] :
       {std::pair{"host", "offload, in host memory"}, std::pair{"nvme", "offload, in files"},
        std::pair{"snapshot", "the copy that checkpoints are written from"}})
    if (bytes[name] != 0)
      out += format("  %-12s %10s   %s\n", name, bytes_of(bytes[name]).c_str(), what);
  out += against_limit(memory, bytes["peak"], bytes["host"], plan["topology"]["ranksPerHost"]);
  return out + "  disk: " + bytes_of(memory["disk"]["checkpoint"]) + " each checkpoint, " +
         bytes_of(memory["disk"]["model"]) + " the model\n";
}

std::string cut_line(const json& cut) {
  std::string line = cut.contains("estimated") ? "about " : "";
  line += counted(cut["rows"], "row") + " cut, " + counted(cut["tokens"], "token") + " left out";
  if (cut["withoutTarget"] != 0)
    line += "; " + counted(cut["withoutTarget"], "row") + " without a target then";
  return line + "\n";
}

/// "4 ranks", "2 groups of 2 ranks".
std::string together_of(const json& plan) {
  const int64_t world = plan["topology"]["worldSize"].get<int64_t>();
  const int64_t group = plan["config"].value("sequence_parallel_size", int64_t{1});
  if (group <= 1) return std::to_string(world) + " ranks";
  return counted(world / group, "group") + " of " + std::to_string(group) + " ranks";
}

std::string steps_part(const json& plan) {
  const json& config = plan["config"];
  const json& steps = plan["steps"];
  std::string out = "STEPS\n  ";
  if (steps["total"] == 0) return out + "not known: the data, or the model, is not here\n";
  out += grouped(steps["total"]) + " steps of " + counted(config["train_batch_size"], "row") +
         " (" + config["train_micro_batch_size_per_gpu"].dump() + " x " +
         config["gradient_accumulation_steps"].dump() + " accumulated x " + together_of(plan) + ")";
  if (steps.contains("epochs"))
    out += format(", %.3g epoch%s of %s", steps["epochs"].get<double>(),
                  steps["epochs"] == 1.0 ? "" : "s", counted(steps["perEpoch"], "step").c_str());
  out += "\n";
  if (steps.contains("tokens"))
    out += "  " + grouped(steps["tokensPerStep"]) + " tokens a step, " + grouped(steps["tokens"]) +
           " in all\n";
  const json::json_pointer cut("/memory/rows/cut");
  if (plan.contains(cut)) out += "  " + cut_line(plan[cut]);
  return out;
}

std::string schedule_part(const json& plan) {
  const json& schedule = plan["schedule"];
  std::string out = "LEARNING RATE " + schedule["type"].get<std::string>();
  if (schedule["warmupSteps"] != 0)
    out += ", " + counted(schedule["warmupSteps"], "step") + " of warm-up";
  std::string steps = "  step", rates = "  rate";
  for (const json& one : schedule["rates"]) {
    steps += format(" %11s", grouped(one["step"]).c_str());
    rates += format(" %11.4g", one["rate"].get<double>());
  }
  return out + "\n" + (schedule["rates"].empty() ? "" : steps + "\n" + rates + "\n");
}

std::string wire_part(const json& plan) {
  const json& wire = plan["wire"];
  if (wire.is_null()) return "";
  std::string out = "WIRE of one rank in a step\n ";
  const json& bytes = wire["bytesPerStep"];
  for (const char* name : {"gradients", "parameters", "matrices", "heads"})
    if (bytes.contains(name)) out += std::string(" ") + name + " " + bytes_of(bytes[name]) + ",";
  out += " by " + wire["way"]["collectives"].get<std::string>() + " (" +
         wire["way"]["because"].get<std::string>() + ")\n";
  if (wire.contains("ranksOfARow"))
    out += "  groups of " + wire["ranksOfARow"].dump() +
           " ranks share the tokens of their rows (sequence_parallel_size)\n";
  if (wire.contains("groups")) {
    const json& groups = wire["groups"];
    const bool mics = groups["replicas"] != 1;
    out += "  groups of " + groups[mics ? "ranksOfAShard" : "ranksOfASecondCopy"].dump() +
           (mics ? " ranks keep everything among them (mics_shard_size)\n"
                 : " ranks keep a second copy of the parameters (zero_hpz_partition_size)\n");
  }
  if (wire.contains("bytesBetweenHostsPerStep") && plan["topology"]["replicas"] != 1) {
    int64_t sum = 0;
    for (const auto& [name, value] : wire["bytesBetweenHostsPerStep"].items())
      sum += value.get<int64_t>();
    out += "  a host sends " + show_bytes(sum) + " to the others\n";
  }
  return out;
}

std::string roofline_part(const json& plan) {
  if (!plan.contains("roofline") || plan["roofline"].is_null()) return "";
  const json& step = plan["roofline"]["step"];
  std::string out = "ROOFLINE of a step on " +
                    plan["roofline"]["device"]["name"].get<std::string>() +
                    ", computed, not measured\n";
  out +=
      format("  %.4g ms, %.4g tokens/s, %.3g %% of the peak, bound by %s\n",
             step["milliseconds"].get<double>(), step["tokensPerSecond"].get<double>(),
             100 * step["shareOfPeak"].get<double>(), step["boundBy"].get<std::string>().c_str());
  std::vector<json> parts = plan["roofline"]["parts"];
  std::ranges::stable_sort(parts, std::greater<>(),
                           [](const json& part) { return part["milliseconds"].get<double>(); });
  if (parts.size() > 4) parts.resize(4);
  for (const json& part : parts)
    out += format("  %-20s %9.4g ms, %.4g hidden\n", part["part"].get<std::string>().c_str(),
                  part["milliseconds"].get<double>(), part["hiddenMilliseconds"].get<double>());
  return out;
}

}  // namespace

std::string plan_text(const json& plan) {
  return heading(plan) + memory_part(plan) + steps_part(plan) + schedule_part(plan) +
         wire_part(plan) + roofline_part(plan) + "-o yaml prints every value with its origin\n";
}

}  // namespace dsj::cli
