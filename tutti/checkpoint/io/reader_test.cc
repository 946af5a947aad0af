#include "tutti/checkpoint/io/reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/data_position.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Dealing;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Loading : public testing::Test {
 protected:
  void save(std::int64_t step, float shift = 0) {
    test::save_model(Group(), folder(), step, Dealing::kRows, shift).or_throw();
  }
  std::string folder() const { return folder_.path(); }
  std::string file(const std::string& name, int step) const {
    return folder() + "/" + checkpoint_folder_name(step) + "/" + name;
  }
  const test::TemporaryFolder folder_;
  const std::string weights_ = "model-00001-of-00001.safetensors";
};

TEST_F(Loading, TheNewestOrTheOneThatIsNamed) {
  for (const int step : {9, 10, 100}) save(step, float(step));
  test::set_file(folder() + "/step-7", "no folder");
  fs::create_directories(folder() + "/step-0000abc");
  fs::create_directories(folder() + "/.step-0000900.partial");
  for (const std::string& path : {folder(), folder() + "/"}) {
    const auto saved = CheckpointReader::open(path);
    ASSERT_TRUE(saved.ok()) << to_string(saved.error());
    EXPECT_EQ(saved->facts().step, 100);
    EXPECT_THAT(saved->passed_over(), IsEmpty());
    EXPECT_EQ(saved->folder(), folder() + "/step-0000100");
    EXPECT_EQ(test::compare_model(*saved, Dealing::kColumns, 0, 2, 100), "");
  }
  EXPECT_EQ(CheckpointReader::open(folder() + "/step-0000009")->facts().step, 9);
}

TEST_F(Loading, AFolderMayHaveAnyName) {
  for (const std::string name : {"step-wise", "step-1", "a b", "."}) {
    test::save_model(Group(), folder() + "/" + name, 3, Dealing::kRows).or_throw();
    EXPECT_EQ(CheckpointReader::open(folder() + "/" + name).or_throw().facts().step, 3) << name;
  }
  fs::rename(folder() + "/a b/step-0000003", folder() + "/best");
  EXPECT_EQ(CheckpointReader::open(folder() + "/best").or_throw().facts().step, 3);
}

TEST_F(Loading, FactsComeBack) {
  std::vector<float> one = {1};
  const StateBox box{.key = {"x", ""}, .shape = {1}, .data = one.data()};
  const CheckpointFacts facts{.step = 7,
                              .values = {{"best_auc", 0.75}},
                              .data = {{"epoch", std::int64_t(3)}},
                              .layout = {{"ranks", std::int64_t(1)}},
                              .versions = {{"model", std::string("dlrm")}}};
  save_checkpoint(folder(), std::span(&box, 1), facts).or_throw();
  const auto saved = CheckpointReader::open(folder()).or_throw();
  EXPECT_EQ(saved.facts().values, facts.values);
  EXPECT_EQ(saved.facts().data, facts.data);
  EXPECT_EQ(saved.facts().layout, facts.layout);
  EXPECT_EQ(saved.facts().versions.at("model"), CheckpointValue(std::string("dlrm")));
  EXPECT_TRUE(saved.facts().versions.contains("tutti"));
}

