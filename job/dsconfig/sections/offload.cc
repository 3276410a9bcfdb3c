// Resolves offload_optimizer, offload_param and aio into Offload, with DeepSpeed's rules about
// combinations of keys.
#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;
namespace {

constexpr char kOptimizer[] = "zero_optimization.offload_optimizer.";
constexpr char kParam[] = "zero_optimization.offload_param.";

}  // namespace

const char* name_of(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::None:
      return "none";
    case OffloadDevice::Cpu:
      return "cpu";
    case OffloadDevice::Nvme:
      return "nvme";
  }
  return "?";
}

json to_json(const Offload& offload) {
  json object = json::object();
  const OffloadOptimizer& o = offload.optimizer;
  const OffloadParam& p = offload.param;
  const bool nvme = offload.nvme();
  if (o.device != OffloadDevice::None) {
    json& to = object["offload_optimizer"];
    to = {{"device", name_of(o.device)}, {"ratio", o.ratio}, {"pin_memory", o.pin_memory}};
    if (o.device == OffloadDevice::Nvme)
      to.update({{"nvme_path", o.nvme_path},
                 {"buffer_count", o.buffer_count},
                 {"sub_group_size", offload.sub_group_size},
                 {"pipeline_read", o.pipeline_read},
                 {"pipeline_write", o.pipeline_write}});
  }
  if (p.device != OffloadDevice::None) {
    json& to = object["offload_param"];
    to = {{"device", name_of(p.device)}, {"pin_memory", p.pin_memory}};
    if (p.device == OffloadDevice::Nvme)
      to.update({{"nvme_path", p.nvme_path},
                 {"buffer_count", p.buffer_count},
                 {"buffer_size", p.buffer_size},
                 {"max_in_cpu", p.max_in_cpu}});
  }
  if (nvme)
    object["aio"] = {{"block_size", offload.aio.block_size},
                     {"queue_depth", offload.aio.queue_depth},
                     {"thread_count", offload.aio.thread_count},
                     {"single_submit", offload.aio.single_submit},
                     {"overlap_events", offload.aio.overlap_events}};
  return object;
}

