// ds_config text (Hjson): read, checked against the key table, resolved.
#include "job/dsconfig/read/check.h"
#include "job/dsconfig/read/reader.h"
#include "job/dsconfig/resolve.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document = dsj::dsconfig::parse_text(dsj::fuzz::text_of(data, size), "fuzz");
  if (!document) {
    dsj::fuzz::require(document.error().where.starts_with("fuzz"));
    return 0;
  }
  auto findings = dsj::dsconfig::resolve_alone(document->value).findings;
  dsj::dsconfig::locate(findings, document->positions);
  dsj::TrainingArgs training;
  training.model_name_or_path = "m";
  dsj::dsconfig::resolve(document->value, training, {.world_size = 4});
  return 0;
}
