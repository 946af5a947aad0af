#include "tutti/data/clicks/mlperf.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "tutti/data/clicks/clicks_testing.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Sample i: label i % 2, counts i + feature, ids i + table.
std::string write_samples(const TestFolder& folder, std::int32_t samples, std::int32_t odd_id = 0) {
  std::vector<std::int32_t> words;
  for (std::int32_t i = 0; i < samples; ++i) {
    words.push_back(i % 2);
    for (int feature = 0; feature < 13; ++feature) words.push_back(i + feature);
    for (int table = 0; table < 26; ++table) words.push_back(i == 7 && table == 3 && odd_id ? odd_id : i + table);
  }
  return folder.write("train.bin", std::string(reinterpret_cast<const char*>(words.data()), 4 * words.size()));
}

const std::vector<std::int64_t> kRows(26, 1000);

TEST(MlperfClicks, AreReadBatchByBatch) {
  const TestFolder folder;
  const auto source =
      open_mlperf_clicks({.path = write_samples(folder, 25), .rows = kRows, .batch_size = 10}).or_throw();
  ASSERT_EQ(source->batches(), 3);
  EXPECT_EQ(source->samples(2), 5);
  const ClickBatch part = read_part(*source, 1, {.begin = 2, .end = 4, .tables = {25, 0}});
  EXPECT_THAT(part.targets, ElementsAre(0, 1));
  EXPECT_EQ(part.dense.at(0), std::log(13.f));
  EXPECT_EQ(part.dense.at(13), std::log(14.f));
  EXPECT_EQ(part.lookups.at(0).indices, std::vector<std::int64_t>({35, 36, 37, 38, 39, 40, 41, 42, 43, 44}));
  EXPECT_EQ(part.lookups.at(1).indices.at(9), 19);
  EXPECT_EQ(part.lookups.at(1).offsets.size(), 11u);
  const auto cut =
      open_mlperf_clicks({.path = folder.file("train.bin"), .rows = kRows, .batch_size = 10, .most_batches = 2});
  EXPECT_EQ((*cut)->batches(), 2);
}

TEST(MlperfClicks, TakesIdsModuloTheRange) {
  const TestFolder folder;
  const auto source =
      open_mlperf_clicks({.path = write_samples(folder, 10, -3), .rows = kRows, .batch_size = 10, .max_ind_range = 7})
          .or_throw();
  EXPECT_EQ(source->shape().rows[0], 7);
  EXPECT_THAT(read_whole(*source, 0).lookups[3].indices, ElementsAre(3, 4, 5, 6, 0, 1, 2, 4, 4, 5));
}

TEST(MlperfClicks, ShufflesWholeBatchesInEachEpoch) {
  const TestFolder folder;
  const auto source =
      open_mlperf_clicks({.path = write_samples(folder, 95), .rows = kRows, .batch_size = 10, .shuffle_seed = 1})
          .or_throw();
  const auto order = [&] {
    std::vector<std::int64_t> firsts;
    for (std::int64_t batch = 0; batch < source->batches(); ++batch) {
      const ClickBatch read = read_whole(*source, batch);
      EXPECT_EQ(read.samples, source->samples(batch));
      firsts.push_back(read.lookups[0].indices[0]);
    }
    return firsts;
  };
  const auto first = order();
  source->set_epoch(1);
  const auto second = order();
  source->set_epoch(0);
  EXPECT_EQ(order(), first);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()), std::set(second.begin(), second.end()));
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 10u);
}

TEST(MlperfClicks, AnInvalidLabelIsReported) {
  const TestFolder folder;
  std::string bytes = bytes_of_file(write_samples(folder, 10));
  bytes[160 * 7] = 5;
  const std::string path = folder.write("train.bin", bytes);
  const auto source = open_mlperf_clicks({.path = path, .rows = kRows, .batch_size = 4}).or_throw();
  ClickBatch into;
  EXPECT_TRUE(source->read(1, {.begin = 0, .end = 3}, into).ok());
  EXPECT_EQ(source->read(1, {.begin = 2, .end = 4}, into).error().detail,
            path + ": batch 1, sample 3 (sample 7 of the file) has the label 5, not 0 or 1");
}

TEST(MlperfClicks, InvalidRowsAndOptionsAreReported) {
  const TestFolder folder;
  const std::string path = write_samples(folder, 10, 5000);
  const auto source = open_mlperf_clicks({.path = path, .rows = kRows, .batch_size = 4}).or_throw();
  ClickBatch into;
  EXPECT_EQ(source->read(1, {.tables = {3}}, into).error().detail,
            path + ": batch 1, sample 3 (sample 7 of the file) asks for row 5000 of table 3, which has 1000");
  const auto refusal = [](MlperfClickOptions options) { return to_string(open_mlperf_clicks(options).error()); };
  EXPECT_THAT(refusal({.path = path, .rows = {3, 4}}), HasSubstr("26 tables, and the sizes of 2 were given"));
  EXPECT_THAT(refusal({.path = folder.write("cut", std::string(170, 'x')), .rows = kRows}),
              HasSubstr("170 bytes are no whole number of samples of 160 bytes (hint: it is cut off"));
  EXPECT_THAT(refusal({.path = folder.write("none", ""), .rows = kRows}), HasSubstr("it is empty"));
  EXPECT_THAT(refusal({.path = folder.file("nothing"), .rows = kRows}), HasSubstr("cannot open"));
  EXPECT_THAT(refusal({.path = path, .rows = kRows, .batch_size = 0}), HasSubstr("a batch of 0 samples"));
}

}  // namespace
}  // namespace tutti
