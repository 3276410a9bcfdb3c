// Converts columnar files of rows, Parquet and Arrow IPC, to lines of JSON. Arrow's libraries
// are 50 MB, so only the plug-in libdsj_columns.so (engine/data/arrow) links them, and it is
// loaded for the first such file. Internal to engine/data.
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
  ArrowStream,  ///< without a footer; datasets' save_to_disk writes it
};

/// Detects the form by a file's first bytes. nullopt if it is not a columnar file.
std::optional<ColumnForm> column_form(std::string_view head);

/// Gets the text piece by piece. An error from it stops the conversion.
using TextSink = std::function<Status(std::string_view)>;

/// Writes each row as an object in a line, with its fields in the file's order. Values are
/// those of pyarrow's to_pylist:
///   null, booleans, integers, text       as JSON has them
///   floating point                       the shortest number of a double; NaN and infinity: null
///   decimal                              a number
///   list, struct, map                    a list, an object, a list of [key, value]; a struct
///                                        in a struct, or in the column tools, without its null
///                                        fields, which Arrow adds to give all values the same
///   dictionary, extension                their value; arrow.json: the JSON itself, as
///                                        datasets decodes its Json columns
///   date, time, timestamp                Python's str() of it; with a time zone: in UTC
///   bytes                                the text, or {"bytes": count} if they are not UTF-8
/// Errors: BadInput for a column of another type, two columns of one name, or a damaged file;
/// Environment if the plug-in or one of its libraries is missing, or from another build.
/// `plugin`: its file; empty means next to this program. Memory: a few batches of rows.
Status columns_to_lines(const ReadFile& file, const std::string& path, ColumnForm form,
                        const TextSink& sink, const std::string& plugin = {});

/// The interface of libdsj_columns.so.
struct ColumnsPlugin {
  int64_t interface = 0;  ///< kColumnsInterface at its build
  Status (*to_lines)(const ReadFile& file, const std::string& path, ColumnForm form,
                     const TextSink& sink) = nullptr;
};
inline constexpr int64_t kColumnsInterface = 1;
inline constexpr char kColumnsFile[] = "libdsj_columns.so";
/// Its only function, of type const ColumnsPlugin*().
inline constexpr char kColumnsEntry[] = "dsj_columns_plugin";

}  // namespace dsj::data
