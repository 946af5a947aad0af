#include "tutti/data/clicks/packed.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tutti/data/clicks/clicks_testing.h"
#include "tutti/data/clicks/packed_writer.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kSamples = 23;

// Sample i: clicked if divisible by 3, counts i and 10i, rows i % 7 and i; in three days, in blocks of four.
std::string write_small(const TestFolder& folder, std::uint32_t last_row = 22, std::int32_t last_label = 0) {
  const std::string path = folder.file(kPackedFile);
  PackedWriter writer = PackedWriter::create(path, 2, 2, 3, 4).or_throw();
  ClickColumns columns(2, 2);
  for (std::int32_t i = 0; i < std::int32_t(kSamples); ++i) {
    columns.labels.push_back(i == 22 ? last_label : i % 3 == 0);
    columns.dense.insert(columns.dense.end(), {i, 10 * i});
    columns.ids[0].push_back(std::uint32_t(i) % 7);
    columns.ids[1].push_back(i == 22 ? last_row : std::uint32_t(i));
  }
  writer.append(columns, 0, 3).or_throw();
  writer.append(columns, 3, 22).or_throw();
  writer.append(columns, 22, kSamples).or_throw();
  writer.finish({0, 9, 18, 23}, {7, 23}).or_throw();
  return path;
}

