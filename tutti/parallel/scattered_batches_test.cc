#include "tutti/parallel/scattered_batches.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/harness/ranks.h"

namespace tutti {
namespace {

using testing::Each;
using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using test::check;

TEST(ScatteredBatches, EachRankGetsItsRows) {
  for (const int size : {1, 2, 3}) {
    for (const int root : {0, size - 1}) {
      const auto outcomes = test::run_threads(size, [&](Group& world) {
        const auto whole = [&](std::int64_t rows) {
          return Tensors{at::arange(rows * 4, at::kFloat).view({rows, 2, 2}), at::arange(rows),
                         at::arange(rows) % 2 == 0};
        };
        for (const std::int64_t each : {3, 1, 5, 0}) {  // shapes may change
          std::optional<Tensors> batch;
          if (world.rank() == root) batch = whole(each * size);
          const auto parts = scatter_batch(world, batch, root);
          check(parts && parts->size() == 3, "3 tensors");
          for (int i = 0; i < 3; ++i) {
            const auto expected = whole(each * size)[std::size_t(i)].narrow(0, world.rank() * each, each);
            check((*parts)[std::size_t(i)].scalar_type() == expected.scalar_type(), "type of ", i);
            check(at::equal((*parts)[std::size_t(i)], expected), "rows of ", i, " with ", each, " each");
          }
        }
        check(!scatter_batch(world, std::nullopt, root), "the end is told to all");
      });
      EXPECT_EQ(test::describe(outcomes), "");
    }
  }
}

TEST(ScatteredBatches, TakesWhatIsNotContiguous) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto turned = at::arange(24).view({4, 6}).t();
    const auto parts = scatter_batch(world, Tensors{turned});
    check(at::equal(parts->front(), turned.narrow(0, world.rank() * 3, 3)), "values");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(ScatteredBatches, ABatchThatCannotBeCutIsAnErrorOfAll) {
  const auto heard = [](const Tensors& batch) {
    std::vector<std::string> texts;
    for (const auto& outcome : test::run_threads(3, [&](Group& world) {
           scatter_batch(world, world.rank() == 1 ? std::optional(batch) : std::nullopt, 1);
         }))
      texts.push_back(outcome.error);
    return texts;
  };
  EXPECT_THAT(
      heard({at::zeros({6}), at::zeros({7, 2})}),
      Each(HasSubstr("tensor 1 of the batch is f32[7, 2], whose rows do not divide by 3 ranks (on rank 1, which")));
  EXPECT_THAT(heard({at::zeros({6}), at::zeros({3, 2})}),
              Each(HasSubstr("tensor 1 of the batch is f32[3, 2], but tensor 0 has 6")));
  EXPECT_THAT(heard({at::zeros({})}), Each(HasSubstr("f32[], whose rows do not divide")));
  EXPECT_THAT(heard({at::zeros({3}).to_sparse()}), Each(HasSubstr("expected a dense one on the CPU")));
}

}  // namespace
}  // namespace tutti
