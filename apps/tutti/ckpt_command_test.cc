// `tutti ckpt` as a user types it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/harness/checkpoints.h"
#include "tests/harness/python.h"
#include "tests/launch/running.h"
#include "tutti/base/float16.h"
#include "tutti/checkpoint/folder_lock.h"
#include "tutti/checkpoint/safetensors.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Dealing;
using ::testing::AllOf;
using testing::Ended;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::run;
using ::testing::StartsWith;

class CkptCommand : public ::testing::Test {
 protected:
  // What three ranks saved by rows.
  void save(std::int64_t step, float shift = 0, const std::string& folder = "a") {
    const auto outcomes = test::run_threads(3, [&](Group& world) {
      const test::RankModel mine = test::rank_model(Dealing::kRows, world.rank(), 3, shift);
      const CheckpointFacts facts{.step = step, .values = {{"lr", 0.25}, {"name", std::string("dlrm")}}};
      save_checkpoint(world, path(folder), mine.boxes, facts).or_throw();
    });
    for (const auto& outcome : outcomes) ASSERT_EQ(outcome.error, "");
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  static void flip(const std::string& file, std::size_t byte) {
    std::string text = test::file_text(file);
    text.at(byte) ^= 4;
    test::set_file(file, text);
  }
  static std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry* const entry = file.find(name);
    if (!entry) return {};
    std::vector<float> values(entry->bytes() / 4);
    file.read(*entry, std::as_writable_bytes(std::span(values))).or_throw();
    return values;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(CkptCommand, LsListsTheTensorsOfTheNewest) {
  save(1);
  save(2);
  const Ended ended = run({"ckpt", "ls", path("a")});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith(path("a/step-0000002") + ": Tutti checkpoint, 8 tensors, "));
  EXPECT_THAT(ended.out, HasSubstr("emb.0          F32  [9001, 64]"));
  EXPECT_THAT(ended.out, HasSubstr("3 boxes in 3 files\n"));
  EXPECT_THAT(ended.out, HasSubstr("conv/momentum  F32  [6, 5, 4] "));
  EXPECT_THAT(ended.out, HasSubstr("scale          F32  [] "));
  const Ended chosen = run({"ckpt", "ls", path("a/step-0000001"), "fc*", "scale"});
  EXPECT_THAT(chosen.out, AllOf(HasSubstr("fc.bias"), HasSubstr("scale"), Not(HasSubstr("conv"))));
  const Ended steps = run({"ckpt", "ls", path("a"), "--steps"});
  EXPECT_THAT(steps.out, AllOf(HasSubstr("step-0000001: Tutti"), HasSubstr("step-0000002: Tutti")));
  const auto json = nlohmann::json::parse(run({"ckpt", "ls", path("a"), "emb.0", "--json"}).out);
  EXPECT_EQ(json[0]["shape"], (std::vector<int>{9001, 64}));
  EXPECT_EQ(json[0]["parts"].size(), 3u);
}

TEST_F(CkptCommand, ANewestThatDoesNotOpenIsPassedOverAloud) {
  save(1);
  save(2);
  fs::resize_file(path("a/step-0000002/model-00001-of-00003.safetensors"), 100);
  for (const char* const command : {"ls", "show"}) {
    const Ended ended = run({"ckpt", command, path("a")});
    EXPECT_EQ(ended.code, 0) << command;
    EXPECT_THAT(ended.out, HasSubstr("step-0000001")) << command;
    EXPECT_THAT(ended.err, HasSubstr("passed over a checkpoint: Corrupt: " + path("a/step-0000002/model-00001")))
        << command;
  }
  EXPECT_EQ(run({"ckpt", "ls", path("a/step-0000001")}).err, "");
  const Ended steps = run({"ckpt", "ls", path("a"), "--steps"});
  EXPECT_EQ(steps.code, 1) << "one of them is not whole";
  EXPECT_THAT(steps.out, AllOf(HasSubstr("step-0000001: Tutti"), HasSubstr("step-0000002: Corrupt: ")));
}

TEST_F(CkptCommand, ShowPrintsFactsAndTensors) {
  save(7);
  const Ended all = run({"ckpt", "show", path("a")});
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("step: 7\n"), HasSubstr("values:\n  lr: 0.25\n  name: \"dlrm\"\n")));
  EXPECT_THAT(all.out, HasSubstr("tensors F32: 6, "));
  EXPECT_EQ(run({"ckpt", "show", path("a"), "--path", "values.lr"}).out, "0.25\n");
  const Ended none = run({"ckpt", "show", path("a"), "--path", "values.learning"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr(path("a/step-0000007") + ": there is no learning in values; there is lr, name"));
  const Ended tensor = run({"ckpt", "show", path("a"), "--tensor", "emb.1"});
  EXPECT_THAT(tensor.out, HasSubstr("emb.1: F32[37, 5], 740 B\n  [0:12, 0:5] in model-00001-of-00003.safetensors\n"));
  EXPECT_THAT(tensor.out, HasSubstr("from 0.25 to 184.25, mean 92.25, "));
  EXPECT_THAT(tensor.out, HasSubstr("begins with 0.25 1.25 2.25 3.25"));
}

