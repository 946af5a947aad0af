// A training that PyTorch began, and train_image ends: five steps there and five here are ten there.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "tests/harness/python.h"
#include "tests/train/train_image.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/torch/torch_optimizer.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainImageImport : public test::TrainImage, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  tutti::testing::Ended import(const std::vector<std::string>& more) const {
    std::vector<std::string> line = {TUTTI_COMMAND, "ckpt", "import", path("five.pt"), path("run"), "--path", "model"};
    line.insert(line.end(), more.begin(), more.end());
    return tutti::testing::run(line);
  }
  // false: there is no Python with torch.
  bool train_in_pytorch(const std::string& optimizer) const {
    const std::string python = test::python_that_runs("import torch");
    if (python.empty()) return false;
    const std::string words = " " TUTTI_TORCH_IMAGE " " + folder_.path() + " " + folder_.path() + " " + optimizer;
    EXPECT_EQ(std::system((python + words + " 2>" + path("log")).c_str()), 0) << test::bytes_of(path("log"));
    return true;
  }
  static std::vector<float> values(const TensorSource& source, const std::string& name) {
    std::vector<float> out(source.find({name, ""})->elements());
    source.read({name, ""}, std::as_writable_bytes(std::span(out))).or_throw();
    return out;
  }
};

TEST_P(TrainImageImport, ResumesWherePyTorchStopped) {
  if (!train_in_pytorch(GetParam())) GTEST_SKIP() << test::no_python_with("torch");
  const auto imported = import({"--optimizer", "optimizer", "--step", "5", "--data", "seed=0", "--data", "samples=1000",
                                "--data", "epoch=0", "--data", "epoch_steps=5", "--data", "position=80"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  const auto refused = [&](const std::string& position) {
    std::filesystem::remove_all(path("run"));
    const auto again = import({"--optimizer", "optimizer", "--step", "5", "--data", "seed=0", "--data", "samples=1000",
                               "--data", "epoch=0", "--data", "epoch_steps=5", "--data", position});
    EXPECT_EQ(again.code, 0) << again.err;
    return train(0, {"--batch-size", "16", "--optimizer", GetParam(), "--resume", path("run")}).err;
  };
  if (GetParam() == std::string("sgd")) {
    EXPECT_THAT(refused("positon=80"),
                AllOf(HasSubstr("its data.position is not there, expected a whole number, 0 or more"),
                      HasSubstr("it has a data.positon; tutti ckpt import ... --data position")));
    EXPECT_THAT(refused("position=-3"), HasSubstr("its data.position is -3, expected"));
    EXPECT_THAT(refused("position=late"), HasSubstr("its data.position is \"late\", expected"));
    (void)refused("position=80");
  }
  std::vector<std::string> options = {"--batch-size", "16",          "--max-steps", "10",
                                      "--optimizer",  GetParam(),    "--resume",    path("run"),
                                      "--save",       path("ended"), "--save-dir",  path("next")};
  if (options[5] == std::string("sgd")) options.insert(options.end(), {"--lr", "0.02"});
  for (const int ranks : {0, 2}) {
    if (ranks == 2) options[1] = "8";
    std::filesystem::remove_all(path("next"));
    const auto ended = train(ranks, options);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("resuming after step 5"), HasSubstr("step 10/10")));
    EXPECT_THAT(ended.err, HasSubstr("saved by a program that did not record its number of ranks, resuming with "));
    const auto there = open_tensors(path("ten.pt")).or_throw(), here = open_tensors(path("ended")).or_throw();
    double largest = 0, moved = 0;
    const auto five = open_tensors(path("five.pt")).or_throw();
    const auto sums = read_torch_optimizer(*there, {.optimizer = "optimizer", .model = "model"}).or_throw().tensors;
    for (const auto& [key, tensor] : here->tensors()) {
      // Adagrad divides by the root of all squares so far: where all gradients were next to nothing, of 1e-6 here, it
      // makes steps of their rounding.
      const auto found = sums.find({key.name, "sum"});
      const auto sum = found == sums.end() ? std::vector<float>() : values(*there, found->second.name);
      const auto mine = values(*here, key.name), theirs = values(*there, "model." + key.name),
                 before = values(*five, "model." + key.name);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (!sum.empty() && sum[i] < 1e-9f) continue;
        largest = std::max(largest, double(std::abs(mine[i] - theirs[i])));
        moved = std::max(moved, double(std::abs(mine[i] - before[i])));
      }
    }
    EXPECT_LE(largest, 1e-5) << ranks << " ranks";
    EXPECT_GE(moved, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TrainImageImport, ::testing::Values("sgd", "adam", "adamw", "adagrad"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutti
