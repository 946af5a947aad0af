#include "tutti/checkpoint/io/writer.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "tests/harness/checkpoints.h"
#include "tests/harness/python.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Dealing;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Saving : public testing::Test {
 protected:
  void on_ranks(int size, const test::RankBody& body) {
    const auto outcomes = test::run_threads(size, body);
    for (int r = 0; r < size; ++r) EXPECT_EQ(outcomes[std::size_t(r)].error, "") << "rank " << r;
  }
  void save(int ranks, std::int64_t step, Dealing dealing, float shift = 0, const SaveOptions& options = {}) {
    on_ranks(ranks,
             [&](Group& world) { test::save_model(world, folder_.path(), step, dealing, shift, options).or_throw(); });
  }
  // The folder holds the checkpoint of step 1 and nothing else.
  void expect_untouched() {
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("latest", "step-0000001"));
    const auto saved = CheckpointReader::open(folder_.path());
    ASSERT_TRUE(saved.ok()) << to_string(saved.error());
    EXPECT_EQ(saved->facts().step, 1);
    EXPECT_EQ(test::compare_model(*saved, Dealing::kRows, 0, 1), "");
  }
  std::string folder() const { return folder_.path(); }
  const test::TemporaryFolder folder_;
};

// Rank 0's facts and boxes with something wrong on one rank of three: the sentence that all get.
std::string refusal_on_all(const std::string& folder, int guilty, const std::function<void(StateBox&)>& change) {
  std::vector<std::string> texts(3);
  test::run_threads(3, [&](Group& world) {
    auto mine = test::rank_model(Dealing::kRows, world.rank(), 3);
    if (world.rank() == guilty) change(mine.boxes[0]);
    const Status saved = save_checkpoint(world, folder, mine.boxes, {.step = 2});
    texts[std::size_t(world.rank())] = saved.ok() ? "saved" : to_string(saved.error());
    TUTTI_REQUIRE(world.status().ok(), "the group has ended");
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  return texts[0];
}

TEST_F(Saving, AnyRanksToAnyOthers) {
  for (const int ranks : {1, 2, 3, 4, 6})
    for (const Dealing dealing : {Dealing::kRows, Dealing::kColumns, Dealing::kWhole, Dealing::kReplicated,
                                  Dealing::kStagesOfColumns, Dealing::kReplicatedColumns}) {
      save(ranks, 1, dealing, float(ranks));
      const auto saved = CheckpointReader::open(folder());
      ASSERT_TRUE(saved.ok()) << to_string(saved.error());
      EXPECT_TRUE(saved->expect(test::expected_model()).ok());
      for (const int others : {1, 2, 3, 4})
        for (const Dealing way : {Dealing::kRows, Dealing::kColumns, Dealing::kWhole, Dealing::kStagesOfColumns})
          for (int rank = 0; rank < others; ++rank)
            ASSERT_EQ(test::compare_model(*saved, way, rank, others, float(ranks)), "")
                << ranks << " ranks, read as rank " << rank << " of " << others;
    }
}

TEST_F(Saving, FilesHaveTheWeightsApartFromTheState) {
  save(2, 100, Dealing::kRows);
  EXPECT_THAT(names_in(folder()), ElementsAre("latest", "step-0000100"));
  EXPECT_THAT(names_in(folder() + "/step-0000100"),
              ElementsAre("manifest.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"));
  EXPECT_EQ(test::file_text(folder() + "/latest"), "step-0000100\n");
}

TEST_F(Saving, ReplicasAreWrittenOnceAndByAll) {
  save(4, 1, Dealing::kReplicated);
  std::uint64_t all = 0, most = 0;
  for (const auto& entry : fs::directory_iterator(folder() + "/step-0000001")) {
    all += entry.file_size();
    most = std::max(most, std::uint64_t(entry.file_size()));
  }
  EXPECT_LT(all, 9001 * 64 * 4 + 9001 * 4 + 20000u);
  EXPECT_GE(names_in(folder() + "/step-0000001").size(), 5u);
}

TEST_F(Saving, RowsThatLieApartOrComeFromASource) {
  const TensorShape shape = {5000, 10};
  std::vector<float> table(5000 * 16, -1);  // rows of 10 in strides of 16
  for (std::size_t row = 0; row < 5000; ++row)
    for (std::size_t column = 0; column < 10; ++column) table[row * 16 + column] = float(row * 10 + column);
  std::uint64_t next = 5, most = 0;
  const std::vector<StateBox> boxes = {
      {.key = {"a", ""}, .shape = shape, .box = {{0, 0}, {5000, 4}}, .data = table.data(), .row_stride = 64},
      {.key = {"a", ""}, .shape = shape, .box = {{0, 4}, {5, 6}}, .data = table.data() + 4, .row_stride = 64},
      {.key = {"a", ""},
       .shape = shape,
       .box = {{5, 4}, {4995, 6}},
       .source =
           [&](auto first, auto count, std::byte* into) {
             EXPECT_EQ(first + 5, next);
             next += count;
             most = std::max(most, std::uint64_t(count));
             for (std::uint64_t row = 0; row < count; ++row)
               std::memcpy(into + row * 24, table.data() + (first + 5 + row) * 16 + 4, 24);
             return Status();
           }},
      {.key = {"v", ""}, .shape = {5000}, .data = table.data() + 1, .row_stride = 64},
  };
  save_checkpoint(folder(), boxes, {.step = 1}).or_throw();
  EXPECT_EQ(next, 5000u);
  EXPECT_LE(most * 24, kChunkBytes);
  const auto saved = CheckpointReader::open(folder()).or_throw();
  std::vector<float> back(5000 * 10), strided(5000 * 12, -1), column(5000 * 2, -1);
  saved.read({"a"}, std::as_writable_bytes(std::span(back))).or_throw();
  saved.read({"a"}, TensorBox::whole(shape), strided.data(), 48).or_throw();
  saved.read({"v"}, TensorBox::whole({5000}), column.data(), 8).or_throw();
  for (std::size_t i = 0; i < 50000; ++i) ASSERT_EQ(back[i], float(i));
  next = 0;
  const TensorBox middle{{7, 3}, {4900, 5}};
  const auto sink = [&](std::uint64_t first, std::uint64_t count, const std::byte* rows) {
    EXPECT_EQ(first, next);
    next += count;
    std::vector<float> got(count * 5);
    std::memcpy(got.data(), rows, got.size() * 4);
    for (std::uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], float((7 + first + i / 5) * 10 + 3 + i % 5));
    return Status();
  };
  saved.read({"a"}, middle, sink).or_throw();
  EXPECT_EQ(next, 4900u);
  const auto full = [](auto, auto, auto) { return Status(invalid_argument("no more rows")); };
  EXPECT_THAT(to_string(saved.read({"a"}, middle, full).error()), HasSubstr("no more rows"));
  for (std::size_t row = 0; row < 5000; ++row) {
    for (std::size_t c = 0; c < 12; ++c) ASSERT_EQ(strided[row * 12 + c], c < 10 ? float(row * 10 + c) : -1);
    ASSERT_EQ(column[row * 2], float(row * 10 + 1));
    ASSERT_EQ(column[row * 2 + 1], -1);
  }
}

TEST_F(Saving, AllTypesThatFilesKnow) {
  std::vector<StateBox> boxes;
  std::vector<std::vector<std::byte>> memory;
  for (const DType dtype : kDTypes) {
    if (dtype == DType::kC128) continue;
    memory.emplace_back(3 * size_of(dtype), std::byte(memory.size() + 1));
    boxes.push_back({.key = {name(dtype), ""}, .dtype = dtype, .shape = {3}, .data = memory.back().data()});
  }
  save_checkpoint(folder(), boxes, {.step = 1}).or_throw();
  const auto saved = CheckpointReader::open(folder()).or_throw();
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    std::vector<std::byte> back(memory[i].size());
    saved.read(boxes[i].key, back).or_throw();
    EXPECT_EQ(back, memory[i]);
  }
  std::vector<double> pair(2);
  const StateBox complex{.key = {"z", ""}, .dtype = DType::kC128, .shape = {1}, .data = pair.data()};
  EXPECT_THAT(to_string(save_checkpoint(folder(), std::span(&complex, 1), {.step = 2}).error()),
              HasSubstr("the tensor z is c128, which safetensors files do not know"));
}

