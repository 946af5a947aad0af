// What is special to a file: whose it is, stale ones, writers that die. The verbs themselves: tests/conformance.
#include "tutti/store/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/conformance/store_conformance.h"

namespace tutti {
namespace {

using testing::HasSubstr;

Deadline soon_in_file() { return Deadline::after_seconds(90); }
Deadline at_once_in_file() { return Deadline::after_seconds(0.02); }

std::string fresh_path() {
  static std::atomic<int> count = 0;
  return testing::TempDir() + "tutti_file_store_" + std::to_string(::getpid()) + "_" +
         std::to_string(count.fetch_add(1));
}

class FileWorld : public StoreWorld {
 public:
  std::unique_ptr<Store> open() override { return FileStore::join(path_, "job", soon_in_file()).or_throw(); }

 private:
  const std::string path_ = fresh_path();
  std::unique_ptr<Store> owner_ = FileStore::create(path_, "job").or_throw();
};

const StoreMaker kFileMaker{"File", [] { return std::make_unique<FileWorld>(); }};
INSTANTIATE_TEST_SUITE_P(InAFile, StoreConformance, testing::Values(kFileMaker, prefixed(kFileMaker)), name_of_store);

class FileStoreTest : public testing::Test {
 protected:
  ~FileStoreTest() override { (void)::unlink(path_.c_str()); }

  // Another process makes the file, writes a key, and is killed.
  void leave_stale_file(const std::string& job) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto store = FileStore::create(path_, job);
      if (store.ok()) (void)(*store)->set("address", "of yesterday").ok();
      (void)!::write(ready[1], "x", 1);
      ::pause();
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
  }

  const std::string path_ = fresh_path();
};

TEST_F(FileStoreTest, OwnerMakesAPrivateFileAndRemovesIt) {
  {
    const auto owner = FileStore::create(path_, "job").or_throw();
    struct stat info;
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(FileStoreTest, OneThatCameFirstWaitsForTheOwner) {
  std::unique_ptr<FileStore> owner;
  std::thread late([&] { owner = FileStore::create(path_, "job").or_throw(); });
  const auto store = FileStore::join(path_, "job", soon_in_file());
  late.join();
  EXPECT_TRUE(store.ok()) << to_string(store.error());
}

TEST_F(FileStoreTest, StaleFileOfAnEarlierRunIsNeverRead) {
  leave_stale_file("job");
  ASSERT_EQ(::access(path_.c_str(), F_OK), 0);
  const auto early = FileStore::join(path_, "job", at_once_in_file());
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(early.error()), HasSubstr("the file there is stale, left by job \"job\" (pid "));

  std::unique_ptr<FileStore> owner;
  std::thread late([&] { owner = FileStore::create(path_, "job").or_throw(); });
  const auto store = FileStore::join(path_, "job", soon_in_file()).or_throw();
  late.join();
  EXPECT_FALSE(store->check({"address"}).or_throw());
}

TEST_F(FileStoreTest, LivingOwnerKeepsOthersOut) {
  const auto owner = FileStore::create(path_, "first").or_throw();
  const auto second = FileStore::create(path_, "second");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kAddressInUse);
  EXPECT_THAT(to_string(second.error()), HasSubstr("is in use by job \"first\" (pid " + std::to_string(::getpid())));
  const auto foreign = FileStore::join(path_, "second", soon_in_file());
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, Code::kRefused);
  EXPECT_THAT(to_string(foreign.error()), HasSubstr("belongs to job \"first\""));
}

TEST_F(FileStoreTest, FileOfSomebodyElseIsNotTouched) {
  std::ofstream(path_) << "my thesis";
  EXPECT_THAT(to_string(FileStore::create(path_, "job").error()), HasSubstr("exists and is not a store file"));
  EXPECT_THAT(to_string(FileStore::join(path_, "job", soon_in_file()).error()), HasSubstr("is not a store file"));
  std::string text;
  std::getline(std::ifstream(path_), text);
  EXPECT_EQ(text, "my thesis");
}

