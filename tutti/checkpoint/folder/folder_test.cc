#include "tutti/checkpoint/folder/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/harness/checkpoints.h"
#include "tutti/base/fd.h"

namespace tutti {
namespace {

// As a rank that has not yet heard that the save failed.
TEST(FailedSaves, LeaveNoFolderAlthoughAnotherRankStillCreatesFilesInIt) {
  const test::TemporaryFolder folder;
  for (int round = 0; round < 20; ++round) {
    auto saving = std::optional(CheckpointDraft::create(folder.path(), 2).or_throw());
    const std::string path = CheckpointDraft::path_of(folder.path(), 2);
    std::atomic<int> created = 0;
    std::atomic<bool> stop = false;
    std::thread other([&] {
      while (!stop && Fd(::open(fmt::format("{}/{}", path, created.load()).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666)))
        created.fetch_add(1);
    });
    while (created < 100) std::this_thread::yield();
    saving.reset();
    stop = true;
    other.join();
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace tutti
