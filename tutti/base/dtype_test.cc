#include "tutti/base/dtype.h"

#include <gmock/gmock.h>

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
}

TEST(DType, EveryNameParsesBack) {
  EXPECT_EQ(std::size(kDTypes), 9u);
  for (DType dtype : kDTypes) EXPECT_EQ(parse_dtype(name(dtype)), dtype) << name(dtype);
}

TEST(DType, StrangersDoNotParse) {
  for (const char* text : {"", "F32", "float32", "f32 ", "f", "?"}) EXPECT_EQ(parse_dtype(text), std::nullopt) << text;
}

TEST(DType, KnowsTheFloatingOnes) {
  EXPECT_TRUE(is_floating(DType::kF16));
  EXPECT_TRUE(is_floating(DType::kBF16));
  EXPECT_TRUE(is_floating(DType::kF64));
  EXPECT_FALSE(is_floating(DType::kI32));
  EXPECT_FALSE(is_floating(DType::kBool));
}

}  // namespace
}  // namespace tutti
