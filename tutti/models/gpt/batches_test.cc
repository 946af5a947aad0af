// The data that pretrain_gpt's stages read.
#include "tutti/models/gpt/batches.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tutti/comm/inproc_world.h"
#include "tutti/models/gpt/model.h"

namespace tutti::gpt {
namespace {

class FixedSample : public GptDataset {
 public:
  std::int64_t size() const override { return 3; }
  void read(std::int64_t, std::span<std::int64_t> into) const override {
    const std::int64_t tokens[] = {3, 10, 5, 6, 10, 10, 2};
    std::copy(std::begin(tokens), std::end(tokens), into.begin());
  }
};

TEST(Batches, KnowWhereDocumentsBegin) {
  Options options;
  options.model = with_defaults({.layers = 2, .hidden = 16, .heads = 4, .vocabulary = 11, .sequence_length = 6});
  options.model.precision = Precision::kF64;
  options.batches.micro_batch = 3;
  options.batches.global_batch = 0;
  options.end_of_document = options.masked_token = 10;
  options.reset_positions = options.reset_attention = true;
  options = for_world(options, 1).or_throw();
  const auto world = make_inproc_world(1);
  const Parallel groups = make_parallel(world[0], options);
  const FixedSample data;
  const SequencePart part = context_part(6, 0, 1);
  const MicroBatch batch = Batches(&data, groups, options, SampleOrder::kSequential, part).take(1, 1).front();
  const auto column = [](const at::Tensor& of, int number) {
    const at::Tensor values = of.select(1, number).to(at::kDouble).contiguous();
    return std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  };
  EXPECT_EQ(column(batch.tokens, 2), (std::vector<double>{3, 10, 5, 6, 10, 10}));
  EXPECT_EQ(column(batch.first_seen, 2), (std::vector<double>{0, 0, 2, 2, 2, 5})) << "behind each end";
  EXPECT_EQ(column(batch.positions, 2), (std::vector<double>{0, 1, 0, 1, 2, 0}));
  EXPECT_EQ(column(batch.weights * 9, 2), (std::vector<double>{1, 0, 1, 1, 0, 0}));
}

}  // namespace
}  // namespace tutti::gpt