TEST_F(Saving, TheLastOnesAreKept) {
  for (const int step : {1, 5, 10, 200, 30000000}) save(1, step, Dealing::kRows, 0, {.keep = 3});
  EXPECT_THAT(names_in(folder()), ElementsAre("latest", "step-0000010", "step-0000200", "step-30000000"));
  // A run that goes on from an older one does not lose what it has just saved, nor what came later.
  save(1, 11, Dealing::kRows, 0, {.keep = 1});
  EXPECT_THAT(names_in(folder()), ElementsAre("latest", "step-0000011", "step-0000200", "step-30000000"));
  EXPECT_EQ(test::file_text(folder() + "/latest"), "step-0000011\n");
}

TEST_F(Saving, OneOfTheSameStepIsReplaced) {
  save(3, 1, Dealing::kRows, 0);
  save(2, 1, Dealing::kColumns, 5);
  EXPECT_THAT(names_in(folder()), ElementsAre("latest", "step-0000001"));
  EXPECT_EQ(test::compare_model(CheckpointReader::open(folder()).or_throw(), Dealing::kRows, 0, 1, 5), "");
}

TEST_F(Saving, StateThatCannotBeSavedIsReportedToAllRanks) {
  save(1, 1, Dealing::kRows);
  const auto refusal = [&](const std::function<void(StateBox&)>& change) {
    return refusal_on_all(folder(), 1, change);
  };
  EXPECT_THAT(refusal([](StateBox& box) { box.key.name = ""; }),
              HasSubstr("rank 1: checkpoint: a tensor has an empty name"));
  EXPECT_THAT(
      refusal([](StateBox& box) {
        box.box.begin[0] += 1;
        box.box.extent[0] = 9001;
      }),
      HasSubstr(
          "rank 1: checkpoint: the tensor emb.0 has the shape [9001, 64]; the box [3001:12002, 0:64] is not inside"));
  EXPECT_THAT(refusal([](StateBox& box) { box.data = nullptr; }), HasSubstr("needs either data or a source"));
  EXPECT_THAT(refusal([](StateBox& box) { box.row_stride = 4; }),
              HasSubstr("has rows of 256 bytes, but a stride of 4"));
  EXPECT_THAT(refusal([](StateBox& box) { box.shape = {1ull << 40, 1ull << 40}; }), HasSubstr("which is too large"));
  EXPECT_THAT(refusal([](StateBox& box) { box.box.extent[0] -= 1; }),
              HasSubstr("the tensor emb.0 [9001, 64] cannot be saved: the boxes have 576000 of its 576064 elements"));
  EXPECT_THAT(refusal([](StateBox& box) { box.key.name = "\xff"; }),
              HasSubstr("rank 1: checkpoint: the name of a tensor is not valid UTF-8"));
  EXPECT_THAT(refusal([](StateBox& box) { box.dtype = DType::kI32; }),
              HasSubstr("f32[9001, 64] on rank 0 and i32[9001, 64] on rank 1"));
  expect_untouched();
  const auto mine = test::rank_model(Dealing::kRows, 0, 1);
  EXPECT_THAT(to_string(save_checkpoint(folder(), mine.boxes, {.step = -1}).error()),
              HasSubstr("the step -1 is negative"));
  EXPECT_THAT(to_string(save_checkpoint(folder(), mine.boxes, {.step = 2}, {.keep = -1}).error()),
              HasSubstr("cannot keep -1 of them"));
  EXPECT_THAT(to_string(save_checkpoint(folder(), mine.boxes, {.step = 2}, {.meet_every = 0}).error()),
              HasSubstr("meet_every is 0"));
  expect_untouched();
}

