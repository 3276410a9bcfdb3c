// Which curriculum a run follows, and random-LTD. Three sections can ask for a curriculum; they end
// in one DifficultySchedule.
#include <algorithm>
#include <set>

#include "common/text.h"
#include "job/dsconfig/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

constexpr char kLegacy[] = "curriculum_learning";
constexpr char kPrinted[] = "data_efficiency.curriculum_learning";
constexpr char kSampling[] = "data_efficiency.data_sampling.curriculum_learning";
constexpr char kLtd[] = "data_efficiency.data_routing.random_ltd";
constexpr int64_t kForever = INT64_MAX / 2;  ///< steps of a run whose length is not known
/// Beyond any model's context; sums with it stay in range.
constexpr int64_t kDifficultyMax = int64_t{1} << 40;

/// An object of settings and where it stands. What is wrong is reported once, at its path.
class Settings {
 public:
  Settings(const json& object, std::string path, Report& out)
      : object_(object), path_(std::move(path)), out_(out) {}

  std::string at(const char* name) const { return path_ + "." + name; }
  bool sound() const { return sound_; }

  /// The value; null: it is missing, and `need` said so.
  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const json* need(const char* name) {
    const json* value = find(name);
    if (value == nullptr) bad(name, "this key is missing", "DeepSpeed has no default for it");
    return value;
  }
  int64_t whole(const char* name, int64_t least) {
    const json* value = need(name);
    if (value == nullptr) return least;
    if (is_whole(*value) && value->get<int64_t>() >= least &&
        value->get<int64_t>() <= kDifficultyMax)
      return value->get<int64_t>();
    bad(name, "found " + value->dump() + ", expected a whole number from " + std::to_string(least));
    return least;
  }
  std::vector<int64_t> wholes(const char* name, int64_t least) {
    std::vector<int64_t> read;
    const json* value = need(name);
    if (value == nullptr) return read;
    bool good = value->is_array();
    if (good)
      for (const json& item : *value) {
        good = good && is_whole(item) && item.get<int64_t>() >= least &&
               item.get<int64_t>() <= kDifficultyMax;
        if (good) read.push_back(item.get<int64_t>());
      }
    if (!good)
      bad(name,
          "found " + value->dump() + ", expected whole numbers from " + std::to_string(least));
    return read;
  }
  std::string word(const char* name) {
    const json* value = need(name);
    if (value == nullptr || value->is_string()) return value ? value->get<std::string>() : "";
    bad(name, "found " + value->dump() + ", expected a string");
    return "";
  }
  void bad(const char* name, std::string message, std::string hint = {}) {
    sound_ = false;
    if (!out_.has_error(at(name))) out_.error(at(name), std::move(message), std::move(hint));
  }
  void refuse(const char* name, std::string message, std::string hint) {
    sound_ = false;
    out_.unsupported(at(name), std::move(message), std::move(hint));
  }
  /// An inner object; a problem and an empty one where there is none.
  Settings inner(const char* name) {
    static const json nothing = json::object();
    const json* value = need(name);
    if (value != nullptr && !value->is_object()) {
      bad(name, "found " + value->dump() + ", expected an object");
      value = nullptr;
    }
    Settings result(value ? *value : nothing, at(name), out_);
    result.sound_ = value != nullptr;
    return result;
  }
  void also(const Settings& other) { sound_ = sound_ && other.sound_; }

 private:
  static bool is_whole(const json& value) {
    return value.is_number_integer() &&
           !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
  }

  const json& object_;
  const std::string path_;
  Report& out_;
  bool sound_ = true;
};

void read_discrete(Settings& settings, DifficultySchedule& schedule) {
  schedule.difficulties = settings.wholes("difficulty", 1);
  schedule.last_steps = settings.wholes("max_step", 0);
  if (settings.sound() && schedule.difficulties.size() != schedule.last_steps.size() + 1)
    settings.bad("max_step",
                 "found " + std::to_string(schedule.last_steps.size()) + " steps for " +
                     std::to_string(schedule.difficulties.size()) + " difficulties",
                 "every difficulty but the last has the step that it ends with");
}

void read_grown(Settings& settings, DifficultySchedule& schedule) {
  schedule.total_steps = settings.whole("total_curriculum_step", 1);
  schedule.difficulty_step = settings.whole("difficulty_step", 1);
  if (schedule.type != "fixed_root") return;
  const json* degree = settings.need("root_degree");
  if (degree == nullptr) return;
  if (!degree->is_number() || !(degree->get<double>() > 0 && degree->get<double>() < 1e9))
    return settings.bad("root_degree", "found " + degree->dump() + ", expected a number above 0");
  schedule.root_degree = degree->get<double>();
}

