#include "tests/operator/sim/sim_operator.h"

#include <algorithm>

#include "job/contract.h"

namespace dsj::op::sim {
namespace {

using kube::NetError;

std::unexpected<NetError> no_answer() {
  return std::unexpected(NetError{NetError::Kind::Cut, "cut"});
}

kube::Response refusal(Chance& chance) {
  static constexpr std::pair<int, const char*> kKinds[] = {{429, "TooManyRequests"},
                                                           {500, "InternalError"},
                                                           {503, "ServiceUnavailable"},
                                                           {409, "Conflict"}};
  const auto [code, reason] = kKinds[chance.below(4)];
  const Json body = {
      {"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", "injected"}};
  kube::Response response{.status = code, .body = body.dump()};
  if (code == 429) response.headers["retry-after"] = "1";
  return response;
}

kube::ListOptions selection(const kube::Resource& resource) {
  const bool all = resource.plural == contract::kPlural || resource.plural == "nodes";
  if (all) return {};
  return {.label_selector =
              std::string(contract::kLabelManagedBy) + "=" + contract::kOperatorManager};
}

}  // namespace

std::expected<kube::Response, NetError> FaultyTransport::call(const kube::Request& asked,
                                                              const kube::Cancel& cancel) {
  kube::Request request = asked;
  if (bug_ && bug_->rewrite) bug_->rewrite(request);
  const bool write = request.method != "GET";
  const bool here = write && kill_at_write >= 0 && kill_at_write-- == 0;
  if (write && meanwhile && chance_.happens(0.2)) meanwhile();
  if (cut) return no_answer();
  if (bug_ && bug_->answer) {
    if (auto answer = bug_->answer(request)) return *answer;
  }
  if (write) {
    ++writes;
    if (watch_writes) watch_writes(request);
  }
  if ((here && !kill_after_it) || (write && chance_.happens(faults.kill_before))) throw Killed{};
  if (chance_.happens(faults.lose_request)) return no_answer();
  if (chance_.happens(faults.refuse)) return refusal(chance_);
  auto response = inner_.call(request, cancel);
  conflicts += response && response->status == 409;
  const bool key = request.method == "POST" && request.path.ends_with("/secrets");
  const double killed = key ? faults.kill_after_key : faults.kill_after;
  if ((here && kill_after_it) || (write && chance_.happens(killed))) throw Killed{};
  if (chance_.happens(faults.lose_answer)) return no_answer();
  return response;
}

std::expected<kube::StreamResponse, NetError> FaultyTransport::open(const kube::Request& request,
                                                                    const kube::Cancel& cancel) {
  if (cut || chance_.happens(faults.lose_request)) return no_answer();
  if (chance_.happens(faults.refuse)) return kube::StreamResponse{refusal(chance_), nullptr};
  return inner_.open(request, cancel);
}

/// Passes on what the watches bring, with a defect.
class SimOperator::PlantedSink final : public kube::Sink {
 public:
  PlantedSink(kube::Sink& inner, const CacheBugs& bugs, bool of_pods)
      : inner_(inner), bugs_(bugs), of_pods_(of_pods) {}

  void list_begin() override {
    if (!only_adds()) inner_.list_begin();
  }
  void listed(const Json& object) override {
    only_adds() ? inner_.upserted(object) : inner_.listed(object);
  }
  bool list_at(const std::string& version) override {
    return only_adds() || inner_.list_at(version);
  }
  void list_done() override {
    if (!only_adds()) inner_.list_done();
    filled_ = true;
  }
  void list_aborted() override { inner_.list_aborted(); }
  void upserted(const Json& object) override {
    inner_.upserted(object);
    if (!bugs_.takes_old_pods || !of_pods_) return;
    const std::string name = object["metadata"]["name"];
    if (auto old = before_.find(name); old != before_.end()) inner_.upserted(old->second);
    Json aged = object;
    aged["metadata"]["resourceVersion"] = "old";  // which the cache cannot tell from a newer one
    before_[name] = std::move(aged);
  }
  void deleted(const Json& object) override {
    before_.erase(object["metadata"]["name"]);
    if (!bugs_.ignores_deletions) inner_.deleted(object);
  }

