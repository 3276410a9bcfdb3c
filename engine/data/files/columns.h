// Columnar files of rows, Parquet and Arrow IPC, as lines of JSON. Arrow's libraries are 50 MB: the
// plug-in libdsj_columns.so (engine/data/arrow) alone is linked with them, and it is opened when the
// first such file is met. Internal to engine/data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

enum class ColumnForm {
  Parquet,
  ArrowFile,    ///< with a footer; Feather 2
  ArrowStream,  ///< without: what datasets' save_to_disk writes
};

/// Of a file by its first bytes. nullopt: it is no columnar file.
std::optional<ColumnForm> column_form(std::string_view head);

/// Takes text piece by piece. Its error ends the reading.
using TextSink = std::function<Status(std::string_view)>;

/// Each row as an object in a line, its fields in the file's order. Values are those that pyarrow's
/// to_pylist gives:
///   null, booleans, integers, text       as JSON has them
///   floating point                       the shortest number of a double; NaN and infinity: null
///   decimal                              a number
///   list, struct, map                    a list, an object, a list of [key, value]
///   dictionary, extension                what they stand for; arrow.json: the JSON itself, as datasets
///                                        decodes its Json columns
///   date, time, timestamp                Python's str() of it; with a time zone: in UTC
///   bytes                                the text, or {"bytes": how many} where they are no UTF-8
/// BadInput: a column of another type, two columns of one name, a damaged file. Environment: the
/// plug-in or one of its libraries is missing, or of another build. `plugin`: its file; empty: beside
/// this program. Memory: some batches of rows.
Status columns_to_lines(const ReadFile& file, const std::string& path, ColumnForm form,
                        const TextSink& sink, const std::string& plugin = {});

/// What libdsj_columns.so brings.
struct ColumnsPlugin {
  int64_t interface = 0;  ///< kColumnsInterface of its build
  Status (*to_lines)(const ReadFile& file, const std::string& path, ColumnForm form,
                     const TextSink& sink) = nullptr;
};
inline constexpr int64_t kColumnsInterface = 1;
inline constexpr char kColumnsFile[] = "libdsj_columns.so";
/// Its one function, of type const ColumnsPlugin*().
inline constexpr char kColumnsEntry[] = "dsj_columns_plugin";

}  // namespace dsj::data
