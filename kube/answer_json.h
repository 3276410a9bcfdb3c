// What an API server sends, as JSON, without what nobody here reads. Pure.
// Tested by: tests/kube/answer_json_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace dsj::kube {

/// An object, a list of objects, or an event of a watch, without its objects' metadata.managedFields: who owns
/// which field, half of a new pod's values. Discarded (`is_discarded()`): `text` is not JSON.
nlohmann::json parse_answer(std::string_view text);

}  // namespace dsj::kube
