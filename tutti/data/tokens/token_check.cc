#include "tutti/data/tokens/token_check.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "tutti/data/tokens/token_file.h"

namespace tutti {
namespace {

constexpr std::uint64_t kMostReadBytes = std::uint64_t(1) << 30;  // of all files together

std::set<std::string> files_of(const GptDataOptions& options) {
  std::set<std::string> prefixes;
  for (std::size_t part = 0; part < options.samples.size(); ++part) {
    if (options.samples[part] == 0) continue;
    for (const TokenBlend* blend : {&options.divided, &options.apart[part]})
      prefixes.insert(blend->prefixes.begin(), blend->prefixes.end());
  }
  return prefixes;
}

}  // namespace

Status check_tokens(const GptDataOptions& options) {
  const auto prefixes = files_of(options);
  for (const std::string& prefix : prefixes) {
    const TokenFile file = TUTTI_TRY(TokenFile::open(prefix));
    const auto found = file.beyond(options.vocabulary, kMostReadBytes / prefixes.size());
    if (found)
      return invalid_argument(fmt::format("{}.bin has the token {} (in sequence {}), and the vocabulary has {}", prefix,
                                          found->token, found->sequence, options.vocabulary),
                              "give the tokenizer or the --vocab-size that the file was made with");
  }
  return {};
}

}  // namespace tutti
