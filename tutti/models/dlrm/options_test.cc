// Options that contradict one another, the sizes that follow from them, learning rates, and the printed lines.
#include "tutti/models/dlrm/options.h"

#include <gmock/gmock.h>

#include <functional>

#include "tutti/models/dlrm/architecture.h"
#include "tutti/models/dlrm/learning_rate.h"
#include "tutti/models/dlrm/numpy_text.h"
#include "tutti/models/dlrm/printed_lines.h"

namespace tutti::dlrm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::function<void(Options&)>& change) {
  Options options;
  change(options);
  const auto status = check(options);
  if (status.ok()) return "accepted";
  EXPECT_EQ(status.error().code, Code::kUsage);
  return status.error().detail + " | " + status.error().hint;
}

TEST(DlrmOptions, DefaultsAreThoseOfTheReferenceAndAgree) {
  const Options options;
  EXPECT_TRUE(check(options).ok());
  const auto made = architecture_of(options.architecture, 4, {4, 3, 2}, "the data").or_throw();
  EXPECT_THAT(made.top, ElementsAre(8, 4, 2, 1)) << "4 vectors of 2: 2 + 6";
  EXPECT_EQ(made.interactions(), 8);
}

TEST(DlrmOptions, ContradictionsAreReportedWithValueAndOption) {
  EXPECT_EQ(refusal([](Options& o) {
              o.architecture.mlp_bottom = {4, 3, 5};
            }),
            "the bottom MLP ends in 5 (--arch-mlp-bot 4-3-5), but the interaction needs a width of 2 "
            "(--arch-sparse-feature-size 2) | end --arch-mlp-bot in 2");
  EXPECT_EQ(refusal([](Options& o) {
              o.architecture.qr = true;
              o.architecture.qr_operation = QrOperation::kConcat;
            }),
            "the bottom MLP ends in 2 (--arch-mlp-bot 4-3-2), but the interaction needs a width of 4 "
            "(2 x --arch-sparse-feature-size 2, since --qr-operation concat joins two rows) | end --arch-mlp-bot in 4");
  EXPECT_THAT(refusal([](Options& o) { o.architecture.mlp_bottom = {4}; }),
              HasSubstr("--arch-mlp-bot 4 is not an MLP"));
  EXPECT_THAT(refusal([](Options& o) { o.architecture.mlp_top = {4, 3}; }), HasSubstr("--arch-mlp-top 4-3 ends in 3"));
  EXPECT_EQ(refusal([](Options& o) {
              o.training.warmup_steps = 10;
              o.training.decay_start = 5;
            }),
            "--lr-decay-start-step 5 comes before the warm-up ends (--lr-num-warmup-steps 10) | let the decay start at "
            "the end of the warm-up or later");
  EXPECT_THAT(refusal([](Options& o) { o.loss.weights = {1}; }), HasSubstr("--loss-weights has 1 numbers"));
  EXPECT_THAT(refusal([](Options& o) { o.data.generation = DataGeneration::kDataset; }),
              HasSubstr("--data-generation dataset needs --processed-data-file"));
  EXPECT_THAT(refusal([](Options& o) { o.data.processed_file = "x.bin"; }),
              HasSubstr("--processed-data-file is given, but --data-generation is random"));
  EXPECT_THAT(refusal([](Options& o) {
                o.data.generation = DataGeneration::kDataset;
                o.data.raw_file = "train.txt";
              }),
              HasSubstr("--raw-data-file train.txt: train_dlrm reads the packed binary, not text | tutti data criteo"));
  EXPECT_THAT(refusal([](Options& o) { o.training.test_batch = 0; }), HasSubstr("--test-mini-batch-size 0"));
  EXPECT_THAT(refusal([](Options& o) { o.placement.cached_bytes = 1; }), HasSubstr("--table-folder is not given"));
  EXPECT_THAT(refusal([](Options& o) { o.inference.mlp_bits = 8; }), HasSubstr("--quantize-mlp-with-bit 8"));
  EXPECT_THAT(refusal([](Options& o) { o.report.auc_threshold = 0.8; }), HasSubstr("without --mlperf-logging none is"));
  EXPECT_THAT(refusal([](Options& o) {
                o.report.auc_threshold = 0.8;
                o.report.mlperf_logging = o.data.round_targets = true;
              }),
              HasSubstr("--test-freq is not given"));
  EXPECT_THAT(refusal([](Options& o) { o.report.mlperf_logging = true; }),
              HasSubstr("--mlperf-logging counts clicks, and random targets are fractions"));
}

TEST(DlrmOptions, WhatTheDataHasIsComparedWithWhatIsAskedFor) {
  const auto refused = architecture_of({}, 13, {4, 3, 2}, "clicks.bin");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(
      refused.error().detail,
      "the bottom MLP begins with 4 dense features (--arch-mlp-bot 4-3-2), but clicks.bin has 13 columns of them");
}

TEST(DlrmOptions, ListsOfSizesAreParsedByTheirPlace) {
  EXPECT_THAT(parse_sizes("--arch-mlp-bot", "13-512-64").or_throw(), ElementsAre(13, 512, 64));
  EXPECT_EQ(parse_sizes("--arch-mlp-bot", "13-0-64").error().detail,
            "--arch-mlp-bot needs sizes from 1 up joined by \"-\"; number 2 of '13-0-64' is '0'");
  EXPECT_EQ(parse_sizes("--arch-mlp-bot", "13--64").error().detail,
            "--arch-mlp-bot needs sizes from 1 up joined by \"-\"; number 2 of '13--64' is ''");
  EXPECT_THAT(parse_weights("--loss-weights", "0.5-2").or_throw(), ElementsAre(0.5, 2));
}

