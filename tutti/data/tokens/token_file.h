#pragma once
// Megatron-LM's indexed dataset: PREFIX.bin holds the tokens of all sequences back to back, PREFIX.idx says where each
// sequence lies and which sequences make a document. docs/reference/formats.md has the layout to the byte.
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/data/tokens/token_type.h"

namespace tutti {

// Numbers in a mapped file, which need not be aligned: the 34 bytes of an .idx's header push all that follows aside.
template <class T>
class PackedList {
 public:
  PackedList() = default;
  PackedList(const std::byte* begin, std::size_t size) : begin_(begin), size_(size) {}
  std::size_t size() const { return size_; }
  T operator[](std::size_t i) const {
    T value;
    std::memcpy(&value, begin_ + i * sizeof(T), sizeof(T));
    return value;
  }

 private:
  const std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

// Both files mapped for reading: opening costs no memory, and the pages are shared by all processes of the host. Any
// thread may read.
class TokenFile {
 public:
  // kNotFound; kCorrupt with the file and the byte: it is no .idx, or not of this version, its parts do not fit
  // together, or sequences reach beyond the .bin. All of the .idx is looked at, and of the .bin its size.
  static Result<TokenFile> open(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t sequences() const { return std::int64_t(lengths_.size()); }
  std::int64_t documents() const { return std::int64_t(document_begins_.size()) - 1; }
  std::int64_t tokens() const { return tokens_; }

  std::int32_t length(std::int64_t sequence) const { return lengths_[std::size_t(sequence)]; }  // in tokens
  const PackedList<std::int32_t>& lengths() const { return lengths_; }
  // Document d is the sequences [document_begins()[d], document_begins()[d + 1]).
  const PackedList<std::int64_t>& document_begins() const { return document_begins_; }

  // The first token that is not in [0, vocabulary), and its sequence. Looks at all tokens, or where they are more than
  // `most_bytes` at pieces of 1 MiB, evenly apart, that come to so much.
  struct Beyond {
    std::int64_t token, sequence;
  };
  std::optional<Beyond> beyond(std::int64_t vocabulary, std::uint64_t most_bytes) const;

  // into.size() tokens of a sequence, from the `begin`-th on. Throws Exception(kInvalidArgument) beyond its end.
  void read(std::int64_t sequence, std::int64_t begin, std::span<std::int64_t> into) const;

 private:
  TokenFile() = default;
  Status read_index(const std::string& path);
  Status check_index(const std::string& path);

  std::string prefix_;
  Mapping index_, data_;
  TokenType type_ = TokenType::kU16;
  std::int64_t tokens_ = 0;
  PackedList<std::int32_t> lengths_;
  PackedList<std::int64_t> offsets_, document_begins_;  // in bytes of the .bin; in sequences
};

}  // namespace tutti
