#include "agent/status/status_book.h"

#include <algorithm>

#include "job/contract.h"
#include "job/report/told.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

/// The resource's schema allows no nulls.
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

/// How soon a report must be in the status.
enum class Urgency { Never, WithTheNext, Must };

Urgency urgency_of(const report::Report& told) {
  using enum Urgency;
  using namespace report;
  return std::visit(
      overloaded{[](const Attempt&) { return Must; }, [](const Failure&) { return Must; },
                 [](const End&) { return Must; }, [](const Resumed&) { return Must; },
                 [](const Checkpoint&) { return Must; }, [](const Exported&) { return Must; },
                 [](const Resolved&) { return WithTheNext; },
                 [](const Stragglers&) { return Must; }, [](const Step&) { return WithTheNext; },
                 [](const Eval&) { return WithTheNext; }, [](const Memory&) { return WithTheNext; },
                 [](const Warning&) { return Never; }, [](const Log&) { return Never; },
                 [](const Note&) { return Never; }},
      told);
}

}  // namespace

void StatusBook::take(const report::Report& told, const std::string& wall) {
  status_.take(told, wall);
  if (const auto* failure = std::get_if<report::Failure>(&told)) {
    last_failure_ = record_of(*failure, wall);
  } else if (std::holds_alternative<report::Attempt>(told)) {
    stop_step_.reset();
  } else if (const auto* saved = std::get_if<report::Checkpoint>(&told);
             saved && stopping_ && saved->last.value_or(true)) {
    stop_step_ = saved->step;  // not one that was saved behind the steps before the stop
  }
  const Urgency urgency = urgency_of(told);
  if (urgency == Urgency::Never) return;
  ++version_;
  if (urgency == Urgency::Must) must_ = version_;
}

std::optional<Time> StatusBook::due(double random) const {
  if (stored_ >= version_) return std::nullopt;
  if (!last_write_) return not_before_;
  const auto spread =
      Time(static_cast<int64_t>(static_cast<double>(pace_.interval.count()) * (0.9 + random / 5)));
  const Time wait = settled() ? std::max(spread, pace_.gap) : pace_.gap;
  return std::max(not_before_, *last_write_ + wait);
}

StatusBook::Document StatusBook::document() const {
  report::Training training = status_.training();
  training.world_size = status_.world_size();
  training.last_failure = last_failure_;
  training.stop_step = stop_step_;
  Document document{status_.attempt(), status_json(training), status_.checkpoint()};
  if (document.checkpoint.is_null()) document.checkpoint = json::object();
  drop_nulls(document.training);
  fill(document.training, earlier_training_);
  fill(document.checkpoint, earlier_checkpoint_);
  return document;
}

void StatusBook::inherit(const json& current) {
  const json status = part(current, "status");
  earlier_training_ = part(status, report::kTraining);
  earlier_training_.erase(report::status_name<&report::Training::stop_step>());
  earlier_training_.erase(report::status_name<&report::Training::seconds_left>());
  earlier_training_.erase(report::status_name<&report::Stragglers::who>());
  earlier_checkpoint_ = part(status, report::kCheckpoint);
}

void StatusBook::stored(int64_t version) {
  stored_ = std::max(stored_, version);
  not_before_ = Time(0);
}

std::optional<json> status_body(const StatusBook::Document& document, const json& current,
                                bool first) {
  const json& before = json_child(json_child(current, "status"), report::kTraining);
  const int64_t newest = report::told<&report::Attempt::attempt>(before).value_or(0);
  if (newest > document.attempt && (document.attempt > 0 || !first)) {
    return std::nullopt;
  }
  const json metadata = part(current, "metadata");
  json fields = {{report::kTraining, document.training}};
  if (!document.checkpoint.empty()) fields[report::kCheckpoint] = document.checkpoint;
  return json{{"apiVersion", std::string(contract::kGroup) + "/" + contract::kVersion},
              {"kind", contract::kKind},
              {"metadata",
               {{"name", metadata.value("name", "")},
                {"namespace", metadata.value("namespace", "")},
                {"uid", metadata.value("uid", "")},
                {"resourceVersion", metadata.value("resourceVersion", "")}}},
              {"status", fields}};
}

}  // namespace dsj::agent
