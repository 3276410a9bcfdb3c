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

TEST(RowFile, AFileNamedTxtHasATextInEachLine) {
  MemoryFiles files;
  const auto rows = [&files](const std::string& name, const std::string& text) {
    EXPECT_TRUE(files.write_synced(name, text));
    const auto file = RowFile::open(files, name, {}, {});
    if (!file) return std::vector<std::string>{file.error().to_string()};
    std::vector<std::string> found;
    const Status status = file->scan([&](const RowPlace& place, std::string_view raw) {
      const auto row = file->shaped(raw);
      found.push_back(std::to_string(place.line) + " " +
                      (row ? row->row.value("text", row->shape) : row.error().what));
    });
    if (!status) found.push_back(status.error().to_string());
    return found;
  };
  using Rows = std::vector<std::string>;
  EXPECT_EQ(rows("a.txt", "Hello, world\r\n\n  \n{not JSON}\n\"quoted\n  end  "),
            (Rows{"1 Hello, world", "4 {not JSON}", "5 \"quoted", "6   end  "}));
  EXPECT_EQ(rows("a.txt.gz", "one\ntwo"), (Rows{"1 one", "2 two"}));
  EXPECT_EQ(rows("a.txt", "[1] Introduction\n"), Rows{"1 [1] Introduction"});
  EXPECT_EQ(rows("a.txt", "{\"text\": \"a row\"}\n"), Rows{"1 a row"});
  EXPECT_EQ(rows("a.txt", "[{\"text\": \"a row\"}]"), Rows{"1 a row"});
  EXPECT_EQ(rows("a.txt", "good\n\xFF bad\n"), (Rows{"1 good", "2 is not UTF-8"}));
  EXPECT_NE(rows("a.txt", "version https://git-lfs.github.com/spec/v1\n")[0].find("Git LFS"),
            std::string::npos);
  EXPECT_NE(rows("a.csvtxt", "Hello\n")[0].find("begins neither"), std::string::npos);
}

TEST(RowFile, ColumnsMayBeRenamed) {
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
