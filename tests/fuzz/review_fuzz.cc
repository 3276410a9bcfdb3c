// What the admission webhook is sent: anybody who reaches its port may write to it.
#include "operator/webhook/review.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto reviewed = dsj::op::review(dsj::fuzz::text_of(data, size));
  if (!reviewed) return 0;
  const auto& response = reviewed->answer["response"];
  dsj::fuzz::require(response["allowed"] == reviewed->allowed);
  dsj::fuzz::require(response.contains("status") != reviewed->allowed);
  // As the server writes it.
  reviewed->answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return 0;
}
