#include "job/generate_arguments.h"

namespace dsj {

void add_generate_arguments(ArgumentParser& parser, GenerateArguments& to) {
  parser
      .option("--model", to.model,
              "a Hugging Face model directory, or an adapter's if its base is a directory here")
      .required();
  const auto data = parser.option(
      "--data", to.data,
      "alpaca or chat rows, JSON or JSONL, - for standard input; each row's last answer "
      "is the expected one");
  parser.option("--prompt", to.prompt, "one question as text, - for standard input").excludes(data);
  parser.flag("--raw", to.raw, "the text as it is: the model continues it").excludes(data);
  parser.option("--chat-template", to.chat_template,
                "as training.chatTemplate; by default the model's own");
  parser.option("--max-new-tokens", to.max_new_tokens, "tokens per completion").positive();
  parser.option("--batch", to.batch, "prompts at a time").positive();
  parser.option("--limit", to.limit, "rows at most").positive();
  parser.option("-o,--output", to.output, "text or json").one_of({"text", "json"});
}

}  // namespace dsj