DifficultySchedule read_schedule(Settings& settings) {
  DifficultySchedule schedule;
  schedule.min = settings.whole("min_difficulty", 1);
  schedule.max = settings.whole("max_difficulty", 1);
  schedule.type = settings.word("schedule_type");
  if (!settings.sound()) return schedule;
  if (schedule.min > schedule.max)
    settings.bad("min_difficulty", std::to_string(schedule.min) + " is above max_difficulty, " +
                                       std::to_string(schedule.max));
  if (schedule.type == "custom") {
    settings.refuse("schedule_type", "a custom schedule is a Python function",
                    "write it as fixed_discrete, which takes any list");
    return schedule;
  }
  const std::vector<std::string> types = {"fixed_linear", "fixed_root", "fixed_discrete"};
  if (!std::ranges::count(types, schedule.type)) {
    settings.bad(
        "schedule_type",
        "found \"" + schedule.type + "\", expected fixed_linear, fixed_root or fixed_discrete",
        text::did_you_mean(schedule.type, types));
    return schedule;
  }
  Settings numbers = settings.inner("schedule_config");
  if (numbers.sound()) {
    if (schedule.type == "fixed_discrete")
      read_discrete(numbers, schedule);
    else
      read_grown(numbers, schedule);
  }
  settings.also(numbers);
  return schedule;
}

/// A row needs two tokens to have a target.
void take_row_length(Settings& settings, std::string metric, DifficultySchedule schedule,
                     ResolvedConfig& config) {
  if (!settings.sound()) return;
  const int64_t steps = config.total_steps > 0 ? config.total_steps : kForever;
  if (const int64_t lowest = schedule.lowest(steps); lowest < 2) {
    return settings.bad("min_difficulty",
                        "the schedule begins at rows of " + std::to_string(lowest) +
                            " tokens, and a row of fewer than 2 has no target",
                        "let min_difficulty be at least difficulty_step, and at least 2");
  }
  if (config.data_efficiency.row_length)
    return settings.bad("enabled", "another section cuts the rows already",
                        "keep one section with a curriculum by length");
  config.data_efficiency.row_length = {std::move(metric), std::move(schedule)};
}

bool is_on(const Source& in, const std::string& section) {
  return in.value<bool>(section + ".enabled");
}

/// The legacy section, and the same keys right inside data_efficiency.
void read_section(const Source& in, const char* path, bool legacy, ResolvedConfig& config,
                  Report& out) {
  if (!is_on(in, path)) return;
  Settings settings(*in.literal(path), path, out);
  const auto type = in.value<std::string>(std::string(path) + ".curriculum_type");
  if (type != "seqlen")
    settings.refuse("curriculum_type",
                    "found \"" + type + "\"; DeepSpeed acts on \"seqlen\" and ignores others",
                    "write \"seqlen\", or a metric below data_efficiency.data_sampling");
  DifficultySchedule schedule = read_schedule(settings);
  // 0.19.8 has no legacy section any more; the last versions that had one rounded down.
  schedule.may_round_below_min = legacy;
  if (!legacy && settings.sound())
    out.warning(path,
                "here it cuts rows as guides promise; DeepSpeed 0.13 to 0.19.8 read this form and "
                "do nothing",
                "for DeepSpeed, too: data_sampling.curriculum_learning with a metric \"seqlen\"");
  take_row_length(settings, "seqlen", std::move(schedule), config);
}

/// One metric of data_sampling.
void read_metric(const std::string& name, Settings settings, ResolvedConfig& config) {
  const std::string difficulty = settings.word("difficulty_type");
  const std::string clusters = settings.word("clustering_type");
  DifficultySchedule schedule = read_schedule(settings);
  if (!settings.sound()) return;
  if (difficulty != "value" && difficulty != "percentile")
    return settings.bad("difficulty_type",
                        "found \"" + difficulty + "\", expected value or percentile");
  if (clusters != "single_cluster")
    return settings.refuse("clustering_type", "rows are not chosen by a metric in this version",
                           "\"single_cluster\" with a metric \"seqlen\" cuts rows to a length");
  if (name != "seqlen" && name != "seqlen_truncate")
    return settings.refuse("clustering_type", "nothing acts on the difficulty of \"" + name + "\"",
                           "a metric of a single cluster that cuts rows is called \"seqlen\" or "
                           "\"seqlen_truncate\"");
  if (difficulty != "value")
    return settings.bad("difficulty_type", "a length in tokens is a value, not a percentile");
  take_row_length(settings, name, std::move(schedule), config);
}

