#include "tutti/embedding/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tutti {
namespace {

template <class T>
std::vector<T> there_and_back(WireFormat format, const std::vector<T>& rows, std::int64_t width) {
  const Wire wire = wire_of<T>(format);
  const std::int64_t count = std::int64_t(rows.size()) / width;
  std::vector<std::byte> bytes(std::size_t(count * wire.row_units(width)) * size_of(wire.dtype));
  std::vector<T> back(rows.size());
  encode(format, rows.data(), count, width, bytes.data());
  decode(format, bytes.data(), count, width, back.data());
  return back;
}

// Rows whose sizes are many powers of ten apart.
template <class T>
std::vector<T> rows_of_many_sizes(std::int64_t width) {
  std::mt19937 random(3);
  std::vector<T> rows;
  for (int power = -30; power <= 30; power += 3)
    for (std::int64_t i = 0; i < width; ++i)
      rows.push_back(T((double(random()) / 4294967295.0 - 0.5) * std::pow(10.0, power)));
  return rows;
}

template <class T>
void test_errors() {
  for (const std::int64_t width : {1, 3, 64}) {
    const auto rows = rows_of_many_sizes<T>(width);
    const auto bf16 = there_and_back(WireFormat::kBF16, rows, width), i8 = there_and_back(WireFormat::kI8, rows, width);
    for (std::size_t begin = 0; begin < rows.size(); begin += std::size_t(width)) {
      double largest = 0;
      for (std::size_t i = begin; i < begin + std::size_t(width); ++i)
        largest = std::max(largest, std::abs(double(rows[i])));
      for (std::size_t i = begin; i < begin + std::size_t(width); ++i) {
        EXPECT_LE(std::abs(double(bf16[i]) - double(rows[i])), std::abs(double(rows[i])) / 256) << rows[i];
        EXPECT_LE(std::abs(double(i8[i]) - double(rows[i])), largest / 254 * 1.0001) << rows[i] << " of " << largest;
      }
    }
  }
}

TEST(Wire, ErrorsAreThoseOfTheFormat) {
  test_errors<float>();
  test_errors<double>();
}

TEST(Wire, ZerosStayZerosAndTinyRowsBecomeThem) {
  const std::vector<float> rows{0, 0, 0, 1e-40f, -1e-40f, 0};
  EXPECT_EQ(there_and_back(WireFormat::kI8, rows, 3), std::vector<float>(6, 0));
}

TEST(Wire, WhatIsNotFiniteIsNotFiniteAtTheOtherEnd) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    const std::vector<float> rows{1, bad, 2, 3, 4, 5};
    EXPECT_FALSE(std::isfinite(there_and_back(WireFormat::kBF16, rows, 3)[1]));
    const auto back = there_and_back(WireFormat::kI8, rows, 3);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(back[std::size_t(i)]));
    EXPECT_NEAR(back[5], 5, 0.05);
  }
}

TEST(Wire, ARowTakesItsUnits) {
  EXPECT_EQ(wire_of<float>(WireFormat::kExact).row_units(64), 64);
  EXPECT_EQ(size_of(wire_of<double>(WireFormat::kExact).dtype), 8u);
  EXPECT_EQ(wire_of<float>(WireFormat::kBF16).row_units(64) * 2, 128);
  EXPECT_EQ(wire_of<float>(WireFormat::kI8).row_units(64), 68);
}

}  // namespace
}  // namespace tutti
