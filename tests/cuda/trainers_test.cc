// The training programs with --device cuda print the losses that they print on the CPU. The GPUs are real ones with
// TUTTI_REAL_GPUS, else the doubles of the CUDA runtime and of LibTorch's device.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/options/option_parser.h"
#include "apps/options/pretrain_gpt_options.h"
#include "apps/options/train_dlrm_options.h"
#include "apps/options/train_image_options.h"
#include "tests/cuda/worlds.h"
#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/base/text.h"
#include "tutti/data/tokens/gpt_dataset.h"
#include "tutti/models/dlrm/mlp.h"
#include "tutti/models/dlrm/quantised.h"
#include "tutti/models/dlrm/training.h"
#include "tutti/models/gpt/batches.h"
#include "tutti/models/gpt/model.h"
#include "tutti/models/gpt/training.h"
#include "tutti/models/image/train.h"
#include "tutti/tensor/rank_device.h"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void parse(cli::OptionTable table, const std::string& line) {
  std::vector<std::string> words = split(line, ' ');
  std::erase(words, "");
  cli::OptionParser parser({"a program", "", ""}, std::move(table));
  parser.parse(words, [&](const std::string&, const Error& error) {
    throw std::runtime_error(line + ": " + error.detail + " | " + error.hint);
  });
}

void expect_in_world(int size, const RankBody& body) {
  EXPECT_EQ(describe(run_processes(size, body, with_gpus(kStaged))), "");
}

void check_losses(double on_gpu, double on_cpu, const std::string& what, double tolerance) {
  check(std::abs(on_gpu / on_cpu - 1) < tolerance, what, ": the last loss is ", on_gpu, ", on the CPU ", on_cpu);
}

// ---- pretrain_gpt

gpt::Options gpt_options(const Group& world, const std::string& more) {
  cli::PretrainGptCommand command;
  parse(pretrain_gpt_options(command),
        "--num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 "
        "--micro-batch-size 2 --global-batch-size 8 --mock-data --vocab-size 31 --lr 1e-2 "
        "--eval-iters 1 --log-interval 10 " +
            more);
  return gpt::for_world(command.options, world.size()).or_throw();
}

double last_loss_of_gpt(const Group& world, const std::string& more) {
  const auto options = gpt_options(world, more);
  return gpt::pretrain(world, options, nullptr).training.last_loss.value_or(std::numeric_limits<double>::quiet_NaN());
}

TEST(TrainersOnGpus, PretrainGptHasTheLossesOfTheCpu) {
  expect_in_world(2, [](Group& world) {
    const struct {
      std::string options;
      double tolerance = 1e-9;
    } runs[] = {
        {"--fp64 --use-distributed-optimizer"},
        {"--fp64 --use-distributed-optimizer --overlap-grad-reduce"},
        {"--fp64 --overlap-grad-reduce"},
        {"--fp64 --fsdp --position-embedding-type rope --swiglu --normalization RMSNorm --group-query-attention "
         "--num-query-groups 2"},
        {"--fp64 --optimizer sgd --log-params-norm --log-num-zeros-in-grad --log-throughput"},
        {"--fp64 --pipeline-model-parallel-size 2 --reset-position-ids --reset-attention-mask --eod-mask-loss"},
        {"--bf16 --tensor-model-parallel-size 2 --sequence-parallel", 1e-3},
    };
    for (const auto& [options, tolerance] : runs)
      check_losses(last_loss_of_gpt(world, options + " --train-iters 3 --device cuda"),
                   last_loss_of_gpt(world, options + " --train-iters 3"), options, tolerance);
  });
}

TEST(TrainersOnGpus, PretrainGptContinuesOnTheOtherDevice) {
  const TemporaryFolder folder;
  expect_in_world(2, [&](Group& world) {
    const std::string four = " --fp64 --train-iters 4";
    const double expected = last_loss_of_gpt(world, four);
    const std::string grids[] = {" --tensor-model-parallel-size 2", " --pipeline-model-parallel-size 2"};
    for (const bool begins_on_gpu : {true, false}) {
      const std::string place = folder.path() + (begins_on_gpu ? "/gpu" : "/cpu");
      const auto device = [&](bool is_first) {
        return std::string(is_first == begins_on_gpu ? " --device cuda" : " --device cpu");
      };
      const std::string saving = four + " --save " + place + " --save-interval 2";
      last_loss_of_gpt(world, saving + " --exit-interval 2" + grids[0] + device(true));
      check_losses(last_loss_of_gpt(world, saving + " --load " + place + grids[1] + device(false)), expected,
                   begins_on_gpu ? "from the GPU" : "from the CPU", 1e-9);
    }
  });
}