TEST_F(FileStoreTest, FileThatOthersMayWriteIsRefused) {
  const auto owner = FileStore::create(path_, "job").or_throw();
  for (const mode_t mode : {0606, 0660, 0604, 0640}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    const auto joined = FileStore::join(path_, "job", soon_in_file());
    ASSERT_FALSE(joined.ok()) << std::oct << mode;
    EXPECT_EQ(joined.error().code, Code::kRefused);
    EXPECT_THAT(to_string(joined.error()),
                HasSubstr(", which lets other users read or write it, so it may be a file of another user"));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  EXPECT_TRUE(FileStore::join(path_, "job", soon_in_file()).ok());
}

TEST_F(FileStoreTest, FileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const auto owner = FileStore::create(path_, "job").or_throw();
  if (::chown(path_.c_str(), 12345, gid_t(-1)) != 0) GTEST_SKIP() << "this namespace has no other user";
  const auto joined = FileStore::join(path_, "job", soon_in_file());
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kRefused);
  EXPECT_THAT(to_string(joined.error()), HasSubstr("belongs to the user with id 12345, this process runs as 0"));
}

TEST_F(FileStoreTest, EmptyFileIsReplaced) {
  std::ofstream(path_).flush();
  EXPECT_THAT(to_string(FileStore::join(path_, "job", at_once_in_file()).error()),
              HasSubstr("the file there is empty"));
  EXPECT_TRUE(FileStore::create(path_, "job").ok());
}

TEST_F(FileStoreTest, AMissingFolderIsAnErrorAtOnce) {
  for (const std::string& text : {to_string(FileStore::join("/nowhere/at/all", "job", soon_in_file()).error()),
                                  to_string(FileStore::create("/nowhere/at/all", "job").error())})
    EXPECT_THAT(
        text, testing::AllOf(HasSubstr("No such file or directory"),
                             HasSubstr("(hint: is there no folder /nowhere/at here? Make it where all ranks see it")));
}

TEST_F(FileStoreTest, RecordCutShortByADeadWriterIsCutOff) {
  const auto owner = FileStore::create(path_, "job").or_throw();
  owner->set("a", "1").or_throw();
  std::ofstream(path_, std::ios::app) << std::string("\x40\0\0\0half", 8);
  const auto other = FileStore::join(path_, "job", soon_in_file()).or_throw();
  EXPECT_EQ(other->get("a", soon_in_file()).or_throw(), "1");
  other->set("b", "2").or_throw();
  EXPECT_EQ(owner->get("b", soon_in_file()).or_throw(), "2");
}

TEST_F(FileStoreTest, ADamagedRecordIsAnError) {
  const auto owner = FileStore::create(path_, "job").or_throw();
  owner->set("a", "1").or_throw();
  owner->set("b", "2").or_throw();
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1024 + 8 + 9 + 8 + 4);  // in the first set
    file.put('!');
  }
  const auto other = FileStore::join(path_, "job", soon_in_file());
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kCorrupt);
  EXPECT_THAT(to_string(other.error()), HasSubstr("has a damaged record at byte 1041"));
}

TEST_F(FileStoreTest, ProcessesShareAFile) {
  const auto owner = FileStore::create(path_, "job").or_throw();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = FileStore::join(path_, "job", soon_in_file());
    const auto values = (*store)->gather_all("g", 1, 2, "child", soon_in_file(), {});
    ::_exit(values.ok() && (*values)[0] == "parent" ? 0 : 1);
  }
  EXPECT_EQ(owner->gather_all("g", 0, 2, "parent", soon_in_file()).or_throw()[1], "child");
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(FileStoreTest, WaitEndsWhenTheOwnerIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = FileStore::create(path_, "job");
    (void)!::write(ready[1], "x", 1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto store = FileStore::join(path_, "job", soon_in_file()).or_throw();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto value = store->get("never", soon_in_file());
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, Code::kPeerLost);
  EXPECT_THAT(to_string(value.error()),
              HasSubstr("the process that keeps the store file " + path_ + " (pid " + std::to_string(child)));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace tutti
