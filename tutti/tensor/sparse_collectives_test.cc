// Sparse sums against dense ones: every element type and number of sparse dimensions, ranks with different numbers of
// entries, none included, and indices that come twice.
#include "tutti/tensor/sparse_collectives.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/kernels/reduce.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

using tutti::test::check;
using Sizes = std::vector<std::int64_t>;

constexpr at::ScalarType kSparseTypes[] = {at::kFloat, at::kDouble,       at::kHalf,         at::kBFloat16,
                                           at::kChar,  at::kByte,         at::kInt,          at::kLong,
                                           at::kBool,  at::kComplexFloat, at::kComplexDouble};

using test::error_of;

void check_says(const std::string& said, const std::string& words) {
  check(said.find(words) != std::string::npos, said, "\ninstead of: ", words);
}

// What a rank brings: twice as many entries as its number says, in no order, some of them twice. Small numbers, so that
// sums are exact in every type.
struct Brought {
  at::Tensor indices, values;  // [sparse, n], [n, dense...]
  Sizes sizes;

  Brought(int rank, const Sizes& all_sizes, int sparse, at::ScalarType type) : sizes(all_sizes) {
    std::int64_t places = 1;
    for (int d = 0; d < sparse; ++d) places *= sizes[std::size_t(d)];
    const std::int64_t count = places > 0 ? 2 * rank : 0;
    const auto place = (at::arange(count) * 5 + rank) % std::max<std::int64_t>(1, (places + 1) / 2);
    std::vector<at::Tensor> rows;
    std::int64_t stride = 1;
    for (int d = sparse - 1; d >= 0; --d) {
      const auto extent = std::max<std::int64_t>(1, sizes[std::size_t(d)]);
      rows.insert(rows.begin(), at::div(place, stride, "floor") % extent);
      stride *= extent;
    }
    indices = rows.empty() ? at::empty({0, count}, at::kLong) : at::stack(rows);
    Sizes value_sizes(sizes.begin() + sparse, sizes.end());
    std::int64_t width = 1;
    for (const auto extent : value_sizes) width *= extent;
    value_sizes.insert(value_sizes.begin(), count);
    values = ((at::arange(count * width) + rank) % 3).view(value_sizes).to(type);
    if (values.is_complex()) values = values * c10::complex<double>(1, 2);
  }
  at::Tensor sparse() const {
    return at::sparse_coo_tensor(indices, values, sizes, values.options().layout(at::kSparse));
  }
};

// Added up by index on one rank, in a type that holds it.
at::Tensor dense_of(const at::Tensor& sparse) {
  const auto values = sparse._values();
  const auto wide = values.is_complex() ? at::kComplexDouble : at::kDouble;
  const auto dense = at::zeros(sparse.sizes(), at::TensorOptions(wide));
  for (std::int64_t i = 0; i < sparse._nnz(); ++i) {
    auto place = dense;
    for (std::int64_t d = 0; d < sparse.sparse_dim(); ++d) place = place[sparse._indices()[d][i].item<std::int64_t>()];
    place.add_(values[i].to(wide));
  }
  return dense.to(values.scalar_type());
}

void require_form(const at::Tensor& result, const at::Tensor& given) {
  check(result.layout() == at::kSparse && result.is_coalesced(), "sparse, and coalesced");
  check(result.sizes() == given.sizes() && result.scalar_type() == given.scalar_type(),
        "size and type: ", describe(result));
  const auto again = at::sparse_coo_tensor(result._indices(), result._values().to(at::kComplexDouble), result.sizes());
  check(at::equal(again.coalesce()._indices(), result._indices()), "each index once, in order");
}

// Against the dense verb.
void compare(const Group& world, const Sizes& sizes, int sparse, at::ScalarType type) {
  const Brought brought(world.rank(), sizes, sparse, type);
  const auto given = brought.sparse();
  const auto dtype = checked_bytes(brought.values, "values").dtype;
  for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum}) {
    if (!comm::check_reduction(dtype, op).ok()) continue;
    const Reduction reduction(op, op == ReduceOp::kPremulSum ? world.rank() + 1 : 1);
    auto dense = dense_of(given);
    all_reduce(world, dense, reduction);
    const auto results = {all_reduce_sparse(world, given, reduction),
                          all_reduce_sparse(world, given.coalesce(), reduction),
                          all_reduce_sparse_async(world, given, reduction).get()};
    for (const auto& result : results) {
      require_form(result, given);
      check(at::equal(dense_of(result), dense), name(op), " of ", describe(given), " with ", sparse,
            " sparse dimensions among ", world.size());
      check(world.size() == 1 || result.sparse_dim() == sparse, "sparse dimensions: ", int(result.sparse_dim()));
    }
  }
  check(at::equal(given._values(), brought.values), "the input was written to");
}

class SparseVerb : public testing::TestWithParam<int> {};