// Each world continues the training of the one before.
TEST(TrainersOnGpus, PretrainGptContinuesOnMoreAndFewerRanksOfTheOtherDevice) {
  const TemporaryFolder folder;
  const std::string twelve = "--fp64 --train-iters 12";
  const struct {
    int ranks;
    std::string options;
  } worlds[] = {{4, "--fsdp --device cpu"},
                {2, "--use-distributed-optimizer --device cuda"},
                {4, "--use-distributed-optimizer --tensor-model-parallel-size 2 --device cpu"},
                {2, "--fsdp --device cuda"},
                {4, "--use-distributed-optimizer --device cuda"},
                {2, "--fsdp --device cpu"}};
  for (std::size_t i = 0; i < std::size(worlds); ++i) {
    const std::string& options = worlds[i].options;
    expect_in_world(worlds[i].ranks, [&](Group& world) {
      const std::string places = " --save " + folder.path() + " --load " + folder.path() + " --save-interval 2 ";
      const double loss = last_loss_of_gpt(world, twelve + places + "--exit-interval 2 " + options);
      if (i + 1 == std::size(worlds)) check_losses(loss, last_loss_of_gpt(world, twelve), options, 1e-9);
    });
  }
}

// Every sample has a token beyond the vocabulary. Files are checked before the training, large ones in parts.
class TokensBeyond final : public GptDataset {
 public:
  std::int64_t size() const override { return 64; }
  void read(std::int64_t, std::span<std::int64_t> into) const override {
    std::fill(into.begin(), into.end(), 1);
    into[into.size() / 2] = 77;
  }
};

// On a GPU such a token would give NaN.
TEST(TrainersOnGpus, PretrainGptNamesATokenOutsideTheVocabulary) {
  expect_in_world(2, [](Group& world) {
    const auto options = gpt_options(world, "--train-iters 1 --device cuda");
    const Parallel groups = gpt::make_parallel(world, options);
    const TokensBeyond data;
    const SequencePart part = context_part(8, 0, 1);
    gpt::Batches batches(&data, groups, options, SampleOrder::kSequential, part, at::Device(world.device()));
    expect_words(sentence_of([&] { batches.take(1, 1); }),
                 "the data has the token 77, which is not in the vocabulary: expected 0 to 31");
  });
}

// ---- Bad devices
#ifndef TUTTI_REAL_GPUS

// Half of a MiB for each GPU: the weights fit, a step does not.
TEST(TrainersOnGpus, AStepWithoutMemoryNamesTheRankTheRequestAndTheWeights) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const std::string text = sentence_of([&] {
          last_loss_of_gpt(world, "--train-iters 2 --micro-batch-size 256 --global-batch-size 512 --device cuda");
        });
        expect_words(text,
                     fmt::format("group world, rank {}: no memory is left in step 1: CUDA out of memory. Tried to "
                                 "allocate ",
                                 world.rank()));
        expect_words(text, "; the weights take ");
        expect_words(text, " bytes; ");
      },
      with_gpus(kStaged, {{"FAKE_CUDA_MEMORY", "524288"}}));
  EXPECT_EQ(describe(outcomes), "");
}

// The two sentences: rank 1's own, and rank 0's.
void expect_sentences(const RankBody& body, const WorldOptions& options, const std::vector<std::string>& of_rank_1,
                      const std::vector<std::string>& of_rank_0) {
  const auto outcomes = run_processes(2, body, options);
  for (const std::string& words : of_rank_1) EXPECT_THAT(outcomes[1].error, HasSubstr(words));
  for (const std::string& words : of_rank_0) EXPECT_THAT(outcomes[0].error, HasSubstr(words));
}

WorldOptions with_variable_of_rank_1(const std::string& name, const std::string& value) {
  WorldOptions options = with_gpus(kStaged);
  options.environment_of = [=](int rank) {
    return rank == 1 ? std::map<std::string, std::string>{{name, value}} : std::map<std::string, std::string>{};
  };
  return options;
}

