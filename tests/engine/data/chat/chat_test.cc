// Conversations: ids and labels equal to transformers' apply_chat_template
// (fixtures/chat_oracle.json, made by tests/oracle/chat_oracle.py); which template is used.
#include "engine/data/chat/chat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"
#include "engine/data/chat/named_templates.h"
#include "engine/data/dataset.h"
#include "engine/data/rows.h"
#include "engine/data/text/unicode.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

/// A model directory with one of the small tokenizers.
struct ChatModel {
  TempDir folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit ChatModel(const std::string& name, json config = json::object()) {
    folder.write("tokenizer.json", read_file(fixtures() + "/" + name + "/tokenizer.json"));
    if (name == "qwen2") config["eos_token"] = "<|im_end|>";
    if (name == "llama3") {
      config["bos_token"] = "<|begin_of_text|>";
      config["eos_token"] = "<|end_of_text|>";
    }
    folder.write("tokenizer_config.json", config.dump());
    auto loaded = Tokenizer::load(folder.path());
    EXPECT_TRUE(loaded) << loaded.error().to_string();
    tokenizer = std::move(*loaded);
  }
  /// A named template, even if the small vocabulary lacks its tokens.
  ChatTemplate form(const std::string& wanted) {
    jinja::Context tokens;
    if (const auto bos = tokenizer->bos_id())
      tokens.emplace_back("bos_token", jinja::Value(*tokenizer->id_to_token(*bos)));
    if (const auto eos = tokenizer->eos_id())
      tokens.emplace_back("eos_token", jinja::Value(*tokenizer->id_to_token(*eos)));
    for (const NamedTemplate& one : named_templates()) {
      if (one.name == wanted)
        return ChatTemplate::parse(std::string(one.source), wanted, tokens, {}, 0).value();
    }
    return {};
  }
  Result<std::unique_ptr<Dataset>> open(const json& rows, const std::string& wanted = "auto",
                                        int64_t length = 2048) {
    return Dataset::open(
        folder.write("rows.json", rows.dump()), tokenizer.get(),
        {.max_seq_length = length, .vocab_size = tokenizer->vocab_size(), .chat_template = wanted});
  }
};

json chat(const std::string& answer = "fine") {
  return {{"messages",
           {{{"role", "user"}, {"content", "how are you"}},
            {{"role", "assistant"}, {"content", answer}}}}};
}

TEST(Chat, ACachedCheckAppliesToItsTemplateOnly) {
  ChatModel model("qwen2");
  TempDir cache;
  json row = chat();
  const json system = {{"role", "system"}, {"content", "be brief"}};
  row["messages"].insert(row["messages"].begin(), system);
  const std::string path = model.folder.write("rows.json", json::array({row}).dump());
  const auto open = [&](const std::string& wanted) {
    return Dataset::open(path, model.tokenizer.get(),
                         {.vocab_size = model.tokenizer->vocab_size(),
                          .chat_template = wanted,
                          .cache_directory = cache.path(),
                          .cached_bytes_min = 1});
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(open("chatml"));
    const auto refused = open("mistral");
    ASSERT_FALSE(refused) << "it has no form for a system message";
    EXPECT_NE(refused.error().message.find("system"), std::string::npos);
  }
}

TEST(Chat, IdsAndLabelsEqualTransformers) {
  std::map<std::string, std::unique_ptr<ChatModel>> models;
  const json cases = json::parse(read_file(fixtures() + "/chat_oracle.json"));
  ASSERT_GT(cases.size(), 20u);
  for (const json& one : cases) {
    const std::string name = one["tokenizer"];
    if (!models.contains(name)) models[name] = std::make_unique<ChatModel>(name);
    const json row = {{"messages", one["messages"]}};
    const auto cut = chat_sample(row, row.dump(), *models[name]->tokenizer,
                                 models[name]->form(one["template"]), {}, 2048);
    ASSERT_TRUE(cut) << cut.error().to_string();
    EXPECT_EQ(json(cut->sample.input_ids), one["input_ids"]) << one["template"] << one["messages"];
    EXPECT_EQ(json(cut->sample.labels), one["labels"]) << one["template"] << one["messages"];
  }
}

