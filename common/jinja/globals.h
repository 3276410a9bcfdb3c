// Functions that exist in every template: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now. Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/jinja/arguments.h"
#include "common/jinja/objects.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

using Namespaces = std::vector<std::shared_ptr<Namespace>>;

/// The parts of the evaluator that they use; it outlives them.
struct GlobalEnvironment {
  Budget& budget;
  int64_t now;             ///< seconds since 1970
  Namespaces& namespaces;  ///< receives each new one
};

/// nullopt if there is no function of this name.
std::optional<Value> global_function(const std::string& name, const GlobalEnvironment& environment);

/// Throws TemplateError if Python could not hash it.
void check_key(const Value& key);

}  // namespace dsj::jinja
