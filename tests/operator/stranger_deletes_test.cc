// Whatever somebody deletes of what the operator made for a job, and whenever: the job ends as it must, and nobody
// waits for what does not come. Agents and kubelets of the simulation need every object here, as real ones do.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/json.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/observe/own_status.h"
#include "operator/render/render_config.h"
#include "tests/operator/sim/job_run.h"
#include "tests/operator/sim/sim_operator.h"

namespace dsj::op::sim {
namespace {

constexpr int kTurnsMax = 1500, kRestTurns = 40;
/// An agent waits half an hour for worker 0. No job may take that long because of an object.
constexpr int kTurnsWithADeletion = 600;
constexpr const char* kKinds[] = {"Secret",         "ConfigMap", "Service",
                                  "ServiceAccount", "Role",      "RoleBinding",
                                  "NetworkPolicy",  "PodGroup",  "Pod"};

/// One job, one operator, nothing else goes wrong.
class Strangers {
 public:
  Strangers(uint64_t seed, Scenario scenario, const Bug* bug = nullptr)
      : chance_(seed), platform_(prepared(), clock_, chance_) {
    server_.set_wall([this] { return std::chrono::floor<Seconds>(clock_.at()); });
    user_.emplace(server_, clock_);
    operator_.emplace(server_, clock_, chance_, bug);
    job_.emplace(server_, clock_, chance_, platform_, "j", scenario, AgentBugs{});
    job_->be_strict();
    operator_->transport.watch_writes = [this](const kube::Request& request) {
      job_->observe_write(request);
    };
    operator_->watch_events = [this](const JobView& of, const Event& event) {
      job_->observe_event(of, event);
    };
  }

  /// `meddle` is called in each turn and says whether it changed anything.
  std::vector<std::string> run(const std::function<void(Strangers&, int)>& meddle) {
    play(meddle);
    // The first pod that misses its key says so, and the operator makes another.
    if (job_->keyless() > meddled_) {
      job_->problems.push_back(std::to_string(job_->keyless()) + " pods found no key after " +
                               std::to_string(meddled_) + " deletions");
    }
    return job_->problems;
  }
  int64_t keyless() const { return job_->keyless(); }

  /// How many objects it deleted.
  int remove_all(const std::string& kind) {
    int count = 0;
    ++meddled_;
    for (const auto& object : server_.shown(resource_of(kind))) {
      if (label_of(*object, contract::kLabelJobName) != "j") continue;
      kube::DeleteOptions options;
      if (kind == "Pod") options.grace_seconds = 0;
      count += user_->remove(resource_of(kind), kNamespace, (*object)["metadata"]["name"], options)
                   .has_value();
    }
    return count;
  }
  /// kubectl delete pod, at once.
  void remove_worker_zero() { remove_worker(0); }
  void remove_worker(int worker) {
    for (const auto& object : server_.shown(resource_of("Pod"))) {
      if (label_of(*object, contract::kLabelReplicaIndex) != std::to_string(worker)) continue;
      kube::DeleteOptions options;
      options.grace_seconds = 0;
      (void)user_->remove(resource_of("Pod"), kNamespace, (*object)["metadata"]["name"], options);
    }
  }
  int turns() const { return turn_; }
  bool trains() const {
    const auto jobs = server_.shown(jobs_resource());
    return !jobs.empty() && json_text(json_child(*jobs[0], "status"), "phase") == "Running";
  }
  std::set<std::string> pods() const {
    std::set<std::string> all;
    for (const auto& pod : server_.shown(resource_of("Pod"))) all.insert((*pod)["metadata"]["uid"]);
    return all;
  }

