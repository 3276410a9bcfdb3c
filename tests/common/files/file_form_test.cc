#include "common/files/file_form.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj {
namespace {

using namespace std::string_literals;

struct Case {
  std::string head;
  const char* says;
};

std::vector<Case> known() {
  std::string tar(512, 'a');
  tar.replace(257, 5, "ustar");
  return {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "Git LFS pointer"},
      {"\x1F\x8B\x08\0\0"s, "gzip"},
      {"\x28\xB5\x2F\xFD\x24"s, "zstd"},
      {"BZh91AY", "bzip2"},
      {"\xFD"
       "7zXZ\0\0"s,
       "xz"},
      {"PAR1\x15\x04"s, "Parquet"},
      {"ARROW1\0\0"s, "Arrow"},
      {"\xFF\xFF\xFF\xFF\x70\x01\0\0"s, "Arrow"},
      {"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0"s + std::string(16, '\1') + "[Content_Types].xml",
       "Excel"},
      {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"s, "Excel"},
      {"GGUF\x03\0\0\0"s, "GGUF"},
      {"\n <!DOCTYPE html><html>", "HTML"},
      {"<HTML lang=en>", "HTML"},
      {"\xFF\xFE{\0\"\0"s, "UTF-16"},
      {"\xFE\xFF\0{"s, "UTF-16"},
      {"[\0{\0\"\0a\0\"\0"s, "UTF-16"},
      {"\0[\0{\0\"\0a\0\""s, "UTF-16"},
      {"\xFF\xFE\0\0{\0\0\0"s, "UTF-32"},
      {std::string(100, '\0'), "NUL bytes"},
      {tar, "tar archive"},
      {"SQLite format 3\0"s, "SQLite"},
      {"%PDF-1.7", "PDF"}};
}

TEST(FileForm, EachIsCalledWhatItIsWithARemedy) {
  for (const Case& c : known()) {
    const auto form = file_form(c.head);
    ASSERT_TRUE(form) << c.says;
    EXPECT_NE(form->name.find(c.says), std::string_view::npos) << form->name;
    EXPECT_FALSE(form->remedy.empty());
    MemoryFiles files;
    ASSERT_TRUE(files.write_synced("f", c.head));
    const auto refused = refuse_other_form(**files.open_read("f"), "f", "weights");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "is " + std::string(form->name) + ", expected weights");
    EXPECT_EQ(refused.error().hint, form->remedy);
  }
}

TEST(FileForm, WhatFollowsTheMarkDoesNotMatter) {
  uint64_t state = 7;
  const auto byte = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<char>(1 + (state >> 40) % 255);
  };
  for (const Case& c : known()) {
    if (std::string_view(c.says) == "NUL bytes") continue;
    for (int round = 0; round < 50; ++round) {
      std::string head = c.head;
      for (uint64_t more = (state >> 33) % 600; more > 0; --more) head += byte();
      head.resize(std::min(head.size(), kFileFormBytes));
      const auto form = file_form(head);
      ASSERT_TRUE(form) << c.says;
      EXPECT_NE(form->name.find(c.says), std::string_view::npos) << form->name;
    }
  }
}

TEST(FileForm, RowsAndModelsAreNoneOfThem) {
  for (const std::string& head :
       {""s, "["s, "{}"s, "[{\"instruction\": \"a\"}]"s, "\xEF\xBB\xBF{\"a\": 1}\n"s,
        "\n\n {\"a\":\"\u00e9\"}"s, "\x40\0\0\0\0\0\0\0{\"__metadata__\":{}"s,
        "PK\x03\x04"s + std::string(26, '\1') + "archive/data.pkl", "\x80\x02}q\x01."s,
        "a,b\n1,2\n"s, "{\"version\": \"https://git-lfs\"}"s}) {
    EXPECT_FALSE(file_form(head)) << head;
  }
  MemoryFiles files;
  ASSERT_TRUE(files.write_synced("f", ""));
  EXPECT_TRUE(refuse_other_form(**files.open_read("f"), "f", "weights"));
}

}  // namespace
}  // namespace dsj
