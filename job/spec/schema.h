// Every field of a DeepSpeedJob and of a DeepSpeedJobTemplate, with one row each (schema.cc, schema_status.cc). The
// reader (field_reader.h), the resources in crds/ with the texts of `kubectl explain` (resource.h), docs/fields.md and
// the list of immutable fields follow from it. A new field is a member of job.h or policies.h and its row; `make docs`
// writes the rest. The rows of spec.training are those of job/training_schema.h. Pure.
#pragma once

#include <string>
#include <vector>

#include "job/spec/field.h"

namespace dsj::jobspec {

/// The whole object: apiVersion, kind, metadata, spec, status.
const Field& job_schema();
const Field& template_schema();

/// The immutable fields of spec, as JSON pointers into the object.
const std::vector<std::string>& immutable_fields();

/// Whether an API server accepts it as the key of a label: [PREFIX/]NAME.
bool is_label_key(const std::string& text);

}  // namespace dsj::jobspec
