// DeepSpeed's own record of bad and odd ds_configs (golden/bad_configs.json, beside the checkout):
// each is refused here too, or accepted for a reason that stands below. Skips when it is absent.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "job/dsconfig/read/reader.h"
#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/shared_files.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

/// Cases that DeepSpeed refuses and that may run here. `warned`: with a finding at the key.
struct Accepted {
  const char* name;
  bool warned;
  const char* why;
};
constexpr Accepted kAccepted[] = {
    {"micro_string", true, "a number in quotes is read as the number it is"},
    {"batch_auto", false, "\"auto\" has Hugging Face's rule; DeepSpeed alone has none"},
    {"fp16_min_scale_float", false, "0.13 takes any positive number, and fp16 is off here"},
    {"bf16_loss_scale_key", true, "0.13 takes it, the guide's files carry it; bf16 is not scaled"},
    {"zero_bucket_zero", true, "0.13 takes it; the size that is used instead is said"},
    {"fp16_on_cpu", false, "its kernels need a GPU; here products run in fp32 on 16-bit values"},
    {"opt_lamb_cpu", false, "its LAMB is a GPU kernel; here it runs wherever the job does"},
    {"opt_onebitadam", false, "0.19 has dropped it; here it does what 0.18.9 did"},
    {"sparse_gradients_zero", false, "0.19 has dropped the key; here stages 0 to 2 send rows"},
    {"opt_missing", false, "without the section the optimizer is Hugging Face's AdamW"},
    {"sched_warmup_float", false, "5.0 is the whole number 5"},
    {"sched_max_lr_string", true, "a number in quotes is read as the number it is"},
};

const Accepted* accepted_for(const std::string& name) {
  for (const Accepted& one : kAccepted)
    if (name == one.name) return &one;
  return nullptr;
}

TEST(BadConfigs, EachIsRefusedOrAcceptedForAReason) {
  const fs::path file = shared() / "golden" / "bad_configs.json";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not here: NOT RUN";
  std::string text = slurp(file);  // Python's JSON: Infinity is bare, which Hjson reads as a word
  for (size_t at; (at = text.find(": Infinity")) != std::string::npos;)
    text.replace(at, 10, ": \"Infinity\"");
  const json cases = json::parse(text)["cases"];
  std::map<std::string, int> counts;
  for (const json& one : cases) {
    const std::string name = one["name"];
    SCOPED_TRACE(name);
    const bool theirs = one["parser"]["result"] == "accepted" &&
                        (!one.contains("initialize") || one["initialize"].is_null() ||
                         one["initialize"]["result"] == "accepted");
    json config = one["config"];
    std::string refused;
    if (name.starts_with("file:")) {
      const auto document = parse_text(config.get<std::string>(), name);
      if (!document) refused = document.error().to_string();
      config = document ? document->value : json::object();
    }
    size_t findings = 0;
    bool built = true;
    if (refused.empty()) {
      const Resolution r = resolve(config, {}, {.world_size = 1});
      findings = r.findings.size();
      if (!r.runnable()) refused = first_problem(r.findings);
      built = !r.ok() || r.runnable();
    }
    if (!refused.empty()) {
      EXPECT_GT(refused.size(), 10u) << "a refusal says why";
      ++counts[!theirs ? "refused by both" : built ? "refused here only" : "not built here"];
      if (theirs) std::cout << "  " << name << ": DeepSpeed runs it, here: " << refused << "\n";
      continue;
    }
    if (theirs) {
      ++counts["accepted by both"];
      continue;
    }
    const Accepted* reason = accepted_for(name);
    ++counts["accepted here, with its reason"];
    ASSERT_NE(reason, nullptr) << "DeepSpeed refuses it; here it runs, and no reason is written";
    EXPECT_TRUE(findings > 0 || !reason->warned) << "in silence";
    std::cout << "  " << name << ": DeepSpeed refuses it, here it runs: " << reason->why << "\n";
  }
  std::cout << cases.size() << " bad configs";
  for (const auto& [what, count] : counts) std::cout << ", " << count << " " << what;
  std::cout << "\n";
  EXPECT_EQ(cases.size(), 88u);
}

}  // namespace
}  // namespace dsj::dsconfig
