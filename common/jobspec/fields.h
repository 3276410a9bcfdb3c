// Every field of a DeepSpeedJob manifest, by the object it is in. The reader takes no other field,
// and the CRD (crds/) has the same ones; a test compares the two.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dsj::jobspec {

/// "spec.workers" → {"replicas", ...}. "spec.failurePolicy.rules[]" is one element of the array.
/// spec.deepspeed.config, spec.workers.template and spec.training are not in it: they have tables
/// of their own (dsconfig/keys.h, Kubernetes, training_args.h).
const std::map<std::string, std::vector<std::string>>& manifest_fields();

}  // namespace dsj::jobspec
