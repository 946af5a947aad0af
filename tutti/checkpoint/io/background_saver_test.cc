#include "tutti/checkpoint/io/background_saver.h"

#include <gmock/gmock.h>
#include <sys/mount.h>

#include <atomic>
#include <future>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/checkpointer.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Dealing;
using testing::ElementsAre;
using testing::HasSubstr;

class InBackground : public testing::Test {
 protected:
  void on_ranks(int size, const test::RankBody& body) {
    const auto outcomes = test::run_threads(size, body);
    for (int r = 0; r < size; ++r) EXPECT_EQ(outcomes[std::size_t(r)].error, "") << "rank " << r;
  }
  std::string folder() const { return folder_.path(); }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    const auto there = list_checkpoints(folder()).or_throw();
    for (const CheckpointFolder& one : there) found.push_back(one.step);
    return found;
  }
  const test::TemporaryFolder folder_;
};

// The tensors change as soon as save() has returned.
TEST_F(InBackground, SavesWhatWasThereWhenItWasCalled) {
  for (const int ranks : {1, 2, 3}) {
    for (const Dealing dealing : {Dealing::kRows, Dealing::kReplicated}) {
      on_ranks(ranks, [&](Group& world) {
        BackgroundSaver saver(world, folder(), {.keep = 2});
        auto mine = test::rank_model(dealing, world.rank(), ranks, 0);
        saver.prepare(mine.boxes).or_throw();
        for (int step = 1; step <= 4; ++step) {
          for (std::size_t t = 0; t < test::model().size(); ++t) {
            const auto fresh = test::values(t, test::dealt(t, dealing, world.rank(), ranks), float(step));
            std::copy(fresh.begin(), fresh.end(), mine.memory[t].begin());
          }
          saver.save(mine.boxes, {.step = step}).or_throw();
          for (auto& memory : mine.memory) std::fill(memory.begin(), memory.end(), -1.0f);
        }
        saver.finish().or_throw();
        const auto stats = saver.stats();
        EXPECT_EQ(stats.saved, 4);
        EXPECT_EQ(stats.failed, 0);
        EXPECT_EQ(stats.newest, 4);
      });
      EXPECT_THAT(steps(), ElementsAre(3, 4));
      for (const auto& one : list_checkpoints(folder()).or_throw())
        EXPECT_EQ(
            test::compare_model(CheckpointReader::open(one.path).or_throw(), Dealing::kRows, 0, 1, float(one.step)),
            "");
    }
  }
}

// A rank copies only what it writes.
TEST_F(InBackground, ReplicatedTensorsAreCopiedOnce) {
  std::atomic<std::uint64_t> copied{0};
  on_ranks(4, [&](Group& world) {
    BackgroundSaver saver(world, folder());
    const auto mine = test::rank_model(Dealing::kReplicated, world.rank(), 4);
    saver.save(mine.boxes, {.step = 1}).or_throw();
    saver.finish().or_throw();
    copied += saver.stats().snapshot_bytes;
  });
  EXPECT_LT(copied.load(), 9001 * 65 * 4 + 20000u);
}

TEST_F(InBackground, RowsThatLieApartOrComeFromASource) {
  std::vector<float> apart(100 * 4, -1);
  for (std::size_t i = 0; i < 100; ++i) apart[4 * i] = float(i), apart[4 * i + 1] = float(1000 + i);
  const std::vector<StateBox> boxes = {
      {.key = {"a"}, .shape = {100, 2}, .data = apart.data(), .row_stride = 16},
      {.key = {"b"},
       .shape = {300000, 2},
       .source =
           [](std::uint64_t first, std::uint64_t count, std::byte* into) {
             std::vector<float> rows;
             for (auto row = first; row < first + count; ++row)
               rows.insert(rows.end(), {float(2 * row), float(2 * row + 1)});
             std::memcpy(into, rows.data(), rows.size() * 4);
             return Status();
           }},
      {.key = {"none"}, .shape = {0, 7}},
  };
  BackgroundSaver saver(Group(), folder());
  saver.save(boxes, {.step = 1}).or_throw();
  saver.finish().or_throw();
  const auto saved = CheckpointReader::open(folder()).or_throw();
  std::vector<float> a(200), b(600000);
  saved.read({"a"}, std::as_writable_bytes(std::span(a))).or_throw();
  saved.read({"b"}, std::as_writable_bytes(std::span(b))).or_throw();
  for (std::size_t i = 0; i < 100; ++i) EXPECT_TRUE(a[2 * i] == float(i) && a[2 * i + 1] == float(1000 + i));
  for (std::size_t i = 0; i < b.size(); ++i) ASSERT_EQ(b[i], float(i));
}

