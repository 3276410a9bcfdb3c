// The progress of a TrainJob of Kubeflow Trainer (2.2 and newer): whoever trains in its pods posts it to Trainer's own server,
// which writes it into status.trainerStatus. `dsj run` does so from worker 0's agent, as Hugging Face's KubeflowCallback does:
// 0 % at the start, at most 99 % while it trains, 100 % at the end of a run that is complete. Training never waits for it.
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

/// Set by Trainer in every container of its pods: the whole address, and files with the authorities and the token.
inline constexpr char kEnvTrainerUrl[] = "KUBEFLOW_TRAINER_SERVER_URL";
inline constexpr char kEnvTrainerAuthorities[] = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
inline constexpr char kEnvTrainerToken[] = "KUBEFLOW_TRAINER_SERVER_TOKEN";
/// "TRUE": Hugging Face's switch; nothing is reported.
inline constexpr char kEnvTrainerOff[] = "DISABLE_KUBEFLOW_INTEGRATION";

struct TrainerServer {
  kube::Access access;
  std::string path;  ///< of the request
};

/// Where to report to; nullopt: this is no TrainJob's pod, or it is switched off. `variable`: getenv, "" for what is not set.
/// BadInput: the variables name no server. Environment: a file of theirs cannot be read.
Result<std::optional<TrainerServer>> trainer_server(
    const std::function<std::string(const char*)>& variable);

/// What agent 0's reports say, as trainerStatus. Pure.
class TrainerBook {
 public:
  TrainerBook() : status_(0, nullptr) {}
  void take(const report::Report& told, const std::string& now);
  /// The body of the request: {"trainerStatus": {...}}. `now`: RFC 3339.
  nlohmann::json body(const std::string& now) const;
  /// An attempt began: there is something to report.
  bool begun() const { return status_.attempt() > 0; }

 private:
  report::TrainingStatus status_;
  std::map<std::string, std::string> metrics_;  ///< Hugging Face's names; values as text
  bool complete_ = false;
};

/// Posts on a thread of its own: what is new, `interval` apart, and an attempt's start and the end at once. What did not
/// arrive is tried again.
class TrainerStatus final : public Reports {
 public:
  TrainerStatus(kube::Transport& server, kube::Clock& clock, std::string path,
                Time interval = Time(5'000));
  ~TrainerStatus() override;

  void report(const report::Report& told) override;
  bool flush() override { return false; }
  int fd() const override { return -1; }
  /// Why the server did not take the progress, once for each reason; for a warning of the run's.
  std::optional<std::string> take_problem();
  /// Waits until the last reports are posted, or refused, for at most `most`.
  void finish(Time most);

 private:
  void run();
  /// False: it is tried again, whether there is news or not.
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
