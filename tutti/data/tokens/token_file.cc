#include "tutti/data/tokens/token_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/data/placed_file.h"
#include "tutti/data/tokens/index_format.h"

namespace tutti {
namespace {

Error corrupt_tokens(const std::string& path, std::string why) {
  return {.code = Code::kCorrupt, .detail = path + ": " + std::move(why)};
}

template <class T>
T value_at(const Mapping& mapping, std::size_t at) {
  T value;
  std::memcpy(&value, mapping.data() + at, sizeof value);
  return value;
}

template <class T>
void widen(const std::byte* from, std::span<std::int64_t> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    into[i] = std::int64_t(token);
  }
}

// The first of `count` tokens that is not in [0, vocabulary). In blocks, whose loop has no exit: so it is vectorised.
template <class T>
std::optional<std::int64_t> first_beyond(const std::byte* from, std::size_t count, std::int64_t vocabulary) {
  constexpr std::size_t kBlock = 4096;
  const auto at = [&](std::size_t i) {
    T token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    return token;
  };
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    T least = 0, most = 0;
    for (std::size_t i = begin; i < end; ++i) {
      least = std::min(least, at(i));
      most = std::max(most, at(i));
    }
    if (std::int64_t(least) >= 0 && std::int64_t(most) < vocabulary) continue;
    for (std::size_t i = begin; i < end; ++i)
      if (const auto token = std::int64_t(at(i)); token < 0 || token >= vocabulary) return token;
  }
  return {};
}

std::optional<std::int64_t> first_beyond(TokenType type, const std::byte* from, std::size_t count,
                                         std::int64_t vocabulary) {
  switch (type) {
    case TokenType::kU8:
      return first_beyond<std::uint8_t>(from, count, vocabulary);
    case TokenType::kI8:
      return first_beyond<std::int8_t>(from, count, vocabulary);
    case TokenType::kI16:
      return first_beyond<std::int16_t>(from, count, vocabulary);
    case TokenType::kI32:
      return first_beyond<std::int32_t>(from, count, vocabulary);
    case TokenType::kI64:
      return first_beyond<std::int64_t>(from, count, vocabulary);
    case TokenType::kU16:
      return first_beyond<std::uint16_t>(from, count, vocabulary);
  }
  return {};
}

}  // namespace

Result<TokenFile> TokenFile::open(const std::string& prefix) {
  TokenFile file;
  file.prefix_ = prefix;
  const PlacedFile index = TUTTI_TRY(PlacedFile::open(prefix + ".idx"));
  file.index_ = TUTTI_TRY(index.map());
  const PlacedFile data = TUTTI_TRY(PlacedFile::open(prefix + ".bin"));
  file.data_ = TUTTI_TRY(data.map());
  TUTTI_TRY(file.read_index(index.path()));
  TUTTI_TRY(file.check_index(index.path()));
  return file;
}

Status TokenFile::read_index(const std::string& path) {
  using namespace token_index;
  const std::size_t size = index_.size();
  if (size < kHeaderBytes)
    return corrupt_tokens(path, fmt::format("has {} bytes, fewer than the {} of a header", size, kHeaderBytes));
  if (std::memcmp(index_.data(), kMagic.data(), kMagic.size()) != 0)
    return corrupt_tokens(path,
                          "does not begin with MMIDIDX: it is no index of tokens as Megatron-LM and "
                          "`tutti data tokenize` write it");
  if (const auto version = value_at<std::uint64_t>(index_, kVersionAt); version != kVersion)
    return corrupt_tokens(path, fmt::format("is of version {}, expected {}", version, kVersion));
  const auto code = value_at<std::uint8_t>(index_, kTypeAt);
  const auto type = token_type(code);
  if (!type)
    return corrupt_tokens(path,
                          fmt::format("has tokens of type {} (byte {}), which is no whole number", code, kTypeAt));
  type_ = *type;
  const auto sequences = value_at<std::uint64_t>(index_, kSequencesAt);
  const auto documents = value_at<std::uint64_t>(index_, kDocumentsAt);
  // Neither product can overflow where both counts are no more than the bytes of the file.
  if (sequences > size || documents > size || kHeaderBytes + sequences * 12 + documents * 8 > size)
    return corrupt_tokens(
        path, fmt::format("has {} bytes, too few for its {} sequences and {} entries of documents: it was cut "
                          "off, or is damaged",
                          size, sequences, documents));
  if (documents == 0) return corrupt_tokens(path, "has no list of documents");
  const std::byte* const lists = index_.data() + kHeaderBytes;
  lengths_ = {lists, sequences};
  offsets_ = {lists + sequences * 4, sequences};
  document_begins_ = {lists + sequences * 12, documents};
  return {};
}