TEST(TrainersOnGpus, OneRankWithoutMemoryEndsTheStepOfItsPeer) {
  expect_sentences(
      [](Group& world) {
        last_loss_of_gpt(world, "--train-iters 2 --micro-batch-size 256 --global-batch-size 512 --device cuda");
      },
      with_variable_of_rank_1("FAKE_CUDA_MEMORY", "524288"), {"group world, rank 1: no memory is left in step 1: "},
      {", rank 0: rank 1 (pid ", ") left because of an exception", "gave its step up: CUDA out of memory. Tried to"});
}

TEST(TrainersOnGpus, AModelAndAnEvaluationWithoutMemoryAreNamed) {
  const auto body = [](const std::string& options) {
    return [=](Group& world) { last_loss_of_gpt(world, options + " --train-iters 2 --device cuda"); };
  };
  expect_sentences(body(""), with_variable_of_rank_1("FAKE_CUDA_MEMORY", "512"),
                   {"rank 1: no memory is left while the model was made: CUDA out of memory. Tried to allocate "},
                   {"rank 1 "});
  expect_sentences(body("--skip-train --micro-batch-size 256 --global-batch-size 512"),
                   with_variable_of_rank_1("FAKE_CUDA_MEMORY", "524288"),
                   {"rank 1: no memory is left in the evaluation after step 0: ", "; the weights take "}, {"rank 1 "});
}

TEST(TrainersOnGpus, AGpuThatAnotherProcessHasForItselfIsRefusedBeforeTraining) {
  const auto outcomes = run_processes(
      2, [](Group& world) { rank_device(world, "cuda"); }, with_variable_of_rank_1("FAKE_CUDA_UNAVAILABLE", "1"));
  for (const Outcome& outcome : outcomes)
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 1: cuda:1: CUDA could not make an event: "),
                                     HasSubstr("(hint: another process has this GPU in exclusive mode")));
}

TEST(TrainersOnGpus, RanksThatShareAGpuAreNamed) {
  const auto sentences = [](const char* visible, const std::string& expected) {
    const auto body = [&](Group& world) {
      const std::string text = ranks_that_share_a_gpu(world, at::Device(world.device()));
      check(text == expected, "expected \"", expected, "\", not \"", text, "\"");
    };
    EXPECT_EQ(describe(run_processes(3, body, with_gpus(kStaged, {{"CUDA_VISIBLE_DEVICES", visible}}))), "");
  };
  sentences("0,1", "ranks 0, 2 compute on one GPU (0000:01:00.0)");
  sentences("0", "ranks 0-2 compute on one GPU (0000:01:00.0)");
  sentences("0,1,2", "");
}

#endif
// ---- train_dlrm

dlrm::RunResult run_dlrm(const Group& world, const std::string& more) {
  cli::TrainDlrmCommand command;
  parse(train_dlrm_options(command),
        "--arch-sparse-feature-size 8 --arch-mlp-bot 5-8 --arch-mlp-top 6-1 "
        "--mini-batch-size 6 --data-size 20 --learning-rate 0.1 --dtype float64 --print-freq 10 "
        "--round-targets true " +
            std::string(more.find("--arch-embedding-size") == more.npos ? "--arch-embedding-size 40-300-7 " : "") +
            more);
  auto sources = dlrm::open_sources(command.options).or_throw();
  const auto& shape = sources.train->shape();
  const auto architecture =
      dlrm::architecture_of(command.options.architecture, shape.dense_features, shape.rows, sources.where).or_throw();
  return dlrm::run(world, command.options, architecture, sources, command.checkpoints);
}

double last_loss_of_dlrm(const Group& world, const std::string& more) { return run_dlrm(world, more).last_loss; }