TEST_F(CkptCommand, VerifyNamesAllThatIsWrong) {
  save(1);
  save(2);
  const Ended well = run({"ckpt", "verify", path("a"), "--all"});
  ASSERT_EQ(well.code, 0) << well.out << well.err;
  EXPECT_THAT(well.out,
              MatchesRegex("(.|\n)*step-0000002: Tutti checkpoint, 8 tensors in 6 files, .*/s: all is well\n"));
  const std::string first = path("a/step-0000002/model-00001-of-00003.safetensors");
  const std::string second = path("a/step-0000002/model-00002-of-00003.safetensors");
  flip(first, fs::file_size(first) - 100);
  flip(second, 5000);
  fs::remove(path("a/step-0000002/optimizer-00003-of-00003.safetensors"));
  const Ended harmed = run({"ckpt", "verify", path("a")});
  EXPECT_EQ(harmed.code, 1);
  EXPECT_THAT(harmed.out, HasSubstr("optimizer-00003-of-00003.safetensors is missing"));
  EXPECT_THAT(harmed.out, HasSubstr("model-00001-of-00003.safetensors: bytes "));
  EXPECT_THAT(harmed.out, HasSubstr(fmt::format("; byte {} alone would explain it", fs::file_size(first) - 100)));
  EXPECT_THAT(harmed.out, HasSubstr("of emb.0 [3000:6000, 0:64], have changed"));
  EXPECT_THAT(harmed.out, HasSubstr("; byte 5000 alone would explain it"));
  EXPECT_THAT(harmed.out, HasSubstr("step-0000002: 3 troubles\n"));
  EXPECT_EQ(run({"ckpt", "verify", path("a/step-0000001")}).code, 0);
  EXPECT_EQ(run({"ckpt", "verify", path("nothing")}).code, 2);
}

TEST_F(CkptCommand, ExtractWritesTensorsBoxesAndShardsOfRanks) {
  save(1);
  const std::string out = path("out.safetensors");
  ASSERT_EQ(run({"ckpt", "extract", path("a"), "--tensor", "emb.1", "--tensor", "fc*", "-o", out}).code, 0);
  const auto some = SafetensorsFile::open(out).or_throw();
  EXPECT_EQ(some.entries().size(), 2u);
  EXPECT_EQ(floats(some, "emb.1"), test::values(2, TensorBox::whole({37, 5})));
  const Ended again = run({"ckpt", "extract", path("a"), "--tensor", "emb.0", "-o", out});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr(out + " is there already\nhint: give another name, or --force"));
  EXPECT_EQ(SafetensorsFile::open(out).or_throw().entries().size(), 2u) << "as it was";
  const Ended box =
      run({"ckpt", "extract", path("a"), "--tensor", "emb.0", "--box", "2990:6010, 8:", "-o", out, "--force"});
  ASSERT_EQ(box.code, 0) << box.err;
  EXPECT_EQ(floats(SafetensorsFile::open(out).or_throw(), "emb.0[2990:6010, 8:64]"),
            test::values(0, {{2990, 8}, {3020, 56}}));
  EXPECT_THAT(box.out, HasSubstr(": 1 tensor, "));
  ASSERT_EQ(run({"ckpt", "extract", path("a"), "--rank", "2", "-o", out, "--force"}).code, 0);
  EXPECT_EQ(floats(SafetensorsFile::open(out).or_throw(), "emb.0/sum[6000:9001]"), test::values(1, {{6000}, {3001}}));
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"ckpt", "extract", path("a")});
    const Ended ended = run(more);
    EXPECT_EQ(ended.code, 2);
    return ended.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("--output is missing"));
  EXPECT_THAT(refusal({"-o", out, "--tensor", "emb.O"}), HasSubstr("has no tensor emb.O\nhint: did you mean emb.0?"));
  EXPECT_THAT(refusal({"-o", out, "--box", "0:1"}), HasSubstr("--box is of one tensor; these are 8"));
  EXPECT_THAT(refusal({"-o", out, "--tensor", "emb.1", "--box", "30:40"}),
              HasSubstr("--box 30:40 is not inside of [37, 5]"));
  EXPECT_THAT(refusal({"-o", out, "--tensor", "emb.1", "--box", "4:3"}),
              HasSubstr("--box 4:3: the range 4:3 ends before it begins"));
  EXPECT_THAT(refusal({"-o", out, "--rank", "3"}), HasSubstr("rank 3 wrote nothing of "));
  EXPECT_THAT(refusal({"-o", folder_.path()}), HasSubstr("it is a folder, not a file"));
}

