#include "engine/train/answer/chat.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/files/posix_files.h"
#include "engine/train/answer/answering_model.h"
#include "engine/train/answer/sampling.h"
#include "job/contract.h"
#include "job/generate_arguments.h"

namespace dsj::train {
namespace {

using nlohmann::json;

constexpr char kName[] = "dsj chat";
constexpr int kExitInterrupted = 130;
constexpr char kHelp[] =
    "  /clear          forgets the conversation, keeps the system message\n"
    "  /system [TEXT]  sets the system message, or removes it, and forgets the conversation\n"
    "  /undo           takes the last question and its answer back\n"
    "  /save FILE      appends the conversation to FILE as a chat row\n"
    "  /exit           ends, as Ctrl-D does\n"
    "  A line that ends with \\ goes on in the next one. A line that begins with a space is no "
    "command.\n";

/// Ctrl-C as a file descriptor that can be polled. Made before any thread, so that all block it.
class Interrupts {
 public:
  Interrupts() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    signal(SIGINT,
           SIG_DFL);  // background jobs of a shell ignore it, and ignored signals do not arrive
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~Interrupts() { close(fd_); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int fd() const { return fd_; }
  /// Whether a Ctrl-C came since the last call.
  bool came() {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof(info)) == sizeof(info);
  }

 private:
  int fd_;
};

/// Lines of standard input.
class Lines {
 public:
  explicit Lines(Interrupts& interrupts) : interrupts_(interrupts) {}

  /// nullopt at the end of the input, or on Ctrl-C.
  std::optional<std::string> next() {
    size_t end = 0;
    while ((end = ahead_.find('\n')) == std::string::npos) {
      pollfd either[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_.fd(), POLLIN, 0}};
      if (poll(either, 2, -1) < 0 && errno != EINTR) return std::nullopt;
      if (interrupts_.came()) interrupted_ = true;
      if (interrupted_) return std::nullopt;
      if (either[0].revents == 0) continue;
      char chunk[4096];
      const ssize_t got = read(STDIN_FILENO, chunk, sizeof(chunk));
      if (got > 0) {
        ahead_.append(chunk, static_cast<size_t>(got));
      } else if (got == 0 && !ahead_.empty()) {
        return std::exchange(ahead_, {});  // the last line, without a line end
      } else if (got == 0 || errno != EINTR) {
        return std::nullopt;
      }
    }
    std::string line = ahead_.substr(0, end);
    ahead_.erase(0, end + 1);
    return line;
  }
  bool interrupted() const { return interrupted_; }

 private:
  Interrupts& interrupts_;
  std::string ahead_;
  bool interrupted_ = false;
};

/// Prints a growing completion as far as its text is final: a character may span several tokens.
class Printer {
 public:
  explicit Printer(const data::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void show(std::span<const int32_t> ids) {
    std::string text = tokenizer_.decode(ids, /*skip_special=*/true);
    if (!text.ends_with("\uFFFD")) print(std::move(text));
  }
  /// Prints the rest and returns the whole text.
  std::string end(std::span<const int32_t> ids) {
    std::string text = tokenizer_.decode(ids, /*skip_special=*/true);
    print(text);
    std::fputs("\n", stdout);
    std::fflush(stdout);
    return text;
  }

 private:
  void print(std::string text) {
    if (!text.starts_with(shown_)) return;  // a later token changed the text of an earlier one
    std::fwrite(text.data() + shown_.size(), 1, text.size() - shown_.size(), stdout);
    std::fflush(stdout);
    shown_ = std::move(text);
  }

  const data::Tokenizer& tokenizer_;
  std::string shown_;
};

/// BadInput: the model cannot take a system message.
Status takes_system(AnsweringModel& model, const std::string& text) {
  DSJ_TRY(const bool turns, model.asker().takes_turns());
  if (turns || text.empty()) return {};
  return bad_input("the model has no chat template, so it sees no system message", "",
                   "--chat-template names one");
}

class Chat {
 public:
  Chat(AnsweringModel& model, const ChatArguments& arguments, const Sampling& sampling,
       Interrupts& interrupts)
      : model_(model),
        arguments_(arguments),
        sampling_(sampling),
        interrupts_(interrupts),
        lines_(interrupts) {
    set_system(arguments.system);
  }

  /// Reads turns and commands until the end of the input, /exit, or Ctrl-C. Returns false on
  /// Ctrl-C.
  bool talk() {
    while (const auto line = read_turn()) {
      if (line->empty()) continue;
      if (line->front() == '/') {
        if (!command(*line)) return true;
      } else if (const auto answered = answer(*line); !answered) {
        std::fprintf(stderr, "%s: %s\n", kName, answered.error().to_string().c_str());
      }
    }
    return !lines_.interrupted();
  }

 private:
  void set_system(const std::string& text) {
    turns_.clear();
    if (!text.empty()) turns_.push_back({"system", text});
  }

