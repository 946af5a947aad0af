#pragma once
// Writes PREFIX.bin and PREFIX.idx as Megatron-LM does (token_file.h reads them).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/placed_file.h"
#include "tutti/data/tokens/token_type.h"

namespace tutti {

// Both files stand under other names (PREFIX.bin.unfinished) until finish() has renamed them, the .idx last: so there
// is never an index of what is not there. One thread. Removes what it wrote if finish() is not reached.
class TokenWriter {
 public:
  // kInvalidArgument: the files are there already; kSystem.
  static Result<TokenWriter> create(const std::string& prefix, TokenType type);
  TokenWriter(TokenWriter&&) = default;
  ~TokenWriter();

  // kInvalidArgument: a token that the type does not hold, or more tokens than a sequence can have (2^31 - 1).
  Status add_sequence(std::span<const std::int32_t> tokens);
  void end_document() { document_begins_.push_back(std::int64_t(lengths_.size())); }
  // Writes the index, asks for both to be on the disk, gives them their names.
  Status finish();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return std::int64_t(document_begins_.size()) - 1; }

 private:
  TokenWriter(std::string prefix, TokenType type, PlacedFile data);
  Status flush();

  std::string prefix_;
  TokenType type_;
  PlacedFile data_;
  std::vector<std::byte> buffer_;  // of the .bin, to be written at written_
  std::uint64_t written_ = 0;
  std::int64_t tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> document_begins_{0};
  bool unfinished_ = false;
};

}  // namespace tutti
