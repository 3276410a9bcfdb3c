#include "cli/completion.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "cli/exit_codes.h"

namespace dsj::cli {
namespace {

using Lines = std::vector<std::string>;

std::string words_text(const Lines& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// `text` with `escape` before each of `characters`.
std::string with_escapes(const std::string& text, const std::string& characters,
                         const std::string& escape = "\\") {
  std::string out;
  for (const char c : text) {
    if (characters.contains(c)) out += escape;
    out += c;
  }
  return out;
}

/// In single quotes, for sh-like shells and fish.
std::string sh_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// The first sentence, for lists.
std::string brief(const std::string& help) {
  const size_t end = std::min(help.find(". "), help.find("; "));
  return help.substr(0, end);
}

/// The words that may follow a command: verbs after "", subcommands after their verb.
Lines next_words(const std::vector<Command>& commands, const std::string& words) {
  Lines next;
  const std::string begin = words.empty() ? "" : words + " ";
  for (const Command& command : commands) {
    if (!command.words.starts_with(begin) || command.words == words) continue;
    const std::string rest = command.words.substr(begin.size());
    const std::string word = rest.substr(0, rest.find(' '));
    if (std::ranges::find(next, word) == next.end()) next.push_back(word);
  }
  return next;
}

/// All commands and their prefixes: "checkpoint" and "checkpoint show".
Lines all_words(const std::vector<Command>& commands) {
  Lines all;
  for (const Command& command : commands) {
    for (size_t end = command.words.find(' ');; end = command.words.find(' ', end + 1)) {
      const std::string words = command.words.substr(0, end);
      if (std::ranges::find(all, words) == all.end()) all.push_back(words);
      if (end == std::string::npos) break;
    }
  }
  return all;
}

const Command* command_of(const std::vector<Command>& commands, const std::string& words) {
  const auto found = std::ranges::find(commands, words, &Command::words);
  return found == commands.end() ? nullptr : &*found;
}

std::string summary_of(const std::vector<Command>& commands, const std::string& words) {
  const Command* command = command_of(commands, words);
  if (!command) {  // a verb with subcommands has its summary at the first of them
    const auto first = std::ranges::find_if(
        commands, [&](const Command& one) { return one.words.starts_with(words + " "); });
    return first == commands.end() ? "" : first->summary;
  }
  return command->summary.empty() || command->words.contains(' ')
             ? brief(command->parser.description)
             : command->summary;
}

/// Calls `use` for every argument with a name.
void each_option(const Command& command,
                 const std::function<void(const ArgumentDescription&)>& use) {
  for (const ArgumentDescription& argument : command.parser.arguments)
    if (!argument.names.empty()) use(argument);
}

Lines option_names(const Command& command) {
  Lines names;
  each_option(command, [&](const ArgumentDescription& argument) {
    names.insert(names.end(), argument.names.begin(), argument.names.end());
  });
  return names;
}

/// The choices of the first positional argument.
Lines positional_choices(const Command& command) {
  for (const ArgumentDescription& argument : command.parser.arguments)
    if (!argument.word.empty()) return argument.choices;
  return {};
}

/// Patterns "get -o"|"get --output" of an option, for sh's case.
std::string option_pattern(const Command& command, const ArgumentDescription& argument) {
  Lines patterns;
  for (const std::string& name : argument.names)
    patterns.push_back(sh_quoted(command.words + " " + name));
  return words_text(patterns, "|");
}

std::string quoted_pattern(const Lines& all) {
  Lines patterns;
  for (const std::string& words : all) patterns.push_back(sh_quoted(words));
  return words_text(patterns, "|");
}

}  // namespace

std::string bash_completion(const std::vector<Command>& commands) {
  std::string values, words;
  for (const Command& command : commands) {
    each_option(command, [&](const ArgumentDescription& argument) {
      if (!argument.takes_word) return;
      values += "    " + option_pattern(command, argument) +
                ") takes_word=1; list=" + sh_quoted(words_text(argument.choices)) + " ;;\n";
    });
  }
  words += "    '') list=" + sh_quoted(words_text(next_words(commands, "")) + " --help --version") +
           " ;;\n";
  for (const std::string& one : all_words(commands)) {
    Lines list = next_words(commands, one);
    Lines named;
    if (const Command* command = command_of(commands, one)) {
      const Lines choices = positional_choices(*command);
      list.insert(list.end(), choices.begin(), choices.end());
      named = option_names(*command);
    }
    words += "    " + sh_quoted(one) + ") list=" + sh_quoted(words_text(list)) +
             "; options=" + sh_quoted(words_text(named)) + " ;;\n";
  }
  return R"(# bash completion of dsj, made by `dsj completion bash`.
_dsj() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"
  local command='' candidate list='' options='' takes_word='' i
  if [ "$word" = = ]; then word=''; elif [ "$before" = = ]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    candidate="${command:+$command }${COMP_WORDS[i]}"
    case "$candidate" in
      )" +
         quoted_pattern(all_words(commands)) +
         R"() command="$candidate" ;;
      *) break ;;
    esac
  done
  COMPREPLY=()
  case "$command $before" in
)" + values +
         R"(  esac
  if [ "$takes_word" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word")
    return
  fi
  case "$command" in
)" + words +
         R"(  esac
  case "$word" in
    -*) list="$list $options" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word")
}
complete -o bashdefault -o default -F _dsj dsj kubectl-dsj
)";
}