namespace {

OffloadDevice offload_device(const std::string& section, const char* old_name, const Source& in,
                             Report& out) {
  const std::string old_path = std::string("zero_optimization.") + old_name;
  const json* named = in.literal(section + "device");
  OffloadDevice device = OffloadDevice::None;
  if (named != nullptr && *named == "cpu") device = OffloadDevice::Cpu;
  if (named != nullptr && *named == "nvme") device = OffloadDevice::Nvme;
  if (!in.value<bool>(old_path)) return device;
  const std::string now = section.substr(0, section.size() - 1);
  if (in.checked.find(now) != nullptr) {
    out.error(old_path, "given together with " + now + ", which replaces it", "remove it");
    return device;
  }
  out.warning(old_path, "the old name of " + now + ", read as {\"device\": \"cpu\"}",
              "write " + now);
  return OffloadDevice::Cpu;
}

std::string nvme_path(const std::string& section, OffloadDevice device, const Source& in,
                      Report& out) {
  const auto found = in.value<std::string>(section + "nvme_path", "");
  if (device == OffloadDevice::Nvme && found.empty())
    out.error(section + "nvme_path", "device is nvme, but no path is given",
              "name a directory on the disk that takes the swapped state");
  return found;
}

void offload_optimizer(const Source& in, ResolvedConfig& config, Report& out) {
  OffloadOptimizer& o = config.offload.optimizer;
  const auto at = [](const char* name) { return std::string(kOptimizer) + name; };
  o.device = offload_device(kOptimizer, "cpu_offload", in, out);
  const int stage = config.zero.stage;
  if (o.device != OffloadDevice::None && stage == 0) {  // DeepSpeed 0.19 accepts it silently
    out.warning(at("device"),
                std::string("\"") + name_of(o.device) + "\" acts at stages 1 to 3; the stage is 0",
                "set zero_optimization.stage, or remove the section");
    o.device = OffloadDevice::None;
  }
  if (o.device == OffloadDevice::None) {
    o = {};  // without effect
    return;
  }
  o.nvme_path = nvme_path(kOptimizer, o.device, in, out);
  if (o.ratio < 1 && stage != 3)
    out.error(at("ratio"),
              "found " + text::number(o.ratio) +
                  ", but a part is offloaded at stage 3 only; the stage is " +
                  std::to_string(stage),
              "remove it, or set stage 3");
  // The optimizer holds a tile of values, of gradients and of each state.
  const int64_t needed = 2 + static_cast<int64_t>(states_of(config.optimizer).size());
  if (o.device == OffloadDevice::Nvme && o.buffer_count < needed)
    out.error(at("buffer_count"),
              "found " + std::to_string(o.buffer_count) + ", this optimizer needs at least " +
                  std::to_string(needed) + ": value, gradient and each state",
              "write " + std::to_string(needed) + " or more");
}

void offload_param(const Source& in, ResolvedConfig& config, Report& out) {
  OffloadParam& p = config.offload.param;
  const auto at = [](const char* name) { return std::string(kParam) + name; };
  p.device = offload_device(kParam, "cpu_offload_params", in, out);
  const int stage = config.zero.stage;
  if (p.device != OffloadDevice::None && stage != 3) {  // DeepSpeed 0.19 accepts it silently
    out.warning(at("device"),
                std::string("\"") + name_of(p.device) + "\" acts at stage 3 only; the stage is " +
                    std::to_string(stage),
                "set stage 3, or remove the section");
    p.device = OffloadDevice::None;
  }
  if (p.device == OffloadDevice::None) {
    p = {};
    return;
  }
  p.nvme_path = nvme_path(kParam, p.device, in, out);
  if (p.device != OffloadDevice::Nvme) return;
  for (const auto& [name, value] :
       {std::pair{"buffer_count", p.buffer_count}, std::pair{"buffer_size", p.buffer_size}})
    if (value < 1)
      out.error(at(name), "found " + std::to_string(value) + ", expected at least 1",
                "parameters pass through these buffers");
}

}  // namespace

void resolve_offload(const Source& in, ResolvedConfig& config, Report& out) {
  Offload& offload = config.offload;
  offload_optimizer(in, config, out);
  offload_param(in, config, out);
  if (config.optimizer.eight_bit && (offload.optimizer.device != OffloadDevice::None ||
                                     offload.param.device != OffloadDevice::None))
    out.unsupported("training.optim",
                    "moments in 8 bits stay where the gradients are: \"" + *in.args.optim +
                        "\" is not built with offload_optimizer or offload_param",
                    "write adamw_torch, or remove the offload sections");
  if (config.zero.stage == 3 && config.zero.quantized_frozen_weights &&
      offload.param.device != OffloadDevice::None)
    out.error("zero_optimization.zero_quantized_nontrainable_weights",
              "it cannot be combined with offload_param",
              "leave out one of them: frozen weights stay on the device as codes");
  const char* sub_group = "zero_optimization.sub_group_size";
  if (offload.sub_group_size < 1 && offload.optimizer.device == OffloadDevice::Nvme) {
    offload.sub_group_size = Offload{}.sub_group_size;
    out.warning(sub_group, "0 is read as " + std::to_string(offload.sub_group_size),
                "write the number of elements to update at a time");
  }
  Aio& aio = offload.aio;
  const char* threads = "aio.intra_op_parallelism";
  const json *now = in.literal(threads), *before = in.literal("aio.thread_count");
  if (now != nullptr && before != nullptr && *now != *before)
    out.error(threads,
              "found " + now->dump() + ", and " + before->dump() +
                  " in aio.thread_count, which is its old name",
              "keep one of the two");
  if (now != nullptr) aio.thread_count = now->get<int64_t>();  // the new name overrides the old one
}

}  // namespace dsj::dsconfig
