// The parts of resolve(): one method per part of ResolvedConfig, in the order in which they run. A
// part may use what earlier ones decided. Internal to dsconfig.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/dsconfig/check.h"
#include "common/dsconfig/resolve.h"

namespace dsj::dsconfig {

struct SchedulerClass;

class Resolver {
 public:
  /// `alone`: the job is not known yet (resolve_alone).
  Resolver(const Checked& checked, const TrainingArgs& args, const Facts& facts, bool alone,
           Resolution& out)
      : checked_(checked), args_(args), facts_(facts), alone_(alone), out_(out) {}

  void arguments();  ///< ranges of training arguments; arguments not built (arguments.cc)
  void batch();
  void precision();
  void zero();
  void optimizer();  ///< optimizer.cc
  void offload();    ///< offload.cc
  void steps();
  void scheduler();  ///< schedule*.cc
  void cadences();   ///< when to log, save, evaluate (observe.cc)
  void observe();    ///< monitors and profilers (observe.cc)
  bool incomplete() const { return incomplete_; }

 private:
  static constexpr char kTrain[] = "train_batch_size";
  static constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
  static constexpr char kAccumulation[] = "gradient_accumulation_steps";
  static constexpr char kDeepSpeedDefault[] = "default (DeepSpeed 0.19)";

  void report(Finding::Severity severity, const std::string& path, std::string message,
              std::string hint = {});
  /// Neither the file nor the job says what `note` is about: an Error, or the note when alone.
  void absent(Note note, std::string message, std::string hint);
  void origin(const std::string& path, const std::string& value, const std::string& from);
  void mismatch(const std::string& path, const std::string& here, const std::string& argument_path,
                const std::string& there);
  bool is_auto(const std::string& path) const;
  /// The value; null: absent or "auto".
  const nlohmann::json* literal(const std::string& path) const;
  int64_t integer(const std::string& path, int64_t fallback) const;
  double number(const std::string& path, double fallback) const;
  bool boolean(const std::string& path, bool fallback) const;
  /// ds_config's literal (it must equal the argument, if one is given), else the argument, else the
  /// default of whoever would have filled it in.
  double matched(const std::string& path, const std::optional<double>& argument,
                 const char* argument_name, double hugging_face, double deepspeed);
  bool enabled(const char* path, const std::optional<bool>& argument, const char* argument_name);
  std::optional<Precision> dtype(const char* path) const;
  void type_of_the_job();
  void loss_scale();
  void gradient_types();
  void averaging();
  int64_t of_hidden_size(const char* path, int64_t (*rule)(int64_t), const char* rule_text,
                         bool applies, int64_t fallback);
  std::optional<std::pair<double, double>> pair(const std::string& path) const;
  OffloadDevice offload_device(const std::string& section, const char* old_name);
  std::string nvme_path(const std::string& section, OffloadDevice device);
  void offload_optimizer();
  void offload_param();
  void betas(OptimizerConfig& optimizer);
  std::string word(const std::string& path, const std::string& fallback) const;
  MonitorConfig monitor(const std::string& section) const;
  void evaluation();
  /// Rows of the data file to train on.
  std::optional<int64_t> training_rows() const;
  bool read_pair(const OptimizerParameter& parameter, OptimizerConfig& optimizer);
  void optimizer_params(const Optimizer& found, const std::vector<std::string>& taken);
  void optimizer_numbers(OptimizerConfig& optimizer, const std::vector<std::string>& taken);
  void optimizer_rules(const Optimizer& found);
  void hugging_face_optimizer();
  std::optional<int64_t> warmup_steps() const;
  const char* warmup_origin() const;
  bool warmup_asked() const;
  double real(const std::string& path, double fallback) const;
  bool scheduler_params(const SchedulerClass& found);
  bool cycled_momentum(const std::string& schedule, bool wanted);
  void warmup_phase();
  void total_num_steps();
  void one_cycle();
  void deepspeed_scheduler(const std::string& type);
  void torch_momentum(const std::string& type, double base, double most);
  void torch_one_cycle();
  void torch_scheduler(const std::string& type);
  void hugging_face_kwargs(const std::string& type, const std::vector<std::string>& known);
  void hugging_face_scheduler(const std::string& type);
  void unsaid_scheduler();

  const Checked& checked_;
  const TrainingArgs& args_;
  const Facts& facts_;
  const bool alone_;
  Resolution& out_;
  std::optional<int64_t> total_steps_;
  bool incomplete_ = false;
};

}  // namespace dsj::dsconfig
