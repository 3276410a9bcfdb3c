#include "operator/run.h"

#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "common/log.h"
#include "job/contract.h"
#include "kube/lease.h"
#include "kube/reflector.h"
#include "operator/act/events.h"
#include "operator/act/trial.h"
#include "operator/observe/pace.h"
#include "operator/serve/controller.h"
#include "operator/serve/counted_transport.h"
#include "operator/serve/health_server.h"
#include "operator/serve/leader_transport.h"
#include "operator/serve/metrics.h"
#include "operator/serve/metrics_server.h"
#include "operator/webhook/webhook.h"

namespace dsj::op {
namespace {

constexpr Milliseconds kIdle{1000};
/// Objects per page of a list. One page is in memory at a time, as text and as JSON; a node may
/// have 50 KB.
constexpr int64_t kPage = 100;
/// After this time without work, free memory is returned to the system.
constexpr Milliseconds kTrimAfter{5'000};

/// Shorter than the webhook's timeout.
constexpr kube::ClientOptions kReviewing{
    .attempts = 1, .deadline = Milliseconds(2'500), .request_timeout = Milliseconds(2'500)};

Time wall_of(const kube::Clock& clock) {
  return std::chrono::floor<Milliseconds>(clock.wall());
}

/// The cluster's public token keys, read once an hour; empty if they cannot be read.
class TokenKeys {
 public:
  TokenKeys(kube::Transport& transport, kube::Clock& clock)
      : transport_(transport), clock_(clock) {}

  std::string get() {
    const std::lock_guard lock(mutex_);
    if (read_at_ && clock_.monotonic() - *read_at_ < (keys_.empty() ? kAgain : kHour)) return keys_;
    read_at_ = clock_.monotonic();
    const auto answer = transport_.call({.path = "/openid/v1/jwks", .timeout = kPatience}, {});
    if (answer && answer->status == 200) {
      keys_ = answer->body;
    } else {
      log::warn(
          "the cluster's token keys (/openid/v1/jwks) cannot be read, agents ask themselves: " +
          (answer ? "HTTP " + std::to_string(answer->status) : answer.error().message));
    }
    return keys_;
  }

 private:
  static constexpr Milliseconds kHour{3'600'000}, kAgain{60'000}, kPatience{5'000};
  kube::Transport& transport_;
  kube::Clock& clock_;
  std::mutex mutex_;
  std::string keys_;
  std::optional<Milliseconds> read_at_;
};

class Process {
 public:
  Process(const Options& options, kube::Transport& transport, kube::Clock& clock,
          std::string own_namespace, const kube::Cancel& stop)
      : options_(options),
        clock_(clock),
        own_namespace_(std::move(own_namespace)),
        stop_(stop),
        counted_(transport, [this](const std::string& verb,
                                   const std::string& code) { metrics_.requested(verb, code); }),
        client_(counted_, clock),
        reviewing_(counted_, clock, kReviewing),
        leaders_(counted_, [this] { return may_write(); }),
        writer_(leaders_, clock),
        keys_(counted_, clock),
        cache_([this](const std::string& key) { queue_.add(key, clock_.monotonic()); }),
        events_(client_, clock, identity()),
        controller_(writer_, cache_, queue_, events_,
                    {.settings = options.settings,
                     .may_write = [this] { return may_write(); },
                     .token_keys = [this] { return keys_.get(); },
                     .trials = trials_,
                     .creates_at_once = kCreatesAtOnce},
                    metrics_) {}

  Status run() {
    std::unique_ptr<Webhook> webhook;
    if (!options_.webhook_configuration.empty() || !options_.webhook_certificates.empty()) {
      DSJ_TRY(webhook, Webhook::start(
                           {.address = options_.webhook_address,
                            .configuration = options_.webhook_configuration,
                            .certificates = options_.webhook_certificates,
                            .names = options_.webhook_hosts,
                            .identity = identity(),
                            .try_pods = [this](const Json& job) { return try_pods(job); },
                            .read_only_root = webhooks_read_only_root()},
                           client_, clock_, [this](bool allowed) { metrics_.reviewed(allowed); }));
    }
    std::unique_ptr<HttpListener> health;
    if (!options_.health_address.empty()) {
      DSJ_TRY(health, serve_health(options_.health_address, answers(webhook.get())));
    }
    std::unique_ptr<HttpListener> metrics;
    if (!options_.metrics_address.empty()) {
      DSJ_TRY(metrics, serve_metrics(options_.metrics_address, identity(), counted_, clock_,
                                     [this] { return metrics_text(); }));
    }
    start_reflectors();
    {
      if (options_.leader_election) {
        set_lease(std::make_shared<kube::LeaseThread>(
            counted_, clock_, lease_options(),
            kube::LeaseThread::Hooks{
                .on_change = [this](bool leads) { lead(leads); },
                .on_failure = [this](const kube::ApiError& error) { election_failed(error); }}));
      } else {
        lead(true);
      }
      std::vector<std::thread> workers;
      for (int i = 0; i < options_.workers; ++i) {
        workers.emplace_back([this, first = i == 0] { work(first); });
      }
      for (auto& worker : workers) worker.join();
    }
    set_lease(nullptr);  // only now, when nothing is written any more
    for (auto& thread : reflecting_) thread.join();
    log::info("stopped");
    return {};
  }

 private:
  std::string identity() const {
    if (!options_.identity.empty()) return options_.identity;
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return std::string(name) + "-" + std::to_string(getpid());
  }

  kube::LeaseOptions lease_options() const {
    return {.ns = options_.lease_namespace.empty() ? own_namespace_ : options_.lease_namespace,
            .name = options_.lease_name,
            .identity = identity()};
  }

  /// nullopt: the default template may contain the mount that a job lacks.
  std::optional<bool> webhooks_read_only_root() const {
    if (!options_.settings.default_template.empty()) return std::nullopt;
    return read_only_root(options_.settings);
  }

  /// A ConfigMap or template is not read here; the condition Accepted reports on it.
  PodAnswer try_pods(const Json& object) {
    const JobView job = job_view(object);
    const Verdict verdict = judge(job.name, job.spec, std::nullopt, "");
    if (!verdict.accepted) return {};
    return trials_->try_pod(reviewing_, job, options_.settings, *verdict.accepted, wall_of(clock_));
  }

  std::string metrics_text() { return metrics_.text(cache_, queue_, leads()); }

  HealthAnswers answers(const Webhook* webhook) {
    HealthAnswers answers{.not_ready = [this, webhook] { return not_ready(webhook); }};
    if (options_.metrics_address.empty()) {
      answers.metrics = [this] { return metrics_text(); };
    }
    return answers;
  }

  std::string not_ready(const Webhook* webhook) const {
    if (!cache_.synced()) return "the caches are not filled";
    if (webhook != nullptr && !webhook->ready()) return "the webhook is not published";
    const auto held = lease();
    if (held == nullptr) return "";
    const Milliseconds silence = held->silence();
    if (silence < 2 * lease_options().duration) return "";
    return "the Lease could not be read or written for " + std::to_string(silence.count() / 1000) +
           " s";
  }

  /// Compares times, so that a Lease request that hangs does not extend the leadership.
  bool leads() const {
    if (!options_.leader_election) return true;
    const auto held = lease();
    return held != nullptr && held->leads();
  }

  std::shared_ptr<kube::LeaseThread> lease() const {
    const std::lock_guard lock(lease_mutex_);
    return lease_;
  }
  void set_lease(std::shared_ptr<kube::LeaseThread> lease) {
    {
      const std::lock_guard lock(lease_mutex_);
      lease_.swap(lease);
    }  // the old one is destroyed outside the lock
  }

  bool may_write() const { return leads() && !stop_.cancelled(); }

  void election_failed(const kube::ApiError& error) {
    metrics_.election_failed(error.reason.empty() ? "Network" : error.reason);
    log::warn("the Lease " + lease_options().name + ": " + error.to_string());
  }

  void lead(bool leads) {
    log::info(leads ? "leading" : "not leading");
    controller_.forget();
    if (leads) {
      for (const std::string& key : cache_.keys()) queue_.add(key, clock_.monotonic());
    }
    queue_.wake();
  }

  void reflect(const kube::Resource& resource, const std::string& ns, bool ours) {
    kube::ReflectorOptions options{.ns = ns};
    options.select.page = kPage;
    if (ours) {
      options.select.label_selector =
          std::string(contract::kLabelManagedBy) + "=" + contract::kOperatorManager;
    }
    options.on_failure = [this, kind = resource.kind](const kube::ApiError& error) {
      metrics_.watch_failed(error.reason.empty() ? "Network" : error.reason);
      log::warn("watching " + kind + ": " + error.to_string());
    };
    reflectors_.push_back(std::make_unique<kube::Reflector>(client_, clock_, resource, options,
                                                            cache_.sink(resource.kind, ns)));
  }

  void start_reflectors() {
    using namespace kube::resources;
    const auto namespaces =
        options_.namespaces.empty() ? std::vector<std::string>{""} : options_.namespaces;
    for (const std::string& ns : namespaces) {
      reflect(jobs_resource(), ns, false);
      for (const auto& resource :
           {pods(), config_maps(), services(), service_accounts(), roles(), role_bindings()}) {
        reflect(resource, ns, true);
      }
      if (options_.settings.network_policy) reflect(network_policies(), ns, true);
      if (options_.settings.volcano) reflect(pod_groups_resource(), ns, true);
    }
    if (options_.watch_nodes) reflect(nodes(), "", false);
    for (auto& reflector : reflectors_) {
      reflecting_.emplace_back([this, &reflector] { reflector->run(stop_); });
    }
  }

  void work(bool trims) {
    while (!stop_.cancelled()) {
      const bool may = leads() && cache_.synced();
      if (may && controller_.step(clock_, wall_of(clock_))) {
        worked_at_ = clock_.monotonic();
        continue;
      }
      const Milliseconds worked = worked_at_;
      if (trims && worked.count() > 0 && clock_.monotonic() - worked > kTrimAfter) {
        malloc_trim(0);
        worked_at_ = Milliseconds(0);
      }
      if (may) {
        queue_.wait(clock_.monotonic(), kIdle);
      } else {
        stop_.wait_for(Milliseconds(50));
      }
    }
  }

  const Options& options_;
  kube::Clock& clock_;
  const std::string own_namespace_;
  const kube::Cancel& stop_;
  Metrics metrics_;
  CountedTransport counted_;
  kube::Client client_;
  kube::Client reviewing_;  ///< for the webhook, while an API server waits
  LeaderTransport leaders_;
  kube::Client writer_;  ///< for the controller
  TokenKeys keys_;
  const std::shared_ptr<PodTrials> trials_ = std::make_shared<PodTrials>();
  Queue queue_{kRest};
  Cache cache_;
  KubeEvents events_;
  Controller controller_;
  mutable std::mutex lease_mutex_;
  std::shared_ptr<kube::LeaseThread> lease_;               ///< null without election or lease
  std::atomic<Milliseconds> worked_at_ = Milliseconds(0);  ///< 0 after memory was returned
  std::vector<std::unique_ptr<kube::Reflector>> reflectors_;
  std::vector<std::thread> reflecting_;
};

}  // namespace

Status run_operator(const Options& options, kube::Transport& transport, kube::Clock& clock,
                    const std::string& own_namespace, const kube::Cancel& stop) {
  return Process(options, transport, clock, own_namespace, stop).run();
}

}  // namespace dsj::op
