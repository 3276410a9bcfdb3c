// Rows of offload and its file I/O. See keys.h.
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {
namespace {

using FieldOf = Field (*)(ResolvedConfig&);

constexpr char kResolved[] = "dsconfig_tests:OffloadKeys.EachValueReachesTheResolvedConfig ";

template <auto kMember>
constexpr FieldOf to_optimizer = to<&ResolvedConfig::offload, &Offload::optimizer, kMember>;
template <auto kMember>
constexpr FieldOf to_param = to<&ResolvedConfig::offload, &Offload::param, kMember>;
template <auto kMember>
constexpr FieldOf to_aio = to<&ResolvedConfig::offload, &Offload::aio, kMember>;

/// Keys that both sections have.
void add_common(std::vector<Key>& keys, const std::string& section, const std::string& device_test,
                const std::string& buffers_test, FieldOf buffer_count, FieldOf pin_memory,
                const char* stages) {
  using enum Type;
  using enum State;
  keys.push_back({.path = section, .type = Section});
  keys.push_back({.path = section + ".device",
                  .type = String,
                  .fallback = "none",
                  .choices = {"none", "cpu", "nvme"},
                  .stages = stages,
                  .test = kResolved + device_test});
  keys.push_back({.path = section + ".nvme_path",
                  .type = String,
                  .stages = stages,
                  .test = std::string(kResolved) + "train_tests:OffloadFiles.LieUnderNvmePath"});
  keys.push_back({.path = section + ".buffer_count",
                  .type = Int,
                  .min = 0,
                  .stages = stages,
                  .field = buffer_count,
                  .test = kResolved + buffers_test});
  keys.push_back({.path = section + ".pin_memory",
                  .type = Bool,
                  .state = Moot,
                  .reason = "page-locked host memory speeds up copies to an accelerator: it is "
                            "used if there is one, and has no effect otherwise",
                  .fallback_013 = false,
                  .stages = stages,
                  .field = pin_memory});
}

void add_old_names(std::vector<Key>& keys) {
  using enum Type;
  const std::string zero = "zero_optimization.";
  const std::string test = "dsconfig_tests:OffloadKeys.OldNamesAreReadWithAWarning";
  keys.push_back({.path = zero + "cpu_offload",
                  .type = Bool,
                  .fallback = false,
                  .stages = "1, 2, 3",
                  .test = test});
  keys.push_back({.path = zero + "cpu_offload_params",
                  .type = Bool,
                  .fallback = false,
                  .aliases = {"cpu_offload_param"},
                  .stages = "3",
                  .test = test});
  keys.push_back({.path = zero + "cpu_offload_use_pin_memory",
                  .type = Bool,
                  .fallback = false,
                  .state = State::Moot,
                  .reason = "the same as offload_optimizer.pin_memory"});
}

void add_optimizer(std::vector<Key>& keys) {
  using enum Type;
  using enum State;
  const std::string section = "zero_optimization.offload_optimizer";
  add_common(keys, section,
             "train_tests:Offload.EqualsNoOffload train_tests:OffloadMemory.HostTakesTheState "
             "simulated_tests:LateMemory.GradientsLeaveTheDeviceWithTheStates",
             "train_tests:OffloadMemory.NvmeHoldsOnlyTheBuffers",
             to_optimizer<&OffloadOptimizer::buffer_count>,
             to_optimizer<&OffloadOptimizer::pin_memory>, "1, 2, 3");
  for (const auto& [name, field] :
       {std::pair<const char*, FieldOf>{"pipeline_read",
                                        to_optimizer<&OffloadOptimizer::pipeline_read>},
        {"pipeline_write", to_optimizer<&OffloadOptimizer::pipeline_write>}})
    keys.push_back({.path = section + "." + name,
                    .type = Bool,
                    .stages = "1, 2, 3",
                    .field = field,
                    .test = std::string(kResolved) + "train_tests:OffloadFiles.PipelineOverlaps"});
  keys.push_back({.path = section + ".pipeline",
                  .type = Bool,
                  .fallback = false,
                  .state = Moot,
                  .reason = "DeepSpeed overwrites it with pipeline_read or pipeline_write"});
  keys.push_back({.path = section + ".fast_init",
                  .type = Bool,
                  .fallback = false,
                  .state = Moot,
                  .reason = "a new run never writes its zero moments to the file"});
  keys.push_back(
      {.path = section + ".ratio",
       .type = Float,
       .min = 0,
       .max = 1,
       .stages = "3",
       .field = to_optimizer<&OffloadOptimizer::ratio>,
       .test = std::string(kResolved) + "train_tests:OffloadMemory.RatioSharesTheState"});
  keys.push_back({.path = section + ".super_offload",
                  .type = Bool,
                  .fallback = false,
                  .state = Unsupported,
                  .reason = "SuperOffload is not built: an update within backward gains at most 13 "
                            "% of a step (docs/decisions.md)"});
  keys.push_back({.path = section + ".cpuadam_cores_perc",
                  .type = Float,
                  .fallback = 0.8,
                  .state = Moot,
                  .reason = "it serves super_offload, which is refused",
                  .min = 0,
                  .max = 1});
}

void add_param(std::vector<Key>& keys) {
  using enum Type;
  const std::string section = "zero_optimization.offload_param";
  add_common(keys, section, "train_tests:Offload.EqualsNoOffload",
             "train_tests:OffloadMemory.ParameterBuffersBoundTheStaging",
             to_param<&OffloadParam::buffer_count>, to_param<&OffloadParam::pin_memory>, "3");
  keys.push_back({.path = section + ".buffer_size",
                  .type = Int,
                  .min = 0,
                  .stages = "3",
                  .field = to_param<&OffloadParam::buffer_size>,
                  .test = std::string(kResolved) +
                          "train_tests:OffloadMemory.ParameterBuffersBoundTheStaging"});
  keys.push_back(
      {.path = section + ".max_in_cpu",
       .type = Int,
       .min = 0,
       .stages = "3",
       .field = to_param<&OffloadParam::max_in_cpu>,
       .test = std::string(kResolved) + "train_tests:OffloadMemory.MaxInCpuKeepsTheFirstElements"});
}

void add_aio(std::vector<Key>& keys) {
  using enum Type;
  const auto key = [&](const char* name, Type type, FieldOf field, const char* test) {
    keys.push_back({.path = std::string("aio.") + name,
                    .type = type,
                    .field = field,
                    .test = std::string(kResolved) + test});
    if (type == Int) keys.back().min = 1;
  };
  keys.push_back({.path = "aio", .type = Section});
  key("block_size", Int, to_aio<&Aio::block_size>, "aio_tests:AioKeys.BlockSizeIsTheLargestCall");
  key("queue_depth", Int, to_aio<&Aio::queue_depth>,
      "aio_tests:AioKeys.QueueDepthTimesThreadsAreUnderWay");
  for (const char* name : {"intra_op_parallelism", "thread_count"})  // 0.19's name, and 0.13's
    key(name, Int, to_aio<&Aio::thread_count>,
        "aio_tests:AioKeys.QueueDepthTimesThreadsAreUnderWay");
  key("single_submit", Bool, to_aio<&Aio::single_submit>,
      "aio_tests:AioKeys.SubmissionsFollowSingleSubmit");
  key("overlap_events", Bool, to_aio<&Aio::overlap_events>,
      "aio_tests:AioKeys.WithoutOverlapEventsBatchesDoNotMix");
  keys.push_back(
      {.path = "aio.use_gds",
       .type = Bool,
       .fallback = false,
       .state = State::Unsupported,
       .reason = "GPUDirect Storage is not built in: files are read through host memory"});
}

}  // namespace

std::vector<Key> offload_keys() {
  std::vector<Key> keys;
  keys.push_back(
      {.path = "zero_optimization.sub_group_size",
       .type = Type::Int,
       .min = 0,
       .stages = "1, 2, 3",
       .field = to<&ResolvedConfig::offload, &Offload::sub_group_size>,
       .test = std::string(kResolved) + "train_tests:OffloadMemory.NvmeHoldsOnlyTheBuffers"});
  keys.push_back({.path = "zero_optimization.round_robin_gradients",
                  .type = Type::Bool,
                  .fallback = false,
                  .state = State::Moot,
                  .reason = "every rank owns an equal slice of every bucket, so copies to host "
                            "memory are always spread over the ranks",
                  .stages = "1, 2"});
  add_old_names(keys);
  add_param(keys);
  add_optimizer(keys);
  add_aio(keys);
  return keys;
}

}  // namespace dsj::dsconfig