  /// What the operator of the release before would have made: a set of keys is a ConfigMap with the
  /// authorities, which all pods mount, and a Secret for each of four slots. Then this operator takes
  /// over.
  void upgrade() {
    const Json metadata = {{"namespace", kNamespace}};
    for (const auto& object : server_.shown(resource_of("Secret")))
      (void)user_->remove(resource_of("Secret"), kNamespace, (*object)["metadata"]["name"]);
    const auto job = server_.shown(jobs_resource())[0];
    JobView view = job_view(*job);
    Json map = {{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", metadata_of(view, "j-keys-1")},
                {"data", {{"authority-0.pem", "PEM"}}}};
    map["metadata"]["labels"][contract::kLabelKeys] = "1";
    EXPECT_TRUE(user_->create(resource_of("ConfigMap"), kNamespace, map));
    EXPECT_TRUE(user_->create(resource_of("Secret"), kNamespace,
                              {{"apiVersion", "v1"},
                               {"kind", "Secret"},
                               {"type", contract::kKeySecretType},
                               {"metadata", metadata_of(view, "j-dsj-key-1-0")}}));
    for (const auto& pod : server_.shown(resource_of("Pod")))
      server_.edit(resource_of("Pod"), kNamespace, (*pod)["metadata"]["name"], as_before);
    server_.edit(jobs_resource(), kNamespace, "j", [](Json& object) {
      object["status"].erase(kKeyRun);
      object["status"].erase(kKeyUid);
    });
    operator_.emplace(server_, clock_, chance_, nullptr);
    operator_->transport.watch_writes = [this](const kube::Request& request) {
      job_->observe_write(request);
    };
  }

 private:
  static void as_before(Json& pod) {
    Json& container = pod["spec"]["containers"][0];
    Json env = Json::array({{{"name", "DSJ_JOIN_TLS"}, {"value", "true"}}});
    for (const Json& entry : container["env"])
      if (entry["name"] != contract::kEnvJoinRun && entry["name"] != contract::kEnvJoinAuthority)
        env.push_back(entry);
    container["env"] = env;
    pod["metadata"]["labels"][contract::kLabelKeys] = "1";
    Json volumes = Json::array();
    for (const Json& volume : pod["spec"]["volumes"])
      if (volume["name"] != kJoinKeyVolume) volumes.push_back(volume);
    Json sources = Json::array({{{"configMap", {{"name", "j-keys-1"}}}}});
    const bool zero = label_of(pod, contract::kLabelReplicaIndex) == "0";
    for (int slot = 0; zero && slot < 4; ++slot)
      sources.push_back(
          {{"secret", {{"name", "j-dsj-key-1-" + std::to_string(slot)}, {"optional", true}}}});
    volumes.push_back({{"name", kJoinKeyVolume}, {"projected", {{"sources", sources}}}});
    pod["spec"]["volumes"] = volumes;
  }
  void play(const std::function<void(Strangers&, int)>& meddle) {
    int rest = 0;
    for (turn_ = 0; turn_ < kTurnsMax && rest < kRestTurns; ++turn_) {
      clock_.now += Seconds(1);
      job_->turn(turn_, false);
      meddle(*this, turn_);
      operator_->turn();
      job_->check(false, true);
      if (!job_->problems.empty()) return;
      rest = job_->over() ? rest + 1 : 0;
    }
    job_->check_end(rest == kRestTurns);
  }

  kube::testing::FakeApiServer& prepared() {
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
    return server_;
  }

  SimClock clock_;
  Chance chance_;
  kube::testing::FakeApiServer server_;
  Platform platform_;
  std::optional<kube::Client> user_;
  std::optional<SimOperator> operator_;
  std::optional<JobRun> job_;
  int turn_ = 0;
  int64_t meddled_ = 0;
};

constexpr Scenario kThose[] = {Scenario::Plain, Scenario::Suspend, Scenario::Scale, Scenario::Fatal,
                               Scenario::TimeToLive};

void expect_good(const std::vector<std::string>& problems, const std::string& what) {
  for (const std::string& problem : problems) ADD_FAILURE() << what << ": " << problem;
}

/// Each kind at each moment of a job's life.
TEST(StrangerDeletes, OneKindAtAnyMomentAndTheJobEndsAsItMust) {
  spdlog::set_level(spdlog::level::off);
  int deleted = 0, latest = 0;
  for (const char* kind : kKinds) {
    for (int moment = 0; moment < 48 && !::testing::Test::HasFailure(); ++moment) {
      const uint64_t seed = 1000 + static_cast<uint64_t>(moment);
      const Scenario scenario = kThose[moment % std::size(kThose)];
      Strangers world(seed, scenario);
      expect_good(world.run([&](Strangers& it, int turn) {
        if (turn == moment) deleted += it.remove_all(kind);
      }),
                  std::string(kind) + " at " + std::to_string(moment));
      EXPECT_LT(world.turns(), kTurnsWithADeletion) << kind << " at " << moment;
      latest = std::max(latest, world.turns());
    }
  }
  EXPECT_GT(deleted, 300) << "there was nothing to delete";
  std::printf("result: %d objects deleted, the longest job took %d s\n", deleted, latest);
}

/// kubectl delete KINDS --all, now and then.
TEST(StrangerDeletes, SeveralKindsAtSeveralMoments) {
  spdlog::set_level(spdlog::level::off);
  for (uint64_t seed = 0; seed < 150 && !::testing::Test::HasFailure(); ++seed) {
    Chance chance(seed * 7 + 3);
    std::map<int, std::vector<std::string>> when;
    for (int times = 1 + chance.below(3); times > 0; --times) {
      auto& kinds = when[chance.below(60)];
      for (const char* kind : kKinds)
        if (chance.happens(0.4)) kinds.emplace_back(kind);
    }
    Strangers world(seed, kThose[seed % std::size(kThose)]);
    expect_good(world.run([&](Strangers& it, int turn) {
      for (const std::string& kind : when[turn]) it.remove_all(kind);
    }),
                "seed " + std::to_string(seed));
    EXPECT_LT(world.turns(), 2 * kTurnsWithADeletion) << seed;
  }
}

/// The Secret goes while worker 0 runs, which has mounted it, and some time later worker 0's pod: its successor finds none.
/// At each moment of a short job.
constexpr int kDraws = 100;
std::vector<std::string> lose_the_key(int draw, const Bug* bug, int64_t& keyless) {
  const int moment = draw / 4, wait = draw % 4;
  Strangers world(2000 + static_cast<uint64_t>(draw), kThose[draw % std::size(kThose)], bug);
  int secrets = 0;
  auto problems = world.run([&](Strangers& it, int turn) {
    if (turn == moment) secrets = it.remove_all("Secret");
    if (turn == moment + wait && secrets > 0) it.remove_worker_zero();
  });
  keyless += world.keyless();
  if (world.turns() >= kTurnsWithADeletion) problems.emplace_back("it took too long");
  return problems;
}

TEST(StrangerDeletes, AKeyThatIsGoneBeforeWorkerZerosSuccessorIsMadeAnew) {
  spdlog::set_level(spdlog::level::off);
  int64_t keyless = 0;
  for (int draw = 0; draw < kDraws && !::testing::Test::HasFailure(); ++draw)
    expect_good(lose_the_key(draw, nullptr, keyless), "draw " + std::to_string(draw));
  EXPECT_GT(keyless, 5) << "nobody missed a key";
  std::printf("result: %lld successors without a key\n", static_cast<long long>(keyless));
}

/// What the deletions must find.
TEST(StrangerDeletes, AnOperatorThatIgnoresAMissingKeyIsCaught) {
  spdlog::set_level(spdlog::level::off);
  const Bug bug{.name = "a key that an agent missed is not made anew",
                .decide = [](Observed observed, Time now) {
                  for (PodView& pod : observed.pods)
                    if (lacked_key(pod)) pod.termination->reason = contract::kReasonPreempted;
                  return reconcile(observed, now);
                }};
  int caught = 0;
  int64_t keyless = 0;
  for (int draw = 0; draw < kDraws; ++draw) caught += !lose_the_key(draw, &bug, keyless).empty();
  EXPECT_GT(caught, 5);
  std::printf("result: caught in %d of %d draws\n", caught, kDraws);
}

/// The operator is upgraded while a gang of the release before trains. It runs on; when it loses a pod, all begin again
/// with a key of this release, and the job ends as it must.
TEST(Upgrade, AGangOfTheReleaseBeforeRunsOnAndStartsAgainWhenItLosesAPod) {
  spdlog::set_level(spdlog::level::off);
  int upgraded = 0, lost = 0;
  for (int draw = 0; draw < 60 && !::testing::Test::HasFailure(); ++draw) {
    const int later = 1 + draw % 12;
    int at = -1;
    std::set<std::string> before;
    Strangers world(5000 + static_cast<uint64_t>(draw), kThose[draw % std::size(kThose)]);
    expect_good(world.run([&](Strangers& it, int turn) {
      if (at < 0 && it.trains()) {
        at = turn;
        it.upgrade();
        before = it.pods();
        ++upgraded;
      } else if (at >= 0 && turn == at + later && it.trains() && it.pods() == before) {
        draw % 2 == 0 ? it.remove_worker_zero() : it.remove_worker(1);
        ++lost;
      }
    }),
                "draw " + std::to_string(draw));
    EXPECT_LT(world.turns(), kTurnsWithADeletion) << draw;
    EXPECT_EQ(world.keyless(), 0) << draw;
  }
  EXPECT_GT(upgraded, 50);
  EXPECT_GT(lost, 20);
  std::printf("result: %d gangs upgraded, %d of them lost a pod\n", upgraded, lost);
}

}  // namespace
}  // namespace dsj::op::sim
