// `tutti ckpt` as a user types it.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "apps/tutti/ckpt_command_fixture.h"
#include "tests/harness/python.h"
#include "tutti/checkpoint/folder/folder_lock.h"

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
    EXPECT_THAT(ended.err, HasSubstr("skipped a checkpoint: Corrupt: " + path("a/step-0000002/model-00001")))
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
              MatchesRegex("(.|\n)*step-0000002: Tutti checkpoint, 8 tensors in 6 files, .*/s: no error found\n"));
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
  const StateBox boxes[] = {{.key = {"fc.bias", ""}, .shape = {7}, .data = bias.data()},
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

TEST_F(CkptCommand, ReshardWritesForAnyNumberOfRanks) {
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
  EXPECT_THAT(back.out, HasSubstr("have no digests"));
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
    EXPECT_THAT(refused.err, HasSubstr("nothing was removed: none of the 1 to keep is complete; the newest: "));
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
  EXPECT_THAT(pruned.err, MatchesRegex("(.|\n)* is being written to by ckpt_command_te.* \\(pid [0-9]+ on .*; waiting "
                                       "for it to end, at most 10 s\n"));
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
  EXPECT_THAT(ended.err,
              HasSubstr(path("a") + " has a checkpoint of step 2, and this one is of step 1: a job that resumes"));
  EXPECT_EQ(test::file_text(path("a/latest")), "step-0000002\n");
  EXPECT_EQ(list_checkpoints(path("a")).or_throw().size(), 1u);
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
