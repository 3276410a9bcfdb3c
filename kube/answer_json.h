// Parses answers of an API server without the parts that nobody here reads. Pure.
// Tested by: tests/kube/answer_json_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace dsj::kube {

/// An object, a list of objects, or a watch event, without metadata.managedFields of its objects: the owners
/// of fields, half of a new pod's values. Discarded (`is_discarded()`) if `text` is not JSON.
nlohmann::json parse_answer(std::string_view text);

}  // namespace dsj::kube
