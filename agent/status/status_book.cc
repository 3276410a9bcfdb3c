#include "agent/status/status_book.h"

#include <algorithm>

#include "common/cut_text.h"
#include "job/contract.h"
#include "job/report/field_value.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

/// The CRD's schema allows no nulls.
void drop_nulls(json& object) {
  for (auto it = object.begin(); it != object.end();) {
    it = it->is_null() ? object.erase(it) : std::next(it);
  }
}

json part(const json& object, const char* name) {
  const json& found = json_child(object, name);
  return found.is_object() ? found : json::object();
}

/// Adds the fields of `others` that `object` lacks.
void fill(json& object, const json& others) {
  for (const auto& [key, value] : others.items()) {
    if (!object.contains(key)) object[key] = value;
  }
}

size_t size_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace).size();
}

/// Cuts every text in `value` to `most` bytes.
void cut_texts(json& value, size_t most) {
  if (value.is_string() && value.get_ref<const std::string&>().size() > most) {
    value = text::first_bytes(value.get<std::string>(), most);
  } else if (value.is_structured()) {
    for (json& one : value) cut_texts(one, most);
  }
}

/// The key of the resolved ds_config in status.training.
constexpr const char* kResolved = report::status_name<&report::Resolved::config>();

/// An apply of these status fields, with the resource version that was read as precondition.
json object_for(const json& current, json fields) {
  const json metadata = part(current, "metadata");
  return {{"apiVersion", std::string(contract::kGroup) + "/" + contract::kVersion},
          {"kind", contract::kKind},
          {"metadata",
           {{"name", metadata.value("name", "")},
            {"namespace", metadata.value("namespace", "")},
            {"uid", metadata.value("uid", "")},
            {"resourceVersion", metadata.value("resourceVersion", "")}}},
          {"status", std::move(fields)}};
}

/// How soon a report must be stored in the status.
enum class Urgency { Never, WithTheNext, Soon, Must };

Urgency urgency_of(const report::Report& told) {
  using enum Urgency;
  using namespace report;
  return std::visit(
      overloaded{[](const Attempt&) { return Must; }, [](const Failure&) { return Must; },
                 [](const End&) { return Must; }, [](const Resumed&) { return Must; },
                 [](const Damage&) { return Must; }, [](const Checkpoint&) { return Soon; },
                 [](const Exported&) { return Must; }, [](const Resolved&) { return WithTheNext; },
                 [](const Stragglers&) { return Must; }, [](const Step&) { return WithTheNext; },
                 [](const Eval&) { return WithTheNext; }, [](const Memory&) { return WithTheNext; },
                 [](const Warning&) { return Never; }, [](const Log&) { return Never; },
                 [](const CutRows&) { return WithTheNext; }, [](const Note&) { return Never; }},
      told);
}

}  // namespace

void StatusBook::take(const report::Report& told, const std::string& wall) {
  status_.take(told, wall);
  if (const auto* failure = std::get_if<report::Failure>(&told)) {
    if (last_failure_) keep_earlier(*last_failure_);
    last_failure_ = record_of(*failure, wall);
  } else if (std::holds_alternative<report::Attempt>(told)) {
    stop_step_.reset();
  } else if (const auto* saved = std::get_if<report::Checkpoint>(&told);
             saved && stopping_ && saved->last.value_or(true)) {
    stop_step_ = saved->step;  // a background save of an earlier step does not count
  }
  if (const auto* resolved = std::get_if<report::Resolved>(&told)) {
    resolved_ = resolved->config;
    if (const size_t size = size_of(resolved_); size > report::kResolvedBytesMax)
      resolved_ = {{"omitted", "it has " + std::to_string(size) + " bytes; a status takes " +
                                   std::to_string(report::kResolvedBytesMax)}};
  }
  const Urgency urgency = urgency_of(told);
  if (urgency == Urgency::Never) return;
  ++version_;
  if (urgency >= Urgency::Soon) must_ = version_;
  // A stop waits for its checkpoint to be stored.
  if (urgency == Urgency::Must || (urgency == Urgency::Soon && stopping_)) urgent_ = version_;
}

/// Without the texts for people, which the status has room for only once.
void StatusBook::keep_earlier(report::FailureRecord failure) {
  failure.message = text::first_bytes(failure.message, 100);
  failure.last_words.reset();
  failure.collective.reset();
  failure.missing_ranks.reset();
  earlier_failures_.push_back(std::move(failure));
  if (earlier_failures_.size() > report::kEarlierFailuresMax) earlier_failures_.pop_front();
}

