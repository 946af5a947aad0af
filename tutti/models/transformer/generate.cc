// For each token the whole window goes through the pipeline, as in an evaluation with one sample. The ranks of the last
// stage then have the logits of their words and positions. Those of the last token are gathered over the context and
// the tensor group, each of these ranks draws the same token and broadcasts it to the stages before.
#include "tutti/models/transformer/generate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/models/transformer/transformer.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/seed.h"

namespace tutti {
namespace {

class Generator {
 public:
  Generator(Transformer& model, const GenerateOptions& options, ScheduleKind kind)
      : model_(model),
        parallel_(model.parallel()),
        options_(options),
        schedule_(make_schedule(
            kind,
            {.ranks = ranks_of(parallel_.pipeline), .chunks = int(model.stages().size()), .forward_only = true})) {
    if (parallel_.pipeline) pipeline_.emplace(parallel_.pipeline, chunks(), messages());
  }

  // The token that follows these: the `place`-th that is drawn.
  std::int32_t next(const std::vector<std::int32_t>& tokens, std::int64_t place) {
    const auto length = std::size_t(model_.config().sequence_length);
    const std::size_t count = std::min(tokens.size(), length), first = tokens.size() - count;
    const at::Tensor window = at::zeros({std::int64_t(length), 1}, at::kLong);
    for (std::size_t i = 0; i < count; ++i) window.data_ptr<std::int64_t>()[i] = tokens[first + i];
    window_ = take_part(window, model_.sequence()).contiguous().to(model_.device());
    if (!pipeline_) {
      logits_ = model_.logits(0, {.tokens = window_}, {});
      return std::int32_t(draw(logits_at(std::int64_t(count) - 1), place));
    }
    pipeline_->run(schedule_);
    std::int64_t drawn = 0;
    if (parallel_.pipeline.rank() == parallel_.last_stage) drawn = draw(logits_at(std::int64_t(count) - 1), place);
    broadcast(parallel_.pipeline, std::span(&drawn, 1), parallel_.last_stage);
    return std::int32_t(drawn);
  }

 private:
  std::vector<Chunk> chunks() {
    std::vector<Chunk> made;
    for (int chunk = 0; chunk < int(model_.stages().size()); ++chunk)
      made.push_back([this, chunk](int, const at::Tensor& input) {
        if (!model_.stages()[std::size_t(chunk)].is_last) return model_.forward(chunk, {.tokens = window_}, input);
        logits_ = model_.logits(chunk, {.tokens = window_}, input);
        return at::zeros({1});  // where a training has its loss
      });
    return made;
  }
  PipelineOptions messages() const {
    return {.messages = {.dtype = model_.dtype() == at::kDouble ? DType::kF64 : DType::kF32,
                         .device = model_.device(),
                         .sizes = model_.activation_sizes(1),
                         .split_over = parallel_.message_parts}};
  }

  // Of all words, f64, on the CPU; on the last stage.
  at::Tensor logits_at(std::int64_t position) const {
    const at::Tensor mine = at::zeros({logits_.size(-1)}, logits_.options().dtype(at::kDouble));
    std::int64_t row = 0;
    for (const SequenceRange& range : model_.sequence()) {
      if (position >= range.first && position < range.first + range.count)
        mine.copy_(logits_.select(0, row + position - range.first).reshape({-1}));
      row += range.count;
    }
    if (ranks_of(parallel_.context) > 1) all_reduce(parallel_.context, mine);  // one rank has it, others have zeros
    if (ranks_of(parallel_.tensor) == 1) return mine.narrow(0, 0, model_.config().vocabulary).cpu();
    const at::Tensor all = at::empty({mine.numel() * parallel_.tensor.size()}, mine.options());
    all_gather(parallel_.tensor, mine, all);
    return all.narrow(0, 0, model_.config().vocabulary).cpu();
  }

  std::int64_t draw(const at::Tensor& logits, std::int64_t place) const {
    if (options_.temperature == 0) return logits.argmax().item<std::int64_t>();
    const int top_k = options_.top_k;
    const std::int64_t among = top_k > 0 ? std::min<std::int64_t>(top_k, logits.numel()) : logits.numel();
    const auto [best, numbers] = logits.topk(among);
    const at::Tensor probabilities = at::softmax(best / options_.temperature, 0);
    const at::Tensor drawn =
        at::multinomial(probabilities, 1, false, generator_at(model_.config().seed, {.step = place, .layer = 2}));
    return numbers[drawn.item<std::int64_t>()].item<std::int64_t>();
  }

  Transformer& model_;
  const Parallel& parallel_;
  const GenerateOptions& options_;
  const Schedule schedule_;
  at::Tensor window_, logits_;
  std::optional<Pipeline> pipeline_;
};

}  // namespace

std::string generate(Transformer& model, const Tokenizer& tokenizer, const GenerateOptions& options,
                     ScheduleKind kind) {
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> tokens;
  tokenizer.encoder()->encode(options.prompt.value_or(""), tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document().value_or(0));
  Generator generator(model, options, kind);
  for (int i = 0; i < options.tokens; ++i) {
    const std::int32_t next = generator.next(tokens, i);
    if (next == tokenizer.end_of_document()) break;
    tokens.push_back(next);
  }
  return tokenizer.decode(tokens);
}

}  // namespace tutti
