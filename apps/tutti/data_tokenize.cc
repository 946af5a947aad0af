// tutti data tokenize: the options, and what is said at the end.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/data_commands.h"
#include "apps/tutti/data_text.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/pretokens.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_data_tokenize {
namespace {

constexpr const char* kSynopsis = "tutti data tokenize INPUT... --output PREFIX [OPTIONS]";
constexpr const char* kFooter = R"(
Writes PREFIX.bin and PREFIX.idx as Megatron-LM's preprocess_data.py does; pretrain_gpt maps them into memory. Documents
keep the order of the text, whatever the number of threads. docs/reference/formats.md describes the formats.

Examples:
  tutti data tokenize book.txt --output book --documents paragraph --append-eod  one token per byte: needs no other file
  tutti data tokenize text.jsonl --output text --vocab-file vocab.json --merge-file merges.txt --append-eod
  tutti data tokenize text.jsonl --output text --tokenizer-model gpt2.tiktoken --append-eod

Exit codes:
  0  written
  1  a file cannot be read or written, or a line is malformed
  2  wrong usage, a missing input, or an output that already exists)";

struct Texts {
  TextTexts text;
  std::string output, tokenizer, vocab_file, merge_file, model, pattern;
  bool append_eod = false;
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare(app, texts.text);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type);
  };
  add("Result", "-o,--output,--output-prefix", texts.output, "the files are PREFIX.bin and PREFIX.idx", "PREFIX");
  app.add_flag("--append-eod", texts.append_eod, "end each document with the token for the end of a document")
      ->group("Result");
  add("The tokenizer", "--tokenizer-type", texts.tokenizer,
      "byte, GPT2BPETokenizer or TikTokenizer (default: chosen by the files given below, else byte)", "NAME");
  add("The tokenizer", "--vocab-file", texts.vocab_file, "GPT-2's vocab.json, or what `tutti data bpe` made", "FILE");
  add("The tokenizer", "--merge-file", texts.merge_file, "the merges.txt of this vocabulary", "FILE");
  add("The tokenizer", "--tokenizer-model", texts.model, "a .tiktoken file, or the .json file of Megatron-LM", "FILE");
  add("The tokenizer", "--pattern,--tiktoken-pattern", texts.pattern,
      "how text is cut before bytes are merged: gpt2, cl100k, v1 or v2 (v2 for the .json file of Megatron-LM, else "
      "gpt2)",
      "NAME");
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const Texts& texts) {
  const bool has_pair = !texts.vocab_file.empty() || !texts.merge_file.empty(), has_model = !texts.model.empty();
  if (has_pair && has_model) return usage("--vocab-file and --tokenizer-model are two tokenizers", "give one of them");
  const std::vector<std::string> types = {"byte", "GPT2BPETokenizer", "TikTokenizer"};
  std::size_t type = has_pair ? 1 : has_model ? 2 : 0;
  if (!texts.tokenizer.empty()) {
    type = TUTTI_TRY(choose("--tokenizer-type", texts.tokenizer, types));
    if (type != 1 && has_pair) return usage("--tokenizer-type " + types[type] + " reads no --vocab-file");
    if (type != 2 && has_model) return usage("--tokenizer-type " + types[type] + " reads no --tokenizer-model");
  }
  if (type == 0) return byte_tokenizer();
  if (type == 1 && (texts.vocab_file.empty() || texts.merge_file.empty()))
    return usage(std::string(texts.vocab_file.empty() ? "--vocab-file" : "--merge-file") + " is missing",
                 "GPT-2's tokenizer has two files: vocab.json and merges.txt");
  if (type == 2 && texts.model.empty())
    return usage("--tokenizer-model is missing: a .tiktoken file, or the .json file of Megatron-LM");
  BpeVocabulary vocabulary = type == 1 ? TUTTI_TRY(read_vocabulary(texts.vocab_file, texts.merge_file))
                                       : TUTTI_TRY(read_tiktoken(texts.model));
  const std::string_view pattern =
      TUTTI_TRY(pretoken_pattern(texts.pattern.empty() ? vocabulary.pattern : texts.pattern));
  return bpe_tokenizer(std::move(vocabulary), pattern);
}

Status act(const Texts& texts) {
  TextDocuments documents =
      TUTTI_TRY(open_documents(texts.text, kSynopsis, "tutti data tokenize text.jsonl --output text"));
  if (texts.output.empty()) return usage("--output PREFIX is missing: the files to make are PREFIX.bin and PREFIX.idx");
  const auto tokenizer = TUTTI_TRY(tokenizer_of(texts));
  Progress progress;
  const TextWork work = TUTTI_TRY(text_work(texts.text, documents, progress, "tokenizing"));
  const Clock::time_point begin = now();
  const auto report = tokenize(documents, *tokenizer, texts.output, texts.append_eod, work);
  progress.clear();
  if (!report.ok()) return report.error();
  fmt::print("{} documents, {} tokens of {} ({:.2f} bytes a token)\n{}.bin: {} of text in {} ({:.0f} MB/s)\n",
             report->documents, report->tokens, tokenizer->vocabulary(),
             double(report->text_bytes) / double(std::max<std::int64_t>(report->tokens, 1)), texts.output,
             bytes_text(report->text_bytes), seconds_text(seconds_since(begin)),
             double(report->text_bytes) / 1e6 / seconds_since(begin));
  return {};
}

}  // namespace
}  // namespace in_data_tokenize

int data_tokenize_command(std::vector<std::string> arguments) {
  using namespace in_data_tokenize;
  CLI::App app("Converts text to tokens for pretrain_gpt and Megatron-LM.", "tutti data tokenize");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Status status = act(texts);
  if (status.ok()) return 0;
  report("tutti data tokenize", status.error());
  return launch::exit_code_of(status.error().code);
}

}  // namespace tutti::cli