void StatusBook::account(const json& current) {
  const json& restarts = json_child(json_child(current, "status"), "restarts");
  const int64_t counted = json_whole(restarts, "attempt").value_or(0);
  std::erase_if(earlier_failures_,
                [&](const auto& failure) { return failure.attempt.value_or(0) <= counted; });
}

std::optional<Time> StatusBook::due(double random) const {
  if (stored_ >= version_) return std::nullopt;
  if (!last_write_) return not_before_;
  const auto spread =
      Time(static_cast<int64_t>(static_cast<double>(pace_.interval.count()) * (1 + random / 5)));
  const Time steps = *last_write_ + std::max(spread, pace_.gap);
  Time due = steps;
  if (stored_ < urgent_) {
    due = *last_write_ + pace_.gap;
  } else if (!settled()) {  // a job that saves every second must not write every second
    due = std::min(steps,
                   std::max(*last_write_ + pace_.gap, paid_until_ - pace_.interval * pace_.ahead));
  }
  return std::max(not_before_, due);
}

const json& StatusBook::resolved() const {
  static const json kNone;
  return resolved_ == resolved_told_ ? kNone : resolved_;
}

StatusBook::Document StatusBook::document() const {
  report::Training training = status_.training();
  training.world_size = status_.world_size();
  training.last_failure = last_failure_;
  if (!earlier_failures_.empty()) {
    training.earlier_failures.emplace(earlier_failures_.begin(), earlier_failures_.end());
  }
  training.stop_step = stop_step_;
  Document document{status_.attempt(), status_json(training), status_.checkpoint()};
  if (document.checkpoint.is_null()) document.checkpoint = json::object();
  drop_nulls(document.training);
  document.training.erase(kResolved);
  fill(document.training, earlier_training_);
  fill(document.checkpoint, earlier_checkpoint_);
  const auto fits = [&] {
    return size_of(document.training) + size_of(document.checkpoint) <= report::kDocumentBytesMax;
  };
  for (const size_t room : {1000u, 300u, 100u, 30u}) {
    if (fits()) break;
    cut_texts(document.training, room);
    cut_texts(document.checkpoint, room);
  }
  if (!fits()) document.training.erase(report::status_name<&report::Memory::peak>());
  return document;
}

void StatusBook::inherit(const json& current) {
  const json status = part(current, "status");
  earlier_training_ = part(status, report::kTraining);
  earlier_training_.erase(kResolved);
  earlier_training_.erase(report::status_name<&report::Training::stop_step>());
  earlier_training_.erase(report::status_name<&report::Training::seconds_left>());
  earlier_training_.erase(report::status_name<&report::Stragglers::who>());
  // The operator counted them before it made this incarnation's pod.
  earlier_training_.erase(report::status_name<&report::Training::earlier_failures>());
  constexpr const char* kLast = report::status_name<&report::Training::last_failure>();
  const auto last = report::failure_from_status(json_child(earlier_training_, kLast));
  earlier_training_.erase(kLast);
  if (last) earlier_training_[kLast] = status_json(*last);  // without unknown fields
  earlier_checkpoint_ = part(status, report::kCheckpoint);
}

void StatusBook::stored(int64_t version) {
  stored_ = std::max(stored_, version);
  not_before_ = Time(0);
  const Time at = last_write_.value_or(Time(0));
  paid_until_ = std::max(paid_until_, at) + pace_.interval;
}

json resolved_body(const json& resolved, const json& current) {
  return object_for(current, {{report::kTraining, {{kResolved, resolved}}}});
}

std::optional<json> status_body(const StatusBook::Document& document, const json& current,
                                bool first) {
  const json& before = json_child(json_child(current, "status"), report::kTraining);
  const int64_t newest = report::field_value<&report::Attempt::attempt>(before).value_or(0);
  if (newest > document.attempt && (document.attempt > 0 || !first)) {
    return std::nullopt;
  }
  json fields = {{report::kTraining, document.training}};
  if (!document.checkpoint.empty()) fields[report::kCheckpoint] = document.checkpoint;
  return object_for(current, std::move(fields));
}

}  // namespace dsj::agent
