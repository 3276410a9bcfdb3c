#include "common/startup_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json.h"

namespace dsj::startup {
namespace {

int64_t microseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

/// The variable's number; 0 if empty.
std::optional<int64_t> number_of(const std::string& text) {
  if (text.empty()) return 0;
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

nlohmann::json to_json(const Moment& moment) {
  return {{"wall_us", moment.wall_us}, {"cpu_us", moment.cpu_us}};
}

std::optional<Moment> moment_of(const nlohmann::json& object) {
  const auto wall = json_whole(object, "wall_us"), cpu = json_whole(object, "cpu_us");
  if (!wall || !cpu) return std::nullopt;
  return Moment{*wall, *cpu};
}

}  // namespace

Moment now() {
  return {microseconds(CLOCK_MONOTONIC), microseconds(CLOCK_PROCESS_CPUTIME_ID)};
}

std::optional<bool> switched_on(const std::string& text) {
  const auto number = number_of(text);
  if (!number) return std::nullopt;
  return *number != 0;
}

std::string to_line(const Trace& trace) {
  nlohmann::json stages = nlohmann::json::array();
  for (const Stage& stage : trace.stages) {
    nlohmann::json object = to_json(stage.end);
    object["name"] = stage.name;
    stages.push_back(std::move(object));
  }
  const nlohmann::json object = {{"process", trace.process},
                                 {"attempt", trace.attempt},
                                 {"begin", to_json(trace.begin)},
                                 {"stages", std::move(stages)}};
  return object.dump() + "\n";
}

std::optional<Trace> trace_from_line(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto attempt = json_whole(object, "attempt");
  const auto begin = moment_of(json_child(object, "begin"));
  Trace trace{.process = json_text(object, "process")};
  if (!attempt || !begin || trace.process.empty()) return std::nullopt;
  trace.attempt = *attempt;
  trace.begin = *begin;
  for (const auto& stage : json_child(object, "stages")) {
    const auto end = moment_of(stage);
    if (!end) return std::nullopt;
    trace.stages.push_back({json_text(stage, "name"), *end});
  }
  return trace;
}

void Recorder::begin(std::string process, const std::string& text) {
  const int64_t from = number_of(text).value_or(0);
  on_ = from != 0;
  if (!on_) return;
  const Moment here = clock_();
  trace_ = {.process = std::move(process)};
  // A number from another machine, or from before a reboot, is not a time of this clock.
  const bool launched = from > 1 && from <= here.wall_us;
  trace_.begin.wall_us = launched ? from : here.wall_us - here.cpu_us;
}

void Recorder::stage_ends(std::string name) {
  if (on_) trace_.stages.push_back({std::move(name), clock_()});
}

std::string Recorder::for_child() const {
  return on_ ? std::to_string(clock_().wall_us) : "";
}

std::string Recorder::line(int64_t attempt) const {
  if (!on_) return {};
  Trace trace = trace_;
  trace.attempt = attempt;
  return to_line(trace);
}

void Recorder::begin_again() {
  if (!on_) return;
  trace_.begin = clock_();
  trace_.stages.clear();
}

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

void append_line(const std::string& file, int64_t attempt) {
  const std::string line = recorder().line(attempt);
  if (line.empty()) return;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] const auto ignored = write(fd, line.data(), line.size());
  close(fd);
}

}  // namespace dsj::startup
