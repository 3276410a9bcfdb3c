// Real ds_configs from public repositories (corpus, beside the checkout): our verdict is that of
// DeepSpeed's own section models, but for what is listed here. Skips when they are absent.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/read/check.h"
#include "job/dsconfig/read/reader.h"
#include "tests/job/dsconfig/shared_files.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

/// Why we refuse what DeepSpeed's section models accept; empty: for no good reason.
std::string reason_to_refuse(const Finding& finding) {
  if (finding.message.ends_with("is not a key of ds_config") && !finding.hint.empty())
    return "a near miss, with the right name";
  if (finding.message.ends_with("is in the wrong section") && !finding.hint.empty())
    return "a key in the wrong section, with the right one";
  const Key* key = find_key(finding.path);
  if (key != nullptr && key->state == State::Rejected)
    return finding.path + ": DeepSpeed refuses it later, when it makes the optimizer";
  return "";
}

/// "rejects: bf16.loss_scale: extra_forbidden; fp16.x: ..." → the paths.
std::vector<std::string> rejected_paths(const std::string& verdict) {
  std::vector<std::string> paths;
  std::stringstream parts(verdict.substr(verdict.find(':') + 1));
  for (std::string part; std::getline(parts, part, ';');) {
    const size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos) paths.push_back(part.substr(begin, part.find(':') - begin));
  }
  return paths;
}

bool covers(const std::string& section, const std::string& path) {
  return path == section || path.starts_with(section + ".");
}

TEST(Corpus, StrictFilesGetDeepSpeedsVerdict) {
  const fs::path folder = shared() / "corpus" / "ds_configs";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  int total = 0, accepted = 0, rejected = 0, unsupported = 0;
  std::map<std::string, int> deviations;
  for (const Row& row : corpus_index(folder)) {
    SCOPED_TRACE(row.file);
    const auto document = read_file((folder / row.file).string());
    ASSERT_TRUE(document) << document.error().to_string();
    EXPECT_EQ(document->value, json::parse(slurp(folder / row.file)));
    std::vector<Finding> findings = check(document->value).findings;
    locate(findings, document->positions);
    bool valid = true, built = true;
    for (const Finding& finding : findings) {
      EXPECT_TRUE(finding.path.empty() || finding.line > 0) << finding.path;
      valid = valid && finding.severity != Severity::Error;
      built = built && finding.severity != Severity::Unsupported;
    }
    ++total;
    unsupported += valid && !built;
    const bool theirs = row.verdict.starts_with("accepts");
    if (valid == theirs) {
      (valid ? accepted : rejected) += 1;
      continue;
    }
    if (theirs) {  // every error of ours has its reason
      std::string last;
      for (const Finding& finding : findings) {
        if (finding.severity != Severity::Error) continue;
        last = reason_to_refuse(finding);
        EXPECT_NE(last, "") << finding.path << ": " << finding.message;
      }
      ++deviations["refused here: " + last];
    } else {  // every key that they reject has a finding here
      for (const std::string& path : rejected_paths(row.verdict)) {
        bool said = false;
        for (const Finding& finding : findings) said = said || covers(finding.path, path);
        EXPECT_TRUE(said) << path << " is rejected there and passes here in silence";
      }
      ++deviations["accepted here, each key with a finding: " + row.verdict];
    }
  }
  std::cout << "corpus: " << total << " strict files: " << accepted << " accepted by both ("
            << unsupported << " of them not runnable here), " << rejected << " refused by both\n";
  for (const auto& [what, count] : deviations) std::cout << "  " << count << " x " << what << "\n";
  EXPECT_EQ(total, 243);
}

TEST(Corpus, OtherFilesAreReadWhereHjsonReadsThem) {
  const fs::path folder = shared() / "corpus" / "ds_configs_invalid";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  int read = 0, refused = 0;
  for (const Row& row : corpus_index(folder)) {
    SCOPED_TRACE(row.file);
    const auto document = read_file((folder / row.file).string());
    (document ? read : refused) += 1;
    EXPECT_EQ(document.has_value(), row.verdict.starts_with("yes")) << "as the Hjson library";
    if (!document) {
      EXPECT_NE(document.error().where.find(".json"), std::string::npos);
    }
  }
  std::cout << "not strict JSON: " << read << " read, " << refused
            << " refused, each as the Hjson library does\n";
  EXPECT_EQ(read + refused, 25);
}

}  // namespace
}  // namespace dsj::dsconfig
