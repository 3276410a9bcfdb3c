// Resolves the curricula of a run, and random-LTD. Three sections can set a curriculum by length;
// all become one DifficultySchedule. Only one of them can have metrics that choose rows.
#include <algorithm>
#include <set>

#include "common/text.h"
#include "job/dsconfig/keys/metric_curriculum.h"
#include "job/dsconfig/sections/parts.h"
#include "job/dsconfig/sections/settings.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

constexpr char kLegacy[] = "curriculum_learning";
constexpr char kPrinted[] = "data_efficiency.curriculum_learning";
constexpr char kSampling[] = "data_efficiency.data_sampling.curriculum_learning";
constexpr char kMetrics[] = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics";
constexpr char kLtd[] = "data_efficiency.data_routing.random_ltd";
constexpr int64_t kForever = INT64_MAX / 2;  ///< used if the number of steps is unknown

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

/// The legacy section, or the same keys directly inside data_efficiency.
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
  // 0.19.8 has dropped the legacy section; the last versions with it rounded down.
  schedule.may_round_below_min = legacy;
  if (!legacy && settings.sound())
    out.warning(path,
                "here it cuts rows as guides promise; DeepSpeed 0.13 to 0.19.8 read this form and "
                "do nothing",
                "for DeepSpeed, too: data_sampling.curriculum_learning with a metric \"seqlen\"");
  take_row_length(settings, "seqlen", std::move(schedule), config);
}

bool chooses_rows(const json& metric) {
  return metric.is_object() && metric.value("clustering_type", json()) != "single_cluster";
}

/// A metric that chooses rows.
MetricCurriculum read_choice(const std::string& name, Settings& settings) {
  MetricCurriculum metric{.metric = name,
                          .percentile = settings.word("difficulty_type") == "percentile"};
  metric.schedule = read_schedule(settings);
  metric.index_to_sample = settings.path("index_to_sample_path");
  if (!metric.percentile) metric.index_to_metric = settings.path("index_to_metric_path");
  return metric;
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
  if (clusters != "single_cluster") {
    read_choice(name, settings);  // only to report its errors
    return;
  }
  if (name != "seqlen" && name != "seqlen_truncate")
    return settings.refuse("clustering_type", "nothing uses the difficulty of \"" + name + "\"",
                           "a metric of a single cluster that cuts rows is called \"seqlen\" or "
                           "\"seqlen_truncate\"; \"schedule_based\" chooses rows");
  if (difficulty != "value")
    return settings.bad("difficulty_type", "a length in tokens is a value, not a percentile");
  take_row_length(settings, name, std::move(schedule), config);
}

void read_sampling(const Source& in, ResolvedConfig& config, Report& out) {
  if (!is_on(in, kSampling)) return;
  const std::string path = kMetrics;
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

/// The layers in ascending order. DeepSpeed sorts them, too.
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

/// Reports other settings that decide which rows are in a step.
void check_order(const Source& in, const DataEfficiencyConfig& found, Report& out) {
  const json* metrics = is_on(in, kSampling) ? in.literal(kMetrics) : nullptr;
  const bool chooses =
      metrics && metrics->is_object() && std::ranges::any_of(*metrics, chooses_rows);
  if (in.args.packing.value_or(false) && (found.row_length || found.random_ltd || chooses))
    out.error("training.packing",
              chooses ? "a curriculum by a metric chooses rows; a pack has rows of several "
                        "difficulties"
                      : std::string(found.row_length ? "curriculum learning" : "random-LTD") +
                            " shortens rows; with packing DeepSpeed would shorten a pack, whose "
                            "rows are not of one difficulty",
              "switch one of them off");
  if (!chooses) return;
  if (in.args.group_by_length.value_or(false))
    out.error("training.groupByLength",
              "a curriculum by a metric decides which rows are in a step, and so do groups of one "
              "length",
              "switch one of them off");
  if (!in.args.shuffle.value_or(true))
    out.error("training.shuffle",
              "found false; a curriculum by a metric draws rows, as in DeepSpeed, and has no order "
              "of the file",
              "remove it");
}

}  // namespace

void resolve_data_efficiency(const Source& in, ResolvedConfig& config, Report& out) {
  read_section(in, kLegacy, true, config, out);
  read_section(in, kPrinted, false, config, out);
  read_sampling(in, config, out);
  read_random_ltd(in, config, out);
  check_order(in, config.data_efficiency, out);
  for (const char* section :
       {"data_efficiency", "data_efficiency.data_sampling", "data_efficiency.data_routing"}) {
    const std::string path = std::string(section) + ".enabled";
    const bool inside =
        (is_on(in, kSampling) && std::string_view(kSampling).starts_with(section)) ||
        (is_on(in, kLtd) && std::string_view(kLtd).starts_with(section)) ||
        (is_on(in, kPrinted) && std::string_view(kPrinted).starts_with(section));
    const json* written = in.literal(path);
    if (inside && written != nullptr && *written == false)
      out.warning(path, "no effect: enabled subsections act anyway, as in DeepSpeed",
                  "set \"enabled\" of curriculum_learning or random_ltd to false");
  }
}

std::vector<MetricCurriculum> metric_curricula(const json& ds_config) {
  const Checked checked = check(ds_config);
  const Facts facts;
  const TrainingArgs args;
  const Source in{checked, args, facts, true};
  Resolution ignored;  // resolve() has reported the errors
  Report out(in, ignored);
  std::vector<MetricCurriculum> read;
  const json* metrics = is_on(in, kSampling) ? in.literal(kMetrics) : nullptr;
  if (metrics == nullptr || !metrics->is_object()) return read;
  for (const auto& [name, metric] : metrics->items()) {
    if (!chooses_rows(metric)) continue;
    Settings settings(metric, std::string(kMetrics) + "." + name, out);
    MetricCurriculum one = read_choice(name, settings);
    if (settings.sound()) read.push_back(std::move(one));
  }
  return read;
}

}  // namespace dsj::dsconfig
