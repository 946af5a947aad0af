#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti {
namespace {

constexpr std::int32_t kEnd = 256;

class ByteEncoder : public TextEncoder {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& into) override {
    for (const char byte : text) into.push_back(std::uint8_t(byte));
  }
};

class ByteTokenizer : public Tokenizer {
 public:
  std::unique_ptr<TextEncoder> encoder() const override { return std::make_unique<ByteEncoder>(); }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens)
      if (token >= 0 && token < kEnd) text += char(token);
    return text;
  }
  std::int64_t vocabulary() const override { return kEnd + 1; }
  std::optional<std::int32_t> end_of_document() const override { return kEnd; }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace tutti