TEST_F(Saving, AFailureOfOneRankLeavesTheOldCheckpoint) {
  save(1, 1, Dealing::kRows);
  EXPECT_THAT(refusal_on_all(folder(), 2,
                             [](StateBox& box) {
                               box.data = nullptr;
                               box.source = [](auto, auto, auto) {
                                 return Status(invalid_argument("the rows are gone"));
                               };
                             }),
              HasSubstr("rank 2: the rows are gone"));
  expect_untouched();
  EXPECT_THAT(refusal_on_all(folder(), 0,
                             [](StateBox& box) {
                               box.data = nullptr;
                               box.source = [](auto, auto, auto) -> Status { throw std::runtime_error("lost"); };
                             }),
              HasSubstr("rank 0: a source of rows threw: lost"));
  expect_untouched();
}

TEST_F(Saving, RanksMeetWhileTheyWrite) {
  for (const std::uint64_t every : {1ull << 16, 3000000ull, ~0ull}) {
    save(3, 1, Dealing::kWhole, float(every % 7), {.meet_every = every});  // rank 0 has nearly everything
    EXPECT_EQ(test::compare_model(CheckpointReader::open(folder()).or_throw(), Dealing::kRows, 0, 1, float(every % 7)),
              "");
  }
  // Who fails early still meets the others as often as they expect.
  std::vector<std::string> texts(2);
  test::run_threads(2, [&](Group& world) {
    auto mine = test::rank_model(Dealing::kRows, world.rank(), 2);
    if (world.rank() == 1) {
      mine.boxes[0].data = nullptr;
      mine.boxes[0].source = [](auto first, auto, auto) {
        return first > 3000 ? Status(invalid_argument("the rows are gone")) : Status();
      };
    }
    const Status saved = save_checkpoint(world, folder(), mine.boxes, {.step = 2}, {.meet_every = 1 << 16});
    texts[std::size_t(world.rank())] = saved.ok() ? "saved" : to_string(saved.error());
    TUTTI_REQUIRE(world.status().ok(), "the group has ended");
  });
  EXPECT_THAT(texts, Each(HasSubstr("rank 1: the rows are gone")));
}

