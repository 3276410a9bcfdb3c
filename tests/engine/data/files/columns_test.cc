#include "engine/data/files/columns.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

using nlohmann::ordered_json;

std::string columns_fixtures() {
  return fixtures() + "/columns";
}

bool plugin_is_there() {
  return std::filesystem::exists(std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                                 kColumnsFile);
}

struct Lines {
  std::string text, error;
};

Lines lines_of(const std::string& bytes, const std::string& plugin = {}) {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced("rows", bytes));
  const auto file = files.open_read("rows");
  const auto form = column_form(bytes.substr(0, 8));
  if (!form) return {"", "no columnar file"};
  Lines lines;
  const Status done = columns_to_lines(
      **file, "rows", *form,
      [&lines](std::string_view piece) -> Status {
        lines.text += piece;
        return {};
      },
      plugin);
  if (!done) lines.error = done.error().to_string();
  return lines;
}

/// Each line as JSON.
ordered_json parsed_lines(const std::string& text) {
  ordered_json rows = ordered_json::array();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    rows.push_back(ordered_json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return rows;
}

class Columns : public testing::Test {
 protected:
  void SetUp() override {
    if (!plugin_is_there())
      GTEST_SKIP() << "NO ARROW: libdsj_columns.so is not built (scripts/setup.sh fetches Arrow)";
  }
};

/// Compared as text, so that 1 and 1.0 differ, and the order of fields counts.
TEST_F(Columns, EveryFileHasPyarrowsRows) {
  const auto expected = ordered_json::parse(read_file(columns_fixtures() + "/rows.json"));
  ASSERT_GE(expected.size(), 20u);
  for (const auto& [name, rows] : expected.items()) {
    const Lines lines = lines_of(read_file(columns_fixtures() + "/" + name));
    EXPECT_EQ(lines.error, "") << name;
    const ordered_json found = parsed_lines(lines.text);
    ASSERT_EQ(found.size(), rows.size()) << name;
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(found[i].dump(), rows[i].dump()) << name << ": row " << i;
  }
}

TEST_F(Columns, RefusedTypesAreNamed) {
  const auto refusal = [](const std::string& name) {
    return lines_of(read_file(columns_fixtures() + "/" + name)).error;
  };
  EXPECT_NE(refusal("duration.parquet").find("column 'a.b' is of type duration"),
            std::string::npos);
  EXPECT_NE(refusal("union.arrow").find("column 'u' is of type sparse_union"), std::string::npos);
  EXPECT_NE(refusal("twice.arrow").find("two columns are called 'a'"), std::string::npos);
}

/// A reference held by a thread of Arrow could outlive the file.
TEST_F(Columns, OnlyTheCallersThreadReads) {
  for (const char* name : {"types.parquet", "types.arrow", "chats-zstd-file.arrow"}) {
    EXPECT_EQ(lines_of(read_file(columns_fixtures() + "/" + name)).error, "") << name;
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      threads += read_file(task.path() / "comm") != "jemalloc_bg_thd\n";
    EXPECT_EQ(threads, 1) << name;
  }
}

/// A damaged file gives an error or rows of JSON, but no crash and no exception.
TEST_F(Columns, DamageIsReported) {
  // --gtest_shuffle --gtest_repeat=100 draws other damage.
  std::mt19937 draw(7 + testing::UnitTest::GetInstance()->random_seed());
  int64_t refused = 0, tried = 0;
  for (const char* name :
       {"chats-none.parquet", "chats-zstd.parquet", "types.parquet", "delta.parquet",
        "chats-lz4-stream.arrow", "chats-None-file.arrow", "types.arrow", "views.arrow"}) {
    const std::string whole = read_file(columns_fixtures() + "/" + name);
    for (int i = 0; i < 300; ++i) {
      std::string damaged = whole;
      if (i % 3 == 0) {
        damaged.resize(8 + draw() % (whole.size() - 8));
      } else {
        const size_t count = i % 3 == 1 ? 1 : 1 + draw() % 32;
        // Damage the ends, which describe the rest.
        const size_t from =
            draw() % 2 ? whole.size() - std::min<size_t>(whole.size() - 8, 1500) : 8;
        for (size_t n = 0; n < count; ++n)
          damaged[from + draw() % (whole.size() - from)] = static_cast<char>(draw());
      }
      const Lines lines = lines_of(damaged);
      ++tried;
      refused += !lines.error.empty();
      if (i % 3 == 0) {
        EXPECT_NE(lines.error, "") << name << " cut to " << damaged.size();
      }
      if (lines.error.empty()) continue;
      EXPECT_NE(lines.error.find("rows: is a"), std::string::npos) << lines.error;
      EXPECT_LT(lines.error.size(), 600u);
    }
  }
  EXPECT_GT(refused, tried / 2);
}

TEST_F(Columns, TheSinksErrorIsReturned) {
  PosixFiles files;
  const auto file = files.open_read(columns_fixtures() + "/chats-none.parquet");
  const Status done =
      columns_to_lines(**file, "rows", ColumnForm::Parquet, [](std::string_view) -> Status {
        return fail(ErrorKind::Environment, "no space left on device");
      });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "no space left on device");
}

TEST(ColumnsWithout, AMissingPluginIsReported) {
  const std::string parquet = read_file(columns_fixtures() + "/delta.parquet");
  const std::string absent = lines_of(parquet, "/nowhere/libdsj_columns.so").error;
  EXPECT_NE(
      absent.find("rows: is a Parquet or Arrow file, and its reader /nowhere/libdsj_columns.so"
                  " is missing"),
      std::string::npos)
      << absent;
  EXPECT_NE(absent.find("to_json(\"rows.jsonl\""), std::string::npos) << absent;
  TempDir dir;
  EXPECT_NE(lines_of(parquet, dir.write("x.so", "no library")).error.find("cannot be loaded"),
            std::string::npos);
  const std::string other = lines_of(parquet, "/lib/x86_64-linux-gnu/libz.so.1").error;
  EXPECT_NE(other.find("is from another build"), std::string::npos) << other;
}

TEST(ColumnsWithout, TheFormIsDetectedByContent) {
  EXPECT_EQ(column_form("PAR1\x15\x04"), ColumnForm::Parquet);
  EXPECT_EQ(column_form(std::string_view("ARROW1\0\0", 8)), ColumnForm::ArrowFile);
  EXPECT_EQ(column_form("\xFF\xFF\xFF\xFF"), ColumnForm::ArrowStream);
  for (const char* other : {"", "PAR", "PARE", "{\"a\": 1}", "FEA1"})
    EXPECT_EQ(column_form(other), std::nullopt) << other;
}

}  // namespace
}  // namespace dsj::data
