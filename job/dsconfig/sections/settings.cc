#include "job/dsconfig/sections/settings.h"

#include <algorithm>

#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

/// Above any model's context length; sums with it do not overflow.
constexpr int64_t kDifficultyMax = int64_t{1} << 40;

bool is_whole(const json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
}

bool is_whole_from(const json& value, int64_t least) {
  return is_whole(value) && value.get<int64_t>() >= least && value.get<int64_t>() <= kDifficultyMax;
}

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

}  // namespace

const json* Settings::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json* Settings::need(const char* name) {
  const json* value = find(name);
  if (value == nullptr) bad(name, "this key is missing", "DeepSpeed has no default for it");
  return value;
}

int64_t Settings::whole(const char* name, int64_t least) {
  const json* value = need(name);
  if (value == nullptr) return least;
  if (is_whole_from(*value, least)) return value->get<int64_t>();
  bad(name, "found " + value->dump() + ", expected a whole number from " + std::to_string(least));
  return least;
}

std::vector<int64_t> Settings::wholes(const char* name, int64_t least) {
  std::vector<int64_t> read;
  const json* value = need(name);
  if (value == nullptr) return read;
  bool good = value->is_array();
  if (good)
    for (const json& item : *value) {
      good = good && is_whole_from(item, least);
      if (good) read.push_back(item.get<int64_t>());
    }
  if (!good)
    bad(name, "found " + value->dump() + ", expected whole numbers from " + std::to_string(least));
  return read;
}

std::string Settings::word(const char* name) {
  const json* value = need(name);
  if (value == nullptr || value->is_string()) return value ? value->get<std::string>() : "";
  bad(name, "found " + value->dump() + ", expected a string");
  return "";
}

std::string Settings::path(const char* name) {
  const bool was_sound = sound_;
  sound_ = true;
  std::string read = word(name);
  if (sound_ && read.empty()) bad(name, "found \"\", expected a path");
  sound_ = sound_ && was_sound;
  return read;
}

void Settings::bad(const char* name, std::string message, std::string hint) {
  sound_ = false;
  if (!out_.has_error(at(name))) out_.error(at(name), std::move(message), std::move(hint));
}

void Settings::refuse(const char* name, std::string message, std::string hint) {
  sound_ = false;
  out_.unsupported(at(name), std::move(message), std::move(hint));
}

Settings Settings::inner(const char* name) {
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

}  // namespace dsj::dsconfig