TEST(Chat, ShareGptRowsAreTheSameConversations) {
  ChatModel model("qwen2");
  const json sharegpt = {
      {"conversations",
       {{{"from", "human"}, {"value", "how are you"}}, {{"from", "gpt"}, {"value", "fine"}}}}};
  const auto dataset = model.open({chat(), sharegpt}, "chatml");
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  EXPECT_EQ((*dataset)->at(0)->input_ids, (*dataset)->at(1)->input_ids);
  EXPECT_EQ((*dataset)->at(0)->labels, (*dataset)->at(1)->labels);
}

TEST(Chat, LongRowsAreCutAtTheRight) {
  ChatModel model("qwen2");
  const auto whole = model.open({chat()}, "chatml"), cut = model.open({chat()}, "chatml", 7);
  ASSERT_TRUE(whole && cut);
  auto expected = (*whole)->at(0)->input_ids;
  ASSERT_GT(expected.size(), 7u);
  expected.resize(7);
  EXPECT_EQ((*cut)->at(0)->input_ids, expected);
  EXPECT_EQ((*cut)->truncated_rows(), 1);
}

TEST(Chat, TheModelsTemplateIsRendered) {
  const std::string text =
      "{%- for message in messages %}\n  {{- \"<|im_start|>\" + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n' }}\n{%- endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}";
  ChatModel known("qwen2", {{"chat_template", text}});
  const auto dataset = known.open({chat()});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  const auto named = known.open({chat()}, "chatml"), other = known.open({chat()}, "qwen");
  EXPECT_EQ((*dataset)->at(0)->input_ids, (*named)->at(0)->input_ids);
  EXPECT_NE((*dataset)->at(0)->input_ids, (*other)->at(0)->input_ids) << "it adds a system message";
  known.folder.write("chat_template.jinja", "{{ messages }}");
  const auto unknown = known.open({chat()});
  ASSERT_FALSE(unknown) << "the file goes before tokenizer_config.json";
  EXPECT_NE(unknown.error().message.find("its learned part cannot be determined"),
            std::string::npos)
      << unknown.error().message;
}

/// Published templates as in their files: line ends inside strings are real line ends.
const std::map<std::string, std::string> kPublished = {
    {"llama3",
     "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
     "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
     "+ "
     "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
     "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
     "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"},
    {"qwen",
     "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
     "'<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' "
     "+ "
     "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if "
     "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {"chatml",
     "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
     "+ "
     "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
     "}}"
     "{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + "
     "m['content'] + "
     "' [/INST]' }}{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"}};

TEST(Chat, PublishedTemplatesRenderWithEscapedAndRealLineEnds) {
  for (const auto& [name, text] : kPublished) {
    if (name == "mistral") continue;
    std::string escaped;  // as in a .jinja file
    for (const char c : text) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    ASSERT_NE(text, escaped);
    for (const std::string& writing : {text, escaped}) {
      ChatModel model(name == "llama3" ? "llama3" : "qwen2", {{"chat_template", writing}});
      const auto found = model.open({chat()});
      ASSERT_TRUE(found) << name << ": " << found.error().to_string();
      const auto named =
          chat_sample(chat(), chat().dump(), *model.tokenizer, model.form(name), {}, 2048);
      ASSERT_TRUE(named) << name << ": " << named.error().to_string();
      EXPECT_EQ((*found)->at(0)->input_ids, named->sample.input_ids) << name;
      if (name == "llama3") continue;  // its end token is not in this vocabulary
      EXPECT_EQ((*found)->at(0)->labels, named->sample.labels) << name;
    }
  }
}

/// Words and much white space.
std::string ascii(Lcg& r) {
  std::string text;
  for (uint32_t parts = r.below(9); parts > 0; --parts)
    text +=
        r.pick(std::array{" ", "\n", "\n\n", "  ", "word", "don't", "42", "x=(1);", "assistant"});
  return text;
}

/// The learned parts of the conversation.
std::vector<std::string> learned(const std::string& source, const json& row) {
  const auto form =
      ChatTemplate::parse(source, "t.jinja", {{"eos_token", "</s>"}}, {"<|im_end|>", "</s>"}, 0);
  if (!form) return {form.error().to_string()};
  const auto told = conversation_of(row, row.dump());
  if (!told) return {told.error().to_string()};
  const auto pieces = render_chat(*form, told->turns, told->tools);
  if (!pieces) return {pieces.error().to_string()};
  std::vector<std::string> texts;
  for (const ChatPiece& piece : *pieces)
    if (piece.learned) texts.push_back(piece.text);
  return texts;
}

