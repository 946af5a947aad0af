#include "tutti/checkpoint/checkpointer.h"

#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "tests/harness/checkpoints.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

using test::Dealing;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A sum over the steps, of which each rank has some elements, and what else a training may have.
struct Sums {
  Sums(int rank, int ranks)
      : box(TensorBox::rows({10}, std::uint64_t(10 * rank / ranks),
                            std::uint64_t(10 * (rank + 1) / ranks - 10 * rank / ranks))),
        sums(box.extent[0]) {}
  void step(std::int64_t number) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += float(number) * float(box.begin[0] + i);
    rate /= 2;
    mean += 0.5;
    position += 3;
  }
  void state(StateDict& state) {
    state.tensor({.key = {"sums"}, .shape = {10}, .box = box, .data = sums.data()});
    state.value("rate", rate);
    state.value("name", name);
    state.value("warm", warm);
    state.data("position", position);
    state.add("inner", inner);
  }
  struct Inner {
    int number = 0;
    void state(StateDict& state) { state.value("number", number); }
  };

  const TensorBox box;
  std::vector<float> sums;
  double rate = 64, mean = 0;
  std::string name = "sums";
  bool warm = false;
  std::int64_t position = 0;
  Inner inner;
};

class Checkpoints : public testing::Test {
 protected:
  void on_ranks(int size, const test::RankBody& body) {
    const auto outcomes = test::run_threads(size, body);
    for (int r = 0; r < size; ++r) EXPECT_EQ(outcomes[std::size_t(r)].error, "") << "rank " << r;
  }
  // Why the sums cannot be loaded from the folder with that change.
  std::string refused(const std::function<void(Sums&)>& change, const std::string& part = "sums") {
    Sums mine(0, 1);
    change(mine);
    Checkpointer checkpoints(Group(), {.resume = folder()});
    checkpoints.add(part, mine);
    try {
      checkpoints.resume();
    } catch (const Exception& error) {
      return to_string(error.error());
    }
    return "";
  }
  std::string folder() const { return folder_.path(); }
  const test::TemporaryFolder folder_;
};

TEST_F(Checkpoints, AnyNumberOfRanksResumesWhatAnyOtherSaved) {
  std::int64_t steps = 0;
  for (const int ranks : {1, 3, 2}) {
    on_ranks(ranks, [&](Group& world) {
      Sums mine(world.rank(), ranks);
      Checkpointer checkpoints(world, {.folder = folder(), .interval = 2});
      checkpoints.add("sums", mine);
      const auto resumed = checkpoints.resume();
      EXPECT_EQ(resumed.step, steps);
      EXPECT_EQ(resumed.source, steps == 0 ? std::nullopt : std::optional(ResumeSource::kOwnFolder));
      EXPECT_EQ(mine.position, 3 * steps);
      EXPECT_EQ(mine.rate, 64 / double(1 << steps));
      for (std::size_t i = 0; i < mine.sums.size(); ++i)
        EXPECT_EQ(mine.sums[i], float(steps * (steps + 1) / 2) * float(mine.box.begin[0] + i));
      for (std::int64_t step = steps + 1; step <= steps + 3; ++step) {
        mine.step(step);
        EXPECT_FALSE(checkpoints.after(step));
      }
      checkpoints.finish();
    });
    steps += 3;
  }
  EXPECT_TRUE(std::filesystem::exists(folder() + "/step-0000008")) << "by the interval";
  EXPECT_TRUE(std::filesystem::exists(folder() + "/step-0000009")) << "at the end";
}

