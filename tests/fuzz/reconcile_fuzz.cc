// A job's status, pods, spec, nodes and the API server's answers, as tests/operator/drawn_job.h draws them: passes over
// them, carried out. A broken promise is an exception.
#include "tests/fuzz/fuzz.h"
#include "tests/operator/drawn_job.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  GTEST_FLAG_SET(throw_on_failure, true);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dsj::op::testing::Draw draw(data, size);
  dsj::op::testing::DrawnJob(draw).live(60);
  return 0;
}
