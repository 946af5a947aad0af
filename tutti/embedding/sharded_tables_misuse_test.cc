// Wrong lookups, calls in a wrong order, and ranks that do not agree are refused, on every rank that they concern.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/embedding/test_tables.h"

namespace tutti::test {
namespace {

// The error on every rank when `spoil` has changed the lookups of table 1 on the rank that owns it.
std::vector<std::string> errors_of(Place place, World world, const std::function<void(Lookups&)>& spoil) {
  const Case c{.name = "", .ranks = 3, .place = place, .world = world};
  std::vector<std::string> words;
  for (const auto& outcome : run(c, [&](Group& group) {
         const auto tables = specs();
         EmbeddingOptions options;
         options.share_memory = world != World::kNoMemory;
         auto sharded = ShardedTables<float>::create(tables, placed(place, 3, tables), group, options).or_throw();
         std::vector<Lookups> lookups;
         for (std::size_t t = 0; t < tables.size(); ++t) lookups.push_back(make_lookups(tables[t], t, 0, 12));
         const auto mine = tables_of(sharded->placement(), group.rank());
         if (std::find(mine.begin(), mine.end(), 1u) != mine.end()) spoil(lookups[1]);
         const std::vector<LookupsView> views(lookups.begin(), lookups.end());
         const auto batch = sharded->post(12, views, 77).or_throw();
         sharded->wait(batch).or_throw();
         throw std::runtime_error("nobody noticed");
       }))
    words.push_back(outcome.error);
  return words;
}

TEST(ShardedTablesMisuse, AnIndexOutsideOfItsTableIsReportedToEveryRank) {
  for (const World world : {World::kMemory, World::kNoMemory, World::kTcp})
    for (const Place place : {Place::kWhole, Place::kRows}) {
      const auto words = errors_of(place, world, [](Lookups& lookups) { lookups.indices[5] = 7; });
      int first = 0;
      for (const std::string& text : words) {
        EXPECT_NE(text.find("index 7 is outside of table items, which has rows 0 - 6"), std::string::npos) << text;
        EXPECT_NE(text.find(" of batch 77"), std::string::npos) << text;
        EXPECT_NE(text.find(": lookup "), std::string::npos) << text;
        first += text.rfind("InvalidArgument", 0) == 0;
      }
      EXPECT_GE(first, 1);
    }
  const auto words = errors_of(Place::kWhole, World::kMemory, [](Lookups& lookups) { lookups.indices[0] = -3; });
  EXPECT_NE(words[0].find("index -3 is outside of table items"), std::string::npos) << words[0];
}

TEST(ShardedTablesMisuse, OffsetsThatCannotBeAreRefused) {
  const auto first_words = [](const std::function<void(Lookups&)>& spoil) {
    return errors_of(Place::kWhole, World::kMemory, spoil)[0];
  };
  const auto expect = [&](const std::function<void(Lookups&)>& spoil, const char* words) {
    const std::string text = first_words(spoil);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  expect([](Lookups& l) { l.offsets.pop_back(); },
         "the lookups of table items in batch 77 have 12 offsets, expected 13 for 12 samples");
  expect([](Lookups& l) { l.indices.push_back(0); }, "have offsets 0 - ");
  expect([](Lookups& l) { std::swap(l.offsets[3], l.offsets[7]); },
         "have an offset that is smaller than the one before it, of sample ");
  expect([](Lookups& l) { l.offsets[0] = 1; }, "have offsets 1 - ");
}

TEST(ShardedTablesMisuse, ACallThatComesTwiceOrTooEarlyIsRefused) {
  const std::vector<TableSpec> tables{{"only", 4, 3}};
  auto sharded = ShardedTables<float>::create(tables, place_by_count(tables, 1), {}, {}).or_throw();
  const Lookups lookups = make_lookups(tables[0], 0, 1, 8);
  const LookupsView view = lookups;
  const RowGradients<float> none;
  const auto batch = sharded->post(8, std::span(&view, 1)).or_throw();
  const auto refused = [](const Status& status, const char* words) {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(to_string(status.error()).find(words), std::string::npos) << to_string(status.error());
  };
  refused(sharded->send_gradients(batch, std::span(&none, 1)),
          "send_gradients() for a batch whose last call was post()");
  sharded->wait(batch).or_throw();
  refused(sharded->wait(batch), "wait() for a batch whose last call was wait()");
  refused(sharded->apply_gradients(batch), "apply_gradients() for a batch whose last call was wait()");
  sharded->send_gradients(batch, std::span(&none, 1)).or_throw();
  sharded->apply_gradients(batch).or_throw();
  refused(sharded->send_gradients(batch, std::span(&none, 1)), "whose last call was apply_gradients()");
}

TEST(ShardedTablesMisuse, WhatRanksMustAgreeOnIsCompared) {
  const auto outcomes = run_threads(2, [](Group& world) {
    const auto tables = specs();
    const auto text_of = [&](const TablePlacement& placement, const EmbeddingOptions& options) -> std::string {
      const auto made = ShardedTables<float>::create(tables, placement, world, options);
      return made.ok() ? "" : to_string(made.error());
    };
    EmbeddingOptions options;
    options.lr = world.rank();  // may differ
    const std::string nothing = text_of(place_by_count(tables, 2), options);
    check(nothing.empty(), nothing);
    options.rule = world.rank() == 0 ? TableRule::kSgd : TableRule::kAdagrad;
    const std::string rules = text_of(place_by_count(tables, 2), options);
    check(rules.find("embedding tables, placements or options: rule is sgd on rank 0, but adagrad on rank 1") !=
              std::string::npos,
          rules);
    const std::string ranks = text_of(place_by_count(tables, 3), {});
    check(ranks.find("the tables are placed on 3 ranks, the group has 2") != std::string::npos, ranks);
  });
  EXPECT_EQ(describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::test