TEST_F(Checkpoints, WithoutFinishAWarningNamesTheStepsThatAreLost) {
  const auto train = [&](std::int64_t steps, const std::function<void(Checkpointer&)>& end) {
    testing::internal::CaptureStderr();
    on_ranks(2, [&](Group& world) {
      Sums mine(world.rank(), 2);
      try {
        Checkpointer checkpoints(world, {.folder = folder(), .interval = 2});
        checkpoints.add("sums", mine);
        const std::int64_t from = checkpoints.resume().step;
        for (std::int64_t step = from + 1; step <= from + steps; ++step) checkpoints.after(step);
        end(checkpoints);
      } catch (const std::runtime_error&) {
      }
    });
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(train(3, [](Checkpointer& checkpoints) { checkpoints.finish(); }), "");
  EXPECT_THAT(train(4, [](Checkpointer&) {}),
              HasSubstr("step 7 is not saved in " + folder() + ": the program ended without Checkpointer::finish()"));
  EXPECT_THAT(train(1, [](Checkpointer&) { throw std::runtime_error("another reason"); }),
              Not(HasSubstr("is not saved")));
}

// Loading data may take minutes before the first step, and a signal meanwhile must not end the rank.
TEST_F(Checkpoints, WhoSavesHasAHandlerForStopSignalsBeforeTheFirstStep) {
  const auto handler = [] {
    struct sigaction now {};
    sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
  };
  const auto before = handler();  // SIG_DFL, unless another test of this process saves
  on_ranks(1, [&](Group& world) {
    const Checkpointer reads_only(world, {});
    EXPECT_EQ(handler(), before);
    const Checkpointer saves(world, {.folder = folder()});
    EXPECT_NE(handler(), SIG_DFL);
  });
}

TEST_F(Checkpoints, EachFinishedOneIsGivenToTheProgram) {
  const test::TemporaryFolder mirror;
  std::atomic<int> calls{0};
  on_ranks(2, [&](Group& world) {
    Sums mine(world.rank(), 2);
    const auto copy = [&](const std::string& path) -> Status {
      if (++calls == 2) throw std::runtime_error("the mirror is full");
      std::filesystem::copy(path, mirror.path() + "/" + std::filesystem::path(path).filename().string(),
                            std::filesystem::copy_options::recursive);
      return {};
    };
    Checkpointer checkpoints(world, {.folder = folder(), .interval = 2, .keep = 1, .on_saved = copy});
    checkpoints.add("sums", mine);
    checkpoints.resume();
    for (std::int64_t step = 1; step <= 7; ++step) {
      mine.step(step);
      EXPECT_FALSE(checkpoints.after(step));
    }
    checkpoints.finish();
  });
  EXPECT_EQ(calls, 4) << "by one rank, also after an exception";
  std::vector<std::int64_t> steps;
  const auto copies = list_checkpoints(mirror.path()).or_throw();
  for (const auto& one : copies) steps.push_back(one.step);
  EXPECT_THAT(steps, ElementsAre(2, 6, 7));
  Sums whole(0, 1);
  Checkpointer checkpoints(Group(), {.resume = mirror.path()});
  checkpoints.add("sums", whole);
  EXPECT_EQ(checkpoints.resume().step, 7);
}

TEST_F(Checkpoints, NamesBeginWithThePartButThoseOfModelAndOptimizer) {
  Sums one(0, 1), two(0, 1);
  test::RankModel model = test::rank_model(Dealing::kReplicated, 0, 1);
  two.inner.number = 7;
  Checkpointer checkpoints(Group(), {.folder = folder()});
  checkpoints.add("one", one);
  checkpoints.add("two", two);
  checkpoints.add("model", model);
  checkpoints.save(4);
  checkpoints.finish();
  const auto saved = CheckpointReader::open(folder()).or_throw();
  EXPECT_EQ(saved.facts().step, 4);
  EXPECT_TRUE(saved.find({"one.sums"}) && saved.find({"two.sums"}) && saved.find({"conv", "momentum"}));
  EXPECT_EQ(whole_number(saved.facts().values, "two.inner.number"), 7);
  EXPECT_EQ(whole_number(saved.facts().data, "one.position"), 0);
}

TEST_F(Checkpoints, ACheckpointThatDoesNotFitChangesNothingAndSaysWhy) {
  Sums mine(0, 1);
  Checkpointer checkpoints(Group(), {.folder = folder()});
  checkpoints.add("sums", mine);
  checkpoints.save(1);
  checkpoints.finish();
  EXPECT_EQ(refused([](Sums&) {}), "");
  EXPECT_THAT(refused([](Sums&) {}, "others"), HasSubstr("it lacks others.sums; it has more: sums.sums"));

  struct Other {
    float sums[11] = {1};
    std::string rate = "constant";
    void state(StateDict& state) {
      state.tensor({.key = {"sums"}, .shape = {size}, .data = sums});
      state.value("rate", rate);
    }
    std::uint64_t size = 11;
  };
  const auto why = [&](Other& other) {
    Checkpointer wrong(Group(), {.resume = folder()});
    wrong.add("sums", other);
    try {
      wrong.resume();
    } catch (const Exception& error) {
      return to_string(error.error());
    }
    return std::string();
  };
  Other other;
  EXPECT_THAT(why(other), HasSubstr("sums.sums is f32[10], wanted f32[11]"));
  other.size = 10;
  EXPECT_THAT(why(other), HasSubstr("has no value sums.rate like the \"constant\" of this run: it is 64"));
  EXPECT_EQ(other.sums[0], 1) << "nothing was loaded";
}

// A rank alone knows the tensors of its stage only.
TEST_F(Checkpoints, OneTensorTooManyIsOneThatNoRankHas) {
  on_ranks(2, [&](Group& world) {
    auto mine = test::rank_model(Dealing::kWhole, world.rank(), 2);
    std::erase_if(mine.boxes,
                  [](const StateBox& box) { return bytes_of(box) == 0 && !box.shape.empty() && box.shape[0]; });
    Checkpointer checkpoints(world, {.folder = folder()});
    checkpoints.add("", mine);
    checkpoints.resume();
    checkpoints.save(1);
    checkpoints.finish();
  });
  for (const bool one_less : {false, true}) {
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      auto mine = test::rank_model(Dealing::kWhole, world.rank(), 2);
      std::erase_if(mine.boxes,
                    [](const StateBox& box) { return bytes_of(box) == 0 && !box.shape.empty() && box.shape[0]; });
      if (one_less) std::erase_if(mine.boxes, [](const StateBox& box) { return box.key.name == "fc.bias"; });
      Checkpointer checkpoints(world, {.resume = folder()});
      checkpoints.add("", mine);
      checkpoints.resume();
    });
    for (const auto& outcome : outcomes) {
      if (one_less) {
        EXPECT_THAT(outcome.error, HasSubstr("it has more: fc.bias"));
      } else {
        EXPECT_EQ(outcome.error, "");
      }
    }
  }
}

