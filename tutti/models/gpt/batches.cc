#include "tutti/models/gpt/batches.h"

#include <ATen/Functions.h>

#include <span>
#include <tuple>

#include "tutti/tensor/rank_device.h"
#include "tutti/trace/region.h"

namespace tutti::gpt {
namespace {

// Of each token, where its document begins in the sample: behind the last end of one before it. [positions, batch]
at::Tensor document_begins(const at::Tensor& tokens, std::int64_t end) {
  const std::int64_t length = tokens.size(0);
  const at::Tensor behind = at::arange(1, length, at::kLong).unsqueeze(1);
  const at::Tensor begins = at::zeros(tokens.sizes(), at::kLong);
  if (length == 1) return begins;
  const at::Tensor ended = tokens.narrow(0, 0, length - 1).eq(end);
  begins.narrow(0, 1, length - 1).copy_(std::get<0>(at::cummax(behind * ended, 0)));
  return begins;
}

// On the CPU the model looks, too; on a GPU it would have to wait for that.
void require_words(const at::Tensor& tokens, std::int64_t words) {
  const auto [least, most] = at::aminmax(tokens);
  for (const std::int64_t token : {least.item<std::int64_t>(), most.item<std::int64_t>()})
    TUTTI_REQUIRE(token >= 0 && token < words, "the data has the token ", token,
                  ", which is not in the vocabulary: expected 0 to ", words - 1);
}

}  // namespace

Batches::Batches(const GptDataset* dataset, const Parallel& groups, const Options& options, SampleOrder order,
                 const SequencePart& part, at::Device device)
    : dataset_(dataset), groups_(groups), options_(options), part_(part), device_(device) {
  if (dataset)
    sampler_.emplace(groups.data, BatchSamplerOptions{.dataset_size = std::size_t(dataset->size()),
                                                      .batch_size = std::size_t(options.batches.micro_batch),
                                                      .order = order,
                                                      .shuffle_multiple = std::size_t(options.batches.micro_batch)});
}

void Batches::restore(std::int64_t consumed) {
  if (sampler_) sampler_->restore(std::uint64_t(consumed));
}

std::vector<MicroBatch> Batches::take(int count, std::int64_t step) {
  const Region region("batch-generator");
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(sampler_ ? read(sampler_->take()) : MicroBatch());
    batches.back().step = step;
    batches.back().number = std::int64_t(i) * groups_.data.size() + groups_.data.rank();
  }
  return batches;
}

MicroBatch Batches::read(const std::vector<std::int64_t>& samples) const {
  const std::int64_t length = options_.model.sequence_length, count = std::int64_t(samples.size());
  TUTTI_REQUIRE(count == options_.batches.micro_batch, "the data has ended: a micro batch has ", count, " samples of ",
                options_.batches.micro_batch);
  const at::Tensor rows = at::empty({count, length + 1}, at::kLong);
  auto* const at_row = rows.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i)
    dataset_->read(samples[std::size_t(i)], std::span(at_row + i * (length + 1), std::size_t(length + 1)));
  if (!device_.is_cpu()) require_words(rows, options_.model.vocabulary);
  const at::Tensor columns = rows.t();  // [positions, batch]
  const at::Tensor all_tokens = columns.narrow(0, 0, length);
  MicroBatch batch;
  batch.tokens = take_part(all_tokens, part_).contiguous();
  batch.targets = take_part(columns.narrow(0, 1, length), part_).contiguous();
  if (options_.masked_token) {
    const auto type = options_.model.precision == Precision::kF64 ? at::kDouble : at::kFloat;
    const at::Tensor counts = all_tokens.ne(*options_.masked_token).to(type);
    // Averaged over context ranks, of which each has its positions' sum, this is the mean over all that count.
    const at::Tensor share = counts * (double(groups_.context.size()) / counts.sum().clamp_min(1));
    batch.weights = take_part(share, part_).contiguous();
  }
  if (options_.reset_positions || options_.reset_attention) {
    const at::Tensor begins = document_begins(all_tokens, *options_.end_of_document);
    if (options_.reset_attention) batch.first_seen = take_part(begins, part_).contiguous();
    if (options_.reset_positions)
      batch.positions = take_part(at::arange(length, at::kLong).unsqueeze(1) - begins, part_).contiguous();
  }
  for (at::Tensor* tensor : {&batch.tokens, &batch.targets, &batch.weights, &batch.first_seen, &batch.positions})
    if (tensor->defined()) *tensor = copied_to(*tensor, device_);
  return batch;
}

}  // namespace tutti::gpt