json turns(std::initializer_list<std::pair<const char*, const char*>> all) {
  json list = json::array();
  for (const auto& [role, content] : all) list.push_back({{"role", role}, {"content", content}});
  return {{"messages", list}};
}

using Texts = std::vector<std::string>;

TEST(Chat, AnswersAreFoundByRenderingTheTurnsBeforeThem) {
  const json row = turns({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d "}});
  EXPECT_EQ(learned(kPublished.at("chatml"), row), (Texts{"b<|im_end|>", "d <|im_end|>"}))
      << "the line end behind the end token is not learned";
  json first = row;
  first["messages"][1]["weight"] = 0;
  EXPECT_EQ(learned(kPublished.at("chatml"), first), (Texts{"d <|im_end|>"}));
  // No special token ends these answers, so the text after them is learned, too.
  EXPECT_EQ(learned("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
                    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
                    row),
            (Texts{"b\n", "d \n"}));
}

TEST(Chat, LongConversationsLearnLikeShortOnes) {
  // The second template refuses two turns of one speaker in a row, so each answer is located alone.
  const std::string
      chatml = kPublished.at("chatml"),
      strict =
          "{% for m in messages %}{% if not loop.first and m.role == "
          "loop.previtem.role %}{{ raise_exception('twice') }}{% endif %}{% endfor %}" +
          chatml;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Lcg r(seed);
    json list = json::array();
    for (uint32_t i = 0; i < 10 + r.below(30); ++i) {
      list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                      {"content", r.pick(std::array{"", " a", "b\n", "<|im_end|>", "word "})}});
      if (r.below(4) == 0 && i % 2 == 1) list.back()["weight"] = 0;
    }
    const json row = {{"messages", list}};
    EXPECT_EQ(learned(chatml, row), learned(strict, row)) << row;
  }
}

TEST(Chat, GenerationBlocksSayWhatIsLearned) {
  const std::string source =
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}!{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  json row = turns({{"user", "a"}, {"assistant", "b"}, {"assistant", "c"}});
  EXPECT_EQ(learned(source, row), (Texts{"b!", "c!"}));
  row["messages"][1]["train"] = false;
  EXPECT_EQ(learned(source, row), (Texts{"c!"}));
}

/// Like Qwen3's: only the last answer keeps its reasoning, which may be empty.
constexpr char kThinking[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
    "{% set answer = m.content.split('</think>')[-1].lstrip('\n') %}{% if loop.last %}"
    "{{ '<think>\n\n</think>\n\n' + answer }}{% else %}{{ answer }}{% endif %}{{ '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(Chat, AnAnswerThatChangesWhenTurnsFollowEndsAtItsEndToken) {
  EXPECT_EQ(learned(kThinking, turns({{"user", "a"},
                                      {"assistant", "<think>x</think>b"},
                                      {"user", "c"},
                                      {"assistant", "d"}})),
            (Texts{"b<|im_end|>", "<think>\n\n</think>\n\nd<|im_end|>"}));
  const auto refused =
      learned("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
              turns({{"user", "a"}, {"assistant", "b"}}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].find("turn 1: its learned part cannot be determined"), std::string::npos)
      << refused[0];
}

TEST(Chat, ToolsAndTheirCallsAreRenderedInTheirOrder) {
  const std::string source =
      "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{% generation %}{{ m.content }}"
      "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endgeneration "
      "%}"
      "{% endfor %}";
  const std::string text =
      R"({"tools": [{"z": 1, "a": 2}], "messages": [{"role": "assistant", "tool_calls":
         [{"function": {"arguments": {"y": 1, "b": [1.0, null]}}}]}, {"role": "observation", "content": "4"}]})";
  const auto form = ChatTemplate::parse(source, "t.jinja", {}, {}, 0);
  ASSERT_TRUE(form) << form.error().to_string();
  const json row = json::parse(text);
  ASSERT_FALSE(check_chat(row)) << check_chat(row)->what;
  const auto told = conversation_of(row, text);
  ASSERT_TRUE(told) << told.error().to_string();
  const auto rendered = form->render(told->turns, told->tools, false);
  ASSERT_TRUE(rendered) << rendered.error().to_string();
  EXPECT_EQ(rendered->text, R"([{"z": 1, "a": 2}][assistant]{"y": 1, "b": [1.0, null]}[tool]4)");
  json other = row;
  other["tools"] = R"([{"z": 1}])";
  EXPECT_TRUE(conversation_of(other, other.dump())->tools.sequence()) << "tools may be JSON text";
  const auto none = learned(kPublished.at("chatml"), row);
  EXPECT_NE(none.at(0).find("tools: the chat template does not support them"), std::string::npos)
      << none.at(0);
}

