// Result<T>: a value, or an Error that says what was found, what was expected, where, and what to
// do. Use Error for failures of the outside world (a file, a peer, a config), DSJ_CHECK (check.h)
// for what cannot happen.
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace dsj {

/// The kind of failure. It determines the exit code (contract.h) and whether a restart can help.
enum class ErrorKind {
  BadInput,     ///< the user's input is wrong
  Environment,  ///< a missing library, no space, no permission
  Transient,    ///< a peer, a timeout; a restart from the last checkpoint may help
  Internal,     ///< a bug in our code
};

struct Error {
  /// A finer distinction for callers. It is sent with the error to other ranks.
  enum class Cause {
    Other,
    Disk,    ///< the disk cannot read its data back (file_error.h)
    Damage,  ///< the content of a checkpoint is wrong (engine/checkpoint/damage.h)
  };

  ErrorKind kind = ErrorKind::Internal;
  std::string message;  ///< one sentence, lower case: what was found, what was expected
  std::string where;    ///< file, file:line:column, or a JSON path; may be empty
  std::string hint;     ///< what to do; may be empty
  Cause cause = Cause::Other;

  /// "where: message (hint)".
  std::string to_string() const {
    std::string text = where.empty() ? message : where + ": " + message;
    if (!hint.empty()) text += " (" + hint + ")";
    return text;
  }
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

inline std::unexpected<Error> fail(ErrorKind kind, std::string message, std::string where = {},
                                   std::string hint = {}) {
  return std::unexpected(Error{kind, std::move(message), std::move(where), std::move(hint)});
}
inline std::unexpected<Error> bad_input(std::string message, std::string where = {},
                                        std::string hint = {}) {
  return fail(ErrorKind::BadInput, std::move(message), std::move(where), std::move(hint));
}

}  // namespace dsj

/// Returns the error of a Result to the caller. `DSJ_TRY(auto x, f());` binds the value.
#define DSJ_TRY_CONCAT_(a, b) a##b
#define DSJ_TRY_NAME_(a, b) DSJ_TRY_CONCAT_(a, b)
#define DSJ_TRY(declaration, expression) \
  DSJ_TRY_IMPL_(DSJ_TRY_NAME_(dsj_try_, __LINE__), declaration, expression)
#define DSJ_TRY_IMPL_(temporary, declaration, expression)               \
  auto temporary = (expression);                                        \
  if (!temporary) return std::unexpected(std::move(temporary).error()); \
  declaration = std::move(*temporary)
#define DSJ_TRY_STATUS(expression)                 \
  if (auto dsj_status = (expression); !dsj_status) \
  return std::unexpected(std::move(dsj_status).error())