TEST(DlrmArchitecture, WidthsOfInteractions) {
  EXPECT_EQ(interaction_width(Interaction::kDot, false, 27, 16), 27 * 26 / 2 + 16);
  EXPECT_EQ(interaction_width(Interaction::kDot, true, 27, 16), 27 * 28 / 2 + 16);
  EXPECT_EQ(interaction_width(Interaction::kCat, false, 27, 16), 27 * 16);
}

TEST(DlrmArchitecture, LargeTablesAreSplitOrMadeNarrower) {
  ArchitectureOptions options{.sparse_feature_size = 16, .mlp_bottom = {4, 16}};
  options.qr = true;
  const auto split = architecture_of(options, 4, {200, 1001}, "").or_throw();
  ASSERT_EQ(split.tables.size(), 3u) << "200 rows are not more than the threshold";
  EXPECT_EQ(split.features[1].kind, FeatureKind::kQuotientRemainder);
  EXPECT_EQ(split.tables[1].rows, 251) << "1001 / 4, rounded up";
  EXPECT_EQ(split.tables[2].rows, 4);
  options.qr = false;
  options.md = true;
  const auto narrow = architecture_of(options, 4, {100, 100000, 10000000}, "").or_throw();
  EXPECT_EQ(narrow.tables[0].dim, 16);
  EXPECT_EQ(narrow.tables[1].dim, 2) << "16 * 1000^-0.3 = 2.01";
  EXPECT_EQ(narrow.tables[2].dim, 1) << "16 * 100000^-0.3 = 0.51, but at least 1";
  EXPECT_THAT(mixed_dimensions({10, 40, 70}, 0.3, 16, true), ElementsAre(16, 8, 8)) << "10.6 and 8.9 are nearest to 8";
}

TEST(DlrmLearningRate, FollowsTheReferencesPolicy) {
  const LearningRate plain{.base = 0.5};
  EXPECT_EQ(plain.at(1), 0.5);
  EXPECT_EQ(plain.at(1000000), 0.5);
  const LearningRate rate{.base = 1, .warmup_steps = 4, .decay_start = 6, .decay_steps = 4};
  const double expected[] = {0.25, 0.5, 0.75, 0.75, 0.75, 1, 0.5625, 0.25, 0.0625, 0.0625, 0.0625};
  for (int step = 1; step <= 11; ++step) EXPECT_DOUBLE_EQ(rate.at(step), expected[step - 1]) << "step " << step;
  EXPECT_EQ((LearningRate{.base = 1e-6, .decay_start = 0, .decay_steps = 10}.at(9)), 1e-7) << "the floor";
}

TEST(DlrmLines, AreThoseOfTheReference) {
  EXPECT_EQ(progress_line({.batch = 10, .batches = 30, .epoch = 0}, false, 154.418, 0.1024789, ""),
            "Finished training it 10/30 of epoch 0, 154.42 ms/it, loss 0.102479");
  EXPECT_EQ(progress_line({.batch = 1, .batches = 1, .epoch = 2}, true, -1, 0.5, " (09:05)"),
            "Finished inference it 1/1 of epoch 2, -1.00 ms/it, loss 0.500000 (09:05)");
  EXPECT_EQ(testing_line({.batch = 10, .batches = 30, .epoch = 1}), "Testing at - 10/30 of epoch 1,");
  EXPECT_EQ(scores_line({.accuracy = 0.78912, .best_accuracy = 0.8}), " accuracy 78.912 %, best 80.000 %");
  EXPECT_EQ(scores_line({.accuracy = 0.78912,
                         .best_accuracy = 0.8,
                         .ranked = true,
                         .recall = 0.1,
                         .precision = 0.2,
                         .f1 = 0.3,
                         .average_precision = 0.4,
                         .auc = 0.5,
                         .best_auc = 0.6}),
            "recall 0.1000, precision 0.2000, f1 0.3000, ap 0.4000, auc 0.5000, best auc 0.6000, accuracy 78.912 %, "
            "best accuracy 80.000 %");
  EXPECT_EQ(world_line(4, 1, 0), "world size: 4, current rank: 1, local rank: 0");
}

TEST(DlrmNumpyText, LooksAsNumpyPrintsIt) {
  const std::vector<double> small = {0.36179, 0.22826, 0.29371, 0.63098, 0.0921, 0.4337, 0.43086, 0.49369};
  EXPECT_EQ(numpy_text(small, 4, 5), "[[0.36179 0.22826 0.29371 0.63098]\n [0.0921  0.4337  0.43086 0.49369]]");
  EXPECT_EQ(numpy_text(std::vector<double>{-0.41558, 0.5811, 1}, 5), "[-0.41558  0.5811   1.     ]");
  EXPECT_EQ(numpy_text(std::vector<double>{1, 2, 0}, 5), "[1. 2. 0.]");
  EXPECT_EQ(numpy_text(std::vector<double>{1e-5, 1.25}, 5), "[1.00e-05 1.25e+00]");
  EXPECT_EQ(numpy_text(std::vector<std::int64_t>{13, 512, 8}), "[ 13 512   8]");
  const std::vector<double> ones(10 * 200, 1);
  EXPECT_EQ(numpy_text(ones, 200, 5),
            "[[1. 1. 1. ... 1. 1. 1.]\n [1. 1. 1. ... 1. 1. 1.]\n [1. 1. 1. ... 1. 1. 1.]\n ...\n [1. 1. 1. ... 1. 1. "
            "1.]\n [1. 1. 1. ... 1. 1. 1.]\n [1. 1. 1. ... 1. 1. 1.]]");
}

}  // namespace
}  // namespace tutti::dlrm
