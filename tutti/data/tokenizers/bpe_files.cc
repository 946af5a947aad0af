// The files of others: vocab.json with merges.txt, and tiktoken's.
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/bpe.h"
#include "tutti/data/tokenizers/byte_characters.h"

namespace tutti {
namespace {

constexpr std::uint64_t kMostBytes = 256 << 20;
constexpr std::size_t kMostTokens = 1 << 24;
constexpr std::string_view kEndOfText = "<|endoftext|>";

Error corrupt(const std::string& path, std::string why, std::string hint = {}) {
  return {.code = Code::kCorrupt, .detail = path + ": " + std::move(why), .hint = std::move(hint)};
}

// A file of another kind may be one line of a megabyte: what stands at its beginning tells as much.
std::string beginning(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return std::string(text);
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within a character
  return std::string(text.substr(0, end)) + "...";
}

// What the file is instead, where its first line shows it.
std::string hint_of(std::string_view text) {
  return text.starts_with('{') ? "this looks like vocab.json (--vocab-file), or tokenizer.json, which is not read" : "";
}

// Calls with each line and its number, from 1, without what ends it.
Status for_each_line(std::string_view text,
                     const std::function<Status(std::string_view line, std::size_t number)>& take) {
  for (std::size_t at = 0, number = 1; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    TUTTI_TRY(take(line, number));
    at = end + 1;
  }
  return {};
}

Result<std::vector<std::string>> read_tokens(const std::string& path, std::int32_t& end_of_document) {
  const std::string text = TUTTI_TRY(read_file(path, kMostBytes));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return corrupt(path, "is no JSON object of tokens and their numbers");
  if (json.empty() || json.size() > kMostTokens)
    return corrupt(path, fmt::format("has {} tokens, expected 1 to {}", json.size(), kMostTokens));
  std::vector<std::string> tokens(json.size());
  std::vector<bool> given(json.size());
  for (const auto& [characters, number] : json.items()) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() >= json.size())
      return corrupt(path, fmt::format("token \"{}\" has number {}, expected 0 to {}", beginning(characters),
                                       beginning(number.dump()), json.size() - 1));
    const auto at = number.get<std::size_t>();
    if (given[at])
      return corrupt(path, fmt::format("number {} is given to two tokens, one is \"{}\"", at, beginning(characters)));
    given[at] = true;
    if (characters == kEndOfText) end_of_document = std::int32_t(at);
    // Other special tokens are written as they are, too: these are their own text.
    tokens[at] =
        characters == kEndOfText ? std::string(kEndOfText) : from_byte_characters(characters).value_or(characters);
  }
  return tokens;
}

}  // namespace

Result<BpeVocabulary> read_vocabulary(const std::string& vocab_json, const std::string& merges_txt) {
  BpeVocabulary vocabulary;
  vocabulary.tokens = TUTTI_TRY(read_tokens(vocab_json, vocabulary.end_of_document));
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (std::int32_t(i) != vocabulary.end_of_document) numbers.emplace(vocabulary.tokens[i], std::int32_t(i));
  const std::string text = TUTTI_TRY(read_file(merges_txt, kMostBytes));
  TUTTI_TRY(for_each_line(text, [&](std::string_view line, std::size_t number) -> Status {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return {};
    const std::size_t blank = line.find(' ');
    if (blank == line.npos || line.find(' ', blank + 1) != line.npos)
      return corrupt(merges_txt, fmt::format("line {} is \"{}\", expected two tokens", number, beginning(line)),
                     hint_of(text));
    const auto left = from_byte_characters(line.substr(0, blank)), right = from_byte_characters(line.substr(blank + 1));
    const auto number_of = [&](const std::string& bytes) {
      const auto found = numbers.find(bytes);
      return found == numbers.end() ? -1 : found->second;
    };
    if (!left || !right || number_of(*left) < 0 || number_of(*right) < 0 || number_of(*left + *right) < 0)
      return corrupt(merges_txt,
                     fmt::format("line {} merges \"{}\", of which {} does not have all three tokens: the two "
                                 "files do not belong together",
                                 number, beginning(line), vocab_json),
                     hint_of(text));
    vocabulary.merges.push_back({number_of(*left), number_of(*right), number_of(*left + *right)});
    return {};
  }));
  return vocabulary;
}

namespace {

// The bytes of a line's first word; none where it is not base64.
std::optional<std::string> from_base64(std::string_view word) {
  if (word.empty() || word.size() % 4 != 0) return {};
  std::string bytes(word.size() / 4 * 3, '\0');
  const int got = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                    reinterpret_cast<const unsigned char*>(word.data()), int(word.size()));
  if (got < 0) return {};
  const std::size_t padding = word.ends_with("==") ? 2 : word.ends_with("=") ? 1 : 0;
  bytes.resize(std::size_t(got) - padding);
  return bytes;
}

