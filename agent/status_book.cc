#include "agent/status_book.h"

#include <algorithm>

#include "common/contract.h"

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
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : json::object();
}

/// Adds the fields of `others` that `object` lacks.
void fill(json& object, const json& others) {
  for (const auto& [key, value] : others.items()) {
    if (!object.contains(key)) object[key] = value;
  }
}

int64_t attempt_of(const json& training) {
  const auto found = training.find("attempt");
  return found != training.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

}  // namespace

void StatusBook::take(const json& report, const std::string& wall) {
  const std::string kind = report.value("report", "");
  status_.take(report, wall);
  bool must = kind == "attempt" || kind == "checkpoint" || kind == "end" || kind == "resumed" ||
              kind == "exported";
  if (kind == "failure") {
    last_failure_ = failure_of(report, wall);
    must = true;
  }
  if (kind == "attempt") stop_step_ = nullptr;
  if (kind == "checkpoint" && stopping_) stop_step_ = report.value("step", int64_t{0});
  if (!must && kind != "step" && kind != "resolved" && kind != "eval" && kind != "memory") return;
  ++version_;
  if (must) must_ = version_;
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
  Document document{status_.attempt(), status_.training(), status_.checkpoint()};
  if (document.training.is_null()) document.training = json::object();
  if (document.checkpoint.is_null()) document.checkpoint = json::object();
  document.training["worldSize"] = status_.world_size();
  if (!last_failure_.is_null()) document.training["lastFailure"] = last_failure_;
  if (!stop_step_.is_null()) document.training["stopStep"] = stop_step_;
  drop_nulls(document.training);
  fill(document.training, earlier_training_);
  fill(document.checkpoint, earlier_checkpoint_);
  return document;
}

void StatusBook::inherit(const json& current) {
  const json status = part(current, "status");
  earlier_training_ = part(status, "training");
  for (const char* passing : {"stopStep", "estimatedRemainingSeconds"}) {
    earlier_training_.erase(passing);
  }
  earlier_checkpoint_ = part(status, "checkpoint");
}

void StatusBook::stored(int64_t version) {
  stored_ = std::max(stored_, version);
  not_before_ = Time(0);
}

std::optional<json> status_body(const StatusBook::Document& document, const json& current,
                                bool first) {
  const json before = part(part(current, "status"), "training");
  if (attempt_of(before) > document.attempt && (document.attempt > 0 || !first)) {
    return std::nullopt;
  }
  const json metadata = part(current, "metadata");
  json fields = {{"training", document.training}};
  if (!document.checkpoint.empty()) fields["checkpoint"] = document.checkpoint;
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
