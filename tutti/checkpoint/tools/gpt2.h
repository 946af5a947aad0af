#pragma once
// GPT-2's weights under the names of Hugging Face's transformers ("h.0.attn.c_attn.weight"), where linear layers are
// stored [in, out], and under those of pretrain_gpt ("decoder.layers.0.self_attention.linear_qkv.weight"), [out, in].
// One tensor is one tensor on both sides.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/checkpoint/open.h"

namespace tutti {

struct Gpt2Name {
  std::string name;         // on the other side
  bool transposed = false;  // the two have their dimensions exchanged
};
// None: no tensor of a GPT-2. A leading "transformer." is taken off; what transformers keeps beside the weights
// (attention masks, a second name of the word embedding) has none.
std::optional<Gpt2Name> gpt2_name_here(std::string_view huggingface);
std::optional<Gpt2Name> gpt2_name_there(std::string_view ours);

struct Gpt2Report {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::string path;  // that was written
};
// Writes a checkpoint of step 0 into `folder`, weights only, in f32. `heads`: of attention, which the tensors do not
// show; 0: what config.json beside the weights says, else heads of 64 numbers, as all published ones have. kMismatch:
// it is no GPT-2, with the tensor that is missing or is none; kInvalidArgument: `folder` has this checkpoint or a later
// one; kUnsupported: a tensor is not f32, f16 or bf16. One tensor is in memory at a time.
Result<Gpt2Report> import_gpt2(const TensorSource& source, const std::string& folder, std::int64_t heads);
// Writes a safetensors file of the weights. kMismatch: it is no GPT-2 but has a tensor of another kind of model;
// kInvalidArgument: the file is there.
Result<Gpt2Report> export_gpt2(const TensorSource& source, const std::string& file);

}  // namespace tutti
