#include "tools/tasks.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string_view>

#include "tools/random.h"

namespace dsj::tools {
namespace {

// Capital letters only: the tokenizer learns no merges for them (bpe_trainer.h).
constexpr std::string_view kLetters = "ABCDEFGHJKLM";
constexpr std::size_t kReversalLetters = 4;
constexpr int kLookupsPerRow = 3;
constexpr std::array kWords = {"apple", "pear",   "plum",   "kiwi",  "fig",   "lemon",
                               "lime",  "mango",  "melon",  "peach", "grape", "cherry",
                               "berry", "orange", "papaya", "date",  "olive", "nut",
                               "corn",  "bean",   "pea",    "leek",  "onion", "radish"};

/// The tasks of successive training rows. Half are sums: their digits are about two hundred
/// facts; the other tasks are one procedure and one small table.
constexpr std::array<std::size_t, 4> kShares = {0, 1, 0, 2};
/// Limit on held-out questions per task; each task has thousands of different ones.
constexpr int64_t kHeldOutMax = 1000;

/// A question with its answer, and a key that equal questions share.
struct Drawn {
  Example example;
  std::string key;
};

Drawn draw_sum(Random& random) {
  const int a = 10 + static_cast<int>(random.below(90));
  const int b = 10 + static_cast<int>(random.below(90));
  const int ones = a % 10 + b % 10;
  const int carry = ones / 10;
  const int tens = a / 10 + b / 10 + carry;
  const auto text = [](int number) { return std::to_string(number); };
  return {{"Add " + text(a) + " and " + text(b) + ".", "",
           text(a % 10) + "+" + text(b % 10) + "=" + text(ones) + ", " + text(a / 10) + "+" +
               text(b / 10) + "+" + text(carry) + "=" + text(tens) + ", " + text(a + b)},
          text(std::min(a, b)) + "+" + text(std::max(a, b))};
}

Drawn draw_reversal(Random& random) {
  std::string word;
  while (word.size() < kReversalLetters) {
    const char letter = kLetters[random.below(kLetters.size())];
    if (word.find(letter) == std::string::npos) word += letter;
  }
  return {{"Reverse the letters.", word, std::string(word.rbegin(), word.rend())}, word};
}

Drawn draw_lookup(Random& random, const std::vector<int>& codes) {
  std::vector<std::size_t> picks;
  while (picks.size() < kLookupsPerRow) {
    const std::size_t pick = random.below(kWords.size());
    if (std::find(picks.begin(), picks.end(), pick) == picks.end()) picks.push_back(pick);
  }
  std::string question = "Give the codes of ", answer;
  for (int i = 0; i < kLookupsPerRow; ++i) {
    const std::size_t pick = picks[static_cast<std::size_t>(i)];
    if (i > 0) {
      question += i + 1 < kLookupsPerRow ? ", " : " and ";
      answer += ", ";
    }
    question += kWords[pick];
    answer += std::to_string(codes[pick]);
  }
  question += '.';
  return {{question, "", answer}, question};
}

}  // namespace

Result<TaskData> make_task_data(const TaskOptions& options) {
  if (options.train_rows < 1 || options.heldout_per_task < 1 ||
      options.heldout_per_task > kHeldOutMax) {
    return bad_input(std::to_string(options.train_rows) + " training rows and " +
                     std::to_string(options.heldout_per_task) +
                     " held-out questions per task were asked for, expected at least 1 of each "
                     "and at most " +
                     std::to_string(kHeldOutMax) + " held out");
  }
  Random random(options.seed);
  std::vector<int> codes;
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    codes.push_back(100 + static_cast<int>(random.below(900)));
  }
  struct Task {
    std::string name;
    std::function<Drawn()> draw;
    std::set<std::string> held = {};
  };
  std::array<Task, 3> tasks = {Task{"sums", [&] { return draw_sum(random); }},
                               Task{"reversals", [&] { return draw_reversal(random); }},
                               Task{"lookups", [&] { return draw_lookup(random, codes); }}};
  TaskData data;
  for (Task& task : tasks) {
    HeldOut& held = data.heldout.emplace_back(HeldOut{task.name, {}});
    while (static_cast<int64_t>(held.examples.size()) < options.heldout_per_task) {
      Drawn drawn = task.draw();
      if (task.held.insert(drawn.key).second) held.examples.push_back(std::move(drawn.example));
    }
  }
  while (static_cast<int64_t>(data.train.size()) < options.train_rows) {
    const Task& task = tasks[kShares[data.train.size() % kShares.size()]];
    Drawn drawn = task.draw();
    if (!task.held.contains(drawn.key)) data.train.push_back(std::move(drawn.example));
  }
  random.shuffle(data.train);
  return data;
}

}  // namespace dsj::tools