  /// nullopt at the end of the input, or on Ctrl-C.
  std::optional<std::string> read_turn() {
    std::string turn;
    do {
      if (isatty(STDIN_FILENO)) std::fputs(turn.empty() ? "> " : "  ", stdout);
      std::fflush(stdout);
      auto line = lines_.next();
      if (!line) return std::nullopt;
      if (line->ends_with('\r')) line->pop_back();
      turn += (turn.empty() ? "" : "\n") + *line;
    } while (turn.ends_with('\\') && (turn.pop_back(), true));
    return turn;
  }

  /// Returns false if the conversation ends.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/clear") {
      std::erase_if(turns_, [](const data::Turn& turn) { return turn.role != "system"; });
    } else if (name == "/system") {
      if (const auto possible = takes_system(model_, rest); possible)
        set_system(rest);
      else
        std::fprintf(stderr, "%s: %s\n", kName, possible.error().to_string().c_str());
    } else if (name == "/undo") {
      while (!turns_.empty() && turns_.back().role == "assistant") turns_.pop_back();
      if (!turns_.empty() && turns_.back().role == "user") turns_.pop_back();
    } else if (name == "/save" && !rest.empty()) {
      if (const auto saved = save(rest); !saved)
        std::fprintf(stderr, "%s: %s\n", kName, saved.error().to_string().c_str());
    } else {
      if (name != "/help") std::fprintf(stderr, "%s is not a command:\n", name.c_str());
      std::fputs(kHelp, name == "/help" ? stdout : stderr);
    }
    return true;
  }

  Status answer(const std::string& asked) {
    turns_.push_back({"user", asked});
    const auto question = model_.asker().conversation(turns_);
    Status fits = question ? model_.fits(question->ids, "the conversation")
                           : Status(std::unexpected(question.error()));
    if (!fits) {
      turns_.pop_back();
      if (question) fits.error().hint = "/clear begins anew, /undo takes a turn back";
      return fits;
    }
    const std::vector<int32_t>& ids = question->ids;
    const uint64_t stream = turns_.size();
    const int64_t room = model_.config().longest_sequence() - std::ssize(ids) + 1;
    Printer printer(model_.tokenizer());
    const auto completion = model_.generator().go_on(
        ids, std::min(arguments_.max_new_tokens, room), model_.tokenizer().stop_ids(),
        [&](size_t, std::span<const float> logits, std::span<const int32_t> so_far) {
          return choose_token(sampling_, logits, ids, so_far, stream);
        },
        [&](std::span<const int32_t> so_far) {
          printer.show(so_far);
          return !interrupts_.came();
        });
    turns_.push_back({"assistant", printer.end(completion)});
    return {};
  }

  Status save(const std::string& path) {
    json messages = json::array();
    for (const data::Turn& turn : turns_)
      messages.push_back({{"role", turn.role}, {"content", turn.content}});
    std::FILE* file = std::fopen(path.c_str(), "a");
    const std::string row =
        json{{"messages", messages}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    const bool written = file && std::fputs(row.c_str(), file) >= 0;
    const bool closed = file && std::fclose(file) == 0;
    if (written && closed) return {};
    return bad_input("cannot be written", path, "name a file in a directory that can be written");
  }

  AnsweringModel& model_;
  const ChatArguments& arguments_;
  const Sampling sampling_;
  Interrupts& interrupts_;
  Lines lines_;
  std::vector<data::Turn> turns_;
};

/// The model's own settings; null if it has none.
Result<json> generation_config(Files& files, const std::string& path) {
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return json();
  DSJ_TRY(const std::string text, files.read_all(path, 1 << 20));
  json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return bad_input("is not a JSON object", path);
  return config;
}

/// Returns false if Ctrl-C ended the chat.
Result<bool> chat(const ChatArguments& arguments, Interrupts& interrupts) {
  PosixFiles files;
  DSJ_TRY(const auto model,
          AnsweringModel::open(files, arguments.model, arguments.chat_template, kName));
  const std::string path = path_join(model->directory(), "generation_config.json");
  DSJ_TRY(const json config, generation_config(files, path));
  DSJ_TRY(const Sampling sampling, resolve_sampling(arguments.sampling, config, path));
  DSJ_TRY(const bool turns, model->asker().takes_turns());
  DSJ_TRY_STATUS(takes_system(*model, arguments.system));
  if (!turns)
    std::fprintf(stderr,
                 "%s: the model has no chat template: each line is asked alone, in Stanford's "
                 "alpaca prompt\n",
                 kName);
  DSJ_TRY_STATUS(model->load_weights(arguments.device));
  if (isatty(STDIN_FILENO)) std::fprintf(stderr, "/help lists commands, Ctrl-D ends\n");
  return Chat(*model, arguments, sampling, interrupts).talk();
}

}  // namespace

int run_chat(const std::vector<std::string>& args) {
  ChatArguments arguments;
  ArgumentParser parser(kChatDescription, kName);
  add_chat_arguments(parser, arguments);
  if (const auto over = parser.parse(args))
    return *over == 0 ? contract::kExitDone : contract::kExitBadInput;
  Interrupts interrupts;
  bool interrupted = false;
  const int code = run_answering(kName, [&]() -> Status {
    DSJ_TRY(const bool ended, chat(arguments, interrupts));
    interrupted = !ended;
    return {};
  });
  return interrupted ? kExitInterrupted : code;
}

}  // namespace dsj::train
