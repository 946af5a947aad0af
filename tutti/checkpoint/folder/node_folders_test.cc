// Ranks as threads, each with the folder of its "node".
#include "tutti/checkpoint/folder/node_folders.h"

#include <gmock/gmock.h>

#include "tests/harness/checkpoints.h"
#include "tutti/base/machine.h"
#include "tutti/checkpoint/checkpointer.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Dealing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OwnFolders : public ::testing::Test {
 protected:
  std::string folder_of(int node) const { return folder_.path() + "/node-" + std::to_string(node); }
  // nodes[r]: that of rank r. Throws to fail.
  void on_nodes(
      const std::vector<int>& nodes,
      const std::function<void(Group&, const std::shared_ptr<NodeFolders>&, const std::string& folder)>& body) {
    const auto outcomes = test::run_threads(int(nodes.size()), [&](Group& world) {
      const std::string folder = folder_of(nodes[std::size_t(world.rank())]);
      auto met = std::make_shared<NodeFolders>(meet_node_folders(world, folder).or_throw());
      for (int r = 0; r < world.size(); ++r)
        met->hosts[std::size_t(r)] = "host-" + std::to_string(nodes[std::size_t(r)]);
      body(world, met, folder);
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
  void save(const std::vector<int>& nodes, std::vector<int> steps) {
    on_nodes(nodes, [&](Group& world, const std::shared_ptr<NodeFolders>& met, const std::string& folder) {
      for (const int step : steps)
        save_on_nodes(world, *met, folder,
                      test::rank_model(Dealing::kRows, world.rank(), world.size(), float(step)).boxes, {.step = step})
            .or_throw();
    });
  }
  // The step that is found, checked element by element; or why there is none.
  std::string load(const std::vector<int>& nodes, Dealing dealing = Dealing::kRows) {
    std::string found;
    on_nodes(nodes, [&](Group& world, const std::shared_ptr<NodeFolders>& met, const std::string& folder) {
      const auto wanted = test::rank_model(dealing, world.rank(), world.size());
      const auto saved = open_node_folders(world, *met, folder, wanted.boxes);
      std::string said;
      if (saved.ok()) {
        const auto step = saved->reader.facts().step;
        const auto wrong = test::compare_model(saved->reader, dealing, world.rank(), world.size(), float(step));
        test::check(wrong.empty(), wrong);
        said = std::to_string(step);
        for (const std::string& why : saved->passed_over) said += "; " + why;
      } else {
        said = to_string(saved.error());
      }
      if (world.rank() == 0) found = said;
    });
    return found;
  }
  std::vector<std::string> names_in(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(OwnFolders, EachNodeKeepsWhatItsRanksWrite) {
  save({0, 0, 1}, {1, 2});
  EXPECT_THAT(names_in(folder_of(0)), ElementsAre("latest", "step-0000001", "step-0000002")) << "and no probes";
  EXPECT_THAT(names_in(folder_of(1) + "/step-0000002"),
              ElementsAre("manifest.json", "model-00003-of-00003.safetensors", "optimizer-00003-of-00003.safetensors"));
  EXPECT_EQ(test::file_text(folder_of(0) + "/step-0000002/manifest.json"),
            test::file_text(folder_of(1) + "/step-0000002/manifest.json"));
  for (const Dealing dealing : {Dealing::kRows, Dealing::kReplicated, Dealing::kColumns})
    EXPECT_EQ(load({0, 0, 1}, dealing), "2");
  EXPECT_EQ(load({1, 0}, Dealing::kReplicated), "2") << "other ranks on the same nodes";
  EXPECT_EQ(load({2, 1, 0}), "2") << "and a node that has nothing";
}

TEST_F(OwnFolders, ALostFolderIsNamed) {
  save({0, 1, 1}, {1, 2});
  fs::remove_all(folder_of(1) + "/step-0000002");  // or it died before its rename
  EXPECT_THAT(load({0, 1, 1}),
              AllOf(HasSubstr("1; NotFound: " + folder_of(0) + "/step-0000002/model-00002-of-00003.saf"),
                    HasSubstr("which was written on host host-1, is on none of the nodes")));
  fs::remove_all(folder_of(1));
  EXPECT_THAT(load({0, 1, 1}), HasSubstr("none of the 2 checkpoints in "));
  EXPECT_THAT(load({0}), HasSubstr("host-1"));
}

TEST_F(OwnFolders, AChangedByteIsReported) {
  save({0, 1}, {1, 2});
  const std::string path = folder_of(1) + "/step-0000002/model-00002-of-00002.safetensors";
  std::string text = test::file_text(path);
  text[text.size() / 2] = char(text[text.size() / 2] ^ 1);
  test::set_file(path, text);
  EXPECT_THAT(load({0, 1}), AllOf(HasSubstr("1; Corrupt: on host host-1: " + path), HasSubstr("have changed")));
}

// A rank may find out only from the checkpoint how large a tensor is.
TEST_F(OwnFolders, OfATensorOfAnotherShapeAllIsThere) {
  save({0, 1}, {1});
  on_nodes({0, 1}, [&](Group& world, const std::shared_ptr<NodeFolders>& met, const std::string& folder) {
    const std::vector<StateBox> wanted = {{.key = {"emb.0"}, .shape = {2, 1}, .box = TensorBox::rows({2, 1}, 0, 1)}};
    const auto saved = open_node_folders(world, *met, folder, wanted).or_throw();
    const auto expected = test::values(0, TensorBox::whole(test::model()[0].shape), 1);
    std::vector<float> found(expected.size());
    saved.reader.read({"emb.0"}, std::as_writable_bytes(std::span(found))).or_throw();
    test::check(found == expected, "its elements");
  });
}

TEST_F(OwnFolders, CopiedIntoOneTheyAreAnOrdinaryCheckpoint) {
  save({0, 1, 2}, {5});
  for (const int node : {1, 2})
    fs::copy(folder_of(node) + "/step-0000005", folder_of(0) + "/step-0000005",
             fs::copy_options::skip_existing | fs::copy_options::recursive);
  EXPECT_EQ(test::compare_model(CheckpointReader::open(folder_of(0)).or_throw(), Dealing::kReplicated, 0, 1, 5), "");
}

TEST_F(OwnFolders, AJobResumesFromThem) {
  const auto run = [&](int begin, const std::vector<int>& steps) {
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      auto mine = test::rank_model(Dealing::kRows, world.rank(), 2);
      Checkpointer checkpoints(world, {.folder = folder_of(world.rank()), .folder_per_node = true, .keep = 2});
      checkpoints.add("", mine);
      test::check(checkpoints.resume().step == begin, "begins elsewhere");
      for (const int step : steps) checkpoints.save(step);
      checkpoints.finish();
    });
    EXPECT_EQ(test::describe(outcomes), "");
  };
  run(0, {1, 2, 3});
  run(3, {4});
  EXPECT_THAT(names_in(folder_of(1)), ElementsAre("latest", "step-0000003", "step-0000004"));
}

// An elastic job may shrink to one rank, which saves without a group.
TEST_F(OwnFolders, OneRankSavesAndResumesToo) {
  for (const std::int64_t begin : {0, 1}) {
    const auto outcomes = test::run_threads(1, [&](Group& world) {
      auto mine = test::rank_model(Dealing::kRows, 0, 1);
      Checkpointer checkpoints(world, {.folder = folder_of(0), .folder_per_node = true});
      checkpoints.add("", mine);
      test::check(checkpoints.resume().step == begin, "begins elsewhere");
      checkpoints.save(begin + 1);
      checkpoints.finish();
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

// A path alone does not say which node's folder it is that cannot be used.
TEST_F(OwnFolders, AnUnusableFolderIsReportedWithItsHost) {
  const auto refusal = [&] {
    std::string why;
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      try {
        const Checkpointer job(world, {.folder = folder_of(world.rank()), .folder_per_node = true});
      } catch (const Exception& error) {
        if (world.rank() == 0) why = error.what();
      }
    });
    return why + test::describe(outcomes);
  };
  fs::create_directories(folder_of(1) + "/.job.lock");
  EXPECT_THAT(refusal(), HasSubstr("rank 1: on host " + host_name() + ": cannot open the lock file " + folder_of(1)));
  fs::remove_all(folder_of(1));
  test::set_file(folder_of(1), "");
  EXPECT_THAT(refusal(), HasSubstr("rank 1: on host " + host_name() + ": cannot make the folder " + folder_of(1)));
}

}  // namespace
}  // namespace tutti
