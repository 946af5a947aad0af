// tutti data bpe: the options, and what is said at the end.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/data_commands.h"
#include "apps/tutti/data_text.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/bpe_training.h"
#include "tutti/data/tokenizers/pretokens.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_data_bpe {
namespace {

constexpr const char* kSynopsis = "tutti data bpe INPUT... --output DIR [OPTIONS]";
constexpr const char* kFooter = R"(
Learns from the text which bytes to merge, and writes vocab.json and merges.txt into DIR in the format of GPT-2 and
Hugging Face. The last token is <|endoftext|>. The result depends on the text alone, not on the number of threads.

Examples:
  tutti data bpe book.txt --vocab-size 8192 --output bpe
  tutti data tokenize book.txt --output book --documents paragraph --append-eod --vocab-file bpe/vocab.json --merge-file bpe/merges.txt

Exit codes:
  0  learned
  1  a file cannot be read or written, or a line is malformed
  2  wrong usage, a missing input, or an output that already exists)";

struct Texts {
  TextTexts text;
  std::string output, size = "32768", least = "2", pattern = "gpt2";
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare(app, texts.text);
  const auto add = [&](const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group("Result")->type_name(type);
  };
  add("-o,--output", texts.output, "the folder for vocab.json and merges.txt", "DIR");
  add("--vocab-size", texts.size, "number of tokens, including the 256 bytes (32768)", "N");
  add("--min-frequency", texts.least, "do not merge pairs that occur less often (2)", "N");
  add("--pattern", texts.pattern, "how text is cut before bytes are merged: gpt2 (default), cl100k", "NAME");
}

Status act(const Texts& texts) {
  TextDocuments documents = TUTTI_TRY(open_documents(texts.text, kSynopsis, "tutti data bpe text.jsonl --output bpe"));
  if (texts.output.empty()) return usage("--output DIR is missing: where vocab.json and merges.txt go");
  BpeTrainingOptions options;
  options.vocabulary = TUTTI_TRY(whole_number("--vocab-size", texts.size, 257, 1 << 24));
  options.least_frequency = std::uint64_t(TUTTI_TRY(whole_number("--min-frequency", texts.least, 1, 1LL << 40)));
  const std::string_view pattern = TUTTI_TRY(pretoken_pattern(texts.pattern));
  std::error_code error;
  std::filesystem::create_directories(texts.output, error);
  if (error) return system_error(error.value(), "cannot make " + texts.output);
  Progress progress;
  const Clock::time_point begin = now();
  const TextWork work = TUTTI_TRY(text_work(texts.text, documents, progress, "counting words"));
  const auto words = count_words(documents, pattern, work);
  if (!words.ok()) return progress.clear(), words.error();
  options.progress = [&](double share) { progress.show("merging", share); };
  const BpeVocabulary vocabulary = train_bpe(*words, options);
  progress.clear();
  TUTTI_TRY(write_vocabulary(vocabulary, texts.output + "/vocab.json", texts.output + "/merges.txt"));
  fmt::print("{} tokens from {} different pieces of {}, in {}: {}/vocab.json, {}/merges.txt\n",
             vocabulary.tokens.size(), words->counts().size(), bytes_text(documents.bytes()),
             seconds_text(seconds_since(begin)), texts.output, texts.output);
  if (std::int64_t(vocabulary.tokens.size()) < options.vocabulary)
    fmt::print("fewer than {}: no pair is left that occurs {} times\n", options.vocabulary, options.least_frequency);
  return {};
}

}  // namespace
}  // namespace in_data_bpe

int data_bpe_command(std::vector<std::string> arguments) {
  using namespace in_data_bpe;
  CLI::App app("Learns a byte-pair encoding from text.", "tutti data bpe");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Status status = act(texts);
  if (status.ok()) return 0;
  report("tutti data bpe", status.error());
  return launch::exit_code_of(status.error().code);
}

}  // namespace tutti::cli
