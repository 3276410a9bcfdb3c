// Generates files from the schema (schema.h): the resources in crds/ and docs/fields.md. `make
// docs` writes both; tests compare the committed files. Pure.
// Tested by: tests/operator/crd_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::jobspec {

/// The correct text of a file of crds/, made from its committed text: the part above `openAPIV3Schema:` and the pod
/// template, which scripts/pod_template_schema.py writes, are kept. Errors: BadInput if it is not a resource of ours.
Result<std::string> resource_text(const std::string& committed);

/// The text of docs/fields.md.
std::string fields_markdown();

}  // namespace dsj::jobspec