TEST_F(Saving, ARankThatDiesLeavesTheOldCheckpoint) {
  save(1, 1, Dealing::kRows);
  std::vector<std::string> texts(3);
  test::run_threads(3, [&](Group& world) {
    auto mine = test::rank_model(Dealing::kRows, world.rank(), 3);
    if (world.rank() == 1) {
      mine.boxes[0].data = nullptr;
      mine.boxes[0].source = [](auto, auto, auto) -> Status { throw 1; };  // nobody catches it
    }
    try {
      const Status saved = save_checkpoint(world, folder(), mine.boxes, {.step = 2});
      texts[std::size_t(world.rank())] = saved.ok() ? "saved" : to_string(saved.error());
    } catch (int) {
      throw std::runtime_error("died");
    }
  });
  EXPECT_EQ(texts[1], "");
  EXPECT_THAT(texts[0], HasSubstr("rank 1"));
  EXPECT_THAT(texts[2], HasSubstr("rank 1"));
  expect_untouched();
}

// Files may have `room` bytes while it lives.
class LittleRoom {
 public:
  explicit LittleRoom(rlim_t room) {
    ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &old_), 0);
    const rlimit small{.rlim_cur = room, .rlim_max = old_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~LittleRoom() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old_), 0); }

 private:
  rlimit old_{};
};

TEST_F(Saving, NoRoomForAFileLeavesTheOldCheckpoint) {
  save(1, 1, Dealing::kRows);
  for (const rlim_t room : {0, 100, 3000, 1 << 20}) {
    const LittleRoom little(room);
    const Status saved = test::save_model(Group(), folder(), 2, Dealing::kRows);
    ASSERT_FALSE(saved.ok());
    EXPECT_THAT(to_string(saved.error()), HasSubstr("cannot make room for "));
    EXPECT_THAT(to_string(saved.error()), HasSubstr("model-00001-of-00001.safetensors: File too large"));
    expect_untouched();
  }
  float number = 1;  // so many tensors that the manifest is larger than they are
  std::vector<StateBox> boxes;
  for (int i = 0; i < 200; ++i) boxes.push_back({.key = {std::to_string(i), ""}, .shape = {}, .data = &number});
  {
    const LittleRoom little(20000);
    const Status saved = save_checkpoint(folder(), boxes, {.step = 2});
    ASSERT_FALSE(saved.ok());
    EXPECT_THAT(to_string(saved.error()), HasSubstr("manifest.json: File too large"));
    expect_untouched();
  }
  save_checkpoint(folder(), boxes, {.step = 2}).or_throw();
  EXPECT_EQ(CheckpointReader::open(folder()).or_throw().facts().step, 2);
}

