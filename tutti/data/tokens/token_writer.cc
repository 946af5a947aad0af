#include "tutti/data/tokens/token_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "tutti/data/tokens/index_format.h"

namespace tutti {
namespace {

constexpr std::size_t kBuffer = 4 << 20;

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

std::string unfinished(const std::string& path) { return path + ".unfinished"; }

}  // namespace

TokenWriter::TokenWriter(std::string prefix, TokenType type, PlacedFile data)
    : prefix_(std::move(prefix)), type_(type), data_(std::move(data)), unfinished_(true) {}

Result<TokenWriter> TokenWriter::create(const std::string& prefix, TokenType type) {
  for (const char* end : {".bin", ".idx"})
    if (::access((prefix + end).c_str(), F_OK) == 0)
      return invalid_argument(prefix + end + " is there already", "remove it, or choose another name");
  const std::string path = unfinished(prefix + ".bin");
  (void)::unlink(path.c_str());  // of a process that was killed
  return TokenWriter(prefix, type, TUTTI_TRY(PlacedFile::create(path)));
}

TokenWriter::~TokenWriter() {
  if (!unfinished_ || data_.path().empty()) return;
  for (const char* end : {".bin", ".idx"}) (void)::unlink(unfinished(prefix_ + end).c_str());
}

Status TokenWriter::add_sequence(std::span<const std::int32_t> tokens) {
  if (tokens.size() > std::size_t(std::numeric_limits<std::int32_t>::max()))
    return invalid_argument(fmt::format("{}.bin: a sequence of {} tokens is longer than the format allows (2147483647)",
                                        prefix_, tokens.size()));
  const std::int64_t most = most_of(type_);
  for (const std::int32_t token : tokens) {
    if (token < 0 || token > most)
      return invalid_argument(fmt::format("{}.bin: token {} does not fit into {}", prefix_, token, name(type_)));
    switch (size_of(type_)) {
      case 1:
        append(buffer_, std::uint8_t(token));
        break;
      case 2:
        append(buffer_, std::uint16_t(token));
        break;
      case 4:
        append(buffer_, token);
        break;
      default:
        append(buffer_, std::int64_t(token));
    }
  }
  lengths_.push_back(std::int32_t(tokens.size()));
  tokens_ += std::int64_t(tokens.size());
  return buffer_.size() >= kBuffer ? flush() : Status();
}

Status TokenWriter::flush() {
  TUTTI_TRY(data_.write(written_, buffer_));
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Status TokenWriter::finish() {
  using namespace token_index;
  if (document_begins_.back() != std::int64_t(lengths_.size())) end_document();
  TUTTI_TRY(flush());
  TUTTI_TRY(data_.flush());
  std::vector<std::byte> index(reinterpret_cast<const std::byte*>(kMagic.data()),
                               reinterpret_cast<const std::byte*>(kMagic.data()) + kMagic.size());
  append(index, kVersion);
  append(index, std::uint8_t(type_));
  append(index, std::uint64_t(lengths_.size()));
  append(index, std::uint64_t(document_begins_.size()));
  for (const std::int32_t length : lengths_) append(index, length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    append(index, offset);
    offset += std::int64_t(length) * std::int64_t(size_of(type_));
  }
  for (const std::int64_t begin : document_begins_) append(index, begin);
  const std::string index_path = unfinished(prefix_ + ".idx");
  (void)::unlink(index_path.c_str());
  const PlacedFile file = TUTTI_TRY(PlacedFile::create(index_path));
  TUTTI_TRY(file.write(0, index));
  TUTTI_TRY(file.flush());
  TUTTI_TRY(rename_file(data_.path(), prefix_ + ".bin"));
  TUTTI_TRY(rename_file(index_path, prefix_ + ".idx"));
  unfinished_ = false;
  return {};
}

}  // namespace tutti
