#include "engine/data/row_file.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

TEST(RowFile, ACsvFileBecomesShapedRows) {
  MemoryFiles files;
  ASSERT_TRUE(files.write_synced("d.txt", "question,answer\nq,a\n\"q,2\",\n"));
  auto file = RowFile::open(files, "d.txt", {}, {});
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->form(), "csv");
  std::vector<std::string> texts;
  ASSERT_TRUE(file->scan([&](const RowPlace& place, std::string_view raw) {
    file->found.places.push_back({place.offset, place.length});
    const auto shaped = file->shaped(raw);
    texts.push_back(shaped ? shaped->text : shaped.error().what);
  }));
  EXPECT_EQ(texts[0], R"({"instruction":"q","output":"a"})");
  EXPECT_EQ(file->rows(), 2);
  EXPECT_EQ(file->raw(1).value(), "\"q,2\",");
  EXPECT_EQ(file->json("x,y").value(), nlohmann::json({{"question", "x"}, {"answer", "y"}}));
}

TEST(RowFile, NamesOfColumns) {
  MemoryFiles files;
  ASSERT_TRUE(files.write_synced("d.jsonl", "{}"));
  const auto names = RowNames::of({{"prompt", "q"}, {"response", "a"}}, "").value();
  auto file = RowFile::open(files, "d.jsonl", names, {});
  ASSERT_TRUE(file);
  EXPECT_NE(file->form(), "lines");
  const auto shaped = file->shaped(R"({"q":"x","a":null})");
  ASSERT_TRUE(shaped);
  EXPECT_EQ(file->own_name(*shaped, "output"), "a");
}

}  // namespace
}  // namespace dsj::data
