#include "job/report/status.h"

#include "job/report/wire.h"

namespace dsj::report {
namespace {

using nlohmann::json;

json status_value(double value) {
  const char* word = word_of(value);
  return word ? json(word) : json(text::number(value));
}
template <typename T>
json status_value(const T& value) {
  return value_to_json(value);
}

template <typename T>
void put(json& object, const char* name, const T& value) {
  object[name] = status_value(value);
}
template <typename T>
void put(json& object, const char* name, const std::optional<T>& value) {
  if (value) object[name] = status_value(*value);
}
/// Null means that a report came without the value.
void put(json& object, const char* name, const std::optional<double>& value) {
  object[name] = value ? status_value(*value) : json(nullptr);
}

template <typename T>
json written(const T& status) {
  json object = json::object();
  for_each_entry<T>([&](const auto& entry) {
    using Entry = std::remove_cvref_t<decltype(entry)>;
    const auto& member = status.*entry.member;
    if constexpr (IsPart<Entry>::value) {
      if (!member) return;
      for_each_entry<typename Entry::Value>([&](const auto& field) {
        if (field.status != nullptr) put(object, field.status, (*member).*field.member);
      });
    } else {
      put(object, entry.name, member);
    }
  });
  return object;
}

}  // namespace

json status_json(const Training& training) {
  return written(training);
}

json status_json(const Saved& saved) {
  json object = written(saved);
  for (auto it = object.begin(); it != object.end();) {
    it = it->is_null() ? object.erase(it) : std::next(it);
  }
  return object;
}

json status_json(const Restored& restored) {
  return written(restored);
}

json status_json(const Damaged& damaged) {
  return written(damaged);
}

json status_json(const FailureRecord& failure) {
  return to_json(failure);
}

std::optional<FailureRecord> failure_from_status(const json& object) {
  return from_json<FailureRecord>(object);
}

FailureRecord record_of(const Failure& failure, const std::string& now) {
  FailureRecord record{.time = now,
                       .reason = failure.reason,
                       .attempt = failure.attempt,
                       .step = failure.step,
                       .message = failure.message};
  if (failure.worker >= 0) record.worker = failure.worker;
  if (failure.rank >= 0) {
    record.rank = failure.rank;
    (failure.signal != 0 ? record.signal : record.exit_code) =
        failure.signal != 0 ? failure.signal : failure.exit_code;
  }
  if (!failure.last_words.empty()) record.last_words = failure.last_words;
  record.collective = failure.collective;
  record.missing_ranks = failure.missing_ranks;
  if (failure.saved_step >= 0) record.saved_step = failure.saved_step;
  return record;
}

}  // namespace dsj::report
