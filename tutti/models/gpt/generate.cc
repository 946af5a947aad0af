// For each token the whole window goes through the pipeline, as in an evaluation with one sample. The ranks of the last
// stage then have the logits of their words and positions: those of the last token are brought together over the
// context and the tensor group, each of these ranks draws the same token, and tells the stages before.
#include "tutti/models/gpt/generate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/seed.h"

namespace tutti::gpt {
namespace {

class Generator {
 public:
  Generator(Model& model, const GridGroups& groups, const Options& options)
      : model_(model), groups_(groups), options_(options), pipeline_(groups.pipeline, chunks(), messages()) {}

  // What comes behind these tokens: the `place`-th that is drawn.
  std::int32_t next(const std::vector<std::int32_t>& tokens, std::int64_t place) {
    const auto length = std::size_t(options_.shape.sequence_length);
    const std::size_t count = std::min(tokens.size(), length), first = tokens.size() - count;
    const at::Tensor window = at::zeros({std::int64_t(length), 1}, at::kLong);
    for (std::size_t i = 0; i < count; ++i) window.data_ptr<std::int64_t>()[i] = tokens[first + i];
    window_ = take_part(window, model_.part()).contiguous();
    pipeline_.run(pipeline_schedule(options_, 1, true));
    std::int64_t drawn = 0;
    if (groups_.pipeline.rank() == groups_.last_stage) drawn = draw(logits_at(std::int64_t(count) - 1), place);
    broadcast(groups_.pipeline, std::span(&drawn, 1), groups_.last_stage);
    return std::int32_t(drawn);
  }

 private:
  std::vector<Chunk> chunks() {
    const auto stages = stages_of_rank(options_, groups_.pipeline.rank());
    std::vector<Chunk> made;
    for (int chunk = 0; chunk < int(stages.size()); ++chunk)
      made.push_back([this, chunk, last = stages[std::size_t(chunk)].is_last](int, const at::Tensor& input) {
        if (!last) return model_.forward(chunk, {.tokens = window_}, input);
        logits_ = model_.logits(chunk, {.tokens = window_}, input);
        return at::zeros({1});  // where a training has its loss
      });
    return made;
  }
  PipelineOptions messages() const {
    auto sizes = model_.activation_sizes();
    sizes[1] = 1;
    return {.messages = {.dtype = options_.precision == Precision::kF64 ? DType::kF64 : DType::kF32,
                         .sizes = sizes,
                         .split_over = groups_.message_parts}};
  }

  // Of all words, f64; on the last stage.
  at::Tensor logits_at(std::int64_t position) const {
    const at::Tensor mine = at::zeros({logits_.size(-1)}, at::kDouble);
    std::int64_t row = 0;
    for (const SequenceRange& range : model_.part()) {
      if (position >= range.first && position < range.first + range.count)
        mine.copy_(logits_.select(0, row + position - range.first).reshape({-1}));
      row += range.count;
    }
    if (ranks_of(groups_.context) > 1) all_reduce(groups_.context, mine);  // one has it, the others have zeros
    const at::Tensor all = at::empty({mine.numel() * ranks_of(groups_.tensor)}, mine.options());
    all_gather(groups_.tensor, mine, all);
    return all.narrow(0, 0, options_.shape.vocabulary);
  }

  std::int64_t draw(const at::Tensor& logits, std::int64_t place) const {
    const auto& [prompt, tokens, temperature, top_k] = options_.generate;
    if (temperature == 0) return logits.argmax().item<std::int64_t>();
    const std::int64_t among = top_k > 0 ? std::min<std::int64_t>(top_k, logits.numel()) : logits.numel();
    const auto [best, numbers] = logits.topk(among);
    const at::Tensor probabilities = at::softmax(best / temperature, 0);
    const at::Tensor drawn =
        at::multinomial(probabilities, 1, false, generator_at(options_.seed, {.step = place, .layer = 2}));
    return numbers[drawn.item<std::int64_t>()].item<std::int64_t>();
  }

  Model& model_;
  const GridGroups& groups_;
  const Options& options_;
  at::Tensor window_, logits_;
  Pipeline pipeline_;
};

}  // namespace

std::string generate(Model& model, const GridGroups& groups, const Options& options, const Tokenizer& tokenizer) {
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> tokens;
  tokenizer.encoder()->encode(*options.generate.prompt, tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document().value_or(0));
  Generator generator(model, groups, options);
  for (int i = 0; i < options.generate.tokens; ++i) {
    const std::int32_t next = generator.next(tokens, i);
    if (next == tokenizer.end_of_document()) break;
    tokens.push_back(next);
  }
  return tokenizer.decode(tokens);
}

}  // namespace tutti::gpt