std::string zsh_completion(const std::vector<Command>& commands) {
  const auto entry = [](const std::string& word, const std::string& help) {
    return sh_quoted(with_escapes(word, ":") + (help.empty() ? "" : ":" + help));
  };
  std::string values, words;
  for (const Command& command : commands) {
    each_option(command, [&](const ArgumentDescription& argument) {
      if (!argument.takes_word) return;
      Lines list;
      for (const std::string& choice : argument.choices) list.push_back(entry(choice, ""));
      values += "    (" + option_pattern(command, argument) + ") takes_word=1; list=(" +
                words_text(list) + ") ;;\n";
    });
  }
  Lines verbs;
  for (const std::string& verb : next_words(commands, ""))
    verbs.push_back(entry(verb, summary_of(commands, verb)));
  words += "    ('') list=(" + words_text(verbs) + " --help --version) ;;\n";
  for (const std::string& one : all_words(commands)) {
    Lines list, named;
    for (const std::string& word : next_words(commands, one))
      list.push_back(entry(word, summary_of(commands, one + " " + word)));
    if (const Command* command = command_of(commands, one)) {
      for (const std::string& choice : positional_choices(*command))
        list.push_back(entry(choice, ""));
      each_option(*command, [&](const ArgumentDescription& argument) {
        for (const std::string& name : argument.names)
          named.push_back(entry(name, brief(argument.help)));
      });
    }
    words += "    (" + sh_quoted(one) + ") list=(" + words_text(list) + "); options=(" +
             words_text(named) + ") ;;\n";
  }
  return R"(#compdef dsj kubectl-dsj
# zsh completion of dsj, made by `dsj completion zsh`.
_dsj() {
  local command='' candidate takes_word=''
  local -a list options
  integer i
  for ((i = 2; i < CURRENT; i++)); do
    candidate="${command:+$command }${words[i]}"
    case "$candidate" in
      ()" +
         quoted_pattern(all_words(commands)) +
         R"() command="$candidate" ;;
      (*) break ;;
    esac
  done
  case "$command ${words[CURRENT-1]}" in
)" + values +
         R"(  esac
  if [[ -n "$takes_word" ]]; then
    if (( $#list )); then _describe word list; else _files; fi
    return
  fi
  case "$command" in
)" + words +
         R"(  esac
  if [[ "$PREFIX" == -* ]]; then list+=($options); fi
  if (( $#list )); then _describe command list; else _files; fi
}
if [[ "$funcstack[1]" == _dsj ]]; then _dsj "$@"; else compdef _dsj dsj kubectl-dsj; fi
)";
}

std::string fish_completion(const std::vector<Command>& commands) {
  const auto fish = [](const std::string& text) { return "'" + with_escapes(text, "\\'") + "'"; };
  Lines cases;
  for (const std::string& words : all_words(commands)) cases.push_back(fish(words));
  std::string text = R"(# fish completion of dsj, made by `dsj completion fish`.
function __dsj_command
  set -l command
  for word in (commandline -opc)[2..-1]
    switch "$command $word"
      case )";
  for (std::string& one : cases) one.insert(1, one.find(' ') == std::string::npos ? " " : "");
  text += words_text(cases) + R"(
        set command (string trim "$command $word")
      case '*'
        break
    end
  end
  echo "$command"
end
function __dsj_in
  test (__dsj_command) = "$argv[1]"
end
)";
  const auto words_after = [&](const std::string& words) {
    for (const std::string& word : next_words(commands, words))
      text += "complete -c dsj -f -n " + fish("__dsj_in " + sh_quoted(words)) + " -a " +
              fish(word) + " -d " +
              fish(summary_of(commands, words.empty() ? word : words + " " + word)) + "\n";
  };
  words_after("");
  for (const std::string& words : all_words(commands)) words_after(words);
  for (const Command& command : commands) {
    const std::string here = "complete -c dsj -n " + fish("__dsj_in " + sh_quoted(command.words));
    const Lines choices = positional_choices(command);
    if (!choices.empty()) text += here + " -f -a " + fish(words_text(choices)) + "\n";
    each_option(command, [&](const ArgumentDescription& argument) {
      text += here;
      for (const std::string& name : argument.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (argument.takes_word && argument.choices.empty()) text += " -r";
      if (!argument.choices.empty()) text += " -x -a " + fish(words_text(argument.choices));
      text += " -d " + fish(brief(argument.help)) + "\n";
    });
  }
  return text;
}