TEST(TrainersOnGpus, TrainDlrmHasTheLossesOfTheCpuAndContinuesThere) {
  const TemporaryFolder folder;
  expect_in_world(2, [&](Group& world) {
    for (const std::string options :
         {"--test-freq 2 --mlperf-logging", "--optimizer adagrad --arch-interaction-itself --no-shared-tables",
          "--optimizer rwsadagrad --arch-interaction-op cat --md-flag", "--loss-function bce --loss-threshold 0.1",
          "--placement row-wise --qr-flag --debug-mode"}) {
      const auto on_gpu = run_dlrm(world, options + " --use-gpu"), on_cpu = run_dlrm(world, options);
      check_losses(on_gpu.last_loss, on_cpu.last_loss, options, 1e-9);
      check(on_gpu.accuracy == on_cpu.accuracy && on_gpu.auc == on_cpu.auc, options, ": accuracy ", on_gpu.accuracy,
            ", AUC ", on_gpu.auc, ", on the CPU ", on_cpu.accuracy, ", ", on_cpu.auc);
      check((on_cpu.auc > 0) == (options.find("--mlperf-logging") != options.npos), options, ": AUC ", on_cpu.auc);
    }

    const double expected = last_loss_of_dlrm(world, "--nepochs 2 --optimizer adagrad");
    for (const bool begins_on_gpu : {true, false}) {
      const std::string place = folder.path() + (begins_on_gpu ? "/gpu" : "/cpu");
      const auto device = [&](bool is_first) { return is_first == begins_on_gpu ? " --use-gpu" : ""; };
      const std::string saving = " --optimizer adagrad --save-dir " + place;
      last_loss_of_dlrm(world, saving + device(true));
      check_losses(last_loss_of_dlrm(world, "--nepochs 2" + saving + device(false)), expected,
                   begins_on_gpu ? "from the GPU" : "from the CPU", 1e-9);
      for (const char* bits : {"32", "16", "8"})
        last_loss_of_dlrm(world, std::string("--inference-only --quantize-mlp-with-bit ") + bits + " --load-model " +
                                     place + device(false));
    }
  });
}

// Of one pass over the data.
std::uint64_t host_waits_of_dlrm(const Group& world, const std::string& more) {
  const int gpu = at::Device(world.device()).index();
  const std::uint64_t before = host_waits_for(gpu);
  last_loss_of_dlrm(world, "--use-gpu " + more);
  return host_waits_for(gpu) - before;
}

// One copy takes the rows of all tables to the GPU, and one their gradients back. The thread that puts kernels on the
// stream waits for neither, but for the predictions.
TEST(TrainersOnGpus, TheHostWaitsAsOftenForManyTablesAsForFew) {
  expect_in_world(2, [](Group& world) {
    const std::string few = "--arch-embedding-size 40-300-7", many = few + "-20-30-40-50-60-70-80-90";
    const auto of_a_batch = [&](const std::string& tables) {
      const std::string more = tables + " --nepochs 1 --num-batches ";
      return host_waits_of_dlrm(world, more + "3") - host_waits_of_dlrm(world, more + "2");
    };
    const std::uint64_t small = of_a_batch(few), large = of_a_batch(many);
    check(small == large && large <= 1, "the host waits ", small, " times with 3 tables, ", large, " times with 11");
  });
}

TEST(TrainersOnGpus, QuantisedMlpsGiveTheNumbersOfTheCpu) {
  expect_in_world(1, [](Group& world) {
    const at::NoGradGuard no_grad;
    at::manual_seed(3);
    const at::Device gpu(world.device());
    dlrm::Mlp mlp({37, 64, 5}, true, {"forward", "backward"});
    for (const at::Tensor& parameter : mlp.parameters()) parameter.normal_(0, 0.3);
    at::Tensor input = at::randn({9, 37});
    input[4].zero_(), input[5].abs_();  // a row without a range, and one whose least entry is 0
    for (const int bits : {16, 8}) {
      mlp.to(at::kCPU);
      const at::Tensor on_cpu = dlrm::QuantisedMlp(mlp, bits).infer(input);
      mlp.to(gpu);
      const at::Tensor on_gpu = dlrm::QuantisedMlp(mlp, bits).infer(input.to(gpu)).cpu();
      check(at::allclose(on_gpu, on_cpu, 1e-6, 1e-6), bits, " bits: the greatest difference is ",
            (on_gpu - on_cpu).abs().max().item<double>());
    }
  });
}

// ---- train_image

