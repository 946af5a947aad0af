#include "tutti/tensor/device_errors.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "tests/harness/ranks.h"
#include "tutti/base/error.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string sentence(const std::function<HeldMemory()>& held, const std::function<void()>& act) {
  std::string text;
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    if (world.rank() == 0) return;
    try {
      report_device_errors(world, "in step 5", held, act);
    } catch (const std::exception& error) {
      text = error.what();
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
  return text;
}

TEST(DeviceErrors, MemoryThatIsMissingIsNamedWithWhatIsHeld) {
  const auto fail = [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB"); };
  const auto held = [] {
    const at::Tensor weight = at::zeros({4, 8}), bias = at::zeros({4});
    weight.mutable_grad() = at::zeros({4, 8});
    return HeldMemory{.parameters = {{"fc.weight", weight}, {"fc.bias", bias}}, .optimizer_bytes = 288};
  };
  EXPECT_THAT(sentence(held, fail),
              StartsWith("Limit: group world, rank 1: no memory is left in step 5: CUDA out of memory. Tried to "
                         "allocate 2.00 GiB; the weights take 144 B, of which fc.weight f32[4, 8] takes 128 B, "
                         "and their gradients 128 B; the optimizer takes 288 B (hint: "));
  EXPECT_THAT(sentence(nullptr, fail), HasSubstr("Tried to allocate 2.00 GiB (hint: "));
}

TEST(DeviceErrors, AnErrorOfTheDeviceNamesTheRankAndOthersStay) {
  EXPECT_THAT(sentence(nullptr, [] { TORCH_CHECK(false, "CUDA error: an illegal instruction\nmore lines"); }),
              StartsWith("System: group world, rank 1: cpu failed in step 5: CUDA error: an illegal instruction"));
  EXPECT_THAT(sentence(nullptr, [] { TORCH_CHECK(false, "sizes do not match"); }), StartsWith("sizes do not match"));
}

}  // namespace
}  // namespace tutti
