#include "cli/cluster/redact.h"

#include <gtest/gtest.h>

#include "common/text.h"

namespace dsj::cli {
namespace {

TEST(Redact, RemovesOnlyWhatLooksLikeACredential) {
  const std::pair<const char*, const char*> cases[] = {
      {"HF_TOKEN=hf_x y", "HF_TOKEN=<redacted> y"},
      {"\"api_key\": \"a b\", 1", "\"api_key\": <redacted>, 1"},
      {"{\"password\": \"a b", "{\"password\": <redacted>"},
      {"https://me:pw@host/x", "https://<redacted>@host/x"},
      {"Authorization: Bearer abc.def-123", "Authorization: Bearer <redacted>"},
      {"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "<redacted>"},
      {"key sk-abcdefghijklmnopqrst", "key <redacted>"},
      {"by github_pat_11AAAAAAA0aaaaaaaaaa", "by <redacted>"},
      {"by ghu_aaaaaaaaaaaa", "by <redacted>"},
      {"id ASIAAAAAAAAAAAAAAAAA", "id <redacted>"},
      {"1234 tokens/s, tokens_per_second 5", "1234 tokens/s, tokens_per_second 5"},
      {"mask-sk-short", "mask-sk-short"},
      {"loss 1.5", "loss 1.5"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_EQ(redacted_text(text), wanted);
}

TEST(Redact, ACredentialEndsAtTheEndOfALine) {
  const std::string yaml = "secretRef:\n  name: hub\npassword: x\n";
  EXPECT_EQ(redacted_text(yaml), "secretRef:\n  name: hub\npassword: <redacted>\n");
  EXPECT_EQ(redacted_text(""), "");
}

// A log may hold an image or a whole batch of tokens in one line.
TEST(Redact, CutsALineOfAMegabyte) {
  std::string line;
  while (line.size() < 1 << 20) line += "aaaaaaa ";
  const std::string text = redacted_text("before\n" + line + "\ntoken=" + line + "\nafter");
  EXPECT_LT(text.size(), 10'000u);
  EXPECT_TRUE(text.starts_with("before\naaaa")) << text.substr(0, 40);
  EXPECT_NE(text.find("a... (1044481 bytes more)\ntoken=<redacted> aaaaaaa"), std::string::npos);
  EXPECT_TRUE(text.ends_with("a... (1044489 bytes more)\nafter")) << text.substr(text.size() - 60);
}

TEST(Redact, ACutLineShowsNoHalfOfACredential) {
  const std::string token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
  for (const std::string& word : {token, "https://me:" + token + "@host/", "\"" + token + "\"",
                                  std::string("gr\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\x9f"
                                              "e")}) {
    for (size_t before = 4096 - word.size() - 2; before <= 4098; ++before) {
      const std::string text = redacted_text(std::string(before - 1, 'x') + " " + word + " y y");
      EXPECT_EQ(text.find("eyJ"), std::string::npos) << before;
      EXPECT_EQ(text::invalid_utf8(text), std::string::npos) << before;
    }
  }
}

}  // namespace
}  // namespace dsj::cli
