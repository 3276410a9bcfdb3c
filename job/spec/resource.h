// What follows from the schema (schema.h): the resources in crds/ and docs/fields.md. `make docs` writes both; tests hold
// the committed files to them. Pure.
// Tested by: tests/operator/crd_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::jobspec {

/// The text of a file of crds/ as it has to be, made from the one that is there: what is above `openAPIV3Schema:` and the
/// pod template, which scripts/pod_template_schema.py writes, stay. BadInput: it is the file of no resource of ours.
Result<std::string> resource_text(const std::string& committed);

/// docs/fields.md.
std::string fields_markdown();

}  // namespace dsj::jobspec
