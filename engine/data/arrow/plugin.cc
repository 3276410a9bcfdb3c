// libdsj_columns.so (columns.h): reads Parquet and Arrow IPC with Arrow's own libraries.
#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/future.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "engine/data/arrow/json_line.h"
#include "engine/data/files/columns.h"

namespace dsj::data {
namespace {

constexpr int64_t kRowsAtATime = 1024;
constexpr size_t kPieceBytes = 1 << 20;
/// Limit on Arrow's memory; a damaged length may ask for more.
constexpr int64_t kMemoryMax = int64_t{16} << 30;

/// Adapts ReadFile to Arrow's interface. Every read happens in the caller's thread: a read by a
/// thread of Arrow keeps a reference to the reader, which may outlive the pool and the file.
class Input final : public arrow::io::RandomAccessFile {
 public:
  using RandomAccessFile::ReadAt;
  explicit Input(const ReadFile& file) : file_(file) { set_mode(arrow::io::FileMode::READ); }
  /// The operating system's error, if a read failed.
  const Status& status() const { return status_; }

  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override { return at_; }
  arrow::Result<int64_t> GetSize() override { return file_.size(); }
  arrow::Status Seek(int64_t position) override {
    if (position < 0 || position > file_.size())
      return arrow::Status::Invalid("it points past its end");
    at_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    if (position < 0 || bytes < 0 || position > file_.size())
      return arrow::Status::Invalid("it points past its end");
    bytes = std::min(bytes, file_.size() - position);
    const Status read =
        file_.read(position, {static_cast<std::byte*>(out), static_cast<size_t>(bytes)});
    if (!read) {
      status_ = read;
      return arrow::Status::IOError("cannot be read");
    }
    return bytes;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    if (position < 0 || bytes < 0 || position > file_.size())
      return arrow::Status::Invalid("it points past its end");
    bytes = std::min(bytes, file_.size() - position);
    ARROW_ASSIGN_OR_RAISE(auto buffer,
                          arrow::AllocateResizableBuffer(bytes, arrow::system_memory_pool()));
    ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position, bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(read));
    return buffer;
  }
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext&,
                                                          int64_t position,
                                                          int64_t bytes) override {
    return ReadAt(position, bytes);
  }
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext&,
                                                          int64_t position, int64_t bytes,
                                                          bool allow_short_read) override {
    return ReadAt(position, bytes, allow_short_read);
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(at_, bytes, out));
    at_ += read;
    return read;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(at_, bytes));
    at_ += buffer->size();
    return buffer;
  }

 private:
  const ReadFile& file_;
  int64_t at_ = 0;
  Status status_;
};

/// Writes the rows of batches to a sink. Keeps the sink's error separate from Arrow's.
class Lines {
 public:
  explicit Lines(const TextSink& sink) : sink_(sink) {}
  const Status& sunk() const { return sunk_; }

  arrow::Status schema(const arrow::Schema& schema) {
    refused_ = refused_column(schema);
    return refused_ ? arrow::Status::TypeError(*refused_) : arrow::Status::OK();
  }
  const std::optional<std::string>& refused() const { return refused_; }

  arrow::Status batch(const arrow::RecordBatch& batch) {
    ARROW_RETURN_NOT_OK(batch.ValidateFull());
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      append_line(batch, row, text_);
      if (text_.size() >= kPieceBytes) ARROW_RETURN_NOT_OK(flush());
    }
    return flush();
  }

 private:
  arrow::Status flush() {
    sunk_ = sink_(text_);
    text_.clear();
    return sunk_ ? arrow::Status::OK() : arrow::Status::Cancelled("the sink is full");
  }

  const TextSink& sink_;
  std::string text_;
  Status sunk_;
  std::optional<std::string> refused_;
};

arrow::Status read_all(arrow::RecordBatchReader& reader, Lines& lines) {
  ARROW_RETURN_NOT_OK(lines.schema(*reader.schema()));
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(reader.ReadNext(&batch));
    if (!batch) return arrow::Status::OK();
    ARROW_RETURN_NOT_OK(lines.batch(*batch));
  }
}