TEST_P(SparseVerb, IsTheDenseOneForEveryTypeAndShape) {
  const auto body = [](Group& world) {
    for (const auto type : kSparseTypes) {
      compare(world, {7, 2}, 1, type);
      compare(world, {3, 4}, 2, type);
    }
    compare(world, {5}, 1, at::kFloat);
    for (const int sparse : {1, 2, 3}) compare(world, {3, 2, 4}, sparse, at::kFloat);
    compare(world, {2, 1, 2, 1, 2, 1, 2, 1}, 5, at::kInt);
    compare(world, {4, 0}, 1, at::kFloat);
    compare(world, {0, 3}, 1, at::kFloat);
    compare(world, {3}, 0, at::kFloat);
  };
  EXPECT_EQ(test::describe(test::run_threads(GetParam(), body)), "");
  EXPECT_EQ(test::describe(test::run_threads(GetParam(), body, {.algorithm = "ring"})), "");
}

INSTANTIATE_TEST_SUITE_P(, SparseVerb, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST(SparseCollectives, HaveTheSameBitsOnEveryRank) {
  constexpr std::int64_t kRows = 1000, kWidth = 3;
  const auto outcomes = test::run_threads(4, [](Group& world) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t(world.rank() + 1));
    const auto indices = at::randint(0, kRows, {1, 3000}, generator, at::kLong);
    const auto values = at::randn({3000, kWidth}, generator, at::kFloat);
    const auto sum = all_reduce_sparse(world, at::sparse_coo_tensor(indices, values, {kRows, kWidth}));
    const auto all = at::empty({4, sum._nnz(), kWidth}), all_indices = at::empty({4, sum._nnz()}, at::kLong);
    all_gather(world, sum._values().contiguous(), all);
    all_gather(world, sum._indices()[0].contiguous(), all_indices);
    for (int r = 1; r < 4; ++r)
      check(at::equal(all[r], all[0]) && at::equal(all_indices[r], all_indices[0]), "rank ", r, " has other bits");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// 2^24 + 1 is no float: whose value comes first is seen in the last bit.
TEST(SparseCollectives, AddValuesOfOneIndexInTheOrderOfRanks) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const float mine[] = {1, 1 << 24, -(1 << 24)};
    const auto value = at::full({1}, mine[world.rank()]), place = at::full({1, 1}, 2, at::kLong);
    const auto sum = all_reduce_sparse(world, at::sparse_coo_tensor(place, value, {4}));
    check(sum._values().item<float>() == (mine[0] + mine[1]) + mine[2], sum._values().item<float>());
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Of f16 2048 + 1 is 2048, one by one.
TEST(SparseCollectives, RoundHalfNumbersOnce) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const auto value = at::full({2, 1}, world.rank() == 0 ? 1024 : 0.5, at::kHalf),
               place = at::zeros({1, 2}, at::kLong);
    const auto sum = all_reduce_sparse(world, at::sparse_coo_tensor(place, value, {4, 1}));
    check(sum.scalar_type() == at::kHalf && sum._values().item<double>() == 2050, sum._values().item<double>());
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// A rank that has nothing need not know how the others divide the dimensions; nor does the group if nobody has.
TEST(SparseCollectives, WithoutEntries) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const auto none = at::zeros({5, 2}, at::TensorOptions().layout(at::kSparse));
    check(none.sparse_dim() == 2, "two sparse dimensions");
    const auto nothing = all_reduce_sparse(world, none);
    check(nothing._nnz() == 0 && nothing.is_coalesced() && nothing.sizes() == none.sizes(), "of nobody");
    const auto row = at::sparse_coo_tensor(at::full({1, 1}, 3, at::kLong), at::ones({1, 2}), {5, 2});
    const auto sum = all_reduce_sparse(world, world.rank() == 1 ? row : none);
    check(sum.sparse_dim() == 1 && at::equal(sum.to_dense(), row.to_dense()), "of one rank");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(SparseCollectives, OnSubGroupsAndInferenceTensors) {
  const auto outcomes = test::run_threads(4, [](Group& world) {
    const Group pair = world.new_subgroups(2).or_throw();
    compare(pair, {7, 2}, 1, at::kFloat);
    const c10::InferenceMode inference;
    compare(world, {7, 2}, 1, at::kFloat);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Several at once, and other calls between; what comes out has no gradient though what went in has.
TEST(SparseCollectives, SeveralAreOutstandingAtOnce) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const auto first = Brought(world.rank(), {7, 2}, 1, at::kFloat).sparse().requires_grad_(),
               second = Brought(world.rank(), {3, 3}, 2, at::kLong).sparse();
    auto sum_first = dense_of(first.detach()), sum_second = dense_of(second), between = at::ones({1000});
    const auto one = all_reduce_sparse_async(world, first);
    const auto two = all_reduce_sparse_async(world, second);
    all_reduce(world, between);
    all_reduce(world, sum_first);
    all_reduce(world, sum_second);
    check(at::equal(dense_of(two.get()), sum_second), "the second");
    check(at::equal(dense_of(one.get()), sum_first) && !one.get().requires_grad(), "the first");
    check(one.get().is_same(one.get()), "later calls return the same");
    check(at::equal(between, at::full({1000}, 3.f)), "between");
    (void)all_reduce_sparse_async(world, second);  // nobody gets it: nothing is left under way
  });
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_THAT(error_of([] { (void)PendingSparse().get(); }), testing::HasSubstr("that no call has returned"));
}

// Said before anything is sent.
TEST(SparseCollectives, SayWhatIsWrongWithATensor) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    const auto sparse = at::ones({2, 2}).to_sparse();
    if (world.rank() == 0) {
      const auto says = [&](const at::Tensor& tensor, Reduction op, const std::string& words) {
        const auto said = error_of([&] { (void)all_reduce_sparse(world, tensor, op); });
        check_says(said, "InvalidArgument: all_reduce_sparse on group world, rank 0: ");
        check_says(said, words);
      };
      for (const auto op :
           {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor})
        says(sparse, op,
             std::string(name(op)) +
                 " of sparse tensors would need the elements that are not stored (hint: use sum, avg or premul_sum, or "
                 "all_reduce() with tensor.to_dense())");
      says(sparse.to(at::kBool), ReduceOp::kAvg, "avg is not for bool (hint: use sum, which every type has)");
      says(sparse.to(at::kInt), premul_sum(2), "premul_sum is for floating and complex numbers, not for i32");
      says(sparse, premul_sum(std::numeric_limits<double>::infinity()), "the factor of premul_sum is inf");
      says(at::Tensor(), ReduceOp::kSum, "an undefined tensor has no sizes (hint: a rank without entries gives ");
      says(at::ones({2}), ReduceOp::kSum, "f32[2] is dense (hint: use all_reduce()");
      says(at::ones({2, 2}).to_sparse_csr(), ReduceOp::kSum, "f32[2, 2] is not sparse by coordinates");
      says(at::ones({1, 1, 1, 1, 1, 1, 1, 1, 2}).to_sparse(), ReduceOp::kSum,
           "f32[1, 1, 1, 1, 1, 1, 1, 1, 2] has 9 dim");
      check_says(error_of([&] { (void)all_reduce_sparse(world, sparse.to(at::kShort)); }),
                 "element type that collectives do not know");
      check_says(error_of([&] { all_reduce(world, sparse); }),
                 "the tensor of all_reduce, f32[2, 2], is not dense (hint: all_reduce_sparse() ");
    }
    check(at::equal(all_reduce_sparse(world, sparse).to_dense(), at::full({2, 2}, 2.f)), "the group is in step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_THAT(error_of([] { (void)all_reduce_sparse(Group(), at::ones({2}).to_sparse()); }),
              testing::HasSubstr("this rank is not in the group"));
}

// Every rank hears the same of the rank that differs, and the group goes on.
TEST(SparseCollectives, NameARankThatGivesAnotherTensor) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const auto usual = at::ones({6, 2}).to_sparse(1);
    const auto differs = [&](const at::Tensor& other, Reduction op, const std::string& words) {
      const bool odd = world.rank() == 2;
      check_says(error_of([&] { (void)all_reduce_sparse(world, odd ? other : usual, odd ? op : ReduceOp::kSum); }),
                 "Mismatch: all_reduce_sparse on group world, rank " + std::to_string(world.rank()) + ": rank 2 gave " +
                     words +
                     " (hint: give sparse tensors of one size, element type, number of sparse dimensions and op");
    };
    const std::string instead = ", but rank 0 gave f32[6, 2] with 1 sparse dimension to sum";
    differs(usual.to(at::kDouble), ReduceOp::kSum, "f64[6, 2] with 1 sparse dimension to sum" + instead);
    differs(usual.to(at::kHalf), ReduceOp::kSum, "f16[6, 2] with 1 sparse dimension to sum" + instead);
    differs(at::ones({6, 3}).to_sparse(1), ReduceOp::kSum, "f32[6, 3] with 1 sparse dimension to sum" + instead);
    differs(at::ones({6, 2, 1}).to_sparse(1), ReduceOp::kSum, "f32[6, 2, 1] with 1 sparse dimension to sum" + instead);
    differs(at::ones({6, 2}).to_sparse(2), ReduceOp::kSum, "f32[6, 2] with 2 sparse dimensions to sum" + instead);
    differs(usual, ReduceOp::kAvg, "f32[6, 2] with 1 sparse dimension to avg" + instead);
    check(at::equal(all_reduce_sparse(world, usual).to_dense(), at::full({6, 2}, 3.f)), "the group goes on");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