TEST(PackedClicks, AreReadAsTheyWereWritten) {
  const TestFolder folder;
  write_small(folder);
  const auto source =
      open_packed_clicks({.path = folder.file(""), .split = ClickSplit::kAll, .batch_size = 10}).or_throw();
  ASSERT_EQ(source->batches(), 3);
  EXPECT_EQ(source->samples(2), 3);
  EXPECT_THAT(source->shape().rows, ElementsAre(7, 23));
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    const ClickBatch whole = read_whole(*source, batch);
    for (std::int64_t i = 0; i < whole.samples; ++i) {
      const std::int64_t sample = 10 * batch + i;
      const auto at = std::size_t(i);
      EXPECT_EQ(whole.targets[at], sample % 3 == 0);
      EXPECT_EQ(whole.dense[2 * at], std::log(float(sample) + 1));
      EXPECT_EQ(whole.dense[2 * at + 1], std::log(float(10 * sample) + 1));
      EXPECT_EQ(whole.lookups[0].indices[at], sample % 7);
      EXPECT_EQ(whole.lookups[1].indices[at], sample);
      EXPECT_EQ(whole.lookups[1].offsets[at], i);
    }
    EXPECT_EQ(whole.lookups[1].samples(), whole.samples);
  }
  const ClickBatch part = read_part(*source, 1, {.begin = 1, .end = 7, .tables = {1}});
  EXPECT_THAT(part.targets, ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_EQ(part.dense.size(), 12u);
  EXPECT_THAT(part.lookups.at(0).indices, ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
}

TEST(PackedClicks, AreSplitAsTheReferenceSplitsDays) {
  const TestFolder folder;
  const std::string path = write_small(folder);
  const auto samples = [&](ClickSplit split, std::int64_t most_batches = 0) {
    const auto source =
        open_packed_clicks({.path = path, .split = split, .batch_size = 100, .most_batches = most_batches}).or_throw();
    return read_whole(*source, 0).lookups[1].indices;
  };
  EXPECT_EQ(samples(ClickSplit::kTrain).size(), 18u);
  EXPECT_THAT(samples(ClickSplit::kTest), ElementsAre(18, 19, 20));
  EXPECT_THAT(samples(ClickSplit::kValidation), ElementsAre(21, 22));
  const auto cut =
      open_packed_clicks({.path = path, .split = ClickSplit::kTrain, .batch_size = 5, .most_batches = 2}).or_throw();
  EXPECT_EQ(cut->batches(), 2);
}

TEST(PackedClicks, RowsAreTakenModuloTheRange) {
  const TestFolder folder;
  const auto source =
      open_packed_clicks(
          {.path = write_small(folder), .split = ClickSplit::kTest, .batch_size = 3, .max_ind_range = 10})
          .or_throw();
  EXPECT_THAT(source->shape().rows, ElementsAre(7, 10));
  EXPECT_THAT(read_whole(*source, 0).lookups[1].indices, ElementsAre(8, 9, 0));
}

TEST(PackedClicks, AnInvalidLabelIsReported) {
  const TestFolder folder;
  const std::string path = write_small(folder, 22, 7);
  const auto source = open_packed_clicks({.path = path, .split = ClickSplit::kAll, .batch_size = 10}).or_throw();
  ClickBatch into;
  EXPECT_TRUE(source->read(2, {.begin = 0, .end = 2}, into).ok());
  EXPECT_EQ(source->read(2, {.begin = 1, .end = 3}, into).error().detail,
            path + ": batch 2, sample 2 (sample 22 of the file) has the label 7, not 0 or 1");
}

TEST(PackedClicks, ARowOutsideItsTableIsReported) {
  const TestFolder folder;
  const std::string path = write_small(folder, 23);
  const auto source = open_packed_clicks({.path = path, .split = ClickSplit::kAll, .batch_size = 10}).or_throw();
  ClickBatch into;
  EXPECT_TRUE(source->read(1, {.tables = {0, 1}}, into).ok());
  EXPECT_EQ(source->read(2, {.tables = {0, 1}}, into).error().detail,
            path + ": batch 2, sample 2 (sample 22 of the file) asks for row 23 of table 1, which has 23");
}

std::string refusal(const std::string& path) {
  const auto source = open_packed_clicks({.path = path});
  return source.ok() ? "no error" : to_string(source.error());
}

TEST(PackedClicks, FilesThatAreNotWholeAreRefused) {
  const TestFolder folder;
  const std::string bytes = bytes_of_file(write_small(folder));
  EXPECT_EQ(bytes.size(), 4096 + kSamples * 20);
  const std::string other = folder.file("other");
  const auto refusal_of = [&](const std::string& content) { return refusal(folder.write("other", content)); };
  EXPECT_THAT(refusal_of(bytes), HasSubstr("no error"));
  EXPECT_THAT(refusal_of(bytes.substr(0, 4500)), HasSubstr(other + ": it is cut off: 4500 of 4556 bytes are there"));
  EXPECT_THAT(refusal_of(bytes.substr(0, 20)), HasSubstr("it is cut off: 20 of 4096 bytes are there"));
  EXPECT_THAT(refusal_of(bytes.substr(0, 50)), HasSubstr("it is cut off: 50 of 4096 bytes are there"));
  EXPECT_THAT(refusal_of(bytes + "xy"), HasSubstr("it has 2 bytes behind the last sample"));
  EXPECT_THAT(refusal_of(""), HasSubstr("it does not begin with 'tutticlk', so it is no packed click file"));
  EXPECT_THAT(refusal_of(std::string(5000, '\0')), HasSubstr("it does not begin with 'tutticlk'"));
  const auto changed = [&](std::size_t at, char to) {
    std::string copy = bytes;
    copy[at] = to;
    return refusal_of(copy);
  };
  EXPECT_THAT(changed(8, 2), HasSubstr("it is of version 2, and this program reads 1"));
  EXPECT_THAT(changed(16, 9), HasSubstr("its header is damaged: its checksum is"));
  EXPECT_THAT(changed(36, 0), HasSubstr("its header is damaged: 23 samples"));
  EXPECT_THAT(refusal(folder.file("nothing")), HasSubstr("cannot open " + folder.file("nothing")));
}

TEST(PackedClicks, ASplitWithoutSamplesIsRefused) {
  const TestFolder folder;
  PackedWriter writer = PackedWriter::create(folder.file("one_day"), 0, 0, 1).or_throw();
  ClickColumns columns(0, 0);
  columns.labels = {1};
  writer.append(columns).or_throw();
  writer.finish({0, 1}, {}).or_throw();
  EXPECT_THAT(refusal(folder.file("one_day")), HasSubstr("has no training samples: 1 samples in 1 day"));
}

TEST(PackedClicks, AnUnfinishedFileHasNoHeader) {
  const TestFolder folder;
  PackedWriter writer = PackedWriter::create(folder.file("unfinished"), 0, 0, 1).or_throw();
  ClickColumns columns(0, 0);
  columns.labels.assign(70000, 1);
  writer.append(columns).or_throw();
  EXPECT_THAT(refusal(folder.file("unfinished")), HasSubstr("it does not begin with 'tutticlk'"));
}

}  // namespace
}  // namespace tutti