Status TokenFile::check_index(const std::string& path) {
  const auto at = [&](const auto& list, std::size_t i, std::size_t before) {
    return token_index::kHeaderBytes + before + i * sizeof(list[0]);
  };
  const std::uint64_t width = size_of(type_);
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (lengths_[i] < 0)
      return corrupt_tokens(
          path, fmt::format("sequence {} has a length of {} (byte {})", i, lengths_[i], at(lengths_, i, 0)));
    const std::uint64_t bytes = std::uint64_t(lengths_[i]) * width;
    if (offsets_[i] < 0 || std::uint64_t(offsets_[i]) > data_.size() ||
        bytes > data_.size() - std::uint64_t(offsets_[i]))
      return corrupt_tokens(
          path, fmt::format("sequence {} is {} bytes from byte {} on (byte {}), but {}.bin has {}", i, bytes,
                            offsets_[i], at(offsets_, i, lengths_.size() * 4), prefix_, data_.size()));
    tokens += lengths_[i];
  }
  const std::size_t before = lengths_.size() * 12;
  for (std::size_t d = 0; d < document_begins_.size(); ++d)
    if (document_begins_[d] < (d == 0 ? 0 : document_begins_[d - 1]) ||
        document_begins_[d] > std::int64_t(lengths_.size()))
      return corrupt_tokens(
          path, fmt::format("document {} begins at sequence {} (byte {}), expected ascending ones up to {}", d,
                            document_begins_[d], at(document_begins_, d, before), lengths_.size()));
  tokens_ = tokens;
  return {};
}

std::optional<TokenFile::Beyond> TokenFile::beyond(std::int64_t vocabulary, std::uint64_t most_bytes) const {
  constexpr std::uint64_t kPieceBytes = 1 << 20;
  const std::uint64_t width = size_of(type_), piece = kPieceBytes / width;  // in tokens
  const std::uint64_t most = std::max<std::uint64_t>(most_bytes / width, piece);
  const std::uint64_t every = (std::uint64_t(tokens_) + most - 1) / most;  // so many pieces is one looked at
  std::uint64_t before = 0;                                                // tokens of the sequences so far
  for (std::size_t s = 0; s < lengths_.size(); ++s) {
    const auto length = std::uint64_t(lengths_[s]);
    for (std::uint64_t begin = 0, end = 0; begin < length; begin = end) {
      const std::uint64_t number = (before + begin) / piece;
      end = std::min(length, (number + 1) * piece - before);
      if (number % every != 0) continue;
      const auto* const from = data_.data() + std::uint64_t(offsets_[s]) + begin * width;
      if (const auto token = first_beyond(type_, from, end - begin, vocabulary)) return Beyond{*token, std::int64_t(s)};
    }
    before += length;
  }
  return {};
}

void TokenFile::read(std::int64_t sequence, std::int64_t begin, std::span<std::int64_t> into) const {
  TUTTI_REQUIRE(sequence >= 0 && sequence < sequences(), prefix_, ".bin: sequence ", sequence, " of ", sequences());
  const std::int64_t length = lengths_[std::size_t(sequence)];
  TUTTI_REQUIRE(begin >= 0 && begin <= length && std::int64_t(into.size()) <= length - begin, prefix_,
                ".bin: ", into.size(), " tokens from token ", begin, " on of sequence ", sequence, ", which has ",
                length);
  const std::byte* const from = data_.data() + offsets_[std::size_t(sequence)] + begin * std::int64_t(size_of(type_));
  switch (type_) {
    case TokenType::kU8:
      return widen<std::uint8_t>(from, into);
    case TokenType::kI8:
      return widen<std::int8_t>(from, into);
    case TokenType::kI16:
      return widen<std::int16_t>(from, into);
    case TokenType::kI32:
      return widen<std::int32_t>(from, into);
    case TokenType::kI64:
      return widen<std::int64_t>(from, into);
    case TokenType::kU16:
      return widen<std::uint16_t>(from, into);
  }
}

}  // namespace tutti