namespace {

/// Escapes text for man: backslashes, leading dots and quotes, and minus signs.
std::string roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
    begins = c == '\n';
  }
  return out;
}

std::string page_name(const std::string& words) {
  std::string name = words.empty() ? "dsj" : "dsj-" + words;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string page_head(const std::string& words, const std::string& summary,
                      const std::string& version) {
  const std::string name = page_name(words);
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".TH " + upper + " 1 \"\" \"" + version + "\" \"DeepSpeedJob\"\n.SH NAME\n" + roff(name) +
         " \\- " + roff(summary) + "\n";
}

std::string argument_names(const ArgumentDescription& argument) {
  if (argument.names.empty()) return "\\fI" + roff(argument.word) + "\\fR";
  Lines names;
  for (const std::string& name : argument.names) names.push_back("\\fB" + roff(name) + "\\fR");
  return words_text(names, ", ") + (argument.takes_word ? " \\fIVALUE\\fR" : "");
}

/// A help text with line breaks is kept verbatim.
std::string description(const std::string& text) {
  return text.find('\n') == std::string::npos ? roff(text) + "\n" : ".nf\n" + roff(text) + ".fi\n";
}

std::string command_page(const Command& command, const std::string& summary,
                         const std::string& version) {
  std::string synopsis, options;
  for (const ArgumentDescription& argument : command.parser.arguments) {
    if (const std::string word = "\\fI" + roff(argument.word) + "\\fR"; !argument.word.empty())
      synopsis += " " + (argument.required ? word : "[" + word + "]");
    std::string help = argument.help;
    if (!argument.choices.empty())
      help += (help.empty() ? "" : "; ") + ("one of " + words_text(argument.choices, ", "));
    if (!argument.default_value.empty()) help += " (default: " + argument.default_value + ")";
    if (argument.required && argument.word.empty()) help += " (required)";
    options +=
        ".TP\n" + argument_names(argument) + "\n" + (help.empty() ? "\\&" : roff(help)) + "\n";
  }
  return page_head(command.words, summary, version) + ".SH SYNOPSIS\n\\fBdsj " +
         roff(command.words) + "\\fR [OPTIONS]" + synopsis + "\n.SH DESCRIPTION\n" +
         description(command.parser.description) + (options.empty() ? "" : ".SH OPTIONS\n") +
         options + ".SH SEE ALSO\n.BR dsj (1)\n";
}

}  // namespace

std::map<std::string, std::string> manual_pages(const std::vector<Command>& commands,
                                                const std::string& version) {
  std::map<std::string, std::string> pages;
  std::string list, also;
  for (const Command& command : commands) {
    const std::string summary = summary_of(commands, command.words);
    const std::string name = page_name(command.words);
    pages[name + ".1"] = command_page(command, summary, version);
    list += ".TP\n\\fB" + roff(command.words) + "\\fR\n" + roff(summary) + "\n";
    also += (also.empty() ? "" : ",\n") + (".BR " + roff(name) + " (1)");
  }
  std::string codes;
  for (const auto& [code, meaning] : kExitMeanings)
    codes += ".TP\n" + std::to_string(code) + "\n" + roff(meaning) + "\n";
  pages["dsj.1"] =
      page_head("", "fine-tunes Hugging Face models with a DeepSpeed ds_config", version) +
      ".SH SYNOPSIS\n\\fBdsj\\fR \\fIVERB\\fR [ARGUMENTS]\n.SH VERBS\n" + list +
      ".SH EXIT STATUS\n" + codes + ".SH SEE ALSO\n" + also + "\n";
  return pages;
}

}  // namespace dsj::cli
