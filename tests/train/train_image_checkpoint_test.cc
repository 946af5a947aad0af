// train_image that is interrupted, in every way that it can be, and goes on: to the bits of the run that never was.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/train/processes.h"
#include "tests/train/train_image.h"
#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/checkpoint/io/reader.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

class TrainImageCheckpoints : public test::TrainImage {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::vector<std::int64_t> steps_in(const std::string& name) const {
    std::vector<std::int64_t> steps;
    const auto found = list_checkpoints(path(name)).or_throw();
    for (const auto& one : found) steps.push_back(one.step);
    return steps;
  }
  void expect_trained(int ranks, const Arguments& arguments) {
    const auto ended = train(ranks, arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    errors_ = ended.err;
  }
  std::string errors_;
};

struct Way {
  const char* name;
  Arguments options;
  int in_second_epoch;  // a step of it, a multiple of 5
};

class TrainImageResume : public TrainImageCheckpoints, public ::testing::WithParamInterface<Way> {};

// From the first epoch and from the second; a step has 2 x 16 samples, an epoch 31 steps.
TEST_P(TrainImageResume, ToTheSameBits) {
  const auto usual = GetParam().options + Arguments{"--batch-size", "16", "--epochs", "2", "--save", path("weights")};
  expect_trained(2, usual + Arguments{"--save-dir", path("run"), "--save-interval", "5"});
  const std::string undisturbed = bytes_of(path("weights"));
  for (const int step : {5, GetParam().in_second_epoch}) {
    expect_trained(2, usual + Arguments{"--resume", path("run/") + checkpoint_folder_name(step)});
    EXPECT_EQ(bytes_of(path("weights")), undisturbed) << "after step " << step;
    EXPECT_THAT(errors_,
                AllOf(HasSubstr("resuming after step " + std::to_string(step)), Not(HasSubstr("bit-identical"))));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, TrainImageResume,
    ::testing::Values(
        Way{"momentum", {"--sharded", "off", "--model", "mlp", "--max-steps", "12"}, 15},
        Way{"adam_dropout",
            {"--optimizer", "adam", "--sharded", "on", "--clip-grad-norm", "1", "--dropout", "0.2"},
            35},
        Way{"adamw_stage_2", {"--optimizer", "adamw", "--sharded", "on", "--stage", "2", "--loader-threads", "2"}, 35},
        Way{"loss_scaler", {"--optimizer", "adagrad", "--compress", "f16", "--overlap", "on"}, 35},
        Way{"accumulated",
            {"--nesterov", "--lr", "0.02", "--accumulate", "2", "--precision", "bf16", "--max-steps", "6",
             "--check-replicas", "5"},
            10},
        Way{"power_sgd", {"--lr", "0.002", "--compress", "powersgd", "--overlap", "on"}, 35}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(TrainImageCheckpoints, LogicalRanksResumeWithAnyNumberOfProcesses) {
  const Arguments usual = {"--logical-ranks", "4",
                           "--batch-size",    "16",
                           "--max-steps",     "9",
                           "--dropout",       "0.2",
                           "--optimizer",     "adam",
                           "--sharded",       "off",
                           "--save",          path("weights")};
  expect_trained(2, usual + Arguments{"--save-dir", path("run"), "--save-interval", "4"});
  EXPECT_THAT(steps_in("run"), ElementsAre(4, 8, 9));
  const std::string undisturbed = bytes_of(path("weights"));
  for (const int ranks : {1, 4}) {
    expect_trained(ranks, usual + Arguments{"--resume", path("run/step-0000004")});
    EXPECT_EQ(bytes_of(path("weights")), undisturbed) << ranks << " processes";
    EXPECT_THAT(errors_, Not(HasSubstr("bit-identical")));
  }
}

// 2 x 16 samples a step and 1 x 32 are the same samples, added in another order.
TEST_F(TrainImageCheckpoints, OnAnotherNumberOfRanksItComesClose) {
  const Arguments usual = {"--epochs", "2", "--seed", "3", "--sharded", "off", "--save", path("weights")};
  expect_trained(2, usual + Arguments{"--batch-size", "16", "--save-dir", path("run"), "--save-interval", "20"});
  const auto undisturbed = SafetensorsFile::open(path("weights")).or_throw();
  expect_trained(
      1, usual + Arguments{"--batch-size", "32", "--resume", path("run/step-0000020"), "--save", path("other")});
  EXPECT_THAT(errors_,
              HasSubstr("saved by 2 ranks with 1 x 16 samples a step, resuming with 1 rank with 1 x 32 samples "
                        "a step: the results will be close, but not bit-identical"));
  EXPECT_THAT(errors_, HasSubstr("step 62/62"));
  const auto other = SafetensorsFile::open(path("other")).or_throw();
  double largest = 0;
  for (const auto& entry : undisturbed.entries()) {
    std::vector<float> one(entry.bytes() / 4), two(entry.bytes() / 4);
    undisturbed.read(entry, std::as_writable_bytes(std::span(one))).or_throw();
    other.read(*other.find(entry.name), std::as_writable_bytes(std::span(two))).or_throw();
    for (std::size_t i = 0; i < one.size(); ++i) largest = std::max(largest, double(std::abs(one[i] - two[i])));
  }
  EXPECT_LE(largest, 1e-3);
  // Of steps of 48 samples, 20 in an epoch, the 640 that were passed count as 14.
  expect_trained(3, usual + Arguments{"--batch-size", "16", "--resume", path("run/step-0000020")});
  EXPECT_THAT(errors_, HasSubstr("step 46/46"));
}

// --max-steps counts the steps that were made, by however many ranks, and not the samples that they took.
TEST_F(TrainImageCheckpoints, MaxStepsMeansStepsOnAnyNumberOfRanks) {
  const Arguments usual = {"--batch-size", "16", "--sharded", "off", "--save-dir", path("run")};
  expect_trained(2, usual + Arguments{"--max-steps", "6"});
  EXPECT_THAT(steps_in("run"), ElementsAre(6));
  expect_trained(1, usual + Arguments{"--max-steps", "10"});
  EXPECT_THAT(errors_, HasSubstr("step 10/10"));
  EXPECT_THAT(steps_in("run"), ElementsAre(6, 10));
  expect_trained(3, usual + Arguments{"--max-steps", "10"});
  EXPECT_THAT(errors_, HasSubstr("nothing is left to train"));
}

// What PowerSGD kept back on two ranks each of three takes the mean of.
TEST_F(TrainImageCheckpoints, PowerSgdResumesWithTheMeanOfTheErrors) {
  const Arguments usual = {"--compress", "powersgd", "--batch-size", "16", "--save-dir", path("run")};
  expect_trained(2, usual + Arguments{"--max-steps", "12"});
  expect_trained(3, usual + Arguments{"--max-steps", "14"});
  EXPECT_THAT(errors_, AllOf(HasSubstr("step 14/14"), HasSubstr("the results will be close, but not bit-identical")));
  const auto before = CheckpointReader::open(path("run/step-0000012")).or_throw();
  const auto after = CheckpointReader::open(path("run/step-0000014")).or_throw();
  const TensorKey key{"fc1.weight", "power_sgd_error"};
  ASSERT_NE(before.find(key), nullptr);
  EXPECT_EQ(before.find(key)->shape[0], 2u);
  EXPECT_EQ(after.find(key)->shape[0], 3u);
  const auto ended = train(2, {"--batch-size", "16", "--max-steps", "14", "--save-dir", path("run")});
  EXPECT_THAT(ended.err, HasSubstr("is of a run with --compress powersgd"));
}

// A rank is killed, the launcher starts all again, and they go on from the newest checkpoint.
TEST_F(TrainImageCheckpoints, ARankThatIsKilledCostsNoBits) {
  const Arguments usual = {"--batch-size", "8", "--epochs", "5", "--log-every", "0", "--save", path("weights")};
  expect_trained(2, usual);
  const std::string undisturbed = bytes_of(path("weights"));
  fs::remove(path("weights"));
  tutti::testing::Running running(
      command(2, usual + Arguments{"--save-dir", path("run"), "--save-interval", "10", "--keep", "2"},
              {"--max-restarts", "2"}),
      kOneThread);
  running.await_err("step  25/310");
  const auto ranks = test::processes_under(running.pid(), "train_image");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  const auto ended = running.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming after step "));
  EXPECT_EQ(bytes_of(path("weights")), undisturbed);
  EXPECT_THAT(steps_in("run"), ElementsAre(300, 310));
}

// The same without a folder: from the copy in memory.
TEST_F(TrainImageCheckpoints, AfterAKilledRankTheJobResumesFromMemory) {
  const Arguments usual = {"--batch-size", "8",    "--epochs",  "5",  "--log-every", "0",
                           "--optimizer",  "adam", "--sharded", "on", "--save",      path("weights")};
  expect_trained(2, usual);
  const std::string undisturbed = bytes_of(path("weights"));
  fs::remove(path("weights"));
  tutti::testing::Running running(
      command(2, usual + Arguments{"--memory-copy-interval", "10", "--json"}, {"--max-restarts", "2"}), kOneThread);
  running.await_err("step  45/310");
  const auto ranks = test::processes_under(running.pid(), "train_image");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  const auto ended = running.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("from the copy in memory of step "));
  EXPECT_EQ(bytes_of(path("weights")), undisturbed);
  EXPECT_EQ(json_of(ended)["memory_copies"]["failed"], 0);
}

// Told to stop, it saves and leaves with 75; the same command goes on.
TEST_F(TrainImageCheckpoints, PreemptionCostsNoBits) {
  const Arguments usual = {"--batch-size", "8", "--epochs", "5", "--log-every", "0", "--save", path("weights")};
  expect_trained(2, usual);
  const std::string undisturbed = bytes_of(path("weights"));
  fs::remove(path("weights"));
  const auto line = command(2, usual + Arguments{"--save-dir", path("run"), "--json"});
  {
    tutti::testing::Running running(line, kOneThread);
    running.await_err("step  10/310");
    running.send(SIGTERM);
    const auto ended = running.wait();
    EXPECT_EQ(ended.code, 75) << ended.err;
    const auto json = json_of(ended);
    EXPECT_TRUE(json.value("stopped", false)) << ended.out;
    EXPECT_TRUE(json.at("test_accuracy").is_null() && json.at("last_loss").is_number()) << ended.out;
  }
  EXPECT_FALSE(fs::exists(path("weights"))) << "it is not trained yet";
  ASSERT_EQ(steps_in("run").size(), 1u);
  const auto ended = tutti::testing::run(line, kOneThread);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming after step " + std::to_string(steps_in("run").front())));
  EXPECT_EQ(bytes_of(path("weights")), undisturbed);
  // And once more: all is done, and tested again.
  const auto again = train(2, usual + Arguments{"--save-dir", path("run"), "--json"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing is left to train: the checkpoint has already reached --epochs 5"));
  EXPECT_EQ(bytes_of(path("weights")), undisturbed);
  EXPECT_EQ(json_of(again)["checkpoints"]["failed"], 0);
  EXPECT_TRUE(json_of(again).at("last_loss").is_null()) << "no step was made";
}

// The thread that saves works on a group of its own, beside training's, on whatever carries them.
TEST_F(TrainImageCheckpoints, OtherEnginesSaveBesideTraining) {
  const Arguments usual = {"--batch-size", "16", "--max-steps", "12", "--sharded", "off", "--save", path("weights")};
  const auto run = [&](const std::string& engine, const Arguments& arguments) {
    const bool by_mpirun = engine == "mpi";
    const auto line = (by_mpirun ? Arguments{"mpirun", "--oversubscribe", "-np", "2"} : Arguments()) +
                      command(by_mpirun ? 0 : 2, usual + arguments);
    auto environment = kOneThread;
    environment.merge(std::map<std::string, std::string>{
        {"TUTTI_ENGINE", engine}, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
    const auto ended = tutti::testing::run(line, environment);
    EXPECT_EQ(ended.code, 0) << engine << ": " << ended.err;
    EXPECT_THAT(ended.err, Not(HasSubstr("was not saved")));
    return bytes_of(path("weights"));
  };
  const auto engines = fs::path(TUTTI_COMMAND).parent_path().parent_path() / "lib/tutti";
  int tried = 0;
  for (const std::string engine : {"gloo", "mpi"}) {
    if (!fs::exists(engines / ("libtutti_" + engine + ".so"))) continue;
    ++tried;
    const std::string undisturbed = run(engine, {"--save-dir", path(engine), "--save-interval", "2"});
    EXPECT_THAT(steps_in(engine), ElementsAre(2, 4, 6, 8, 10, 12));
    EXPECT_EQ(run(engine, {"--resume", path(engine) + "/step-0000006"}), undisturbed) << engine;
  }
  if (tried == 0) GTEST_SKIP() << "neither Gloo nor Open MPI was found when this was built";
}

// Files may have a megabyte, and the weights are more.
TEST_F(TrainImageCheckpoints, ASaveThatFailsDoesNotStopTraining) {
  const auto line = command(0, {"--max-steps", "6", "--save-dir", path("run"), "--save-interval", "2"});
  std::string shell = "trap '' XFSZ; ulimit -f 1000; exec";
  for (const auto& word : line) shell += " '" + word + "'";
  const auto ended = tutti::testing::run({"/bin/bash", "-c", shell}, kOneThread);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("the checkpoint of step 2 was not saved (1 in a row failed); this run has "
                                   "saved none yet; training continues: "));
  EXPECT_THAT(ended.err, HasSubstr("the checkpoint of step 6 was not saved (3 in a row failed)"));
  EXPECT_THAT(ended.err, HasSubstr("File too large"));
  EXPECT_THAT(ended.err, HasSubstr("step 6/6"));
  EXPECT_TRUE(fs::is_empty(path("run")));
}

// A disk with room for one checkpoint. The job goes on, and who looks at it is told; so is who reads how it ended.
TEST_F(TrainImageCheckpoints, AFullDiskIsAnAlarmWhileTheJobContinues) {
  fs::create_directory(path("run"));
  const Arguments namespaces = ::geteuid() == 0 ? Arguments{} : Arguments{"--user", "--map-root-user"};
  const Arguments small_disk =
      Arguments{"unshare", "--mount"} + namespaces +
      Arguments{"sh", "-c", "mount -t tmpfs -o size=14m tmpfs \"$0\" && exec \"$@\"", path("run")};
  if (tutti::testing::run(small_disk + Arguments{"true"}).code != 0) GTEST_SKIP() << "cannot mount a tmpfs here";
  fs::create_directory(path("sockets"));
  fs::permissions(path("sockets"), fs::perms::owner_all);
  auto environment = kOneThread;
  environment["XDG_RUNTIME_DIR"] = path("sockets");
  tutti::testing::Running running(small_disk + command(2,
                                                       {"--batch-size", "8", "--epochs", "100", "--log-every", "0",
                                                        "--save-dir", path("run"), "--save-interval", "5"},
                                                       {"--job-id", "full", "--report", path("report.json")}),
                                  environment);
  running.await_err("the checkpoint of step 10 was not saved (1 in a row failed); the last saved step is 5");
  const std::string alarm =
      "[0-9]+ of [0-9]+ checkpoints w[a-z]+ not saved, the last that of step [0-9]+: System: rank [01]: cannot "
      "[^\n]*No space left on device";
  EXPECT_THAT(tutti::testing::run({TUTTI_COMMAND, "status", "full"}, environment).out,
              ContainsRegex("\nrank 0: " + alarm));
  const auto told = tutti::testing::run({TUTTI_COMMAND, "status", "--json", "full"}, environment).out;
  EXPECT_THAT(nlohmann::json::parse(told)["nodes"][0]["ranks"][0].value("alarm", ""), ContainsRegex("^" + alarm));

  running.await_err("(3 in a row failed)");
  const auto ranks = test::processes_under(running.pid(), "train_image");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  EXPECT_THAT(running.wait().err, ContainsRegex("\n.tutti.   alarm of rank 0: [0-9]+ of [0-9]+ checkpoints were not "
                                                "saved, the last that of step"));
  std::ifstream file(path("report.json"));
  EXPECT_THAT(nlohmann::json::parse(file)["ranks"][0].value("alarm", ""), HasSubstr(" checkpoints were not saved"));
}

TEST_F(TrainImageCheckpoints, MistakesGetASentence) {
  const auto refused = [&](const Arguments& arguments, const std::string& words) {
    const auto ended = train(0, arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(words));
  };
  refused({"--keep", "2"}, "--keep is for --save-dir, which is not given\nhint: say where to save: --save-dir DIR");
  refused({"--save-interval", "5", "--keep", "2"}, "--save-interval and --keep are for --save-dir, which is not given");
  refused({"--save-dir", "a", "--keep-every", "2"}, "--keep-every is for --keep: without it all checkpoints stay");
  refused({"--save-dir", "a", "--save-interval", "-1"}, "--save-interval");
  refused({"--save-dir-per-node"}, "--save-dir-per-node is for --save-dir");
  refused({"--resume", ""}, "--resume: an empty value");
  refused({"--memory-copy-interval", "2"}, "copies of the state in memory are kept by the agent of tutti run");
  const Arguments usual = {"--max-steps", "2", "--save-dir", path("run")};
  expect_trained(0, usual);
  refused(usual + Arguments{"--resume", "never"},
          path("run") + " already has a checkpoint of step 2, and this run begins from scratch");
  refused(usual + Arguments{"--seed", "4"}, "is of another run: it was saved with --seed 0, and 4 is given");
  refused(usual + Arguments{"--model", "mlp"},
          "is of another run: it was saved with --model cnn, and mlp is given (hint: give the --model of the run");
  refused(usual + Arguments{"--optimizer", "adam"},
          "is of another run: it was saved with --optimizer Sgd, and Adam is given");
  refused({"--max-steps", "2", "--resume", path("nowhere")}, path("nowhere"));
  refused(usual + Arguments{"--resume", "latest"},
          "--resume latest: cannot read the folder latest: No such file or directory (hint: --resume takes auto (the "
          "newest in --save-dir, if there is one), never, or the path of a checkpoint)");
}

}  // namespace
}  // namespace tutti
