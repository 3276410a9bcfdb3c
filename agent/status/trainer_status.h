// Reports progress to a TrainJob of Kubeflow Trainer (2.2 and newer): its pods post to Trainer's
// own server, which writes status.trainerStatus. `dsj run` does this in worker 0's agent, like
// Hugging Face's KubeflowCallback: 0 % at the start, at most 99 % while it trains, 100 % at the end
// of a complete run. Training never waits for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "agent/status/reports.h"
#include "agent/wire/messages.h"
#include "job/report/training_status.h"
#include "kube/access.h"
#include "kube/clock.h"
#include "kube/http.h"

namespace dsj::agent {

/// Set by Trainer in every container of its pods: the URL, and files with the CA certificates and
/// the token.
inline constexpr char kEnvTrainerUrl[] = "KUBEFLOW_TRAINER_SERVER_URL";
inline constexpr char kEnvTrainerAuthorities[] = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
inline constexpr char kEnvTrainerToken[] = "KUBEFLOW_TRAINER_SERVER_TOKEN";
/// "TRUE" disables the reports; the switch is Hugging Face's.
inline constexpr char kEnvTrainerOff[] = "DISABLE_KUBEFLOW_INTEGRATION";

struct TrainerServer {
  kube::Access access;
  std::string path;  ///< path of the request
};

/// The server to report to; nullopt if this is not a TrainJob's pod or reports are disabled.
/// `variable` is getenv, and returns "" for unset variables. BadInput: the variables name no
/// server. Environment: one of the files cannot be read.
Result<std::optional<TrainerServer>> trainer_server(
    const std::function<std::string(const char*)>& variable);

/// Converts agent 0's reports to a trainerStatus. Pure.
class TrainerBook {
 public:
  TrainerBook() : status_(0, nullptr) {}
  void take(const report::Report& told, const std::string& now);
  /// The body of the request: {"trainerStatus": {...}}. `now`: RFC 3339.
  nlohmann::json body(const std::string& now) const;
  /// True once an attempt began, so that there is something to report.
  bool begun() const { return status_.attempt() > 0; }

 private:
  report::TrainingStatus status_;
  std::map<std::string, std::string> metrics_;  ///< with Hugging Face's names; values as text
  bool complete_ = false;
};

/// Posts on its own thread: news at most every `interval`, and an attempt's start and the end
/// immediately. Failed posts are retried.
class TrainerStatus final : public Reports {
 public:
  TrainerStatus(kube::Transport& server, kube::Clock& clock, std::string path,
                Time interval = Time(5'000));
  ~TrainerStatus() override;

  void report(const report::Report& told) override;
  bool flush() override { return false; }
  int fd() const override { return -1; }
  /// Why the server did not accept the progress, once per reason, for a warning of the run.
  std::optional<std::string> take_problem();
  /// Waits until the last reports are posted, or refused, for at most `most`.
  void finish(Time most);

 private:
  void run();
  /// Returns false if the post must be retried even without news.
  bool post(const std::string& body);

  kube::Transport& server_;
  kube::Clock& clock_;
  const std::string path_;
  const Time interval_;
  std::mutex mutex_;
  std::condition_variable wake_;
  TrainerBook book_;
  bool news_ = false, urgent_ = false, ending_ = false, posting_ = false, stop_ = false;
  std::string last_problem_;  ///< writing thread only
  std::optional<std::string> new_problem_;
  kube::Cancel cancel_;
  std::thread thread_;
};

}  // namespace dsj::agent