TEST_F(Checkpoints, WeightsAloneBeginAtStepZero) {
  auto model = test::rank_model(Dealing::kReplicated, 0, 1);
  Sums sums(0, 1);
  sums.rate = 5;
  {
    Checkpointer checkpoints(Group(), {.folder = folder()});
    checkpoints.add("", model);
    checkpoints.add("sums", sums);
    checkpoints.save(3);
    checkpoints.finish();
  }
  auto other = test::rank_model(Dealing::kReplicated, 0, 1, 100);
  sums.rate = 6;
  Checkpointer checkpoints(Group(), {.resume = folder(), .weights_only = true});
  checkpoints.add("", other);
  checkpoints.add("sums", sums);
  const auto resumed = checkpoints.resume();
  EXPECT_EQ(resumed.step, 0);
  EXPECT_EQ(resumed.source, ResumeSource::kNamed);
  EXPECT_EQ(sums.rate, 6);
  for (std::size_t t = 0; t < model.boxes.size(); ++t)
    EXPECT_EQ(other.memory[t] == model.memory[t], model.boxes[t].key.state.empty() || model.memory[t].empty())
        << to_string(model.boxes[t].key);
}

// Of what lies otherwise in memory: the rows of a matrix apart, and rows that functions make and take.
TEST_F(Checkpoints, RowsInMemoryOfAnyKind) {
  struct Rows {
    std::vector<float> apart, made;
    explicit Rows(float first) : apart(4 * 5, first), made(6) { std::iota(made.begin(), made.end(), first); }
    void state(StateDict& state) {
      state.tensor({.key = {"apart"}, .shape = {4, 3}, .data = apart.data(), .row_stride = 5 * sizeof(float)});
      state.tensor({.key = {"made"},
                    .shape = {3, 2},
                    .source = [this](std::uint64_t first, std::uint64_t count, std::byte* into) -> Status {
                      std::memcpy(into, &made[2 * first], 2 * count * sizeof(float));
                      return {};
                    },
                    .sink = [this](std::uint64_t first, std::uint64_t count, const std::byte* rows) -> Status {
                      std::memcpy(&made[2 * first], rows, 2 * count * sizeof(float));
                      return {};
                    }});
    }
  };
  Rows saved(1), loaded(50);
  for (Rows* rows : {&saved, &loaded}) {
    Checkpointer checkpoints(Group(), {.folder = folder()});
    checkpoints.add("rows", *rows);
    checkpoints.resume();
    if (rows == &loaded) continue;
    checkpoints.save(1);
    checkpoints.finish();
  }
  EXPECT_EQ(loaded.made, saved.made);
  EXPECT_THAT(std::vector(loaded.apart.begin(), loaded.apart.begin() + 6), ElementsAre(1, 1, 1, 50, 50, 1));
}

// What an object checks or computes itself.
TEST_F(Checkpoints, ChecksComeBeforeAnythingIsLoaded) {
  struct Checked {
    std::int64_t seed = 3, squared = 0, loaded = 0;
    void state(StateDict& state) {
      state.value("loaded", loaded);
      state.facts().data["seed"] = seed;
      if (!state.loading()) return;
      state.check([this](const CheckpointReader& saved) {
        return whole_number(saved.facts().data, "seed") == seed ? Status() : Status(invalid_argument("another seed"));
      });
      state.after_load([this](const CheckpointReader&) {
        squared = loaded * loaded;
        return Status();
      });
    }
  };
  Checked checked{.loaded = 4};
  const auto with = [&](Checked& object) {
    Checkpointer checkpoints(Group(), {.folder = folder()});
    checkpoints.add("checked", object);
    checkpoints.resume();
    checkpoints.save(1);
    checkpoints.finish();
  };
  with(checked);
  Checked again, other{.seed = 4};
  with(again);
  EXPECT_EQ(again.squared, 16);
  EXPECT_THROW(with(other), Exception);
  EXPECT_EQ(other.loaded, 0);
}

}  // namespace
}  // namespace tutti
