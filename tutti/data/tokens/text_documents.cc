#include "tutti/data/tokens/text_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/data/placed_file.h"

namespace tutti {
namespace {

constexpr std::uint64_t kBatch = 4 << 20;

std::string_view text_of(const Mapping& mapping) {
  return {reinterpret_cast<const char*>(mapping.data()), mapping.size()};
}

// Calls with the pieces of a text between separators, which are not in them.
Status for_each_piece(std::string_view text, std::string_view separator,
                      const std::function<Status(std::string_view)>& take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    TUTTI_TRY(take(text.substr(0, end)));
    text.remove_prefix(std::min(end + separator.size(), text.size()));
  }
  return {};
}

// The parser's reason, without the place, which it counts from the line, and without what it read.
std::string why_no_json(std::string_view line) {
  try {
    [[maybe_unused]] const auto json = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    constexpr std::string_view kReason = " - ";
    const std::string_view all = error.what();
    if (const auto at = all.find(kReason); at != all.npos) {
      const std::string_view reason = all.substr(at + kReason.size());
      return fmt::format("is no JSON: {}", reason.substr(0, reason.find("; last read")));
    }
  }
  return "is no JSON";
}

}  // namespace

Result<TextDocuments> TextDocuments::open(const std::vector<std::string>& paths, TextForm form, std::string key) {
  if (paths.empty()) return invalid_argument("no text was given");
  TextDocuments documents;
  documents.form_ = form;
  documents.key_ = std::move(key);
  documents.paths_ = paths;
  for (const std::string& path : paths) {
    const PlacedFile file = TUTTI_TRY(PlacedFile::open(path));
    documents.files_.push_back(TUTTI_TRY(file.map()));
    documents.bytes_ += documents.files_.back().size();
  }
  return documents;
}

std::uint64_t TextDocuments::batch_end(std::string_view rest) const {
  if (form_ == TextForm::kFile || rest.size() <= kBatch) return rest.size();
  const std::string_view separator = form_ == TextForm::kParagraphs ? "\n\n" : "\n";
  const std::size_t end = rest.find(separator, kBatch);
  return end == rest.npos ? rest.size() : end + separator.size();
}

TextDocuments::Batch TextDocuments::next() {
  while (file_ < files_.size() && at_ == files_[file_].size()) ++file_, at_ = 0;
  if (file_ == files_.size()) return {};
  const std::string_view rest = text_of(files_[file_]).substr(at_);
  const Batch batch{file_, at_, rest.substr(0, batch_end(rest))};
  at_ += batch.text.size();
  return batch;
}

Error TextDocuments::bad_line(const Batch& batch, std::string_view line, const std::string& why) const {
  const char* const begin = text_of(files_[batch.file]).data();
  return {.code = Code::kCorrupt,
          .detail = fmt::format("{}: line {} {}", paths_[batch.file], 1 + std::count(begin, line.data(), '\n'), why),
          .hint = "each line is a JSON object; --json-key names the value that is the text"};
}

Status TextDocuments::for_each(const Batch& batch, const std::function<Status(std::string_view)>& take) const {
  const auto unless_blank = [&](std::string_view text) { return trim(text).empty() ? Status() : take(text); };
  switch (form_) {
    case TextForm::kFile:
      return unless_blank(batch.text);
    case TextForm::kLine:
      return for_each_piece(batch.text, "\n", unless_blank);
    case TextForm::kParagraphs:
      return for_each_piece(batch.text, "\n\n", unless_blank);
    case TextForm::kJsonLines:
      break;
  }
  return for_each_piece(batch.text, "\n", [&](std::string_view line) -> Status {
    if (trim(line).empty()) return {};
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) return bad_line(batch, line, why_no_json(line));
    if (!json.is_object()) return bad_line(batch, line, "is no JSON object");
    const auto value = json.find(key_);
    if (value == json.end() || !value->is_string())
      return bad_line(batch, line, fmt::format("has no text under \"{}\"", key_));
    return unless_blank(value->get_ref<const std::string&>());
  });
}

}  // namespace tutti
