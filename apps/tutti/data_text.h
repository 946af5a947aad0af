#pragma once
// What the commands over text share: which files, what a document is in them, how many threads.
#include <string>
#include <vector>

#include "apps/tutti/progress.h"
#include "tutti/data/tokens/tokenize.h"

namespace CLI {
class App;
}

namespace tutti::cli {

struct TextTexts {
  std::vector<std::string> inputs;
  std::string documents, json_key = "text", threads = "0";
};
void declare(CLI::App& app, TextTexts& texts);
// kUsage: no input, or an unknown form; kNotFound, kSystem. `documents` empty: by the ending of the first input (.jsonl
// and .json: JSON lines; else a file is a document).
Result<TextDocuments> open_documents(const TextTexts& texts, const char* synopsis, const char* example);
// Shows how far `doing` is, with the rate.
Result<TextWork> text_work(const TextTexts& texts, const TextDocuments& documents, Progress& progress,
                           const std::string& doing);

}  // namespace tutti::cli
