#include "engine/weights/export_record.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::weights {
namespace {

using Kind = Occupant::Kind;

class ExportRecord : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* directory : {"/out", "/out/model", "/out/.model.staging"})
      ASSERT_TRUE(files_.make_dir(directory));
  }
  void put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(files_.write_synced(path, text));
  }
  /// An export that wrote two files.
  void export_one() {
    put("/out/.model.staging/config.json", "{}");
    put("/out/.model.staging/model.safetensors", weights_);
    ASSERT_TRUE(record_export(files_, "/out/.model.staging", "/out/model"));
    ASSERT_TRUE(files_.rename("/out/.model.staging", "/out/model"));
  }
  Occupant occupant() { return occupant_of(files_, "/out/model").value(); }

  const std::string weights_ = std::string(300'000, 'w');
  MemoryFiles files_;
};

TEST_F(ExportRecord, NothingAndAnEmptyDirectoryAreInNobodysWay) {
  EXPECT_EQ(occupant().kind, Kind::None);
  ASSERT_TRUE(files_.remove("/out/model"));
  EXPECT_EQ(occupant().kind, Kind::None);
  EXPECT_EQ(occupant_of(files_, "/no/such/model")->kind, Kind::None);
}

TEST_F(ExportRecord, KnowsWhatAnExportWrote) {
  export_one();
  EXPECT_EQ(occupant().kind, Kind::OwnModel);
  EXPECT_EQ(occupant_of(files_, "/out/model/")->kind, Kind::OwnModel);
  ASSERT_TRUE(files_.remove("/out/model/config.json"));
  EXPECT_EQ(occupant().kind, Kind::OwnModel) << "what the user removed is no loss";
  put("/out/model/.nfs0001", "open elsewhere");
  EXPECT_EQ(occupant().kind, Kind::OwnModel);
}

TEST_F(ExportRecord, EverythingElseIsForeignAndNamed) {
  put("/out/model/config.json", "{}");
  EXPECT_EQ(occupant().kind, Kind::Foreign) << "a model without a record may be anybody's";
  ASSERT_TRUE(files_.remove("/out/model/config.json"));
  export_one();
  put("/out/model/README.md", "mine");
  EXPECT_EQ(occupant().what, "README.md was not written by an export");
  ASSERT_TRUE(files_.remove("/out/model/README.md"));
  ASSERT_TRUE(files_.make_dir("/out/model/runs"));
  EXPECT_EQ(occupant().what, "the directory runs was not written by an export");
  ASSERT_TRUE(files_.remove("/out/model/runs"));
  put("/out/model/config.json", "{ }");
  EXPECT_EQ(occupant().what, "config.json was changed since it was exported");
}

TEST_F(ExportRecord, AChangeAtEitherEndOfALargeFileIsSeen) {
  for (const size_t at : {size_t(0), weights_.size() - 1}) {
    export_one();
    std::string other = weights_;
    other[at] = 'x';
    put("/out/model/model.safetensors", other);
    EXPECT_EQ(occupant().kind, Kind::Foreign) << at;
    ASSERT_TRUE(files_.remove_all("/out/model"));
    ASSERT_TRUE(files_.make_dir("/out/.model.staging"));
  }
}

TEST_F(ExportRecord, TheModelThatIsAboutToBeReplacedStaysKnown) {
  export_one();
  ASSERT_TRUE(files_.make_dir("/out/.model.staging"));
  put("/out/.model.staging/model.safetensors", "new");
  ASSERT_TRUE(record_export(files_, "/out/.model.staging", "/out/model"));
  EXPECT_EQ(occupant().kind, Kind::OwnModel) << "the process died before the swap";
  ASSERT_TRUE(files_.remove_all("/out/model"));
  ASSERT_TRUE(files_.rename("/out/.model.staging", "/out/model"));
  EXPECT_EQ(occupant().kind, Kind::OwnModel);
}

TEST_F(ExportRecord, ADamagedRecordIsNone) {
  export_one();
  for (const char* text :
       {"", "{", "[]", R"({"format":"dsj-export","exports":[{"config.json":1}]})"}) {
    put("/out/.model.export.json", text);
    EXPECT_EQ(occupant().kind, Kind::Foreign) << text;
  }
}

}  // namespace
}  // namespace dsj::weights
