// Every field of a DeepSpeedJob manifest, by the object that holds it. The reader takes no other
// field, and the CRD (crds/) has the same ones; a test compares the two.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dsj::jobspec {

/// "spec.workers" → {"replicas", ...}. "spec.failurePolicy.rules[]" is one element of the array.
/// Left out, because they have tables of their own: spec.deepspeed.config (dsconfig/keys.h),
/// spec.workers.template (Kubernetes), spec.training (training_args.h).
const std::map<std::string, std::vector<std::string>>& manifest_fields();

}  // namespace dsj::jobspec