// A namespace in which this process may mount.
bool enter_namespace() {
  const uid_t user = ::getuid();
  if (user == 0) {
    if (::unshare(CLONE_NEWNS) != 0) return false;
  } else {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    test::set_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// On a disk that is full after one checkpoint.
int save_twice_on_a_small_disk(const std::string& folder) {
  constexpr int kCannot = 77;
  if (!enter_namespace() || ::mount("none", folder.c_str(), "tmpfs", 0, "size=4m") != 0) return kCannot;
  if (!test::save_model(Group(), folder, 1, Dealing::kRows).ok()) return 1;
  std::vector<std::string> texts(2);
  test::run_threads(2, [&](Group& world) {
    const Status saved = test::save_model(world, folder, 2, Dealing::kRows);
    texts[std::size_t(world.rank())] = saved.ok() ? "saved" : to_string(saved.error());
  });
  if (texts[0] != texts[1] || texts[0].find(".safetensors: No space left on device") == std::string::npos) return 2;
  if (names_in(folder) != std::vector<std::string>{"latest", "step-0000001"}) return 3;
  const auto saved = CheckpointReader::open(folder);
  return saved.ok() && test::compare_model(*saved, Dealing::kRows, 0, 1).empty() ? 0 : 4;
}

TEST_F(Saving, AFullDiskLeavesTheOldCheckpoint) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(save_twice_on_a_small_disk(folder()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot mount a tmpfs in a user namespace here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Saving, AProcessThatIsKilledLeavesTheOldCheckpoint) {
  save(1, 1, Dealing::kRows);
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = test::rank_model(Dealing::kRows, 0, 1);
    mine.boxes[2].data = nullptr;
    mine.boxes[2].source = [](auto, auto, auto) -> Status { return ::kill(::getpid(), SIGKILL), Status(); };
    (void)save_checkpoint(folder(), mine.boxes, {.step = 2});
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(names_in(folder()), ElementsAre(".step-0000002.partial", ".write.lock", "latest", "step-0000001"));
  EXPECT_EQ(CheckpointReader::open(folder()).or_throw().facts().step, 1);
  save(1, 3, Dealing::kRows);
  EXPECT_THAT(names_in(folder()), ElementsAre("latest", "step-0000001", "step-0000003"));
}

TEST_F(Saving, AFolderThatCannotBeMadeIsReportedToAllRanks) {
  test::set_file(folder() + "/file", "");
  std::vector<std::string> texts(2);
  test::run_threads(2, [&](Group& world) {
    const Status saved = test::save_model(world, folder() + "/file", 1, Dealing::kRows);
    texts[std::size_t(world.rank())] = saved.ok() ? "saved" : to_string(saved.error());
  });
  EXPECT_THAT(texts[0], HasSubstr("rank 0: cannot "));
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(Saving, PythonReadsTheWeights) {
  const std::string python = test::python_that_runs("import numpy, safetensors");
  if (python.empty()) GTEST_SKIP() << test::no_python_with("numpy and safetensors");
  save(2, 1, Dealing::kRows);
  const std::string program = folder() + "/read.py";
  // As docs/reference/formats.md says.
  std::ofstream(program) << R"(
import json, sys
import numpy as np
from safetensors import safe_open
folder = sys.argv[1] + "/step-0000001"
manifest = json.load(open(folder + "/manifest.json"))
def load(name, state=None):
    tensor = manifest["tensors"][name]
    tensor = tensor["state"][state] if state else tensor
    whole = np.empty(tensor["shape"], {"F32": np.float32}[tensor["dtype"]])
    for box in tensor["boxes"]:
        own = name + ("/" + state if state else "")
        ends = [b + e for b, e in zip(box["begin"], box["extent"])]
        if box["extent"] != tensor["shape"]:
            own += "[" + ", ".join(f"{b}:{e}" for b, e in zip(box["begin"], ends)) + "]"
        with safe_open(folder + "/" + box["file"], "np") as file:
            whole[tuple(slice(b, e) for b, e in zip(box["begin"], ends))] = file.get_tensor(own)
    return whole
emb = load("emb.0")
assert emb.shape == (9001, 64) and (emb == np.arange(9001 * 64, dtype=np.float32).reshape(9001, 64)).all()
assert (load("emb.0", "sum") == np.arange(9001) + np.float32(0.125)).all()
assert load("scale") == np.float32(0.5) and load("nothing").shape == (0, 3)
assert (load("conv") == np.arange(120, dtype=np.float32).reshape(6, 5, 4) + np.float32(0.75)).all()
assert manifest["step"] == 1 and manifest["versions"]["tutti"]
)";
  EXPECT_EQ(std::system((python + " " + program + " " + folder()).c_str()), 0);
}

}  // namespace
}  // namespace tutti
