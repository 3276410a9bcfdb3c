#include "kube/lease.h"

#include <cstdio>
#include <ctime>

namespace dsj::kube {
namespace {

std::string text(const Json& spec, const char* key) {
  const auto found = spec.find(key);
  return found != spec.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string micro_time(std::chrono::system_clock::time_point time) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = micros / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32], out[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(out, sizeof out, "%s.%06dZ", date, static_cast<int>(micros % 1'000'000));
  return out;
}

std::optional<LeaseRecord> lease_record(const Json& lease) {
  const auto spec = lease.find("spec");
  LeaseRecord record;
  if (const auto metadata = lease.find("metadata"); metadata != lease.end()) {
    record.resource_version = text(*metadata, "resourceVersion");
  }
  if (spec == lease.end() || !spec->is_object()) return record;
  record.holder = text(*spec, "holderIdentity");
  record.renew_time = text(*spec, "renewTime");
  record.acquire_time = text(*spec, "acquireTime");
  if (const auto count = spec->find("leaseTransitions");
      count != spec->end() && count->is_number_integer()) {
    record.transitions = *count;
  }
  return record;
}

Election::Move Election::decide(const std::optional<LeaseRecord>& record, Milliseconds now) {
  if (!record) {
    // The lease was deleted. Its holder recreates it and continues to lead; for others it counts as
    // held until the holder must have stopped.
    const bool held = !seen_holder_.empty() && seen_holder_ != options_.identity;
    return held && now - seen_at_ < options_.duration ? Move::Wait : Move::Create;
  }
  if (record->holder != seen_holder_ || record->renew_time != seen_renew_time_) {
    seen_holder_ = record->holder;
    seen_renew_time_ = record->renew_time;
    seen_at_ = now;
  }
  if (record->holder == options_.identity) return Move::Renew;
  if (record->holder.empty() || now - seen_at_ >= options_.duration) return Move::Take;
  return Move::Wait;
}

void Election::wrote(Milliseconds asked_at) {
  renewed_at_ = asked_at;
}

bool Election::leads(Milliseconds now) const {
  return renewed_at_ && now - *renewed_at_ < options_.renew && seen_holder_ == options_.identity;
}

Json Election::object(Move move, const std::optional<LeaseRecord>& record,
                      const std::string& wall) const {
  Json spec = {
      {"holderIdentity", options_.identity},
      {"leaseDurationSeconds", options_.duration.count() / 1000},
      {"renewTime", wall},
      {"acquireTime",
       move == Move::Renew && !record->acquire_time.empty() ? record->acquire_time : wall},
      {"leaseTransitions", record ? record->transitions + (move == Move::Take ? 1 : 0) : 0}};
  Json metadata = {{"name", options_.name}, {"namespace", options_.ns}};
  if (record) metadata["resourceVersion"] = record->resource_version;
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", metadata},
          {"spec", spec}};
}

std::optional<Json> Election::released(const std::optional<LeaseRecord>& record,
                                       const std::string& wall) const {
  if (!record || record->holder != options_.identity) return std::nullopt;
  Json lease = object(Move::Renew, record, wall);
  lease["spec"]["holderIdentity"] = "";
  lease["spec"]["leaseDurationSeconds"] = 1;
  return lease;
}

LeaseThread::LeaseThread(Transport& transport, Clock& clock, LeaseOptions options, Hooks hooks)
    : clock_(clock),
      options_(options),
      // A read and a write fit into one renewal, and the next attempt is in time, too.
      client_(transport, clock,
              {.attempts = 1, .deadline = options.renew / 3, .request_timeout = options.renew / 3}),
      hooks_(std::move(hooks)),
      election_(options),
      went_well_at_(clock.monotonic()),
      thread_([this] { run(); }) {}

LeaseThread::~LeaseThread() {
  cancel_.cancel();
  thread_.join();
}

bool LeaseThread::leads() const {
  const std::lock_guard lock(mutex_);
  return leading_ && election_.leads(clock_.monotonic());
}

Milliseconds LeaseThread::silence() const {
  const std::lock_guard lock(mutex_);
  return clock_.monotonic() - went_well_at_;
}

void LeaseThread::set(bool leading) {
  {
    const std::lock_guard lock(mutex_);
    if (leading_ == leading) return;
    leading_ = leading;
  }
  hooks_.on_change(leading);
}

ApiResult<std::optional<LeaseRecord>> LeaseThread::read() {
  auto lease = client_.get(resources::leases(), options_.ns, options_.name, cancel_);
  if (lease) return lease_record(*lease);
  if (lease.error().kind == ApiError::Kind::NotFound) return std::nullopt;
  return std::unexpected(lease.error());
}

/// The error of a request; none if another process wrote or deleted the lease meanwhile.
std::optional<ApiError> LeaseThread::attempt() {
  const Milliseconds asked_at = clock_.monotonic();
  const auto record = read();
  if (!record) return record.error();
  Election::Move move;
  Json object;
  {
    const std::lock_guard lock(mutex_);
    move = election_.decide(*record, clock_.monotonic());
    if (move == Election::Move::Wait) return std::nullopt;
    object = election_.object(move, *record, micro_time(clock_.wall()));
  }
  const auto written = move == Election::Move::Create
                           ? client_.create(resources::leases(), options_.ns, object, cancel_)
                           : client_.replace(resources::leases(), options_.ns, object, cancel_);
  if (!written) {
    const auto kind = written.error().kind;
    const bool outrun = kind == ApiError::Kind::Conflict || kind == ApiError::Kind::AlreadyExists ||
                        kind == ApiError::Kind::NotFound;
    return outrun ? std::nullopt : std::optional(written.error());
  }
  const std::lock_guard lock(mutex_);
  election_.decide(lease_record(*written), clock_.monotonic());
  election_.wrote(asked_at);
  return std::nullopt;
}

void LeaseThread::run() {
  while (!cancel_.cancelled()) {
    const auto error = attempt();
    if (error && !error->cancelled() && hooks_.on_failure) hooks_.on_failure(*error);
    bool leading;
    {
      const std::lock_guard lock(mutex_);
      const Milliseconds now = clock_.monotonic();
      if (!error) went_well_at_ = now;
      leading = election_.leads(now);
    }
    set(leading);
    clock_.sleep(options_.retry, cancel_);
  }
  const bool led = leads();
  set(false);
  if (led) release();
}

void LeaseThread::release() {
  const Cancel fresh;
  auto lease = client_.get(resources::leases(), options_.ns, options_.name, fresh);
  if (!lease) return;
  const auto object = election_.released(lease_record(*lease), micro_time(clock_.wall()));
  if (object) (void)client_.replace(resources::leases(), options_.ns, *object, fresh);
}

}  // namespace dsj::kube