// As verify does, but in the middle of writing.
TEST_F(CkptCommand, NothingIsWrittenFromWhatHasChanged) {
  save(1);
  const std::string first = path("a/step-0000001/model-00001-of-00003.safetensors");
  flip(first, fs::file_size(first) - 100);
  const Ended ended = run({"ckpt", "extract", path("a"), "-o", path("out.safetensors")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("have changed: their digest is "));
  EXPECT_FALSE(fs::exists(path("out.safetensors")));
}

TEST_F(CkptCommand, DiffNamesTensorsAndTheLargestDifference) {
  save(1);
  save(1, 0, "b");
  const Ended same = run({"ckpt", "diff", path("a"), path("b")});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_EQ(same.out, "8 tensors are equal, 0 differ\n");
  std::vector<float> bias = test::values(3, TensorBox::whole({7})), other = {1};
  bias[2] += 0.5f;
  bias[5] -= 2;
  const SavedBox boxes[] = {{.key = {"fc.bias", ""}, .shape = {7}, .data = bias.data()},
                            {.key = {"scale", ""}, .shape = {1}, .data = other.data()},
                            {.key = {"more", ""}, .shape = {1}, .data = other.data()}};
  save_checkpoint(path("c"), boxes, {.step = 4}).or_throw();
  const Ended ended = run({"ckpt", "diff", path("a"), path("c")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, HasSubstr("fc.bias: 2 of 7 elements differ, most by 2, at [5]: 5.375 and 3.375\n"));
  EXPECT_THAT(ended.out, HasSubstr("scale is F32[] and F32[1]\n"));
  EXPECT_THAT(ended.out, HasSubstr("only in " + path("c/step-0000004") + ": more\n"));
  EXPECT_THAT(ended.out, HasSubstr("only in " + path("a/step-0000001") + ": momentum of conv\n"));
  EXPECT_THAT(ended.out, HasSubstr("step: 1 and 4\n"));
  EXPECT_THAT(run({"ckpt", "diff", path("a"), path("c"), "--tolerance", "1"}).out, HasSubstr("1 of 7 elements differ"));
  EXPECT_THAT(ended.out, HasSubstr("\n0 tensors are equal, 2 differ\n"));
  EXPECT_THAT(run({"ckpt", "diff", path("a")}).err, HasSubstr("no two paths given"));
  save_checkpoint(path("d"), std::span(boxes).first(2), {.step = 4}).or_throw();
  other[0] = 2;
  save_checkpoint(path("e"), std::span(boxes).first(2), {.step = 4}).or_throw();
  EXPECT_THAT(run({"ckpt", "diff", path("d"), path("e")}).out, HasSubstr("\n1 tensor is equal, 1 differs\n"));
}

TEST_F(CkptCommand, ReshardDealsOutToAnyNumberOfRanks) {
  save(5);
  for (const std::string split : {"rows", "columns", "whole"}) {
    for (const int ranks : {1, 2, 7}) {
      const std::string out = fmt::format("{}{}", split, ranks);
      const Ended ended =
          run({"ckpt", "reshard", path("a"), path(out), "--ranks", std::to_string(ranks), "--split", split});
      ASSERT_EQ(ended.code, 0) << ended.err;
      const auto saved = CheckpointReader::open(path(out)).or_throw();
      EXPECT_EQ(test::compare_model(saved, Dealing::kWhole, 0, 1), "");
      EXPECT_EQ(saved.facts().step, 5);
      EXPECT_EQ(std::get<double>(saved.facts().values.at("lr")), 0.25);
      EXPECT_EQ(saved.find({"emb.0"})->boxes.size(), std::size_t(split == "whole" ? 1 : ranks));
    }
  }
  const Ended again = run({"ckpt", "reshard", path("a"), path("rows2"), "--ranks", "2"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("rows2/step-0000005 is there already"));
  EXPECT_THAT(run({"ckpt", "reshard", path("a"), path("x")}).err, HasSubstr("no --ranks given"));
  const std::string first = path("a/step-0000005/model-00001-of-00003.safetensors");
  flip(first, fs::file_size(first) - 100);
  EXPECT_EQ(run({"ckpt", "reshard", path("a"), path("y"), "--ranks", "2"}).code, 1);
  EXPECT_TRUE(fs::is_empty(path("y")));
}

TEST_F(CkptCommand, MergeWritesWeightsForOthers) {
  save(1);
  const Ended ended = run({"ckpt", "merge", path("a"), path("w"), "--max-shard-size", "1M"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(path("w/model-00003-of-00003.safetensors")));
  const auto index = nlohmann::json::parse(test::file_text(path("w/model.safetensors.index.json")));
  EXPECT_EQ(index["weight_map"].size(), 6u);
  EXPECT_EQ(index["weight_map"]["emb.0"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["metadata"]["total_size"], 4 * (9001 * 64 + 37 * 5 + 7 + 1 + 120));
  EXPECT_EQ(run({"ckpt", "diff", path("w"), path("w")}).code, 0);
  EXPECT_THAT(run({"ckpt", "merge", path("a"), path("w")}).err, HasSubstr("is there already"));
  const Ended among = run({"ckpt", "merge", path("a"), path("a")});
  EXPECT_EQ(among.code, 2);
  EXPECT_THAT(among.err, HasSubstr(path("a") + " is a folder of checkpoints"));
  // And back.
  const Ended back = run({"ckpt", "import", path("w"), path("again"), "--step", "9", "--ranks", "2"});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_THAT(back.out, HasSubstr("has no digests"));
  EXPECT_THAT(back.err, ::testing::Not(HasSubstr("did you mean")));
  const Ended mistyped = run({"ckpt", "import", path("w"), path("typo"), "--data", "positon=80", "--data", "epoch=0"});
  ASSERT_EQ(mistyped.code, 0) << mistyped.err;
  EXPECT_THAT(mistyped.err, HasSubstr("--data positon: none of train_image, train_dlrm and pretrain_gpt reads this "
                                      "name; did you mean --data position=80?"));
  EXPECT_THAT(mistyped.err, ::testing::Not(HasSubstr("--data epoch:")));
  const auto saved = CheckpointReader::open(path("again")).or_throw();
  std::vector<float> emb(9001 * 64);
  saved.read({"emb.0"}, std::as_writable_bytes(std::span(emb))).or_throw();
  EXPECT_EQ(emb, test::values(0, TensorBox::whole({9001, 64})));

  const std::string python = test::python_that_runs("import numpy, safetensors");
  if (python.empty()) GTEST_SKIP() << test::no_python_with("numpy and safetensors");
  test::set_file(path("read.py"), R"(
import json, sys
import numpy as np
from safetensors import safe_open
index = json.load(open(sys.argv[1] + "/model.safetensors.index.json"))
total = 0
for name, file in index["weight_map"].items():
    with safe_open(sys.argv[1] + "/" + file, "np") as f:
        tensor = f.get_tensor(name)
        total += tensor.nbytes
        if name == "emb.0": assert (tensor == np.arange(9001 * 64, dtype=np.float32).reshape(9001, 64)).all()
assert total == index["metadata"]["total_size"]
)");
  EXPECT_EQ(std::system((python + " " + path("read.py") + " " + path("w")).c_str()), 0);
}

TEST_F(CkptCommand, PruneKeepsTheNewestAndEveryMth) {
  for (const int step : {1, 2, 3, 4, 5, 6}) save(step);
  const Ended dry = run({"ckpt", "prune", path("a"), "--keep", "2", "--every", "3", "--dry-run"});
  EXPECT_THAT(dry.out, AllOf(HasSubstr("would remove " + path("a/step-0000001")), HasSubstr("3 of 6 would stay")));
  const Ended ended = run({"ckpt", "prune", path("a"), "--keep", "2", "--every", "3"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::vector<std::int64_t> left;
  for (const auto& one : list_checkpoints(path("a")).or_throw()) left.push_back(one.step);
  EXPECT_THAT(left, ::testing::ElementsAre(3, 5, 6));
  EXPECT_THAT(run({"ckpt", "prune", path("a")}).err, HasSubstr("no --keep given"));
  EXPECT_THAT(run({"ckpt", "prune", path("a"), "--keep", "0"}).err, HasSubstr("--keep needs a number"));
}

TEST_F(CkptCommand, PruneLeavesTheLastThatIsWhole) {
  for (const int step : {1, 2, 3}) save(step);
  fs::resize_file(path("a/step-0000003/model-00001-of-00003.safetensors"), 100);
  for (const char* const more : {"--dry-run", "--every=0"}) {
    const Ended refused = run({"ckpt", "prune", path("a"), "--keep", "1", more});
    EXPECT_EQ(refused.code, 1);
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr("nothing is removed: of the 1 that would stay none is whole; the newest: "));
    EXPECT_THAT(refused.err, HasSubstr("step-0000003/model-00001-of-00003.safetensors has 100 bytes"));
  }
  EXPECT_EQ(list_checkpoints(path("a")).or_throw().size(), 3u);
  EXPECT_EQ(run({"ckpt", "prune", path("a"), "--keep", "2"}).code, 0);  // step 2 is whole
  EXPECT_EQ(list_checkpoints(path("a")).or_throw().size(), 2u);
}

// Between the saves of a job that runs; a save that is under way is waited for.
TEST_F(CkptCommand, PruneBesideAJob) {
  for (const int step : {1, 2, 3}) save(step);
  const auto job = FolderLock::take(path("a"), FolderUse::kJob).or_throw();
  EXPECT_EQ(run({"ckpt", "prune", path("a"), "--keep", "2"}).code, 0);
  auto lock = std::optional(FolderLock::take(path("a"), FolderUse::kWriting).or_throw());
  auto saving = std::optional(CheckpointDraft::create(path("a"), 4).or_throw());
  auto pruning = std::async(std::launch::async, [&] { return run({"ckpt", "prune", path("a"), "--keep", "1"}); });
  EXPECT_EQ(pruning.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_TRUE(fs::exists(path("a/.step-0000004.partial")));
  EXPECT_EQ(list_checkpoints(path("a")).or_throw().size(), 2u);
  saving.reset();
  lock.reset();
  const Ended pruned = pruning.get();
  EXPECT_EQ(pruned.code, 0) << pruned.err;
  EXPECT_THAT(pruned.err, MatchesRegex("(.|\n)* is being written to by ckpt_command_te.* \\(pid [0-9]+ on .*; waits "
                                       "for its end, 10 s at most\n"));
  EXPECT_EQ(list_checkpoints(path("a")).or_throw().size(), 1u);
  // Nobody puts a checkpoint between those of a job.
  save(9, 0, "b");
  const Ended into = run({"ckpt", "reshard", path("b"), path("a"), "--ranks", "2"});
  EXPECT_EQ(into.code, 2);
  EXPECT_THAT(into.err, HasSubstr("another job keeps its checkpoints in " + path("a") + ": ckpt_command_te"));
}

// With a folder for each node there are only the files of that node.
TEST_F(CkptCommand, PruneOfANodesOwnFolder) {
  const test::RankModel mine = test::rank_model(Dealing::kRows, 0, 1);
  for (const int step : {1, 2, 3}) {
    const CheckpointFacts facts{.step = step, .layout = {{"hosts", std::string("a,b")}}};
    save_checkpoint(path("n"), mine.boxes, facts).or_throw();
    fs::remove(path(fmt::format("n/step-{:07}/optimizer-00001-of-00001.safetensors", step)));  // the other node has it
  }
  EXPECT_EQ(run({"ckpt", "prune", path("n"), "--keep", "2"}).code, 0);
  EXPECT_EQ(list_checkpoints(path("n")).or_throw().size(), 2u);
  fs::remove(path("n/step-0000003/model-00001-of-00001.safetensors"));
  const Ended none = run({"ckpt", "prune", path("n"), "--keep", "1"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr(path("n/step-0000003") + " has none of its files"));
  EXPECT_EQ(list_checkpoints(path("n")).or_throw().size(), 2u);
}

TEST_F(CkptCommand, AnEarlierStepIsNotPutBeforeALaterOne) {
  save(1, 0, "b");
  save(2);
  const Ended ended = run({"ckpt", "reshard", path("b"), path("a"), "--ranks", "2"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr(path("a") + " has a checkpoint of step 2, and this one is of step 1: who resumes"));
  EXPECT_EQ(test::file_text(path("a/latest")), "step-0000002\n");
  EXPECT_EQ(list_checkpoints(path("a")).or_throw().size(), 1u);
}

TEST_F(CkptCommand, ImportRefusesWhatItCannot) {
  save(1);
  EXPECT_THAT(run({"ckpt", "import", path("a"), path("b")}).err, HasSubstr("is a checkpoint of Tutti already"));
  EXPECT_THAT(run({"ckpt", "import", path("a")}).err, HasSubstr("no output given"));
  // One rank's file holds a part only.
  const std::string part = path("a/step-0000001/model-00001-of-00003.safetensors");
  ASSERT_EQ(run({"ckpt", "import", part, path("b")}).code, 0);  // its tensors have names with boxes
  const std::string header = R"({"x":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}})";
  const std::uint64_t length = header.size();
  test::set_file(path("i16.safetensors"), std::string(reinterpret_cast<const char*>(&length), 8) + header + "ab");
  const Ended ended = run({"ckpt", "import", path("i16.safetensors"), path("c")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("x is I16, which a checkpoint does not know"));
}

// What torch.save() of before 1.6 wrote, with one storage of 4 floats.
std::string torch_file(const std::string& pickle) {
  const std::uint64_t elements = 4;
  const float values[] = {1, 2, 3, 4};
  return std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.") + "\x80\x02M\xe9\x03." +
         "}S'little_endian'\nI01\ns." + pickle + "]S'0'\na." +
         std::string(reinterpret_cast<const char*>(&elements), sizeof elements) +
         std::string(reinterpret_cast<const char*>(values), sizeof values);
}
// A tensor of these.
const std::string kFourFloats =
    "ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\ntQI0\n(I4\nt(I1\nt"
    "I00\n}tR";
const std::string kNumpyScalar = "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'f8'\ntRS'12345678'\ntR";

// As dlrm_s_pytorch.py --save-model has it: results beside the model are scalars of numpy.
TEST_F(CkptCommand, ImportSkipsObjectsThatAreNotReadAndListsThem) {
  test::set_file(path("dlrm.pt"),
                 torch_file("}S'epoch'\nI3\nsS'state_dict'\n}S'bot_l.0.bias'\n" + kFourFloats + "ssS'test_acc'\n" +
                            kNumpyScalar + "sS'train_loss'\n" + kNumpyScalar +
                            "sS'opt_state_dict'\n}S'state'\n}sS'param_groups'\n(lp1\n(dS'lr'\nF0.5\nsS'params'\n"
                            "(lI0\nasass."));
  const Ended ended = run({"ckpt", "import", path("dlrm.pt"), path("run"), "--path", "state_dict", "--optimizer",
                           "opt_state_dict", "--step", "7"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("dlrm.pt: skipped 2 objects that are not read: test_acc "
                                   "(numpy.core.multiarray.scalar), train_loss (numpy.core.multiarray.scalar)\n"));
  const auto saved = CheckpointReader::open(path("run")).or_throw();
  EXPECT_EQ(saved.manifest().tensors.size(), 2u) << "the weight, and the steps that were made";
  std::vector<float> bias(4);
  saved.read({"bot_l.0.bias"}, std::as_writable_bytes(std::span(bias))).or_throw();
  EXPECT_THAT(bias, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(run({"ckpt", "import", path("dlrm.pt"), path("all")}).code, 0);
  EXPECT_THAT(run({"ckpt", "ls", path("dlrm.pt")}).err, HasSubstr("skipped 2 objects"));
  EXPECT_THAT(run({"ckpt", "verify", path("dlrm.pt")}).err, HasSubstr("skipped 2 objects"));
}

// A weight must not be lost for the class that it is in.
TEST_F(CkptCommand, ImportSkipsATensorOnlyIfTheUserExcludesIt) {
  test::set_file(path("x.pt"), torch_file("}S'fc'\n" + kFourFloats +
                                          "sS'ema'\n}S'shadow'\nc__main__\nEma\n)\x81}S'w'\n" + kFourFloats + "sbss."));
  const auto import = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> line = {"ckpt", "import", path("x.pt"), path(to)};
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  };
  for (const auto& more : {std::vector<std::string>(), {"--path", "ema"}, {"--path", "ema.shadow"}}) {
    const Ended refused = import("no", more);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                HasSubstr("x.pt: ema.shadow, of type __main__.Ema with 1 tensor, is not read\nhint: save a "
                          "state_dict() of plain tensors, or exclude it by --path or --tensor"));
  }
  const Ended taken = import("fc", {"--tensor", "fc"});
  EXPECT_EQ(taken.code, 0) << taken.err;
  EXPECT_THAT(taken.err, HasSubstr("skipped 1 object that is not read: ema.shadow (__main__.Ema, with 1 tensor)"));
  // The state of an optimizer belongs to the chosen tensors.
  test::set_file(path("x.pt"), torch_file("}S'model'\n}S'fc'\n" + kFourFloats +
                                          "ssS'opt'\n}S'state'\n}I0\n}S'exp_avg'\nc__main__\nLazy\n)\x81}S'w'\n" +
                                          kFourFloats + "sbsssS'param_groups'\n(lp1\n(dS'params'\n(lI0\nasass."));
  for (const auto& more : {std::vector<std::string>{"--path", "model"}, {"--path", "model", "--tensor", "fc"}}) {
    std::vector<std::string> with_optimizer = more;
    with_optimizer.insert(with_optimizer.end(), {"--optimizer", "opt"});
    const Ended refused = import("no", with_optimizer);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("opt.state.0.exp_avg, of type __main__.Lazy with 1 tensor, is not read\nhint: "
                                       "save a state_dict() of plain tensors, or import without --optimizer"));
    EXPECT_EQ(import(more.size() == 2 ? "model" : "tensor", more).code, 0);
  }
}

// Names of tensors come from files of others, and are no paths.
TEST_F(CkptCommand, NoFileIsNamedAfterATensor) {
  const std::vector<std::string> names = {"../pwned", "../../pwned", path("pwned"), "a/b", "..", ".", "x\\..\\y"};
  const std::vector<float> data(64);
  std::vector<SafetensorsTensor> tensors;
  std::vector<SavedBox> boxes;
  for (const std::string& name : names) {
    tensors.push_back({name, DType::kF32, {8, 8}, data.data()});
    boxes.push_back({.key = {name, ""}, .shape = {8, 8}, .data = data.data()});
    boxes.push_back({.key = {name, "../state"}, .shape = {8, 8}, .data = data.data()});
  }
  fs::create_directories(path("deep/er"));
  const auto at = [&](const std::string& name) { return path("deep/er/" + name); };
  write_safetensors(at("in.safetensors"), tensors).or_throw();
  save_checkpoint(at("saved"), boxes, {.step = 1}).or_throw();
  test::set_file(at("in.pt"), torch_file("}S'../../pwned'\n" + kFourFloats + "s."));
  // All that is there, but what the commands below are told to make.
  const std::set<std::string> made = {
      "imported",        "imported_pt",           "resharded",       "merged", "merged_all",
      "box.safetensors", "extracted.safetensors", "rank.safetensors"};
  const auto others = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      const std::string place = fs::relative(entry.path(), path("deep/er")).string();
      if (!made.contains(place.substr(0, place.find('/'))) && !place.ends_with(".lock")) found.insert(place);
    }
    return found;
  };
  const auto before = others();
  for (const auto& line : std::vector<std::vector<std::string>>{
           {"import", at("in.safetensors"), at("imported"), "--ranks", "2"},
           {"import", at("in.pt"), at("imported_pt")},
           {"reshard", at("saved"), at("resharded"), "--ranks", "3"},
           {"merge", at("saved"), at("merged"), "--max-shard-size", "300"},
           {"merge", at("in.safetensors"), at("merged_all")},
           {"extract", at("saved"), "-o", at("extracted.safetensors")},
           {"extract", at("saved"), "-o", at("rank.safetensors"), "--rank", "0"},
           {"extract", at("in.safetensors"), "-o", at("box.safetensors"), "--tensor", "../pwned", "--box", "0:4"},
           {"ls", at("saved")},
           {"show", at("saved"), "--tensor", "../pwned"},
           {"verify", at("saved")},
           {"diff", at("saved"), at("in.safetensors")},
           {"prune", at("saved"), "--keep", "1"}}) {
    std::vector<std::string> words = {"ckpt"};
    words.insert(words.end(), line.begin(), line.end());
    const Ended ended = run(words);
    EXPECT_LE(ended.code, line[0] == "diff" ? 1 : 0) << line[0] << ": " << ended.err;
  }
  for (const std::string folder : {"imported", "imported_pt", "resharded", "merged", "merged_all"}) {
    for (const auto& entry : fs::recursive_directory_iterator(at(folder)))
      EXPECT_THAT(entry.path().filename().string(),
                  MatchesRegex("step-[0-9]+|latest|manifest.json|.*lock|(model|optimizer)-[0-9]+-of-[0-9]+.safetensors|"
                               "model.safetensors(.index.json)?"));
  }
  EXPECT_EQ(others(), before);
  const Ended gpt2 = run({"ckpt", "gpt2", at("in.safetensors"), at("gpt2")});
  EXPECT_EQ(gpt2.code, 2);
  EXPECT_EQ(others(), before);
}

// A GPT-2 of one layer, 96 numbers a token and no meaning.
class CkptGpt2 : public CkptCommand {
 protected:
  struct Named {
    const char* name;
    TensorShape shape;
  };
  static const std::vector<Named>& names() {
    static const std::vector<Named> names = {{"wte.weight", {5, 96}},
                                             {"wpe.weight", {4, 96}},
                                             {"ln_f.weight", {96}},
                                             {"ln_f.bias", {96}},
                                             {"h.0.ln_1.weight", {96}},
                                             {"h.0.ln_1.bias", {96}},
                                             {"h.0.attn.c_attn.weight", {96, 288}},
                                             {"h.0.attn.c_attn.bias", {288}},
                                             {"h.0.attn.c_proj.weight", {96, 96}},
                                             {"h.0.attn.c_proj.bias", {96}},
                                             {"h.0.ln_2.weight", {96}},
                                             {"h.0.ln_2.bias", {96}},
                                             {"h.0.mlp.c_fc.weight", {96, 384}},
                                             {"h.0.mlp.c_fc.bias", {384}},
                                             {"h.0.mlp.c_proj.weight", {384, 96}},
                                             {"h.0.mlp.c_proj.bias", {96}}};
    return names;
  }
  // Element i of every tensor is i % 16, which each of the types can be.
  template <class T, class Convert>
  std::string write(DType dtype, const std::string& file, const Convert& convert,
                    const std::vector<Named>& named = names()) const {
    std::vector<T> values;
    for (int i = 0; i < 96 * 384; ++i) values.push_back(convert(float(i % 16)));
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, shape] : named) tensors.push_back({name, dtype, shape, values.data()});
    write_safetensors(path(file), tensors).or_throw();
    return path(file);
  }
  std::string write_f32(const std::string& file, const std::vector<Named>& named = names()) const {
    return write<float>(
        DType::kF32, file, [](float value) { return value; }, named);
  }
  // Another shape for the tensor `name`.
  static std::vector<Named> names_with(const std::string& name, const TensorShape& shape) {
    std::vector<Named> changed = names();
    for (Named& tensor : changed)
      if (name == tensor.name) tensor.shape = shape;
    return changed;
  }
  std::int64_t heads_in(const std::string& folder) const {
    return std::get<std::int64_t>(CheckpointReader::open(path(folder)).or_throw().facts().values.at("heads"));
  }
};

TEST_F(CkptGpt2, HeadsAreThoseOfConfigJson) {
  fs::create_directory(path("hf"));
  const std::string file = write_f32("hf/model.safetensors");
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"ckpt", "gpt2", file, path("no")};
    line.insert(line.end(), more.begin(), more.end());
    const Ended ended = run(line);
    EXPECT_EQ(ended.code, 2);
    EXPECT_FALSE(fs::exists(path("no")));
    return ended.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("has 96 numbers a token, which are not heads of 64 numbers as in GPT-2\nhint: say "
                                     "how many heads of attention it has: --heads N, or config.json beside it"));
  ASSERT_EQ(run({"ckpt", "gpt2", file, path("given"), "--heads", "6"}).code, 0);
  EXPECT_EQ(heads_in("given"), 6);
  test::set_file(path("hf/config.json"),
                 R"({"n_head": 3, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-6})");
  for (const std::string& from : {file, path("hf")}) {
    const std::string folder = from == file ? "of_file" : "of_folder";
    const Ended ended = run({"ckpt", "gpt2", from, path(folder)});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(heads_in(folder), 3);
  }
  EXPECT_EQ(std::get<double>(CheckpointReader::open(path("of_file")).or_throw().facts().values.at("norm_epsilon")),
            1e-6);
  EXPECT_THAT(refusal({"--heads", "4"}), HasSubstr("--heads 4 is given, and config.json beside "));
  for (const auto& [config, expected] : std::map<std::string, std::string>{
           {R"({"n_head": 5})", "96 numbers a token cannot be divided into 5 heads"},
           {R"({"n_head": 0})", "config.json: n_head is 0, expected a whole number from 1 to 1048576"},
           {R"({"n_head": 3, "n_layer": 7})", "its config.json has n_layer 7, and the weights have 1 layer"},
           {R"({"n_head": 3, "tie_word_embeddings": false})",
            "config.json has tie_word_embeddings false, and only models with tied embeddings are converted"},
           {R"({"n_head": 3, "layer_norm_epsilon": "x"})",
            "config.json: layer_norm_epsilon is \"x\", expected a number above 0"},
           {R"({"n_head": 3, "layer_norm_epsilon": -1})", "layer_norm_epsilon is -1, expected a number above 0"},
           {R"({"n_head": 3, "activation_function": "relu"})",
            "config.json has activation_function \"relu\", and pretrain_gpt computes with \"gelu_new\""},
           {R"({"n_head": 3, "scale_attn_by_inverse_layer_idx": true})",
            "config.json has scale_attn_by_inverse_layer_"},
           {"[]", "config.json is no JSON object"}}) {
    test::set_file(path("hf/config.json"), config);
    const Ended ended = run({"ckpt", "gpt2", file, path("no")});
    EXPECT_NE(ended.code, 0) << config;
    EXPECT_THAT(ended.err, HasSubstr(expected));
    EXPECT_FALSE(fs::exists(path("no")));
  }
}

TEST_F(CkptGpt2, RejectsShapesThatDoNotFitTogether) {
  const auto refusal = [&](const std::string& name, const TensorShape& shape) {
    const Ended ended =
        run({"ckpt", "gpt2", write_f32("x.safetensors", names_with(name, shape)), path("no"), "--heads", "3"});
    EXPECT_EQ(ended.code, 2) << name;
    EXPECT_FALSE(fs::exists(path("no")));
    return ended.err;
  };
  EXPECT_THAT(refusal("h.0.attn.c_attn.weight", {96, 96}),
              HasSubstr("is no GPT-2: h.0.attn.c_attn.weight is [96, 96], expected [96, 288]"));
  EXPECT_THAT(refusal("h.0.mlp.c_fc.bias", {96}), HasSubstr("h.0.mlp.c_fc.bias is [96], expected [384]"));
  EXPECT_THAT(refusal("wpe.weight", {4, 95}), HasSubstr("wpe.weight is [4, 95], expected [4, 96]"));
  EXPECT_THAT(refusal("ln_f.bias", {96, 1}), HasSubstr("ln_f.bias is [96, 1], expected [96]"));
  EXPECT_THAT(refusal("wte.weight", {5}), HasSubstr("wte.weight is no matrix: [5]"));
}

TEST_F(CkptGpt2, RejectsAnOutputLayerThatIsNotTheEmbedding) {
  auto named = names();
  named.push_back({"lm_head.weight", {5, 96}});
  EXPECT_EQ(run({"ckpt", "gpt2", write_f32("tied.safetensors", named), path("tied"), "--heads", "3"}).code, 0);
  std::vector<float> values(96 * 384);
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, shape] : names()) tensors.push_back({name, DType::kF32, shape, values.data()});
  const std::vector<float> others(5 * 96, 1);
  tensors.push_back({"lm_head.weight", DType::kF32, {5, 96}, others.data()});
  write_safetensors(path("untied.safetensors"), tensors).or_throw();
  const Ended ended = run({"ckpt", "gpt2", path("untied.safetensors"), path("no"), "--heads", "3"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              HasSubstr("lm_head.weight differs from wte.weight, and only models with tied embeddings are converted"));
}

TEST_F(CkptGpt2, ReplacesNothing) {
  const std::string file = write_f32("model.safetensors");
  const std::vector<std::string> line = {"ckpt", "gpt2", file, path("g"), "--heads", "3"};
  ASSERT_EQ(run(line).code, 0);
  const std::string manifest = test::file_text(path("g/step-0000000/manifest.json"));
  const Ended again = run(line);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("g/step-0000000 is there already\nhint: give another folder"));
  EXPECT_EQ(test::file_text(path("g/step-0000000/manifest.json")), manifest);
  save(100);
  const Ended before = run({"ckpt", "gpt2", file, path("a"), "--heads", "3"});
  EXPECT_EQ(before.code, 2);
  EXPECT_THAT(before.err, HasSubstr("has a checkpoint of step 100, and this one is of step 0"));
  EXPECT_EQ(test::file_text(path("a/latest")), "step-0000100\n");
  const std::string weights = test::file_text(file);
  const Ended back = run({"ckpt", "gpt2", path("g"), file});
  EXPECT_EQ(back.code, 2);
  EXPECT_THAT(back.err, HasSubstr(file + " is there already\nhint: give another name"));
  EXPECT_EQ(test::file_text(file), weights);
  ASSERT_EQ(run({"ckpt", "gpt2", path("g"), path("back.safetensors")}).code, 0);
  EXPECT_THAT(run({"ckpt", "diff", file, path("back.safetensors")}).out, HasSubstr("16 tensors are equal, 0 differ"));
}

TEST_F(CkptGpt2, TakesSixteenBits) {
  write_f32("f32.safetensors");
  write<Half>(DType::kF16, "f16.safetensors", [](float value) { return to_half(value); });
  write<BFloat16>(DType::kBF16, "bf16.safetensors", [](float value) { return to_bfloat16(value); });
  write<double>(DType::kF64, "f64.safetensors", [](float value) { return double(value); });
  for (const std::string type : {"f32", "f16", "bf16"}) {
    const Ended ended = run({"ckpt", "gpt2", path(type + ".safetensors"), path(type), "--heads", "3"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(run({"ckpt", "diff", path("f32"), path(type)}).code, 0) << type;
  }
  const auto saved = CheckpointReader::open(path("f16")).or_throw();
  std::vector<float> qkv(288 * 96);
  saved.read({"decoder.layers.0.self_attention.linear_qkv.weight"}, std::as_writable_bytes(std::span(qkv))).or_throw();
  for (int row = 0; row < 288; ++row)
    for (int column = 0; column < 96; ++column)
      ASSERT_EQ(qkv[std::size_t(row * 96 + column)], float((column * 288 + row) % 16)) << row << " " << column;
  const Ended ended = run({"ckpt", "gpt2", path("f64.safetensors"), path("f64"), "--heads", "3"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("is F64, and only F32, F16 and BF16 are turned into another model"));
}

TEST_F(CkptCommand, MistakesAreSentences) {
  EXPECT_EQ(run({"ckpt"}).code, 2);
  EXPECT_THAT(run({"ckpt", "--help"}).out, HasSubstr("  verify   check every byte"));
  EXPECT_THAT(run({"ckpt", "lst"}).err, HasSubstr("unknown command lst\nhint: did you mean ls?"));
  EXPECT_THAT(run({"ckpt", "ls"}).err, HasSubstr("no path given"));
  EXPECT_THAT(run({"ckpt", "ls", path("")}).err, HasSubstr("there is no checkpoint in "));
  test::set_file(path("x"), "some text that is none");
  const Ended ended = run({"ckpt", "ls", path("x")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("x is neither a checkpoint nor a safetensors file"));
}

TEST_F(CkptCommand, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("ff").c_str(), 0600), 0);
  for (const auto& words : {std::vector<std::string>{"ckpt", "ls", path("ff")},
                            {"ckpt", "import", path("ff"), path("b")},
                            {"ckpt", "show", path("ff")}}) {
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 2) << words[1];
    EXPECT_THAT(ended.err, HasSubstr("ff is no file (a pipe)")) << words[1];
  }
}

}  // namespace
}  // namespace tutti