 private:
  bool only_adds() const { return bugs_.keeps_what_is_gone && filled_; }
  kube::Sink& inner_;
  const CacheBugs bugs_;
  const bool of_pods_;
  bool filled_ = false;
  std::map<std::string, Json> before_;
};

/// Brings the server's answers to the cache some seconds late, past its own checks.
class SimOperator::PlantedWrites final : public Writes {
 public:
  explicit PlantedWrites(SimOperator& op) : op_(op) {}
  void wrote(const std::string& kind, const Json& object) override {
    op_.cache_.wrote(kind, object);
    if (kind == "Pod") late_.push_back({op_.clock_.now + Milliseconds(20'000), object});
  }
  void bring() {
    while (!late_.empty() && late_.front().first <= op_.clock_.now) {
      op_.sinks_.at("Pod")->upserted(late_.front().second);
      late_.erase(late_.begin());
    }
  }

 private:
  SimOperator& op_;
  std::vector<std::pair<Milliseconds, Json>> late_;
};

SimOperator::SimOperator(kube::Transport& server, SimClock& clock, Chance& chance, const Bug* bug,
                         std::string default_template)
    : transport(server, chance, bug),
      default_template_(std::move(default_template)),
      clock_(clock),
      chance_(chance),
      bug_(bug ? *bug : Bug{}),
      client_(transport, clock, {.attempts = 2}),
      queue_(bug_.queue.rests_for_minutes ? Milliseconds(300'000) : kRest),
      cache_([this](const std::string& key) { changed(key); }),
      events_(*this),
      controller_(client_, cache_, queue_, events_, options(), watcher_) {
  using namespace kube::resources;
  for (const auto& resource :
       {jobs_resource(), pods(), config_maps(), services(), service_accounts(), roles(),
        role_bindings(), network_policies(), pod_groups_resource(), nodes()}) {
    watches_.push_back({.resource = resource, .sink = sink_of(resource)});
  }
  transport.meanwhile = [this] {
    if (scattered && !deaf) look();
  };
}

SimOperator::~SimOperator() = default;

void SimOperator::changed(const std::string& key) {
  if (bug_.queue.loses_changes_in_a_pass && in_pass_) return;
  queue_.add(key, clock_.now);
}

kube::Sink* SimOperator::sink_of(const kube::Resource& resource) {
  kube::Sink& own = cache_.sink(resource.kind);
  sinks_[resource.kind] = &own;
  planted_.push_back(std::make_unique<PlantedSink>(own, bug_.cache, resource.kind == "Pod"));
  return planted_.back().get();
}

ControllerOptions SimOperator::options() {
  return {.settings = {.volcano = true, .default_template = default_template_},
          .may_write = [this] { return may_write(); },
          .token_keys = nullptr,
          .decide = bug_.decide ? bug_.decide : reconcile,
          .creates_at_once = kCreatesAtOnce,
          .crew = [this](int at_once, const ClaimTask& claim,
                         const CarryTask& carry) { crew(at_once, claim, carry); },
          .carry_out = carry_out()};
}

CarryOut SimOperator::carry_out() {
  if (!bug_.cache.takes_late_answers) return bug_.carry_out;
  writes_ = std::make_unique<PlantedWrites>(*this);
  return [this](kube::Client& client, const Observed& observed, const Plan& plan,
                const std::function<bool()>& may_write, Writes&, EventSink& events) {
    return apply(client, observed, plan, may_write, *writes_, events);
  };
}

/// What apply does on threads: some tasks are under way, and any of them may be next.
void SimOperator::crew(int at_once, const ClaimTask& claim, const CarryTask& carry) {
  std::vector<size_t> under_way;
  for (bool more = true; more || !under_way.empty();) {
    const size_t most = 1 + static_cast<size_t>(chance_.below(at_once));
    while (more && under_way.size() < most) {
      const auto task = claim();
      more = task.has_value();
      if (task) under_way.push_back(*task);
    }
    if (under_way.empty()) return;
    const auto at = under_way.begin() + chance_.below(static_cast<int>(under_way.size()));
    const size_t task = *at;
    under_way.erase(at);
    carry(task);
  }
}

/// What kube::Reflector does with threads, one step at a time.
void SimOperator::pump(Watching& watching) {
  for (int i = 0; i < 10 && clock_.now >= watching.not_before; ++i) {
    if (watching.listing) {
      if (!deliver(watching)) return;
      continue;
    }
    if (watching.lines) {
      if (!read(watching)) return;
      continue;
    }
    const auto next = watching.machine.next();
    if (const auto* wait = std::get_if<kube::WatchMachine::Wait>(&next)) {
      watching.not_before = clock_.now + wait->time;
    } else if (const auto* watch = std::get_if<kube::WatchMachine::Watch>(&next)) {
      kube::ListOptions select = selection(watching.resource);
      select.resource_version = watch->resource_version;
      auto opened = client_.watch(watching.resource, "", select, Seconds(300), {});
      if (!opened) {
        watching.machine.open_failed(opened.error(), 0.5);
        continue;
      }
      watching.machine.opened();
      watching.lines = std::move(*opened);
    } else {
      list(watching);
    }
  }
}

void SimOperator::list(Watching& watching) {
  watching.sink->list_begin();
  Watching::Listing listing;
  auto version = client_.list(watching.resource, "", selection(watching.resource),
                              [&](const Json& object) { listing.items.push_back(object); });
  if (!version) {
    watching.sink->list_aborted();
    watching.machine.list_failed(version.error(), 0.5);
    return;
  }
  listing.version = std::move(*version);
  watching.listing = std::move(listing);
}

bool SimOperator::listens() const {
  return std::ranges::all_of(watches_, [](const Watching& it) { return it.lines && !it.listing; });
}

/// Some objects of a list, or its end. False: the rest comes later.
bool SimOperator::deliver(Watching& watching) {
  auto& [items, next, version] = *watching.listing;
  const size_t most = scattered ? next + static_cast<size_t>(chance_.below(4)) : items.size();
  while (next < std::min(most, items.size())) watching.sink->listed(items[next++]);
  if (next < items.size() || (scattered && chance_.happens(0.3))) return false;
  if (!watching.sink->list_at(version)) {
    watching.sink->list_aborted();
    watching.listing.reset();
    return false;
  }
  watching.sink->list_done();
  watching.machine.listed(version);
  watching.listing.reset();
  return true;
}

/// False: the stream has nothing more for now.
bool SimOperator::read(Watching& watching) {
  for (;;) {
    if (scattered && chance_.happens(0.1)) return false;  // the rest comes later
    auto line = watching.lines->next(Milliseconds(0));
    if (!line && line.error().kind == NetError::Kind::Timeout) return false;
    std::optional<kube::ApiError> error;
    if (!line) error = kube::from_net(line.error());
    if (line && *line) {
      auto event = kube::parse_watch_event(**line);
      if (event && event->kind == kube::WatchEvent::Kind::Error) {
        error = kube::from_status_json(event->object.dump());
      } else if (event) {
        if (event->kind == kube::WatchEvent::Kind::Deleted) {
          watching.sink->deleted(event->object);
        } else if (event->kind != kube::WatchEvent::Kind::Bookmark) {
          watching.sink->upserted(event->object);
        }
        watching.machine.saw(event->object["metadata"].value("resourceVersion", ""));
        continue;
      }
    }
    watching.machine.ended(error, 0.5);
    watching.lines.reset();
    return true;
  }
}

void SimOperator::take_part_in_election(const std::string& identity) {
  lease_ = {.ns = "system", .name = "dsj-operator", .identity = identity};
  if (bug_.lease.takes_held) lease_.duration = Milliseconds(1000);
  if (bug_.lease.leads_without_renewal) lease_.renew = Milliseconds(1'000'000);
  election_.emplace(lease_);
}

bool SimOperator::may_write() const {
  return leads && (!election_ || election_->leads(clock_.now));
}

/// What kube::LeaseThread does with a thread, one round at a time.
void SimOperator::elect() {
  if (!election_ || clock_.now < elects_at_) return;
  elects_at_ = clock_.now + Milliseconds(2000);
  using kube::resources::leases;
  const Milliseconds asked_at = clock_.now;
  const auto found = client_.get(leases(), "system", "dsj-operator");
  if (!found && found.error().kind != kube::ApiError::Kind::NotFound) return;
  const auto record = found ? kube::lease_record(*found) : std::nullopt;
  if (!record && bug_.lease.forgets_the_holder) election_.emplace(lease_);
  const auto move = election_->decide(record, clock_.now);
  if (move == kube::Election::Move::Wait) return;
  const Json object = election_->object(move, record, kube::micro_time(clock_.wall()));
  const auto written = move == kube::Election::Move::Create
                           ? client_.create(leases(), "system", object)
                           : client_.replace(leases(), "system", object);
  if (!written) return;
  election_->decide(kube::lease_record(*written), clock_.now);
  election_->wrote(asked_at);
}

void SimOperator::look() {
  if (writes_) writes_->bring();
  if (!scattered) {
    for (Watching& watching : watches_) pump(watching);
    return;
  }
  std::vector<Watching*> order;
  for (Watching& watching : watches_) order.push_back(&watching);
  for (size_t left = order.size(); left > 0; --left) {
    std::swap(order[left - 1], order[chance_.below(static_cast<int>(left))]);
    if (!chance_.happens(0.2)) pump(*order[left - 1]);
  }
}

void SimOperator::turn() {
  transport.cut = clock_.now < cut_until;
  if (!deaf) look();
  elect();
  if (!may_write() || !cache_.synced()) return;
  for (int i = 0; i < 50; ++i) {
    in_pass_ = true;
    const bool worked = controller_.step(clock_, clock_.at() + skew);
    in_pass_ = false;
    if (!worked) return;
    if (!deaf) look();
  }
}

}  // namespace dsj::op::sim
