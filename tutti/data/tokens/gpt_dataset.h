#pragma once
// The samples of a pre-training: of one token file, of a blend of several, or made up; divided into training,
// validation and test. As Megatron-LM builds them (megatron/core/datasets/blended_megatron_dataset_builder.py).
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// Immutable: any thread may read.
class GptDataset {
 public:
  virtual ~GptDataset() = default;
  virtual std::int64_t size() const = 0;
  // The L + 1 tokens of sample `i`; into.size() is that. Throws Exception (kInvalidArgument) for a token that the
  // vocabulary does not have.
  virtual void read(std::int64_t i, std::span<std::int64_t> into) const = 0;
};

// Token files and how much of each.
struct TokenBlend {
  std::vector<std::string> prefixes;  // PREFIX.bin and PREFIX.idx
  std::vector<double> weights;        // none: by their tokens
};
// The words of --data-path: "PREFIX", "PREFIX PREFIX ..." or "WEIGHT PREFIX WEIGHT PREFIX ...". kInvalidArgument.
Result<TokenBlend> parse_blend(std::span<const std::string> words);

enum class DataPart { kTrain, kValidation, kTest };

struct GptDataOptions {
  TokenBlend divided;                // by `split`; or
  std::array<TokenBlend, 3> apart;   // files of their own for each part; or
  bool mock = false;                 // made up: a sample counts up from some token, modulo the vocabulary
  std::string split = "969, 30, 1";  // Megatron-LM's
  std::int64_t sequence_length = 1024;
  std::int64_t vocabulary = 0;                // tokens are below it
  std::uint32_t seed = 1234;                  // of the order of documents and samples
  std::array<std::int64_t, 3> samples = {0};  // to be had of each part; 0: the part is not needed
};

// By DataPart; null where the part is not needed. Errors: those of TokenFile::open(); kInvalidArgument where a part
// that is needed has no documents, or too few tokens for a sample.
using GptDatasets = std::array<std::unique_ptr<GptDataset>, 3>;
Result<GptDatasets> open_gpt_datasets(const GptDataOptions& options);

}  // namespace tutti
