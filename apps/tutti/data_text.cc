#include "apps/tutti/data_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/options/command_line.h"
#include "tutti/base/machine.h"

namespace tutti::cli {

void declare(CLI::App& app, TextTexts& texts) {
  app.add_option("INPUT", texts.inputs, "text in UTF-8, or JSON lines")
      ->type_name("")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  const auto add = [&](const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group("The text")->type_name(type);
  };
  add("--documents", texts.documents,
      "what a document is: json (a line of JSON), file, line, or paragraph (between empty lines); default: json for "
      ".jsonl and .json, else file",
      "HOW");
  add("--json-key,--json-keys", texts.json_key, "key of the text in a line of JSON (text)", "KEY");
  app.add_option("--threads,--workers", texts.threads, "threads (0: as many as there are cores)")
      ->group("Resources")
      ->type_name("N");
}

Result<TextDocuments> open_documents(const TextTexts& texts, const char* synopsis, const char* example) {
  if (texts.inputs.empty()) return not_given("input", synopsis, example);
  const std::string& first = texts.inputs[0];
  std::string how = texts.documents;
  if (how.empty()) how = first.ends_with(".jsonl") || first.ends_with(".json") ? "json" : "file";
  const auto form = TextForm(TUTTI_TRY(choose("--documents", how, {"json", "file", "line", "paragraph"})));
  return TextDocuments::open(texts.inputs, form, texts.json_key);
}

Result<TextWork> text_work(const TextTexts& texts, const TextDocuments& documents, Progress& progress,
                           const std::string& doing) {
  TextWork work;
  work.threads = int(TUTTI_TRY(whole_number("--threads", texts.threads, 0, 1024)));
  if (work.threads == 0) work.threads = usable_cores();
  work.progress = [&progress, doing, bytes = documents.bytes(), begin = now()](double share) {
    progress.show(doing, share, fmt::format(", {:.0f} MB/s", share * double(bytes) / 1e6 / seconds_since(begin)));
  };
  return work;
}

}  // namespace tutti::cli
