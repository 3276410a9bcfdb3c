#include "job/report/field.h"

#include <gtest/gtest.h>

#include <set>

#include "job/report/status.h"
#include "job/report/termination_message.h"

namespace dsj::report {
namespace {

struct Whole {
  int64_t step = 0;
  std::string path;
  static constexpr auto fields() {
    return std::tuple{field(&Whole::step, "step"), field(&Whole::path, "path")};
  }
};
struct Forgetful {
  int64_t step = 0;
  std::string path;
  std::optional<double> loss;
  static constexpr auto fields() {
    return std::tuple{field(&Forgetful::step, "step"), field(&Forgetful::path, "path")};
  }
};
static_assert(has_every_member<Whole>());
static_assert(!has_every_member<Forgetful>(), "a member that the table forgets does not compile");

bool ends_with_a_word(const std::string& name, const std::string& word) {
  return name == word || name.ends_with("_" + word) ||
         name.ends_with(static_cast<char>(std::toupper(word[0])) + word.substr(1));
}

/// The names of T's own fields are different, and a name that ends in a unit has it.
template <typename T>
void expect_a_table() {
  SCOPED_TRACE(typeid(T).name());
  const std::map<std::string, Unit> units = {
      {"seconds", Unit::Seconds}, {"ms", Unit::Milliseconds}, {"bytes", Unit::Bytes},
      {"tokens", Unit::Tokens},   {"time", Unit::Time},       {"percentage", Unit::Percent}};
  std::set<std::string> names;
  for_each_entry<T>([&](const auto& entry) {
    if constexpr (!IsPart<std::remove_cvref_t<decltype(entry)>>::value) {
      EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is there twice";
      for (const auto& [word, unit] : units) {
        EXPECT_TRUE(!ends_with_a_word(entry.name, word) || entry.unit == unit) << entry.name;
      }
    }
  });
}

TEST(Field, NamesAreDifferentAndSayTheirUnit) {
  [&]<typename... Kinds>(std::type_identity<std::variant<Kinds...>>) {
    (expect_a_table<Kinds>(), ...);
  }(std::type_identity<Event>());
  [&]<typename... Kinds>(std::type_identity<std::variant<Kinds...>>) {
    (expect_a_table<Kinds>(), ...);
  }(std::type_identity<Report>());
  expect_a_table<Training>();
  expect_a_table<Saved>();
  expect_a_table<Restored>();
  expect_a_table<FailureRecord>();
  expect_a_table<TerminationMessage>();
}

}  // namespace
}  // namespace dsj::report
