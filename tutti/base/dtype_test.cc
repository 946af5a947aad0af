#include "tutti/base/dtype.h"

#include <gtest/gtest.h>

#include <complex>
#include <set>
#include <string>

namespace tutti {
namespace {

TEST(DType, SizesAreThoseOfTheFormats) {
  EXPECT_EQ(size_of(DType::kF64), sizeof(double));
  EXPECT_EQ(size_of(DType::kI64), 8u);
  EXPECT_EQ(size_of(DType::kF32), sizeof(float));
  EXPECT_EQ(size_of(DType::kI32), 4u);
  EXPECT_EQ(size_of(DType::kF16), 2u);
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kI8), 1u);
  EXPECT_EQ(size_of(DType::kU8), 1u);
  EXPECT_EQ(size_of(DType::kBool), 1u);
  EXPECT_EQ(size_of(DType::kC64), sizeof(std::complex<float>));
  EXPECT_EQ(size_of(DType::kC128), sizeof(std::complex<double>));
}

TEST(DType, NamesAreUnique) {
  std::set<std::string> names;
  for (DType dtype : kDTypes) names.insert(name(dtype));
  EXPECT_EQ(names.size(), 11u);
  EXPECT_EQ(names.count("?"), 0u);
}

TEST(DType, ClassifiesFloatingTypes) {
  EXPECT_TRUE(is_floating(DType::kF16));
  EXPECT_TRUE(is_floating(DType::kBF16));
  EXPECT_TRUE(is_floating(DType::kF64));
  EXPECT_FALSE(is_floating(DType::kI32));
  EXPECT_FALSE(is_floating(DType::kBool));
  EXPECT_FALSE(is_floating(DType::kC64));
  EXPECT_TRUE(is_complex(DType::kC128));
  EXPECT_FALSE(is_complex(DType::kF64));
}

}  // namespace
}  // namespace tutti