ImageDataset pictures(std::size_t count) {
  ImageDataset data{.rows = 28, .columns = 28};
  for (std::size_t i = 0; i < count; ++i) data.labels.push_back(std::uint8_t(i * 7 % 10));
  for (std::size_t i = 0; i < count * 28 * 28; ++i) data.pixels.push_back(std::uint8_t(i * i / 13 + i / 784 * 31));
  return data;
}

ImageTrainingResult train_images(const Group& world, const std::string& more) {
  cli::TrainImageCommand command;
  parse(train_image_options(command), "--batch-size 4 --max-steps 3 --log-every -1 " + more);
  return train_image_model(world, pictures(32), pictures(9), command.training);
}

TEST(TrainersOnGpus, TrainImageHasTheLossesOfTheCpu) {
  const TemporaryFolder folder;
  expect_in_world(2, [&](Group& world) {
    const std::string runs[] = {"--model cnn --clip-grad-norm 1 --check-replicas 1",
                                "--sharded on",
                                "--compress bf16",
                                "--accumulate 2 --optimizer adam",
                                "--logical-ranks 4",
                                "--save-interval 2 --keep 2"};
    for (const std::string& options : runs) {
      const auto saving = [&](const char* place) {
        return options.find("--keep") == std::string::npos ? options
                                                           : options + " --save-dir " + folder.path() + "/" + place;
      };
      const auto on_gpu = train_images(world, saving("gpu") + " --device cuda"),
                 on_cpu = train_images(world, saving("cpu"));
      check_losses(on_gpu.training.last_loss.value(), on_cpu.training.last_loss.value(), options, 1e-4);
      check(on_gpu.test_accuracy == on_cpu.test_accuracy, options, ": accuracy ", on_gpu.test_accuracy);
    }
  });
}

TEST(TrainersOnGpus, TrainImageStopsAtALossThatIsNotANumber) {
  expect_in_world(2, [](Group& world) {
    expect_words(sentence_of([&] { train_images(world, "--device cuda --lr 1e30"); }), "the loss of step ");
  });
}

// How often each name comes on the lane of this GPU.
std::map<std::string, int> spans_of_gpu(const nlohmann::json& trace, int rank, const std::string& gpu) {
  std::map<std::string, int> spans;
  nlohmann::json lane;
  for (const auto& event : trace["traceEvents"]) {
    if (event["pid"] != rank) continue;
    if (event["ph"] == "M" && event["args"].value("name", "") == gpu) lane = event["tid"];
    if (event["ph"] == "X" && event["tid"] == lane) ++spans[event["name"]];
  }
  return spans;
}

TEST(TrainersOnGpus, TrainImageTracesTheKernelsOfItsPhases) {
  const TemporaryFolder folder;
  expect_in_world(2, [&](Group& world) {
    const std::string path = folder.path() + "/trace.json";
    train_images(world, "--device cuda --trace " + path);
    std::ifstream file(path);
    const auto spans = spans_of_gpu(nlohmann::json::parse(file), world.rank(), world.device());
    for (const char* phase : {"forward", "backward", "average gradients", "optimizer"})
      check(spans.count(phase) == 1 && spans.at(phase) == 3, phase, " is not on the lane of ", world.device(),
            " once in each of 3 steps");
  });
}

// ---- The device of a rank

TEST(TrainersOnGpus, TheDeviceIsThatOfTheRank) {
  expect_in_world(2, [](Group& world) {
    check(rank_device(world, "cpu") == at::Device(at::kCPU), "cpu");
    for (const char* choice : {"cuda", "auto"})
      check(rank_device(world, choice) == at::Device(at::kCUDA, at::DeviceIndex(world.rank() % gpu_count())), choice);
  });
}

TEST(TrainersOnGpus, ARankWithoutAGpuIsNamedByAll) {
  expect_in_world(2, [](Group& world) {
    if (world.rank() == 1) ::setenv("TUTTI_DEVICE", "cpu", 1);
    check(rank_device(world, "auto") == at::Device(at::kCPU), "auto");
    expect_words(sentence_of([&] { rank_device(world, "cuda"); }), "rank 1: this rank has no GPU");
    ::setenv("TUTTI_DEVICE", "cuda:40", 1);
    expect_words(sentence_of([&] { rank_device(world, "cuda"); }), "this rank computes on cuda:40, and LibTorch finds");
  });
}

}  // namespace
}  // namespace tutti::test
