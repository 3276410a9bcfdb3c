// The table of ds_config keys: path, aliases, type, range, defaults, Hugging Face's rule for
// "auto", the stages at which a key acts, how this engine treats it, its field, and the test that
// fails if it is ignored. check.cc walks it, resolve() takes values and defaults from it
// (source.h), `dsj validate` reports from it, and docs/ds_config.md is printed from it
// (key_table.h). A key that is not here is unknown. Plain data, no failures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

enum class Type { Bool, Int, Float, String, List, Section, Any };

enum class State {
  Works,        ///< works as documented; `test` fails if it is ignored
  Moot,         ///< accepted silently: no value can change a run here; has a reason
  Inert,        ///< a warning with the reason, except at neutral values
  Unsupported,  ///< refused at run time with the reason, except at neutral values
  Rejected,     ///< an error with the reason, as in DeepSpeed, except at the default
  WithSection,  ///< has the state of its section, or of the key that enables it
};

/// When a Section counts as enabled. A disabled section is checked only for typing errors.
enum class Gate {
  Always,      ///< each key counts by itself
  Enabled,     ///< its own "enabled" is true
  AnyEnabled,  ///< an "enabled" is true at any depth
  Presence,    ///< it is present and not empty
};

/// A field of ResolvedConfig.
using Field = std::variant<bool*, int*, int64_t*, double*, std::string*>;
/// to<&ResolvedConfig::zero, &ZeroConfig::stage>: the field for Key::field.
template <auto... kMembers>
Field to(ResolvedConfig& config) {
  return &(config.*....*kMembers);
}

struct Key {
  std::string path;  ///< "zero_optimization.stage"
  Type type = Type::Any;
  /// DeepSpeed 0.19's default; null if none. A key with a field has the field's initial value, so a
  /// default is written only once.
  nlohmann::json fallback = nullptr;
  State state = State::Works;
  std::string reason = {};                       ///< why its state is not Works; shown as the hint
  std::vector<std::string> aliases = {};         ///< other names in the same section
  double min = -1.7e308, max = 1.7e308;          ///< numbers, inclusive
  std::vector<std::string> choices = {};         ///< strings, in any case
  std::vector<nlohmann::json> neutral = {};      ///< neutral values besides the default
  std::string auto_rule = {};                    ///< Hugging Face's rule for "auto"; empty if none
  int64_t (*of_hidden_size)(int64_t) = nullptr;  ///< the rule, if it depends on the hidden size
  nlohmann::json fallback_013 = nullptr;         ///< 0.13's default if it differs
  Gate gate = Gate::Always;                      ///< sections
  bool open = false;                             ///< sections: keys below are not checked
  std::string stages = {};  ///< the ZeRO stages at which it acts: "3", "1, 2"; empty: all
  /// Where resolve() writes the value. Null: a part of resolve() reads the key itself (parts.h),
  /// because its value depends on more than the key.
  Field (*field)(ResolvedConfig&) = nullptr;
  /// For a key that Works: the test that fails if the key is ignored. "PROGRAM:Suite.Test"
  /// of GoogleTest, or the name of a script that CTest runs ("golden"); separated by
  /// spaces.
  std::string test = {};
};

const std::vector<Key>& all_keys();
/// The key with this path or alias; null if unknown.
const Key* find_key(std::string_view path);
/// Names and aliases of the keys directly in a section; "" is the top level.
const std::vector<std::string>& names_in(const std::string& section);
/// Paths of keys called `name` in sections other than `section`. Empty for common words.
std::vector<std::string> homes_of(const std::string& name, const std::string& section);

// The parts of the table, one file each.
std::vector<Key> training_keys();  ///< batch, clipping, communication
std::vector<Key> optimizer_keys();
std::vector<Key> scheduler_keys();
std::vector<Key> precision_keys();    ///< fp16, bf16, data_types, amp
std::vector<Key> zero_keys();         ///< zero_optimization
std::vector<Key> offload_keys();      ///< zero_optimization.offload_*, cpu_offload*, aio
std::vector<Key> observation_keys();  ///< monitors, profilers, checkpoint, activation_checkpointing
std::vector<Key> data_keys();         ///< curriculum learning, random-LTD
std::vector<Key> other_engine_keys();  ///< keys of features that this engine lacks

}  // namespace dsj::dsconfig