TEST_F(Loading, ACheckpointThatDoesNotVerifyIsSkippedWithTheReason) {
  struct Case {
    std::function<void(const std::string& folder)> harm;
    std::string expected;
  };
  const auto at = [&](const std::string& folder) { return folder + "/" + weights_; };
  const Case cases[] = {
      {[&](auto& f) { fs::remove(at(f)); }, "model-00001-of-00001.safetensors is missing"},
      {[&](auto& f) { fs::remove(f + "/manifest.json"); }, "manifest.json is missing"},
      {[&](auto& f) { fs::resize_file(at(f), fs::file_size(at(f)) - 1); }, "it was cut off or added to"},
      {[&](auto& f) { fs::resize_file(at(f), fs::file_size(at(f)) + 1); }, "it was cut off or added to"},
      {[&](auto& f) { fs::resize_file(f + "/manifest.json", 50); }, "manifest.json: it does not end with its digest"},
      {[&](auto& f) {
         std::string text = test::file_text(at(f));
         text[20] ^= 1;
         test::set_file(at(f), text);
       },
       "has another header than the one that was saved"},
      {[&](auto& f) {
         std::string text = test::file_text(at(f));
         text[2'000'000] ^= 1;
         test::set_file(at(f), text);
       },
       ", of emb.0 [0:9001, 0:64], have changed: their digest is"},
      {[&](auto& f) { fs::copy_file(file(weights_, 1), at(f), fs::copy_options::overwrite_existing); },
       " of a save (hint: is it a file of another step, or of another save of this one?"},
      {[&](auto& f) {
         fs::remove(at(f));
         fs::create_symlink(file(weights_, 1), at(f));
       },
       "is a link, where the checkpoint has a file"},
      {[&](auto& f) {
         fs::rename(f + "/manifest.json", f + "/elsewhere");
         fs::create_symlink("elsewhere", f + "/manifest.json");
       },
       "manifest.json is a link, where the checkpoint has a file"},
      {[&](auto& f) {
         fs::remove(at(f));
         fs::create_directory(at(f));
       },
       "is no regular file"},
      {[&](auto& f) {
         std::string text = test::file_text(f + "/manifest.json");
         text.replace(text.find("\"version\":1"), 11, "\"version\":9");
         test::set_file(f + "/manifest.json", detail::with_manifest_digest(text));
       },
       "manifest.json: it is of version 9; this program reads version 1"},
  };
  save(1, 1);
  for (const auto& [harm, expected] : cases) {
    save(2, 2);
    harm(folder() + "/step-0000002");
    const auto saved = CheckpointReader::open(folder());
    ASSERT_TRUE(saved.ok()) << expected << ": " << to_string(saved.error());
    EXPECT_EQ(saved->facts().step, 1);
    EXPECT_THAT(saved->passed_over(), ElementsAre(HasSubstr("/step-0000002/")));
    EXPECT_THAT(saved->passed_over(), ElementsAre(HasSubstr(expected)));
    EXPECT_EQ(test::compare_model(*saved, Dealing::kRows, 0, 1, 1), "");
    const auto named = CheckpointReader::open(folder() + "/step-0000002");
    ASSERT_FALSE(named.ok());
    EXPECT_THAT(to_string(named.error()), HasSubstr(expected));
  }
  fs::remove(file("manifest.json", 1));
  const auto none = CheckpointReader::open(folder());
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(to_string(none.error()),
              testing::AllOf(HasSubstr("none of the 2 checkpoints in "), HasSubstr("/step-0000002/manifest.json: "),
                             HasSubstr("; Corrupt: " + file("manifest.json", 1) + " is missing")));
  const auto of_a_file = CheckpointReader::open(file(weights_, 2));
  EXPECT_THAT(to_string(of_a_file.error()),
              HasSubstr("is a file, and a checkpoint is a folder (hint: give the folder that it is in: " + folder() +
                        "/step-0000002"));
}

TEST_F(Loading, WhereThereIsNone) {
  const auto none = CheckpointReader::open(folder());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(to_string(none.error()), HasSubstr("there is no checkpoint in " + folder()));
  EXPECT_THAT(to_string(CheckpointReader::open(folder() + "/x").error()), HasSubstr("cannot read the folder"));
  EXPECT_THAT(to_string(CheckpointReader::open(folder() + "/step-0000007").error()),
              HasSubstr("NotFound: there is no folder " + folder() + "/step-0000007"));
}

TEST_F(Loading, EveryByteOfASmallOneIsWatched) {
  std::vector<float> values = {1, 2, 3};
  const std::vector<StateBox> boxes = {{.key = {"x", ""}, .shape = {3}, .data = values.data()},
                                       {.key = {"x", "m"}, .shape = {3}, .data = values.data()}};
  save_checkpoint(folder(), boxes, {.step = 1}).or_throw();
  int flips = 0;
  for (const auto& entry : fs::directory_iterator(folder() + "/step-0000001")) {
    const std::string path = entry.path(), text = test::file_text(path);
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::string changed = text;
      changed[at] = char(changed[at] ^ (1 << at % 8));
      test::set_file(path, changed);
      ASSERT_FALSE(CheckpointReader::open(folder()).ok()) << path << " byte " << at;
      ++flips;
    }
    test::set_file(path, text);
  }
  EXPECT_TRUE(CheckpointReader::open(folder()).ok());
  EXPECT_GT(flips, 500);
}

