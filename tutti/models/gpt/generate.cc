#include "tutti/models/gpt/generate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "tutti/tensor/collectives.h"
#include "tutti/tensor/seed.h"

namespace tutti::gpt {
namespace {

// f64 [words]
at::Tensor logits_of_next(Model& model, const GridGroups& groups, const Options& options,
                          const std::vector<std::int32_t>& tokens) {
  const auto length = std::size_t(options.shape.sequence_length);
  const std::size_t count = std::min(tokens.size(), length), first = tokens.size() - count;
  const at::Tensor window = at::zeros({std::int64_t(length), 1}, at::kLong);
  for (std::size_t i = 0; i < count; ++i) window.data_ptr<std::int64_t>()[i] = tokens[first + i];
  const at::Tensor mine =
      model.logits(0, {.tokens = window}, {}).select(0, std::int64_t(count) - 1).reshape({-1}).contiguous();
  if (groups.tensor.size() == 1) return mine.narrow(0, 0, options.shape.vocabulary).to(at::kDouble);
  const at::Tensor all = at::empty({mine.numel() * groups.tensor.size()}, mine.options());
  all_gather(groups.tensor, mine, all);
  return all.narrow(0, 0, options.shape.vocabulary).to(at::kDouble);
}

std::int64_t choose(const at::Tensor& logits, const Options& options, std::int64_t place) {
  const auto& [prompt, tokens, temperature, top_k] = options.generate;
  if (temperature == 0) return logits.argmax().item<std::int64_t>();
  const std::int64_t among = top_k > 0 ? std::min<std::int64_t>(top_k, logits.numel()) : logits.numel();
  const auto [best, numbers] = logits.topk(among);
  const at::Tensor probabilities = at::softmax(best / temperature, 0);
  const at::Tensor drawn =
      at::multinomial(probabilities, 1, false, generator_at(options.seed, {.step = place, .layer = 2}));
  return numbers[drawn.item<std::int64_t>()].item<std::int64_t>();
}

}  // namespace

std::string generate(Model& model, const GridGroups& groups, const Options& options, const Tokenizer& tokenizer) {
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> tokens;
  tokenizer.encoder()->encode(*options.generate.prompt, tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document().value_or(0));
  for (int i = 0; i < options.generate.tokens; ++i) {
    const auto next = std::int32_t(choose(logits_of_next(model, groups, options, tokens), options, i));
    if (next == tokenizer.end_of_document()) break;
    tokens.push_back(next);
  }
  return tokenizer.decode(tokens);
}

}  // namespace tutti::gpt