TEST_F(InBackground, OtherBoxesThanBefore) {
  on_ranks(2, [&](Group& world) {
    BackgroundSaver saver(world, folder());
    for (const Dealing dealing : {Dealing::kRows, Dealing::kColumns, Dealing::kWhole}) {
      const auto mine = test::rank_model(dealing, world.rank(), 2, 5);
      saver.save(mine.boxes, {.step = int(dealing)}).or_throw();
    }
    // Only one of the ranks comes with another box: both hear of it.
    auto mine = test::rank_model(Dealing::kWhole, world.rank(), 2, 5);
    if (world.rank() == 1) mine.boxes[1].box.begin[0] = 17;
    EXPECT_THAT(to_string(saver.save(mine.boxes, {.step = 9}).error()), HasSubstr("rank 1: "));
    EXPECT_FALSE(saver.finish().ok());
    EXPECT_THAT(to_string(saver.save(mine.boxes, {.step = -1}).error()), HasSubstr("the step -1 is negative"));
    EXPECT_EQ(saver.stats().failed_in_a_row, 2);
  });
  EXPECT_THAT(steps(), ElementsAre(0, 1, 2));
  for (const auto& one : list_checkpoints(folder()).or_throw())
    EXPECT_EQ(test::compare_model(CheckpointReader::open(one.path).or_throw(), Dealing::kRows, 0, 1, 5), "");
}

// What stands in the way of the second save goes before the third.
TEST_F(InBackground, ASaveThatFailsStopsNoRank) {
  const std::string path = folder() + "/a";
  testing::internal::CaptureStderr();
  on_ranks(2, [&](Group& world) {
    BackgroundSaver saver(world, path);
    const auto mine = test::rank_model(Dealing::kRows, world.rank(), 2, 1);
    saver.save(mine.boxes, {.step = 1}).or_throw();
    saver.finish().or_throw();
    barrier(world);
    if (world.rank() == 0) {
      fs::rename(path, path + ".away");
      test::set_file(path, "a file where the folder was");
    }
    barrier(world);
    EXPECT_TRUE(saver.save(mine.boxes, {.step = 2}).ok()) << "the copy is made; the thread meets the fault";
    EXPECT_THAT(to_string(saver.finish().error()), HasSubstr(path));
    EXPECT_EQ(saver.stats().failed, 1);
    barrier(world);
    if (world.rank() == 0) {
      fs::remove(path);
      fs::rename(path + ".away", path);
    }
    barrier(world);
    saver.save(mine.boxes, {.step = 3}).or_throw();
    saver.finish().or_throw();
    const auto stats = saver.stats();
    EXPECT_EQ(stats.saved, 2);
    EXPECT_EQ(stats.failed, 1);
    EXPECT_EQ(stats.failed_in_a_row, 0);
    EXPECT_THAT(stats.last_failure, testing::StartsWith("that of step 2: "));
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the checkpoint of step 2 was not saved (1 in a row failed); the last saved step is 1; "
                              "training continues: "));
  EXPECT_THAT(said, HasSubstr("1 of 3 checkpoints was not saved, the last that of step 2: "))
      << "at the end, once more";
  EXPECT_THAT(said, HasSubstr("; step 3 was saved since"));
  EXPECT_EQ(CheckpointReader::open(path).or_throw().facts().step, 3);
}

TEST_F(InBackground, TrainingCommunicatesMeanwhile) {
  on_ranks(3, [&](Group& world) {
    BackgroundSaver saver(world, folder());
    const auto mine = test::rank_model(Dealing::kReplicated, world.rank(), 3);
    for (int step = 1; step <= 3; ++step) {
      saver.save(mine.boxes, {.step = step}).or_throw();
      for (int i = 0; i < 500; ++i) test::check(all_reduce(world, i) == 3 * i, "a sum of training is wrong");
    }
  });  // the object goes while the last save is under way
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(InBackground, AJobSavesWhenDueAndAtTheEnd) {
  on_ranks(2, [&](Group& world) {
    for (const bool in_background : {true, false}) {
      auto mine = test::rank_model(Dealing::kReplicated, world.rank(), 2);
      Checkpointer checkpoints(world, {.folder = folder(), .interval = 4, .in_background = in_background});
      checkpoints.add("", mine);
      const auto resumed = checkpoints.resume();
      test::check(resumed.source.has_value() != in_background, "the second job begins where the first ended");
      const std::int64_t from = resumed.step, to = from + 9;
      for (auto step = from + 1; step <= to; ++step) {
        const auto due = checkpoints.due(step, step == to);
        test::check(!due.stop && due.save == (step % 4 == 0 || step == to), "due");
        checkpoints.after(step, step == to);
      }
      checkpoints.finish();
    }
  });
  EXPECT_THAT(steps(), ElementsAre(4, 8, 9, 12, 16, 18));
}

TEST_F(InBackground, AJobThatCannotKeepItsWorkSaysSoAtTheEnd) {
  const std::string path = folder() + "/a";
  auto mine = test::rank_model(Dealing::kReplicated, 0, 1);
  Checkpointer checkpoints(Group(), {.folder = path});
  checkpoints.add("", mine);
  fs::remove_all(path);
  test::set_file(path, "");
  checkpoints.save(1);
  try {
    checkpoints.finish();
    FAIL();
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), HasSubstr(path));
  }
  Checkpointer none(Group(), {});
  none.add("", mine);
  EXPECT_FALSE(none.resume().source);
  none.save(1);
  none.finish();
}

}  // namespace
}  // namespace tutti