TEST_F(Loading, WithoutLookingAtEveryByteFirstReadsStillSeeIt) {
  save(1);
  std::string text = test::file_text(file(weights_, 1));
  text[text.size() - 300] ^= 4;  // in one of the last tensors
  test::set_file(file(weights_, 1), text);
  const auto saved = CheckpointReader::open(folder(), VerifyLevel::kFiles);
  ASSERT_TRUE(saved.ok());
  std::vector<float> row(64);
  EXPECT_TRUE(saved->read({"emb.0"}, TensorBox::rows({9001, 64}, 17, 1), row.data()).ok());
  EXPECT_EQ(row[3], 17 * 64 + 3);
  std::vector<float> all;  // in several parts
  const auto sink = [&](std::uint64_t first, std::uint64_t count, const std::byte* rows) {
    EXPECT_EQ(first * 64, all.size());
    all.resize(all.size() + count * 64);
    std::memcpy(all.data() + first * 64, rows, count * 256);
    return Status();
  };
  EXPECT_TRUE(saved->read({"emb.0"}, TensorBox::whole({9001, 64}), sink).ok());
  EXPECT_EQ(all, test::values(0, TensorBox::whole({9001, 64})));
  all.clear();
  EXPECT_TRUE(saved
                  ->read({"scale"}, TensorBox(),
                         [&](auto first, auto count, auto* value) {
                           std::memcpy(&all.emplace_back(), value, 4);
                           EXPECT_EQ(first, 0u);
                           EXPECT_EQ(count, 1u);
                           return Status();
                         })
                  .ok());
  EXPECT_EQ(all, test::values(4, TensorBox()));
  EXPECT_THAT(test::compare_model(*saved, Dealing::kRows, 0, 1), HasSubstr("have changed"));
  EXPECT_EQ(saved->verify().error().code, Code::kCorrupt);
  int found = 0;
  for (std::uint64_t part = 0; part < 5; ++part) found += saved->verify(part, 5).ok() ? 0 : 1;
  EXPECT_EQ(found, 1);
}

TEST_F(Loading, AnotherModelIsReportedWithTheNamesOfItsTensors) {
  save(1);
  const auto saved = CheckpointReader::open(folder()).or_throw();
  auto wanted = test::expected_model();
  EXPECT_TRUE(saved.expect(wanted).ok());
  wanted[0].shape = {9001, 32};
  wanted[2].dtype = DType::kF64;
  wanted[3].key.name = "fc.other";
  for (int part = 0; part < 2; ++part) wanted.push_back({{"emb.0", "velocity"}, DType::kF32, {1}});
  const Status other = saved.expect(wanted);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(to_string(other.error()),
            "Mismatch: the checkpoint " + folder() +
                "/step-0000001 is of another model: it lacks fc.other, velocity of emb.0; emb.0 is f32[9001, 64], "
                "wanted f32[9001, 32], emb.1 is f32[37, 5], wanted f64[37, 5]; it has more: fc.bias (hint: start with "
                "the options of the run that saved it)");
  wanted.clear();
  for (int i = 0; i < 30; ++i) wanted.push_back({{"t" + std::to_string(i), ""}, DType::kF32, {}});
  EXPECT_THAT(to_string(saved.expect(wanted).error()), HasSubstr(", t19 and 10 more"));
}

