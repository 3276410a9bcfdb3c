#include "agent/status/trainer_status.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "agent/status/status_publisher.h"
#include "common/cut_text.h"
#include "common/files/posix_files.h"
#include "common/text.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

/// Limits of Trainer's CRD: the length of a metric's name and value, and their number.
constexpr size_t kMetricBytesMax = 64, kMetricsMax = 256;
constexpr size_t kFileBytesMax = 1 << 20;
constexpr Time kAnswer{10'000}, kEndAgain{1'000};

std::string metric_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return json(value).dump();
}

using Metrics = std::map<std::string, std::string>;

void put(Metrics& metrics, const char* name, const std::optional<double>& value) {
  if (value) metrics[name] = metric_text(*value);
}

void put(Metrics& metrics, const std::optional<std::map<std::string, double>>& more) {
  if (!more) return;
  for (const auto& [name, value] : *more)
    if (!name.empty()) metrics[text::first_bytes(name, kMetricBytesMax)] = metric_text(value);
}

/// Numbers in Trainer's CRD have 32 bits.
int64_t counted(int64_t value, int64_t most) {
  return std::clamp<int64_t>(value, 0, most);
}

}  // namespace

Result<std::optional<TrainerServer>> trainer_server(
    const std::function<std::string(const char*)>& variable) {
  const std::string url = variable(kEnvTrainerUrl);
  std::string off = variable(kEnvTrainerOff);
  std::ranges::transform(off, off.begin(), [](unsigned char c) { return std::toupper(c); });
  if (url.empty() || off == "TRUE") return std::optional<TrainerServer>();
  const size_t host = url.starts_with("https://") ? 8 : std::string::npos;
  const size_t path = host == std::string::npos ? host : url.find('/', host);
  if (path == std::string::npos || path == host) {
    return bad_input("found \"" + url + "\", expected https://HOST[:PORT]/PATH", kEnvTrainerUrl,
                     "Kubeflow Trainer sets it; " + std::string(kEnvTrainerOff) +
                         "=TRUE switches the reports off");
  }
  TrainerServer server{.access = {.server = url.substr(0, path)}, .path = url.substr(path)};
  server.access.ca_file = variable(kEnvTrainerAuthorities);
  server.access.token_file = variable(kEnvTrainerToken);
  PosixFiles files;
  if (!server.access.ca_file.empty()) {
    DSJ_TRY(server.access.ca_pem, files.read_all(server.access.ca_file, kFileBytesMax));
  }
  return std::optional(std::move(server));
}

void TrainerBook::take(const report::Report& told, const std::string& now) {
  status_.take(told, now);
  if (const auto* step = std::get_if<report::Step>(&told)) {
    put(metrics_, "loss", step->loss);
    put(metrics_, "learning_rate", step->lr);
    put(metrics_, "grad_norm", step->grad_norm);
    put(metrics_, "tokens_per_second", step->tokens_per_second);
    put(metrics_, step->metrics);
  } else if (const auto* log = std::get_if<report::Log>(&told)) {
    put(metrics_, "epoch", log->epoch);
  } else if (const auto* eval = std::get_if<report::Eval>(&told)) {
    put(metrics_, "eval_loss", eval->loss);
    put(metrics_, eval->metrics);
  } else if (const auto* end = std::get_if<report::End>(&told)) {
    complete_ = end->exit_code == contract::kExitDone;
  }
}

json TrainerBook::body(const std::string& now) const {
  const report::Training& training = status_.training();
  json status = {{"lastUpdatedTime", now}};
  if (complete_) {
    status["progressPercentage"] = 100;
    status["estimatedRemainingSeconds"] = 0;
  } else {
    if (training.percentage || status_.step() == 0)
      status["progressPercentage"] = counted(training.percentage.value_or(0), 99);
    if (training.seconds_left)
      status["estimatedRemainingSeconds"] =
          counted(*training.seconds_left, std::numeric_limits<int32_t>::max());
  }
  for (const auto& [name, value] : metrics_) {
    if (status["metrics"].size() >= kMetricsMax) break;
    status["metrics"].push_back({{"name", name}, {"value", value}});
  }
  return {{"trainerStatus", std::move(status)}};
}

TrainerStatus::TrainerStatus(kube::Transport& server, kube::Clock& clock, std::string path,
                             Time interval)
    : server_(server), clock_(clock), path_(std::move(path)), interval_(interval), thread_([this] {
        run();
      }) {}

TrainerStatus::~TrainerStatus() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  cancel_.cancel();
  wake_.notify_all();
  thread_.join();
}

void TrainerStatus::report(const report::Report& told) {
  {
    const std::lock_guard lock(mutex_);
    book_.take(told, rfc3339(clock_.wall()));
    news_ = book_.begun();
    ending_ |= std::holds_alternative<report::End>(told);
    urgent_ |= ending_ || std::holds_alternative<report::Attempt>(told);
  }
  wake_.notify_all();
}

void TrainerStatus::finish(Time most) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, most, [this] { return !posting_ && !news_; });
}

std::optional<std::string> TrainerStatus::take_problem() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_problem_, std::nullopt);
}

void TrainerStatus::run() {
  std::unique_lock lock(mutex_);
  std::optional<Time> posted;
  while (!stop_) {
    const Time now = clock_.monotonic();
    const Time pause = ending_ ? std::min(interval_, kEndAgain) : interval_;
    const bool due = news_ && (urgent_ || !posted || now - *posted >= pause);
    if (!due) {
      wake_.wait_for(lock, Time(100));  // a test may move the clock
      continue;
    }
    const std::string body =
        book_.body(rfc3339(clock_.wall())).dump(-1, ' ', false, json::error_handler_t::replace);
    news_ = urgent_ = false;
    posting_ = true;
    lock.unlock();
    const bool taken = post(body);
    lock.lock();
    posting_ = false;
    news_ |= !taken;
    posted = clock_.monotonic();
    wake_.notify_all();
  }
}

bool TrainerStatus::post(const std::string& body) {
  const auto answer = server_.call({.method = "POST",
                                    .path = path_,
                                    .content_type = "application/json",
                                    .body = body,
                                    .timeout = kAnswer},
                                   cancel_);
  std::string problem;
  if (!answer)
    problem = answer.error().message;
  else if (answer->status / 100 != 2)
    problem = "the server answered " + std::to_string(answer->status) + " " +
              text::first_bytes(answer->body, 300);
  const bool is_new = std::exchange(last_problem_, problem) != problem;
  if (is_new && !problem.empty() && !cancel_.cancelled()) {
    const std::lock_guard lock(mutex_);
    new_problem_ = problem;
  }
  return problem.empty() ||
         (answer && answer->status / 100 == 4);  // a retry would be refused again
}

}  // namespace dsj::agent