arrow::Status read_parquet(const std::shared_ptr<Input>& input, arrow::MemoryPool* pool,
                           Lines& lines) {
  parquet::ReaderProperties bytes(pool);
  bytes.enable_buffered_stream();
  parquet::ArrowReaderProperties how(/*use_threads=*/false);
  how.set_batch_size(kRowsAtATime);
  how.set_pre_buffer(false);
  how.set_arrow_extensions_enabled(true);  // recognizes Parquet's JSON columns, as pyarrow does
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(input, bytes));
  std::unique_ptr<parquet::arrow::FileReader> file;
  ARROW_RETURN_NOT_OK(builder.memory_pool(pool)->properties(how)->Build(&file));
  ARROW_ASSIGN_OR_RAISE(const auto reader, file->GetRecordBatchReader());
  return read_all(*reader, lines);
}

arrow::ipc::IpcReadOptions ipc_options(arrow::MemoryPool* pool) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  options.use_threads = false;
  return options;
}

arrow::Status read_arrow_file(const std::shared_ptr<Input>& input, arrow::MemoryPool* pool,
                              Lines& lines) {
  ARROW_ASSIGN_OR_RAISE(const auto file,
                        arrow::ipc::RecordBatchFileReader::Open(input, ipc_options(pool)));
  ARROW_RETURN_NOT_OK(lines.schema(*file->schema()));
  for (int i = 0; i < file->num_record_batches(); ++i) {
    ARROW_ASSIGN_OR_RAISE(const auto batch, file->ReadRecordBatch(i));
    ARROW_RETURN_NOT_OK(lines.batch(*batch));
  }
  return arrow::Status::OK();
}

/// Checks the end-of-stream mark: without it, a stream cut between two batches looks complete.
arrow::Status ends_marked(Input& input) {
  constexpr std::string_view kEnd("\xFF\xFF\xFF\xFF\0\0\0\0", 8);
  ARROW_ASSIGN_OR_RAISE(const int64_t size, input.GetSize());
  ARROW_ASSIGN_OR_RAISE(const auto tail, input.ReadAt(std::max<int64_t>(0, size - 8), 8));
  if (tail->ToString() == kEnd) return arrow::Status::OK();
  return arrow::Status::Invalid("it ends without an end-of-stream mark");
}

arrow::Status read_arrow_stream(const std::shared_ptr<Input>& input, arrow::MemoryPool* pool,
                                Lines& lines) {
  ARROW_ASSIGN_OR_RAISE(const auto reader,
                        arrow::ipc::RecordBatchStreamReader::Open(input, ipc_options(pool)));
  ARROW_RETURN_NOT_OK(read_all(*reader, lines));
  return ends_marked(*input);
}

arrow::Status read(const std::shared_ptr<Input>& input, ColumnForm form, Lines& lines) {
  arrow::CappedMemoryPool pool(arrow::system_memory_pool(), kMemoryMax);
  try {
    switch (form) {
      case ColumnForm::Parquet:
        return read_parquet(input, &pool, lines);
      case ColumnForm::ArrowFile:
        return read_arrow_file(input, &pool, lines);
      case ColumnForm::ArrowStream:
        break;
    }
    return read_arrow_stream(input, &pool, lines);
  } catch (const std::exception& problem) {  // Parquet's exceptions, and std::bad_alloc
    return arrow::Status::Invalid(problem.what());
  }
}

/// Shortens text to one line of at most a few hundred bytes.
std::string short_text(std::string text) {
  constexpr size_t kLongest = 300;
  std::ranges::replace(text, '\n', ' ');
  if (text.size() > kLongest) text = text.substr(0, kLongest) + " ...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  return text;
}

Status to_lines(const ReadFile& file, const std::string& path, ColumnForm form,
                const TextSink& sink) {
  const auto input = std::make_shared<Input>(file);
  Lines lines(sink);
  const arrow::Status done = read(input, form, lines);
  if (done.ok()) return {};
  DSJ_TRY_STATUS(lines.sunk());
  DSJ_TRY_STATUS(input->status());
  const std::string name = form == ColumnForm::Parquet ? "a Parquet file" : "an Arrow file";
  if (lines.refused())
    return bad_input("is " + name + " whose rows are not read: " + *lines.refused(), path,
                     "leave the column out where you write the file");
  return bad_input(
      "is " + name + " that cannot be read: " + short_text(done.message()), path,
      done.IsNotImplemented() ? "write it again with another writer" : "copy or download it again");
}

}  // namespace
}  // namespace dsj::data

extern "C" __attribute__((visibility("default"))) const dsj::data::ColumnsPlugin*
dsj_columns_plugin() {
  static constexpr dsj::data::ColumnsPlugin kPlugin{dsj::data::kColumnsInterface,
                                                    dsj::data::to_lines};
  return &kPlugin;
}