TEST_F(Loading, WhatFitsMayBeLoadedInReportAndIgnoreMode) {
  save(1);
  const auto saved = CheckpointReader::open(folder()).or_throw();
  auto wanted = test::expected_model();
  wanted[0].shape = {9001, 32};
  wanted[3].key.name = "fc.other";
  const auto strict = saved.match(wanted, MatchMode::kStrict);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().code, Code::kMismatch);
  testing::internal::CaptureStderr();
  const auto silent = saved.match(wanted, MatchMode::kIgnore);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  const auto told = saved.match(wanted, MatchMode::kReport);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("step-0000001 is of another model: it lacks fc.other; emb.0 is f32[9001, 64], wanted f32[9001, 32]; "
                "it has more: fc.bias; tensors that do not fit keep their values"));
  for (const auto* match : {&silent, &told}) {
    ASSERT_TRUE(match->ok());
    EXPECT_THAT((*match)->fits, ElementsAre(false, true, true, false, true, true, true, true));
    EXPECT_THAT((*match)->missing, ElementsAre("fc.other"));
    EXPECT_THAT((*match)->extra, ElementsAre("fc.bias"));
    EXPECT_FALSE((*match)->whole());
  }
  EXPECT_TRUE(saved.match(test::expected_model())->whole());
}

// Saved by columns and read by rows: more boxes than chunks that are kept.
TEST_F(Loading, AStreamReadsManyBoxesInLittleMemory) {
  constexpr std::uint64_t kRows = 700, kColumns = 96, kWidth = 1024;
  const TensorShape shape = {kRows, kColumns * kWidth};
  std::vector<float> column(kRows * kWidth);
  for (std::size_t i = 0; i < column.size(); ++i) column[i] = float(i);
  std::vector<StateBox> boxes;
  for (std::uint64_t c = 0; c < kColumns; ++c)
    boxes.push_back(
        {.key = {"x", ""}, .shape = shape, .box = {{0, c * kWidth}, {kRows, kWidth}}, .data = column.data()});
  save_checkpoint(folder(), boxes, {.step = 1}).or_throw();
  const auto saved = CheckpointReader::open(folder(), VerifyLevel::kFiles).or_throw();
  const auto stream = saved.stream({"x"}).or_throw();
  std::vector<float> row(shape[1]);
  for (std::uint64_t r = 0; r < kRows; ++r) {
    stream->read(TensorBox::rows(shape, r, 1), reinterpret_cast<std::byte*>(row.data())).or_throw();
    for (std::uint64_t c = 0; c < row.size(); ++c) ASSERT_EQ(row[c], float(r * kWidth + c % kWidth)) << r << ", " << c;
  }
}

TEST_F(Loading, TheByteThatChangedIsNamed) {
  save(1);
  std::string text = test::file_text(file(weights_, 1));
  text[1'500'003] ^= 0x20;
  const std::string was = fmt::format("0x{:02x}", unsigned(std::uint8_t(text[1'500'003] ^ 0x20)));
  test::set_file(file(weights_, 1), text);
  const auto saved = CheckpointReader::open(folder());
  ASSERT_FALSE(saved.ok());
  EXPECT_THAT(to_string(saved.error()),
              HasSubstr("; byte 1500003 alone would explain it, were it " + was + " in place of"));
}

// A place that is not told must not mean the beginning.
TEST_F(Loading, ThePositionInTheDataIsReadOrRejected) {
  float one = 1;
  const StateBox box{.key = {"w", ""}, .shape = {1}, .data = &one};
  const CheckpointFacts facts{.step = 3,
                              .data = {{"batch", std::int64_t(7)}, {"eposh", std::int64_t(1)}, {"late", -1.5}}};
  save_checkpoint(folder() + "/d", std::span(&box, 1), facts).or_throw();
  const auto saved = CheckpointReader::open(folder() + "/d").or_throw();
  EXPECT_EQ(place_in_data(saved, "batch").or_throw(), 7);
  EXPECT_THAT(to_string(place_in_data(saved, "batch", 8).error()),
              HasSubstr("its data.batch is 7, expected a whole number, 8 or more"));
  EXPECT_THAT(to_string(place_in_data(saved, "epoch").error()),
              testing::AllOf(HasSubstr("does not say where to resume the data: its data.epoch is not there"),
                             HasSubstr("it has a data.eposh; tutti ckpt import ... --data epoch=N")));
  EXPECT_THAT(to_string(place_in_data(saved, "late").error()), HasSubstr("its data.late is -1.5, expected"));
  EXPECT_EQ(meant_data_name("positon"), "position");
  EXPECT_EQ(meant_data_name("consumed_sample"), "consumed_samples");
  EXPECT_EQ(meant_data_name("position"), std::nullopt);
  EXPECT_EQ(meant_data_name("tokens_of_mine"), std::nullopt);
}

