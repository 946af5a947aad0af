#include "tutti/base/float16.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace tutti {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Half, GoldenValues) {
  const std::pair<std::uint16_t, float> golden[] = {
      {0x0000, 0.0f},      {0x8000, -0.0f},           {0x3c00, 1.0f},
      {0xc000, -2.0f},     {0x3555, 0.333251953125f}, {0x3c01, 1.0009765625f},
      {0x7bff, 65504.0f},  {0x7c00, kInfinity},       {0xfc00, -kInfinity},
      {0x0400, 0x1p-14f},  {0x03ff, 1023 * 0x1p-24f}, {0x0001, 0x1p-24f},
      {0x8001, -0x1p-24f},
  };
  for (const auto& [bits, value] : golden) {
    EXPECT_EQ(to_float(Half{bits}), value) << std::hex << bits;
    EXPECT_EQ(to_half(value).bits, bits) << value;
  }
  EXPECT_TRUE(std::signbit(to_float(Half{0x8000})));
}

TEST(Half, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_half(1 + 0x1p-11f).bits, 0x3c00);      // midpoint of 1 and its successor: the lower one is even
  EXPECT_EQ(to_half(1 + 3 * 0x1p-11f).bits, 0x3c02);  // midpoint: the upper one is even
  EXPECT_EQ(to_half(std::nextafter(1 + 0x1p-11f, 2.0f)).bits, 0x3c01);
  EXPECT_EQ(to_half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);  // the tie at the top rounds to infinity
  EXPECT_EQ(to_half(0x1p-25f).bits, 0x0000);  // tie between zero and the smallest: even
  EXPECT_EQ(to_half(std::nextafter(0x1p-25f, 1.0f)).bits, 0x0001);
  EXPECT_EQ(to_half(3 * 0x1p-25f).bits, 0x0002);
  EXPECT_EQ(to_half(std::nextafter(0x1p-14f, 0.0f)).bits, 0x0400);  // the largest subnormal's upper neighbour is normal
  EXPECT_EQ(to_half(1e30f).bits, 0x7c00);
  EXPECT_EQ(to_half(-1e-30f).bits, 0x8000);
}

TEST(Half, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(to_float(to_half(kNaN))));
  EXPECT_TRUE(std::isnan(to_float(to_half(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(to_float(to_half(std::bit_cast<float>(0xff800001u)))));
}

TEST(Half, AllBitPatternsRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{std::uint16_t(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      ASSERT_TRUE((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0) << std::hex << bits;
      ASSERT_TRUE(std::isnan(to_float(to_half(value)))) << std::hex << bits;
    } else {
      ASSERT_EQ(to_half(value).bits, bits) << std::hex << bits;
    }
  }
}

// The value by IEEE 754's definition of the format, not by bits.
TEST(Half, AgreesWithTheDefinition) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = int(bits >> 10), fraction = int(bits & 1023);
    const double value = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    ASSERT_EQ(double(to_float(Half{std::uint16_t(bits)})), value) << std::hex << bits;
    ASSERT_EQ(double(to_float(Half{std::uint16_t(bits | 0x8000)})), -value) << std::hex << bits;
  }
}

// Between any two adjacent values: the midpoint rounds to the even one, a value slightly beside it to the nearer one.
TEST(Half, EveryMiddleRoundsToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = to_float(Half{std::uint16_t(bits)}), high = to_float(Half{std::uint16_t(bits + 1)});
    const float middle = (low + high) / 2;  // exact: needs one bit more than a Half
    ASSERT_EQ(to_half(middle).bits, bits + (bits & 1)) << std::hex << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, low)).bits, bits) << std::hex << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, high)).bits, bits + 1) << std::hex << bits;
  }
}

TEST(BFloat16, GoldenValues) {
  const std::pair<std::uint16_t, float> golden[] = {
      {0x0000, 0.0f},        {0x8000, -0.0f},     {0x3f80, 1.0f},       {0xc000, -2.0f},     {0x4049, 3.140625f},
      {0x7f7f, 0x1.fep127f}, {0x7f80, kInfinity}, {0xff80, -kInfinity}, {0x0080, 0x1p-126f}, {0x0001, 0x1p-133f},
  };
  for (const auto& [bits, value] : golden) {
    EXPECT_EQ(to_float(BFloat16{bits}), value) << std::hex << bits;
    EXPECT_EQ(to_bfloat16(value).bits, bits) << value;
  }
}

TEST(BFloat16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_bfloat16(3.14159265f).bits, 0x4049);
  EXPECT_EQ(to_bfloat16(1 + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1 + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_EQ(to_bfloat16(std::nextafter(1 + 0x1p-8f, 2.0f)).bits, 0x3f81);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(BFloat16, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(kNaN))));
  EXPECT_TRUE(
      std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));  // the payload is only in the lower half
  EXPECT_TRUE(
      std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7fffffffu)))));  // an addition would carry into the sign
}

TEST(BFloat16, AllBitPatternsRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_float(BFloat16{std::uint16_t(bits)});
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(to_float(to_bfloat16(value)))) << std::hex << bits;
    else
      ASSERT_EQ(to_bfloat16(value).bits, bits) << std::hex << bits;
  }
}

}  // namespace
}  // namespace tutti