TEST(Chat, ATemplateIsTakenFromAFileOrFromNamedOnes) {
  ChatModel model("qwen2", {{"chat_template",
                             {{{"name", "tool_use"}, {"template", "{{ tools }}"}},
                              {{"name", "default"}, {"template", kPublished.at("chatml")}}}}});
  const std::string file = model.folder.write("own.jinja", kPublished.at("qwen"));
  const auto ids = [&](const std::string& wanted) {
    const auto made = model.open({chat()}, wanted);
    return made ? (*made)->at(0)->input_ids : std::vector<int32_t>{};
  };
  EXPECT_EQ(ids("auto"), ids("chatml"));
  EXPECT_EQ(ids(file), ids("qwen"));
  EXPECT_NE(ids(file), ids("chatml"));
  model.folder.write("chat_template.json", json{{"chat_template", kPublished.at("qwen")}}.dump());
  EXPECT_EQ(ids("auto"), ids("qwen"));
}

/// Labels by the offset of each byte-level token in the text.
std::vector<int32_t> labels_by_length(const std::vector<ChatPiece>& pieces,
                                      const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  std::vector<int32_t> labels;
  size_t begin = 0;
  for (const int32_t id : ids) {
    size_t end = 0;
    bool learned = false;
    for (const ChatPiece& piece : pieces) {
      if (begin >= end && begin < end + piece.text.size()) learned = piece.learned;
      end += piece.text.size();
    }
    labels.push_back(learned ? id : kIgnoredLabel);
    const std::string token = *tokenizer.id_to_token(id);
    begin += from_byte_alphabet(token).value_or(token).size();
  }
  return labels;
}

/// Finds each answer by tokenizing the text before it, and with it: quadratic in the turns.
Cut slow_sample(const std::vector<ChatPiece>& pieces, const Tokenizer& tokenizer, bool& is_prefix) {
  const auto encode = [&](const std::string& text) {
    return tokenizer.encode(text, {.add_special_tokens = false}).value();
  };
  std::string whole;
  for (const ChatPiece& piece : pieces) whole += piece.text;
  Cut cut{.sample = {.input_ids = encode(whole), .labels = {}}};
  const auto& ids = cut.sample.input_ids;
  cut.sample.labels.assign(ids.size(), kIgnoredLabel);
  std::string text;
  is_prefix = true;
  for (const ChatPiece& piece : pieces) {
    const auto before = encode(text);
    text += piece.text;
    const auto with = encode(text);
    // A prefix may be tokenized differently at its end; counts of tokens are then not comparable.
    for (const auto& part : {before, with})
      is_prefix = is_prefix && part.size() <= ids.size() &&
                  std::ranges::equal(part, std::span(ids).first(part.size()));
    if (!piece.learned) continue;
    for (size_t i = before.size(); i < std::min(with.size(), ids.size()); ++i)
      cut.sample.labels[i] = ids[i];
  }
  return cut;
}

