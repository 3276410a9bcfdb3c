#include "tests/operator/sim/sim_operator.h"

#include "job/contract.h"

namespace dsj::op::sim {
namespace {

using kube::NetError;

std::unexpected<NetError> cut() {
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

}  // namespace

std::expected<kube::Response, NetError> FaultyTransport::call(const kube::Request& asked,
                                                              const kube::Cancel& cancel) {
  kube::Request request = asked;
  if (bug_ && bug_->rewrite) bug_->rewrite(request);
  const bool write = request.method != "GET";
  const bool here = write && kill_at_write >= 0 && kill_at_write-- == 0;
  if (write) {
    ++writes;
    if (watch_writes) watch_writes(request);
  }
  if ((here && !kill_after_it) || (write && chance_.happens(faults.kill_before))) throw Killed{};
  if (chance_.happens(faults.lose_request)) return cut();
  if (chance_.happens(faults.refuse)) return refusal(chance_);
  auto response = inner_.call(request, cancel);
  if ((here && kill_after_it) || (write && chance_.happens(faults.kill_after))) throw Killed{};
  if (chance_.happens(faults.lose_answer)) return cut();
  return response;
}

std::expected<kube::StreamResponse, NetError> FaultyTransport::open(const kube::Request& request,
                                                                    const kube::Cancel& cancel) {
  if (chance_.happens(faults.lose_request)) return cut();
  if (chance_.happens(faults.refuse)) return kube::StreamResponse{refusal(chance_), nullptr};
  return inner_.open(request, cancel);
}

SimOperator::SimOperator(kube::Transport& server, SimClock& clock, Chance& chance, const Bug* bug)
    : transport(server, chance, bug),
      clock_(clock),
      client_(transport, clock, {.attempts = 2}),
      cache_([this](const std::string& key) { queue_.add(key, clock_.now); }),
      events_(told),
      controller_(client_, cache_, queue_, events_,
                  {.settings = {.volcano = true},
                   .may_write = [this] { return may_write(); },
                   .token_keys = nullptr,
                   .decide = bug && bug->decide ? bug->decide : reconcile},
                  watcher_),
      takes_held_leases_(bug && bug->takes_held_leases) {
  using namespace kube::resources;
  for (const auto& resource :
       {jobs_resource(), pods(), config_maps(), services(), service_accounts(), roles(),
        role_bindings(), network_policies(), pod_groups_resource(), nodes()}) {
    watches_.push_back({.resource = resource, .sink = &cache_.sink(resource.kind)});
  }
}

/// What kube::Reflector does with threads, one step at a time.
void SimOperator::pump(Watching& watching) {
  kube::ListOptions select;
  const bool ours = watching.resource.plural != contract::kPlural;
  if (ours && watching.resource.plural != "nodes") {
    select.label_selector =
        std::string(contract::kLabelManagedBy) + "=" + contract::kOperatorManager;
  }
  for (int i = 0; i < 10 && clock_.now >= watching.not_before; ++i) {
    if (watching.lines) {
      if (!read(watching)) return;
      continue;
    }
    const auto next = watching.machine.next();
    if (const auto* wait = std::get_if<kube::WatchMachine::Wait>(&next)) {
      watching.not_before = clock_.now + wait->time;
    } else if (const auto* watch = std::get_if<kube::WatchMachine::Watch>(&next)) {
      select.resource_version = watch->resource_version;
      auto opened = client_.watch(watching.resource, "", select, Seconds(300), {});
      if (!opened) {
        watching.machine.open_failed(opened.error(), 0.5);
        continue;
      }
      watching.machine.opened();
      watching.lines = std::move(*opened);
    } else {
      watching.sink->list_begin();
      auto version = client_.list(watching.resource, "", select,
                                  [&](const Json& object) { watching.sink->listed(object); });
      if (version) {
        watching.sink->list_at(*version);
        watching.sink->list_done();
        watching.machine.listed(*version);
      } else {
        watching.sink->list_aborted();
        watching.machine.list_failed(version.error(), 0.5);
      }
    }
  }
}

/// False: the stream has nothing more for now.
bool SimOperator::read(Watching& watching) {
  for (;;) {
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
  kube::LeaseOptions options{.ns = "system", .name = "dsj-operator", .identity = identity};
  if (takes_held_leases_) options.duration = Milliseconds(1000);
  election_.emplace(options);
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
  for (Watching& watching : watches_) pump(watching);
}

void SimOperator::turn() {
  if (!deaf) look();
  elect();
  if (!may_write() || !cache_.synced()) return;
  for (int i = 0; i < 50; ++i) {
    if (!controller_.step(clock_.now, clock_.at() + skew)) return;
    if (!deaf) look();
  }
}

}  // namespace dsj::op::sim
