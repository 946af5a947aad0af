#include "tutti/checkpoint/format/box.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "tutti/checkpoint/io/stored_bytes.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(TensorBox, Sizes) {
  const TensorBox box{{1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ(box.elements(), 120u);
  EXPECT_EQ(box.row_count(), 4u);
  EXPECT_EQ(box.row_elements(), 30u);
  EXPECT_TRUE(box.inside({5, 7, 9}));
  EXPECT_FALSE(box.inside({5, 7, 8}));
  EXPECT_FALSE(box.inside({5, 7}));
  EXPECT_FALSE((TensorBox{{~0ull}, {2}}.inside({5})));
  const TensorBox scalar = TensorBox::whole({});
  EXPECT_EQ(scalar.elements(), 1u);
  EXPECT_TRUE(scalar.inside({}));
  EXPECT_EQ(TensorBox::rows({9, 4}, 2, 3), (TensorBox{{2, 0}, {3, 4}}));
  EXPECT_EQ(box_text(box), "[1:5, 2:7, 3:9]");
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(elements_of({~0ull, 2}), std::nullopt);
}

TEST(TensorBox, Common) {
  const TensorBox a{{0, 0}, {4, 4}}, b{{2, 3}, {4, 4}}, c{{4, 0}, {1, 4}};
  EXPECT_EQ(a.common(b), (TensorBox{{2, 3}, {2, 1}}));
  EXPECT_EQ(a.common(c), std::nullopt);
  EXPECT_TRUE(a.overlaps(b));
  EXPECT_FALSE(a.overlaps(c));
}

TEST(TensorBox, GapsAndOverlaps) {
  const TensorShape shape = {10, 4};
  const std::vector<TensorBox> whole = {TensorBox::rows(shape, 4, 6), {{0, 0}, {4, 1}}, {{0, 1}, {4, 3}}};
  EXPECT_EQ(gap_or_overlap(shape, whole), "");
  std::vector<TensorBox> gap(whole.begin(), whole.end() - 1);
  EXPECT_EQ(gap_or_overlap(shape, gap),
            "the boxes have 28 of its 40 elements: the first is [0:4, 0:1], the last [4:10, 0:4]");
  std::vector<TensorBox> overlap = whole;
  overlap[2] = {{0, 0}, {5, 3}};
  EXPECT_THAT(gap_or_overlap(shape, overlap), HasSubstr("overlap"));
  EXPECT_EQ(gap_or_overlap(shape, {}), "the boxes have 0 of its 40 elements: there are none");
  EXPECT_EQ(gap_or_overlap({0, 3}, {}), "");
  EXPECT_EQ(gap_or_overlap({}, {}), "no part has it");
  EXPECT_EQ(gap_or_overlap({}, std::vector{TensorBox(), TensorBox()}), "it is there twice");
}

// Every element that both boxes have is in one run, at its places.
TEST(Runs, AreWhatTheBoxesHaveInCommon) {
  const TensorShape shape = {3, 4, 5};
  const auto number = [&](const TensorShape& at) { return (at[0] * 4 + at[1]) * 5 + at[2]; };
  const auto fill = [&](const TensorBox& box) {
    std::vector<std::uint64_t> values;
    for (std::uint64_t i = 0; i < box.extent[0]; ++i)
      for (std::uint64_t j = 0; j < box.extent[1]; ++j)
        for (std::uint64_t k = 0; k < box.extent[2]; ++k)
          values.push_back(number({box.begin[0] + i, box.begin[1] + j, box.begin[2] + k}));
    return values;
  };
  std::vector<TensorBox> boxes;
  for (std::uint64_t a = 0; a < 3; ++a)
    for (std::uint64_t b = 0; b < 4; b += 2)
      for (std::uint64_t c = 0; c < 5; c += 2)
        for (const TensorShape& most : {TensorShape{3, 4, 5}, TensorShape{2, 2, 3}, TensorShape{1, 3, 5}})
          boxes.push_back({{a, b, c}, {std::min(most[0], 3 - a), std::min(most[1], 4 - b), std::min(most[2], 5 - c)}});
  for (const bool packed : {false, true})
    for (const TensorBox& stored : boxes)
      for (const TensorBox& wanted : boxes) {
        const auto from = fill(stored), want = fill(wanted);
        std::uint64_t elements = 0, last = 0;
        ASSERT_TRUE(for_each_run(stored, wanted, packed, [&](std::uint64_t s, std::uint64_t w, std::uint64_t count) {
                      EXPECT_GE(s, last);
                      last = s + count;
                      elements += count;
                      for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(from.at(s + i), want.at(w + i));
                      if (!packed) {
                        EXPECT_EQ(w / wanted.row_elements(), (w + count - 1) / wanted.row_elements());
                      }
                      return Status();
                    }).ok());
        const auto common = stored.common(wanted);
        EXPECT_EQ(elements, common ? common->elements() : 0);
      }
}

TEST(Runs, WholeBoxesAreOneRun) {
  int runs = 0;
  const TensorBox box = TensorBox::whole({100, 7, 3});
  ASSERT_TRUE(for_each_run(box, box, true, [&](auto, auto, std::uint64_t count) {
                ++runs;
                EXPECT_EQ(count, 2100u);
                return Status();
              }).ok());
  EXPECT_EQ(runs, 1);
}

TEST(Runs, ElementsOfAVectorMayLieApart) {
  int runs = 0;
  ASSERT_TRUE(
      for_each_run(TensorBox{{2}, {5}}, TensorBox{{0}, {4}}, false, [&](std::uint64_t s, std::uint64_t w, auto n) {
        EXPECT_EQ(w, s + 2);
        EXPECT_EQ(n, 1u);
        ++runs;
        return Status();
      }).ok());
  EXPECT_EQ(runs, 2);
}

// Every chunk is in one part, the parts are alike in size, and what a part has lies one behind another.
TEST(ChunkRuns, PartsAreRunsByPlace) {
  Manifest manifest;
  const auto add = [&](const char* name, std::uint32_t file, std::uint64_t offset, std::size_t chunks) {
    manifest.tensors[{name, ""}].boxes.push_back(
        {.file = file, .offset = offset, .crc32c = std::vector<std::uint32_t>(chunks)});
  };
  add("a", 1, 70, 3), add("b", 0, 50, 4), add("c", 1, 10, 5), add("d", 2, 0, 9), add("e", 0, 10, 0);
  using Place = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;  // file, offset of the box, chunk
  const std::size_t all = 3 + 4 + 5;
  for (const std::uint64_t parts : {1u, 2u, 3u, 5u, 40u}) {
    std::vector<Place> seen;
    for (std::uint64_t part = 0; part < parts; ++part) {
      const std::size_t before = seen.size();
      ASSERT_TRUE(for_each_chunk_run(
                      manifest, part, parts, [](std::size_t file) { return file != 2; },
                      [&](const ChunkRun& run) {
                        for (auto chunk = run.begin; chunk < run.end; ++chunk)
                          seen.emplace_back(run.box.file, run.box.offset, chunk);
                        return Status();
                      })
                      .ok());
      EXPECT_LE(seen.size() - before, all / parts + 1);
    }
    EXPECT_EQ(seen.size(), all);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << parts;
  }
  int runs = 0;
  const Status ended = for_each_chunk_run(
      manifest, 0, 1, [](std::size_t) { return true; },
      [&](const ChunkRun&) {
        ++runs;
        return Status(invalid_argument("enough"));
      });
  EXPECT_FALSE(ended.ok());
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace tutti