TEST(Chat, OnePassGivesTheIdsAndLabelsOfTheSlowWay) {
  const TextGenerator texts(read_ranges(fixtures() + "/unicode14.txt"));
  int compared = 0, crossing = 0, by_length = 0;
  for (const std::string name : {"qwen2", "llama3", "gpt2"}) {
    ChatModel model(name);
    for (uint64_t seed = 0; seed < 120; ++seed) {
      Lcg r(seed);
      std::vector<Turn> turns;
      for (uint32_t i = 0; i < 2 * (1 + r.below(4)); ++i) {
        const bool user = i % 2 == 0;
        turns.push_back({user ? "user" : "assistant",
                         seed % 2 == 0 ? texts.make(seed, i) : ascii(r), !user && r.below(4) != 0});
      }
      const ChatTemplate form =
          ChatTemplate::parse(kPublished.at(r.pick(std::array{"chatml", "llama3", "mistral"})), "t",
                              {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
                              {"<|im_end|>", "<|eot_id|>"}, 0)
              .value();
      const auto pieces = render_chat(form, turns).value();
      bool is_prefix = false;
      const Cut slow = slow_sample(pieces, *model.tokenizer, is_prefix);
      const auto once = pieces_sample(pieces, *model.tokenizer, false, 1 << 20);
      ASSERT_TRUE(once);
      EXPECT_EQ(once->sample.input_ids, slow.sample.input_ids) << name << seed;
      EXPECT_FALSE(once->truncated);
      crossing += !is_prefix;
      std::string text;
      for (const ChatPiece& piece : pieces) text += piece.text;
      if (is_trivially_normal(text, NormalForm::Nfc)) {
        EXPECT_EQ(once->sample.labels,
                  labels_by_length(pieces, slow.sample.input_ids, *model.tokenizer))
            << name << " " << seed;
        ++by_length;
      }
      if (!is_prefix) continue;
      EXPECT_EQ(once->sample.labels, slow.sample.labels) << name << " " << seed;
      ++compared;
      const auto length = std::ssize(slow.sample.input_ids);
      for (const int64_t kept : {int64_t{1}, 1 + length / 2, length}) {
        const auto cut = pieces_sample(pieces, *model.tokenizer, false, kept).value();
        EXPECT_EQ(cut.truncated, kept < length);
        EXPECT_TRUE(std::ranges::equal(
            cut.sample.input_ids,
            std::span(slow.sample.input_ids).first(size_t(std::min(kept, length)))));
        EXPECT_TRUE(std::ranges::equal(
            cut.sample.labels,
            std::span(slow.sample.labels).first(size_t(std::min(kept, length)))));
      }
    }
  }
  EXPECT_GT(compared, 80);
  EXPECT_GT(by_length, 80);
  EXPECT_GT(crossing, 0) << "tokens that reach over the beginning of an answer are drawn, too";
}

TEST(Chat, ARowsVariablesReachItsTemplate) {
  const auto form = ChatTemplate::parse(
      "{{ bos }}{{ mode | default('none') }}{{ messages | length }}"
      "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
      "t", {{"bos", "B"}}, {}, 0);
  ASSERT_TRUE(form) << form.error().to_string();
  const auto whole = [&](const json& kwargs, bool inputs) {
    json row = {{"messages", {{{"role", "assistant"}, {"content", "a"}}}}};
    if (!kwargs.is_null()) row["chat_template_kwargs"] = kwargs;
    const auto told = conversation_of(row, row.dump());
    std::string text;
    const auto pieces = chat_pieces(told.value(), *form, {.inputs = inputs});
    for (const ChatPiece& piece : pieces.value()) text += piece.text;
    const auto unread = unread_fields(row, RowKind::Chat);
    EXPECT_EQ(std::ranges::count(unread, "chat_template_kwargs"), kwargs.is_string());
    return text;
  };
  for (const bool inputs : {false, true}) {
    EXPECT_EQ(whole(nullptr, inputs), "Bnone1a");
    EXPECT_EQ(whole({{"mode", "think"}}, inputs), "Bthink1a");
    EXPECT_EQ(whole({{"mode", "x"}, {"bos", "b"}, {"messages", 3}}, inputs), "bx1a");
    EXPECT_EQ(whole("text", inputs), "Bnone1a") << "and it is reported";
  }
}

/// OpenAI's rows have arguments as JSON texts, others as objects: a template gets what it can write.
TEST(Chat, ArgumentsOfCallsAreWrittenAsJsonOnce) {
  struct Case {
    const char *call, *text, *object;
  };
  for (const Case& c :
       {Case{"{{ c.function.arguments | tojson }}", R"({"a": [1, "\"é\""]})", nullptr},
        {"{{ c.function | tojson }}", R"({"name": "f", "arguments": {"a": [1, "\"é\""]}})",
         nullptr},
        {"{% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson }}{% endfor %}",
         R"(a=[1, "\"é\""])", nullptr},
        // These write a text as it is.
        {"{{ c.function.arguments }}", R"({"a":[1,"\"é\""]})", R"({'a': [1, '"é"']})"},
        {"{% set a = c.function.arguments %}{{ a if a is string else a | tojson }}",
         R"({"a":[1,"\"é\""]})", R"({"a": [1, "\"é\""]})"}}) {
    const std::string source =
        std::string("{% for m in messages %}{% for c in m.tool_calls or [] %}") + c.call +
        "{% endfor %}{% endfor %}";
    const auto form = ChatTemplate::parse(source, "t", {}, {}, 0);
    ASSERT_TRUE(form) << form.error().to_string();
    const auto render = [&](const json& arguments) {
      // With its keys in the order that templates show.
      const std::string row =
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "",)"
          R"("tool_calls": [{"function": {"name": "f", "arguments": )" +
          arguments.dump() + "}}]}]}";
      const auto told = conversation_of(json::parse(row), row);
      EXPECT_TRUE(told) << told.error().to_string();
      return render_text(*form, told->turns);
    };
    const json object = {{"a", {1, "\"é\""}}};
    EXPECT_EQ(render(object.dump()).value(), c.text) << source;
    EXPECT_EQ(render(object).value(), c.object ? c.object : c.text) << source;
    if (source.find("items") != std::string::npos) {
      EXPECT_FALSE(render("no JSON")) << source;
    } else {
      const std::string other = render("[no JSON").value();
      EXPECT_NE(other.find("[no JSON"), std::string::npos) << source << other;
    }
  }
}