// Any two neighbours whose bytes make a token may be merged, the least number first.
void add_merges(BpeVocabulary& vocabulary, std::size_t first) {
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (std::size_t i = first; i < vocabulary.tokens.size(); ++i) numbers.emplace(vocabulary.tokens[i], std::int32_t(i));
  for (std::size_t i = first; i < vocabulary.tokens.size(); ++i) {
    const std::string_view token = vocabulary.tokens[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = numbers.find(token.substr(0, cut)), right = numbers.find(token.substr(cut));
      if (left != numbers.end() && right != numbers.end())
        vocabulary.merges.push_back({left->second, right->second, std::int32_t(i)});
    }
  }
}

// As Megatron-LM's TikTokenizer without options makes it of its file.
Result<BpeVocabulary> read_megatron_tokens(const std::string& path, const std::string& text) {
  constexpr std::size_t kSpecial = 1000, kAll = std::size_t(1) << 17;
  constexpr std::int32_t kEndOfSequence = 2;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array() || json.empty()) return corrupt(path, "is no JSON list of tokens");
  BpeVocabulary vocabulary{
      .tokens = {"<unk>", "<s>", "</s>"}, .merges = {}, .end_of_document = kEndOfSequence, .pattern = "v2"};
  for (std::size_t i = vocabulary.tokens.size(); i < kSpecial; ++i)
    vocabulary.tokens.push_back(fmt::format("<SPECIAL_{}>", i));
  for (std::size_t rank = 0; rank < std::min(json.size(), kAll - kSpecial); ++rank) {
    const auto& entry = json[rank];
    const bool whole = entry.is_object() && entry.value("rank", nlohmann::json()) == rank &&
                       entry.value("token_bytes", nlohmann::json()).is_string();
    const auto bytes = whole ? from_base64(entry["token_bytes"].get_ref<const std::string&>()) : std::nullopt;
    if (!bytes || bytes->empty())
      return corrupt(path, fmt::format("entry {} is {}, expected \"rank\": {} and \"token_bytes\" in base64", rank,
                                       beginning(entry.dump()), rank));
    vocabulary.tokens.push_back(*bytes);
  }
  add_merges(vocabulary, kSpecial);
  return vocabulary;
}

}  // namespace

Result<BpeVocabulary> read_tiktoken(const std::string& path) {
  const std::string text = TUTTI_TRY(read_file(path, kMostBytes));
  if (trim(std::string_view(text).substr(0, 64)).starts_with('[')) return read_megatron_tokens(path, text);
  BpeVocabulary vocabulary;
  TUTTI_TRY(for_each_line(text, [&](std::string_view line, std::size_t number) -> Status {
    if (line.empty()) return {};
    const std::size_t blank = line.find(' ');
    const auto bytes = from_base64(line.substr(0, blank));
    const std::int64_t rank = blank == line.npos ? -1 : parse_int(line.substr(blank + 1)).value_or(-1);
    if (!bytes || bytes->empty() || rank < 0)
      return corrupt(
          path, fmt::format("line {} is \"{}\", expected a token in base64 and its number", number, beginning(line)),
          hint_of(text));
    if (rank != std::int64_t(vocabulary.tokens.size()) || vocabulary.tokens.size() == kMostTokens)
      return corrupt(path, fmt::format("line {} has number {}, expected {}", number, rank, vocabulary.tokens.size()));
    vocabulary.tokens.push_back(*bytes);
    return {};
  }));
  add_merges(vocabulary, 0);
  if (vocabulary.tokens.empty()) return corrupt(path, "has no tokens");
  vocabulary.end_of_document = std::int32_t(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back(kEndOfText);
  return vocabulary;
}

Status write_vocabulary(const BpeVocabulary& vocabulary, const std::string& vocab_json, const std::string& merges_txt) {
  for (const std::string& path : {vocab_json, merges_txt})
    if (::access(path.c_str(), F_OK) == 0)
      return invalid_argument(path + " is there already", "remove it, or choose another name");
  nlohmann::ordered_json tokens;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    tokens[std::int32_t(i) == vocabulary.end_of_document ? vocabulary.tokens[i]
                                                         : to_byte_characters(vocabulary.tokens[i])] = i;
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right, result] : vocabulary.merges)
    merges += to_byte_characters(vocabulary.tokens[std::size_t(left)]) + " " +
              to_byte_characters(vocabulary.tokens[std::size_t(right)]) + "\n";
  TUTTI_TRY(write_file(merges_txt, merges));
  return write_file(vocab_json, tokens.dump());
}

}  // namespace tutti