void read_sampling(const Source& in, ResolvedConfig& config, Report& out) {
  if (!is_on(in, kSampling)) return;
  const std::string path = std::string(kSampling) + ".curriculum_metrics";
  const json* metrics = in.literal(path);
  if (metrics == nullptr || !metrics->is_object() || metrics->empty())
    return out.error(path, "curriculum learning is enabled and no metric is given",
                     "DeepSpeed needs it, too");
  static const std::vector<std::string> known = {
      "index_to_sample_path", "index_to_metric_path", "difficulty_type", "clustering_type",
      "min_difficulty",       "max_difficulty",       "schedule_type",   "schedule_config"};
  for (const auto& [name, metric] : metrics->items()) {
    const std::string here = path + "." + name;
    if (!metric.is_object()) {
      out.error(here, "found " + metric.dump() + ", expected an object");
      continue;
    }
    for (const auto& [key, value] : metric.items())
      if (!std::ranges::count(known, key) && !key.starts_with("_"))
        out.error(here + "." + key, "\"" + key + "\" is not a key of a metric",
                  text::did_you_mean(key, known));
    read_metric(name, Settings(metric, here, out), config);
  }
}

/// The layers, rising. DeepSpeed sorts them, too.
std::vector<int64_t> read_layers(const Source& in, Settings& settings) {
  std::vector<int64_t> layers = settings.wholes("random_ltd_layer_id", 0);
  const int64_t count = settings.whole("random_ltd_layer_num", 1);
  if (!settings.sound()) return layers;
  std::ranges::sort(layers);
  if (std::ranges::adjacent_find(layers) != layers.end())
    settings.bad("random_ltd_layer_id", "a layer is named twice");
  if (static_cast<int64_t>(layers.size()) != count)
    settings.bad("random_ltd_layer_num", "found " + std::to_string(count) + ", but " +
                                             std::to_string(layers.size()) + " layers are named");
  const auto& model = in.facts.layers;
  if (model && !layers.empty() && layers.back() >= *model)
    settings.bad("random_ltd_layer_id", "there is no layer " + std::to_string(layers.back()) +
                                            ": the model has layers 0 to " +
                                            std::to_string(*model - 1));
  return layers;
}

void read_random_ltd(const Source& in, ResolvedConfig& config, Report& out) {
  if (!is_on(in, kLtd)) return;
  Settings settings(*in.literal(kLtd), kLtd, out);
  RandomLtdConfig ltd{.layers = read_layers(in, settings)};
  Settings schedule = settings.inner("random_ltd_schedule");
  if (!settings.sound() || !schedule.sound()) return;
  ltd.min = schedule.whole("min_value", 1);
  ltd.max = schedule.whole("max_value", 1);
  const std::string type = schedule.word("schedule_type");
  Settings numbers = schedule.inner("schedule_config");
  if (!schedule.sound() || !numbers.sound()) return;
  if (type != "fixed_linear")
    return schedule.bad("schedule_type", "found \"" + type + "\", expected fixed_linear",
                        "DeepSpeed has no other either");
  ltd.require_steps = numbers.whole("require_steps", 1);
  ltd.tokens_per_step = numbers.whole("seq_per_step", 1);
  if (!numbers.sound()) return;
  if (ltd.min > ltd.max)
    return schedule.bad(
        "min_value", std::to_string(ltd.min) + " is above max_value, " + std::to_string(ltd.max));
  if (ltd.kept(0) < 1)
    return schedule.bad("min_value",
                        std::to_string(ltd.min) +
                            " is rounded down to a multiple of seq_per_step, " +
                            std::to_string(ltd.tokens_per_step) + ": no token would be left",
                        "let min_value be at least seq_per_step");
  config.data_efficiency.random_ltd = std::move(ltd);
}

}  // namespace

void resolve_data_efficiency(const Source& in, ResolvedConfig& config, Report& out) {
  read_section(in, kLegacy, true, config, out);
  read_section(in, kPrinted, false, config, out);
  read_sampling(in, config, out);
  read_random_ltd(in, config, out);
  const DataEfficiencyConfig& found = config.data_efficiency;
  if (in.args.packing.value_or(false) && (found.row_length || found.random_ltd))
    out.error("training.packing",
              std::string(found.row_length ? "curriculum learning" : "random-LTD") +
                  " shortens rows; with packing DeepSpeed would shorten a pack, whose rows are not "
                  "of one difficulty",
              "switch one of them off");
  for (const char* section :
       {"data_efficiency", "data_efficiency.data_sampling", "data_efficiency.data_routing"}) {
    const std::string path = std::string(section) + ".enabled";
    const bool inside =
        (is_on(in, kSampling) && std::string_view(kSampling).starts_with(section)) ||
        (is_on(in, kLtd) && std::string_view(kLtd).starts_with(section)) ||
        (is_on(in, kPrinted) && std::string_view(kPrinted).starts_with(section));
    const json* written = in.literal(path);
    if (inside && written != nullptr && *written == false)
      out.warning(path, "no effect: what is enabled inside acts all the same, as in DeepSpeed",
                  "set \"enabled\" of curriculum_learning or random_ltd to false");
  }
}

}  // namespace dsj::dsconfig