TEST(Chat, TheTokenThatEndsAnswersIsDetectedFromTheRows) {
  ChatModel model("qwen2");
  const auto end = [&](const json& row, int64_t length) {
    return model.open({row}, "chatml", length).value()->answer_end().value();
  };
  EXPECT_EQ(end(chat(), 2048), model.tokenizer->token_to_id("<|im_end|>"));
  EXPECT_EQ(end(chat("a longer answer that is cut"), 12), std::nullopt) << "no answer ends";
  // TRL's rows learn the line end that ChatML writes after the token; it ends nothing.
  const json turns = chat()["messages"];
  EXPECT_EQ(
      end({{"prompt", json::array({turns[0]})}, {"completion", json::array({turns[1]})}}, 2048),
      model.tokenizer->token_to_id("<|im_end|>"));
  EXPECT_EQ(model.open({{{"input_ids", {1}}, {"labels", {1}}}}).value()->answer_end().value(),
            std::nullopt);
}

TEST(Chat, RowsThatCannotBeRenderedAreRefused) {
  ChatModel none("qwen2"), llama("llama3");
  EXPECT_FALSE(none.open({chat()})) << "no template, none named";
  const auto tokens = llama.open({chat()}, "chatml");
  ASSERT_FALSE(tokens);
  EXPECT_NE(tokens.error().message.find("has no token <|im_start|>"), std::string::npos);
  const json system = {{"messages",
                        {{{"role", "system"}, {"content", "be brief"}},
                         {{"role", "user"}, {"content", "a"}},
                         {{"role", "assistant"}, {"content", "b"}}}}};
  EXPECT_TRUE(llama.open({system}, "llama2"));
  const auto refused = llama.open({system}, "mistral");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("row 0, line 1: mistral's template does not support"),
            std::string::npos)
      << refused.error().message;
}

TEST(Chat, BadRowsNameTheirTurn) {
  ChatModel model("qwen2");
  const auto says = [&](const char* row) {
    const auto dataset = model.open({json::parse(row)}, "chatml");
    return dataset ? "" : dataset.error().message;
  };
  EXPECT_NE(says(R"({"messages": []})").find("messages: is empty"), std::string::npos);
  EXPECT_NE(says(R"({"messages": [{"role": "user", "content": "a"}]})").find("no turn of the"),
            std::string::npos);
  EXPECT_NE(
      says(R"({"messages": [{"role": "narrator", "content": "a"}]})")
          .find("messages[0].role: is \"narrator\", expected system, user, assistant or tool"),
      std::string::npos);
  EXPECT_NE(says(R"({"conversations": [{"from": "gpt", "value": null}]})")
                .find("conversations[0].value: is null, expected text"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::data
