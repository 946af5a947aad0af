#include "tutti/data/clicks/id_numbers.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "tutti/base/random.h"
#include "tutti/data/clicks/clicks_testing.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kTableOf1024 = 8 * 1024;

std::vector<std::uint32_t> ids_with_a_long_tail(std::size_t count) {
  NumpyRandom random(1);
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(random.bits() % (i % 3 == 0 ? 10 : 1 << 20));
  ids[5] = 0xffffffff;
  return ids;
}

struct Numbered {
  std::vector<std::uint32_t> values, ids;
};

Numbered expected_of(const std::vector<std::uint32_t>& values) {
  Numbered result;
  std::map<std::uint32_t, std::uint32_t> numbers;
  for (const std::uint32_t id : values) {
    const auto [entry, is_new] = numbers.try_emplace(id, numbers.size());
    if (is_new) result.ids.push_back(id);
    result.values.push_back(entry->second);
  }
  return result;
}

// In runs of 1000 values, as a stream and then from a file, as long as `budget` lasts.
Numbered number(std::vector<std::uint32_t> values, std::uint64_t stream_bytes, std::uint64_t pass_bytes,
                bool* stopped) {
  const TestFolder folder;
  const PlacedFile file = PlacedFile::create(folder.file("column")).or_throw();
  MemoryBudget stream(stream_bytes), passes(pass_bytes);
  ColumnNumbers numbers = ColumnNumbers::create(folder.file("ids"), stream).or_throw();
  ColumnRuns runs{.file = file, .runs = {}};
  for (std::size_t at = 0; at < values.size(); at += 1000) {
    const auto run = std::span(values).subspan(at, std::min<std::size_t>(1000, values.size() - at));
    numbers.number(run).or_throw();
    file.write(100 + 4 * at, std::as_bytes(run)).or_throw();
    runs.runs.push_back({100 + 4 * at, run.size()});
  }
  *stopped = numbers.stopped();
  (numbers.stopped() ? finish_column(numbers, runs, passes) : numbers.close()).or_throw();
  file.read(100, std::as_writable_bytes(std::span(values))).or_throw();
  Numbered result{.values = values, .ids = std::vector<std::uint32_t>(numbers.count())};
  const std::string bytes = bytes_of_file(folder.file("ids"));
  EXPECT_EQ(bytes.size(), 4 * result.ids.size());
  std::memcpy(result.ids.data(), bytes.data(), bytes.size());
  EXPECT_TRUE(stream.take(stream_bytes)) << "all memory is given back";
  return result;
}

TEST(IdNumbers, AreGivenInTheOrderOfFirstAppearanceWhateverTheMemory) {
  const auto values = ids_with_a_long_tail(50000);
  const Numbered expected = expected_of(values);
  struct Case {
    std::uint64_t stream, passes;
    bool stops;
  };
  for (const Case& c : {Case{1 << 30, 0, false}, Case{4 * kTableOf1024, 1 << 30, true}, Case{0, 1 << 30, true},
                        Case{4 * kTableOf1024, 4 * kTableOf1024 + 8192, true}, Case{0, kTableOf1024 + 8192, true},
                        Case{40 * kTableOf1024, 2 * kTableOf1024 + 8192, true}}) {
    bool stopped = false;
    const Numbered found = number(values, c.stream, c.passes, &stopped);
    EXPECT_EQ(stopped, c.stops);
    EXPECT_EQ(found.values, expected.values);
    EXPECT_EQ(found.ids, expected.ids);
  }
}

TEST(IdNumbers, TooLittleMemoryIsReported) {
  const TestFolder folder;
  const PlacedFile file = PlacedFile::create(folder.file("column")).or_throw();
  MemoryBudget none(0), a_bit(8);
  std::vector<std::uint32_t> values = {7, 8, 7};
  file.write(0, std::as_bytes(std::span(values))).or_throw();
  const ColumnRuns runs{.file = file, .runs = {{0, 3}}};
  ColumnNumbers first = ColumnNumbers::create(folder.file("first"), none).or_throw();
  first.number(values).or_throw();
  EXPECT_THAT(to_string(finish_column(first, runs, none).error()), HasSubstr("a bit for each value of a column"));
  EXPECT_THAT(to_string(finish_column(first, runs, a_bit).error()),
              HasSubstr("does not hold the table of a single id"));
}

}  // namespace
}  // namespace tutti
