// The one table of ds_config keys: path, other names, type, range, defaults, Hugging Face's "auto"
// rule, the stages it acts on, what this engine does with it, and the test that fails if it did
// not. check.cc walks it; resolve.cc takes its defaults; `dsj validate` speaks by it;
// docs/ds_config.md is printed from it (key_table.h). A key that is not here is unknown. Plain
// data, no failures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::dsconfig {

enum class Type { Bool, Int, Float, String, List, Section, Any };

enum class State {
  Works,        ///< does what it says; `test` names the test that fails if it is ignored
  Moot,         ///< accepted without a word: no value of it can change a run here, for the reason
  Inert,        ///< any other value than the neutral ones: a warning with the reason
  Unsupported,  ///< any other value than the neutral ones: refused at run, with the reason
  Rejected,     ///< any other value than the default is an error, as in DeepSpeed, for the reason
  WithSection,  ///< says nothing of its own: it goes the way of its section, or of what switches it
};

/// When a Section counts as switched on. A section that is off is checked for slips only.
enum class Gate {
  Always,      ///< its keys speak for themselves
  Enabled,     ///< its own "enabled" is true
  AnyEnabled,  ///< an "enabled" is true at any depth
  Presence,    ///< it is there and not empty
};

struct Key {
  std::string path;  ///< "zero_optimization.stage"
  Type type = Type::Any;
  nlohmann::json fallback = nullptr;  ///< the default of DeepSpeed 0.19; null: none
  State state = State::Works;
  std::string reason = {};                   ///< why it is not Works; the hint
  std::vector<std::string> aliases = {};     ///< other names in the same section
  double min = -1.7e308, max = 1.7e308;      ///< of numbers, inclusive
  std::vector<std::string> choices = {};     ///< of strings, any case
  std::vector<nlohmann::json> neutral = {};  ///< besides the default
  std::string auto_rule = {};                ///< Hugging Face's rule for "auto"; empty: it has none
  nlohmann::json fallback_013 = nullptr;     ///< the default of 0.13 where it differs
  Gate gate = Gate::Always;                  ///< sections
  bool open = false;        ///< sections: keys below are not in this table; not looked at
  std::string stages = {};  ///< the ZeRO stages it acts on: "3", "1, 2"; empty: all
  /// "PROGRAM:Suite.Test" of GoogleTest, or the name of a script that CTest runs ("golden"); more
  /// than one with spaces between. Of a key that Works: what fails if the key is ignored.
  std::string test = {};
};

const std::vector<Key>& all_keys();
/// The key with this path or with this path as another name; null when unknown.
const Key* find_key(std::string_view path);
/// Names (aliases too) of the keys directly in a section; "" is the top level.
const std::vector<std::string>& names_in(const std::string& section);
/// Paths of known keys called `name` in other sections than `section`, common words left out.
std::vector<std::string> homes_of(const std::string& name, const std::string& section);

// The parts of the table, one file each.
std::vector<Key> training_keys();  ///< batch, clipping, communication
std::vector<Key> optimizer_keys();
std::vector<Key> scheduler_keys();
std::vector<Key> precision_keys();    ///< fp16, bf16, data_types, amp
std::vector<Key> zero_keys();         ///< zero_optimization
std::vector<Key> offload_keys();      ///< zero_optimization.offload_*, cpu_offload*, aio
std::vector<Key> observation_keys();  ///< monitors, profilers, checkpoint, activation_checkpointing
std::vector<Key> other_engine_keys();  ///< what belongs to engines we are not

/// optimizer.type and scheduler.type: how a name is meant.
enum class Support { Here, Elsewhere, Unknown };  ///< built here; DeepSpeed has it; nobody does
Support optimizer_support(const std::string& type);
Support scheduler_support(const std::string& type);
const std::vector<std::string>& optimizer_names();
const std::vector<std::string>& scheduler_names();

}  // namespace dsj::dsconfig
