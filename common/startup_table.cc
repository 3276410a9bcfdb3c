#include "common/startup_table.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "common/format.h"
#include "common/startup_trace.h"

namespace dsj::startup {
namespace {

constexpr char kDsj[] = "dsj", kAgent[] = "agent 0", kRankZero[] = "rank 0", kRank[] = "rank ";

bool is_rank(const Trace& trace) {
  return trace.process.starts_with(kRank);
}

Moment end_of(const Trace& trace) {
  return trace.stages.empty() ? trace.begin : trace.stages.back().end;
}

/// The traces of an attempt, one per process. dsj starts only the first attempt.
std::vector<Trace> traces_of(const std::string& lines, int64_t attempt) {
  std::vector<Trace> all, found;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);)
    if (auto trace = trace_from_line(line)) all.push_back(std::move(*trace));
  int64_t first = attempt;
  for (const Trace& trace : all)
    if (trace.attempt > 0) first = std::min(first, trace.attempt);
  for (Trace& trace : all) {
    const bool belongs = trace.attempt == attempt || (trace.attempt == 0 && attempt == first);
    if (belongs && std::ranges::find(found, trace.process, &Trace::process) == found.end())
      found.push_back(std::move(trace));
  }
  return found;
}

double milliseconds(int64_t microseconds) {
  return static_cast<double>(microseconds) / 1000;
}

std::string row(const std::string& process, const std::string& stage, int64_t from, int64_t took,
                int64_t cpu) {
  return text::format("  %-9s%-20s%10.0f%10.0f%10.0f\n", process.c_str(), stage.c_str(),
                      milliseconds(from), milliseconds(took), milliseconds(cpu));
}

std::string rows_of(const Trace& trace, int64_t zero_us) {
  std::string text;
  Moment before = trace.begin;
  for (const Stage& stage : trace.stages) {
    text += row(trace.process, stage.name, before.wall_us - zero_us,
                stage.end.wall_us - before.wall_us, stage.end.cpu_us - before.cpu_us);
    before = stage.end;
  }
  return text;
}

}  // namespace

std::optional<std::string> table(const std::string& lines, int64_t attempt, int ranks) {
  const std::vector<Trace> traces = traces_of(lines, attempt);
  const auto told = std::ranges::count_if(traces, is_rank);
  if (told < ranks || told == 0) return std::nullopt;
  const Trace* slowest = nullptr;
  int64_t zero = traces.front().begin.wall_us, end = zero, cpu = 0;
  for (const Trace& trace : traces) {
    zero = std::min(zero, trace.begin.wall_us);
    end = std::max(end, end_of(trace).wall_us);
    cpu += end_of(trace).cpu_us - trace.begin.cpu_us;
    if (!is_rank(trace)) continue;
    if (!slowest || end_of(trace).wall_us > end_of(*slowest).wall_us) slowest = &trace;
  }
  std::string text =
      text::format("start of attempt %lld, milliseconds\n  %-9s%-20s%10s%10s%10s\n",
                   static_cast<long long>(attempt), "process", "stage", "from", "wall", "cpu");
  for (const char* name : {kDsj, kAgent, kRankZero}) {
    const auto trace = std::ranges::find(traces, name, &Trace::process);
    if (trace != traces.end()) text += rows_of(*trace, zero);
  }
  if (slowest->process != kRankZero) text += rows_of(*slowest, zero);
  return text +
         row("all", std::to_string(told) + (told == 1 ? " rank" : " ranks"), 0, end - zero, cpu);
}

}  // namespace dsj::startup
