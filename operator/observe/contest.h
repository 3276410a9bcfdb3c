// Objects of a job that somebody else changes back or deletes again and again. The operator
// restores each after pauses that grow, and the condition Contested names it. Pure.
// Tested by: tests/operator/contest_test.cc
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "operator/observe/times.h"

namespace dsj::op {

/// Type of the condition.
inline constexpr char kContested[] = "Contested";

using ObjectName = std::pair<std::string, std::string>;  ///< kind and name

/// What was wrong with an object that the operator restored.
struct Repair {
  std::string field;   ///< that was changed, such as "spec.selector"; empty if it was deleted
  std::string writer;  ///< who wrote the object last (metadata.managedFields); empty if not known
};
using Repairs = std::map<ObjectName, Repair>;

struct Contest {
  int repairs = 0;  ///< each less than kRowOver (pace.h) after the one before
  Time last{};      ///< of the last repair, or of the creation
  Repair repair;
};
using Contests = std::map<ObjectName, Contest>;

/// The first creation of an object is no repair.
void note_repair(Contests& contests, const ObjectName& object, const Repair& repair, Time now);
/// When the object may be restored again. The first two repairs have no pause.
Time restorable_from(const Contest& contest);
/// True after two repairs in a row.
bool is_contested(const Contest& contest, Time now);
/// For the condition. The text changes with the field and the writer only.
std::string text_of(const ObjectName& object, const Contest& contest);

/// For a pod that lost its labels. The operator has no right to restore them.
std::string lost_labels_text(const std::string& pod);

/// Who wrote a field last, other than this operator; else who wrote the object last.
std::string writer_of(const nlohmann::json& object, const std::string& field);

}  // namespace dsj::op
