#pragma once
// From text to the numbers of tokens and back. A tokenizer is immutable and shared by threads; each thread encodes with
// an encoder of its own, which remembers the words it has met.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the tokens of the text, any bytes. What looks like a special token is text like any other.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& into) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Must not outlive the tokenizer. One thread.
  virtual std::unique_ptr<TextEncoder> encoder() const = 0;
  // The bytes of the tokens, one after another; nothing for an unknown one.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  // One above the largest token.
  virtual std::int64_t vocabulary() const = 0;
  // The token between two documents ("<|endoftext|>").
  virtual std::optional<std::int32_t> end_of_document() const = 0;
};

// A token a byte, 0 to 255, and 256 for the end of a document. Needs no file.
std::unique_ptr<Tokenizer> byte_tokenizer();

}  // namespace tutti
