#include "job/import/training_fields.h"

#include "job/argument_table.h"
#include "job/training_args.h"

namespace dsj::jobimport {

Status take_training_field(nlohmann::json& training, const std::string& name,
                           const nlohmann::json& value) {
  if (value.is_null()) return {};
  const std::string camel = camel_case(name);
  const auto read = training_args_from_json({{camel, value}}, "");
  if (!read) {
    const bool known = training_args_from_json({{camel, nullptr}}, "").has_value();
    return bad_input(known ? read.error().message : "has no place in a job", name);
  }
  training.update(to_json(*read));
  return {};
}

}  // namespace dsj::jobimport
