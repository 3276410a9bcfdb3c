// Converts a resolved precision to libtorch's type.
// Tested by: tests/engine/zero/model_state_test.cc
#pragma once

#include <c10/core/ScalarType.h>

#include "common/check.h"
#include "job/dsconfig/config/resolved.h"

namespace dsj::zero {

inline at::ScalarType scalar_type(dsconfig::Precision precision) {
  switch (precision) {
    case dsconfig::Precision::Fp32:
      return at::kFloat;
    case dsconfig::Precision::Bf16:
      return at::kBFloat16;
    case dsconfig::Precision::Fp16:
      return at::kHalf;
  }
  DSJ_CHECK(false);
}

}  // namespace dsj::zero
