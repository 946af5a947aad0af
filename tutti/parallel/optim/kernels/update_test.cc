// The loops of all instruction sets give the same bits, for lengths that fill vectors and that do not.
#include "tutti/parallel/optim/kernels/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/parallel/optim/kernels/update_isa.h"

namespace tutti {
namespace {

std::vector<const kernels::UpdateLoops*> others() {
  std::vector<const kernels::UpdateLoops*> loops;
#ifdef __x86_64__
  if (cpu_has(Isa::kAvx2)) loops.push_back(&kernels::avx2::kUpdateLoops);
  if (cpu_has(Isa::kAvx512)) loops.push_back(&kernels::avx512::kUpdateLoops);
#endif
  return loops;
}

template <class T>
struct Data {
  std::vector<T> weight, gradient, m, v, greatest;
  explicit Data(std::size_t count) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < count; ++i) {
      weight.push_back(T(normal(random)));
      gradient.push_back(T(normal(random)));
      m.push_back(T(normal(random)));
      v.push_back(T(std::abs(normal(random))));
      greatest.push_back(T(std::abs(normal(random))));
    }
  }
  void update(const kernels::UpdateLoops& loops, const Update& u) {
    const DType dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
    // Adagrad's sum is the first of its state.
    void* const sum = v.data();
    void* const state[] = {u.formula == Update::Formula::kAdagrad ? sum : m.data(), v.data(), greatest.data()};
    loops.apply_update(u, dtype, weight.data(), gradient.data(), state, weight.size());
  }
  bool operator==(const Data&) const = default;
};

template <class T>
void compare() {
  using Formula = Update::Formula;
  for (const auto* loops : others()) {
    for (Formula formula : {Formula::kPlain, Formula::kMomentum, Formula::kNesterov, Formula::kAdam, Formula::kAmsgrad,
                            Formula::kAdagrad, Formula::kLion}) {
      for (std::size_t count : {0, 1, 7, 16, 33, 1001}) {
        Data<T> expected(count), found(count);
        const Update u{.formula = formula,
                       .step_size = 0.01,
                       .decay = 0.1,
                       .shrink = 0.99,
                       .beta1 = 0.9,
                       .fresh1 = 0.1,
                       .beta2 = 0.99,
                       .fresh2 = 0.01,
                       .root_factor = 1.5,
                       .eps = 1e-8,
                       .scale = 0.7,
                       .limit = 1.2};
        expected.update(kernels::generic::kUpdateLoops, u);
        found.update(*loops, u);
        ASSERT_TRUE(found == expected) << int(formula) << ", " << count;
      }
    }
    for (std::size_t count : {0, 1, 31, 32, 1001}) {
      const DType dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
      const Data<T> data(count);
      EXPECT_EQ(loops->sum_of_squares(dtype, data.weight.data(), count),
                kernels::generic::kUpdateLoops.sum_of_squares(dtype, data.weight.data(), count));
      double expected = 0;
      for (T w : data.weight) expected += double(w) * double(w);
      EXPECT_NEAR(sum_of_squares(dtype, data.weight.data(), count), expected, 1e-12 * expected);
    }
  }
}

TEST(UpdateLoops, AllInstructionSetsGiveTheSameBitsInF32) { compare<float>(); }
TEST(UpdateLoops, AllInstructionSetsGiveTheSameBitsInF64) { compare<double>(); }

TEST(UpdateLoops, OneNotANumberIsSeenInTheSum) {
  std::vector<float> values(1000, 1);
  for (std::size_t at : {0, 31, 500, 999}) {
    auto with = values;
    with[at] = NAN;
    EXPECT_FALSE(std::isfinite(sum_of_squares(DType::kF32, with.data(), with.size())));
  }
}

}  // namespace
}  // namespace tutti