TEST_F(Loading, InvalidReadsAreRejected) {
  save(1);
  const auto saved = CheckpointReader::open(folder()).or_throw();
  std::vector<float> into(100);
  const auto refusal = [&](const Status& read) { return read.ok() ? "read" : to_string(read.error()); };
  EXPECT_THAT(refusal(saved.read({"x"}, TensorBox(), into.data())), HasSubstr("has no tensor x"));
  EXPECT_THAT(refusal(saved.read({"x", "m"}, std::as_writable_bytes(std::span(into)))),
              HasSubstr("has no tensor m of x"));
  EXPECT_THAT(refusal(saved.read({"emb.1"}, TensorBox::rows({37, 5}, 30, 8), into.data())),
              HasSubstr("is [37, 5]; the box that is wanted is not inside"));
  EXPECT_THAT(refusal(saved.read({"emb.1"}, TensorBox(), into.data())), HasSubstr("is not inside"));
  EXPECT_THAT(refusal(saved.read({"emb.1"}, TensorBox::rows({37, 5}, 30, 2), into.data(), 19)),
              HasSubstr("rows of emb.1 have 20 bytes; they do not fit a stride of 19"));
  EXPECT_THAT(refusal(saved.read({"emb.1"}, std::as_writable_bytes(std::span(into)))),
              HasSubstr("has 740 bytes; the buffer given has 400"));
}

// What many ranks have saved one process opens, also where it may have few files by default.
TEST_F(Loading, MoreFilesThanAProcessUsuallyOpens) {
  constexpr int kRanks = 40;
  const auto outcomes =
      test::run_threads(kRanks, [&](Group& world) { test::save_model(world, folder(), 1, Dealing::kRows).or_throw(); });
  ASSERT_EQ(test::describe(outcomes), "");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto opened_with = [&](rlim_t soft, rlim_t hard) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit few{.rlim_cur = soft, .rlim_max = hard};
      if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(3);
      const auto saved = CheckpointReader::open(folder(), VerifyLevel::kFiles);
      const bool told = !saved.ok() && to_string(saved.error())
                                               .find(
                                                   "Too many open files (hint: raise the limit of "
                                                   "open files: ulimit -n)") != std::string::npos;
      ::_exit(saved.ok() ? 0 : told ? 1 : 2);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(opened_with(40, before.rlim_max), 0);
  EXPECT_EQ(opened_with(40, 40), 1);
}

TEST_F(Loading, AllRanksTakeTheSameOne) {
  for (const int step : {1, 2, 3}) save(step, float(step));
  fs::remove(file(weights_, 3));
  std::string text = test::file_text(file(weights_, 2));
  text[text.size() - 9] ^= 1;  // one chunk, which one rank looks at
  test::set_file(file(weights_, 2), text);
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    const auto saved = CheckpointReader::open(world, folder());
    saved.status().or_throw();
    TUTTI_REQUIRE(saved->facts().step == 1, "step ", saved->facts().step);
    TUTTI_REQUIRE(saved->passed_over().size() == 2, saved->passed_over().size(), " passed over");
    TUTTI_REQUIRE(saved->passed_over()[1].find("have changed") != std::string::npos, saved->passed_over()[1]);
    const std::string trouble = test::compare_model(*saved, Dealing::kColumns, world.rank(), 3, 1);
    TUTTI_REQUIRE(trouble.empty(), trouble);
    const auto none = CheckpointReader::open(world, folder() + "/nothing");
    TUTTI_REQUIRE(!none.ok() && none.error().detail.starts_with("rank 0: cannot read the folder"),
                  none.ok() ? "opened" : none.error().detail);
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

}  // namespace
}  // namespace tutti
