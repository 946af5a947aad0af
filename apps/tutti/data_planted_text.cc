// tutti data text: the options, and what is said at the end.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/data_commands.h"
#include "apps/tutti/progress.h"
#include "tutti/base/text.h"
#include "tutti/data/placed_file.h"
#include "tutti/data/tokens/planted_text.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_data_text_words {
namespace {

constexpr const char* kSynopsis = "tutti data text --output FILE [OPTIONS]";
constexpr const char* kFooter = R"(
Each letter (a to z and the blank) is drawn from a distribution that depends on the two letters before it. The seed
determines these distributions, so the least possible loss is known: a model with one token per byte that reaches it has
learned all there is. A document is one line.

Examples:
  tutti data text --output planted.txt --bytes 16M
  tutti data tokenize planted.txt --documents line --output planted

Exit codes:
  0  written
  1  the file cannot be written
  2  wrong usage, or an output that already exists)";

struct Texts {
  std::string output, bytes = "16M", length = "65536", branches = "4", seed = "1";
};

Status act(const Texts& texts) {
  if (texts.output.empty()) return usage("--output FILE is missing: the text to write");
  const auto bytes = parse_bytes(texts.bytes);
  if (!bytes || *bytes < 1 || *bytes > std::uint64_t(1) << 44)
    return usage("--bytes needs a size such as 16M, not '" + texts.bytes + "'");
  PlantedTextOptions options;
  options.length = TUTTI_TRY(whole_number("--length", texts.length, 2, 1 << 30));
  options.branches = int(TUTTI_TRY(whole_number("--branches", texts.branches, 1, PlantedText::kLetters)));
  options.seed = std::uint64_t(TUTTI_TRY(whole_number("--seed", texts.seed, 0, std::int64_t(1) << 62)));
  const PlantedText planted(options);
  const PlacedFile file = TUTTI_TRY(PlacedFile::create(texts.output));
  Progress progress;
  std::uint64_t written = 0;
  std::int64_t documents = 0;
  for (; written < *bytes; ++documents) {
    const std::string line = planted.document(documents) + "\n";
    if (const Status status = file.write(written, std::as_bytes(std::span(line))); !status.ok()) {
      (void)remove_file(texts.output);
      return status;
    }
    written += line.size();
    progress.show("writing", double(written) / double(*bytes));
  }
  progress.clear();
  fmt::print("{}: {} documents, {}\nleast loss: {:.4f} nats a letter; knowing one letter before {:.4f}, none {:.4f}\n",
             texts.output, documents, bytes_text(written), planted.entropy(), planted.entropy_after_one(),
             planted.entropy_alone());
  return {};
}

}  // namespace
}  // namespace in_data_text_words

int data_text_command(std::vector<std::string> arguments) {
  using namespace in_data_text_words;
  CLI::App app("Writes text whose entropy is known.", "tutti data text");
  Texts texts;
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->type_name(type);
  };
  add("-o,--output", texts.output, "the file to write, which must not exist yet", "FILE");
  add("--bytes", texts.bytes, "least size of the text, in whole documents (16M)", "BYTES");
  add("--length", texts.length, "letters of a document (65536)", "N");
  add("--branches", texts.branches, "letters that may follow a pair, 1 to 27: more are harder to learn (4)", "N");
  add("--seed", texts.seed, "seed of the distributions and the text (1)", "N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Status status = act(texts);
  if (status.ok()) return 0;
  report("tutti data text", status.error());
  return launch::exit_code_of(status.error().code);
}

}  // namespace tutti::cli
