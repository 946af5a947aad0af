#include "tutti/checkpoint/folder/resume.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/harness/checkpoints.h"
#include "tutti/checkpoint/folder/shared_folder.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Dealing;
using testing::ElementsAre;
using testing::HasSubstr;

class Resuming : public testing::Test {
 protected:
  void save(std::int64_t step, const SaveOptions& options = {}) {
    test::save_model(Group(), folder(), step, Dealing::kReplicated, float(step), options).or_throw();
  }
  void corrupt(std::int64_t step) {
    const std::string path = folder() + "/" + checkpoint_folder_name(step) + "/model-00001-of-00001.safetensors";
    std::string text = test::file_text(path);
    text[text.size() / 2] ^= 1;
    test::set_file(path, text);
  }
  // The step that three ranks agree on, -1 for none; or the error, which is the same on all.
  std::string found(const ResumeOptions& options) {
    std::vector<std::string> texts(3);
    test::run_threads(3, [&](Group& world) {
      const auto saved = resume_point(world, options);
      texts[std::size_t(world.rank())] = !saved.ok() ? to_string(saved.error())
                                         : *saved    ? std::to_string((*saved)->facts().step)
                                                     : "anew";
    });
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[0], texts[2]);
    return texts[0];
  }
  std::string folder() const { return folder_.path(); }
  const test::TemporaryFolder folder_;
};

TEST_F(Resuming, StartsFromTheBeginningWithoutACheckpoint) {
  for (const std::string resume : {"auto", "never"}) {
    EXPECT_EQ(found({.folder = folder(), .resume = resume}), "anew");
    EXPECT_EQ(found({.folder = folder() + "/not/there", .resume = resume}), "anew");
    EXPECT_EQ(found({.folder = "", .resume = resume}), "anew");
  }
}

TEST_F(Resuming, TheNewestThatVerifies) {
  save(100);
  save(200);
  EXPECT_EQ(found({.folder = folder()}), "200");
  corrupt(200);
  testing::internal::CaptureStderr();
  EXPECT_EQ(found({.folder = folder()}), "100");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("skipped a checkpoint: "));
  EXPECT_THAT(said, HasSubstr("step-0000200/model-00001-of-00001.safetensors"));
  EXPECT_THAT(said, HasSubstr("resuming after step 100 from " + folder() + "/step-0000100"));
  corrupt(100);
  EXPECT_THAT(found({.folder = folder()}), HasSubstr("none of the 2 checkpoints in " + folder() + " verifies"));
}

TEST_F(Resuming, SaysWhoseCheckpointItTook) {
  save(100);
  const test::TemporaryFolder other;
  const std::string path = folder() + "/step-0000100/";
  const auto source = [&](const ResumeOptions& options) {
    return resume_point(Group(), options).or_throw().value().source;
  };
  EXPECT_EQ(source({.folder = folder()}), ResumeSource::kOwnFolder);
  EXPECT_EQ(source({.folder = other.path(), .resume = path}), ResumeSource::kNamed);
  EXPECT_EQ(source({.folder = other.path(), .resume = path, .restarted = true}), ResumeSource::kNamed);
  EXPECT_EQ(source({.folder = folder(), .resume = path, .restarted = true}), ResumeSource::kOwnFolder);
  EXPECT_EQ(source({.folder = other.path(), .resume = path, .weights_only = true}), ResumeSource::kNamed);
  test::save_model(Group(), other.path(), 6, Dealing::kReplicated, 0).or_throw();
  EXPECT_EQ(found({.folder = other.path(), .resume = path}), "100");
  EXPECT_THAT(found({.folder = other.path(), .resume = path, .weights_only = true}),
              HasSubstr("already has a checkpoint of step 6, and this run begins at step 0 with the weights of "));
}

TEST_F(Resuming, FromAPath) {
  save(100);
  const test::TemporaryFolder other;
  const std::string path = folder() + "/step-0000100";
  EXPECT_EQ(found({.folder = other.path(), .resume = path}), "100");
  EXPECT_EQ(found({.folder = other.path(), .resume = folder()}), "100");
  EXPECT_EQ(found({.folder = folder(), .resume = path}), "100");
  EXPECT_THAT(found({.folder = folder(), .resume = other.path()}), HasSubstr("there is no checkpoint in "));
}

// Else the run's own next checkpoints would not be the newest.
TEST_F(Resuming, TwoHistoriesInOneFolderAreRefused) {
  save(100);
  save(200);
  EXPECT_THAT(
      found({.folder = folder(), .resume = "never"}),
      HasSubstr(folder() + " already has a checkpoint of step 200, and this run begins from scratch: the next run "
                           "that resumes would take that checkpoint"));
  EXPECT_THAT(found({.folder = folder(), .resume = folder() + "/step-0000100"}),
              HasSubstr("already has a checkpoint of step 200, and this run begins after step 100"));
}

TEST_F(Resuming, WhatARestartedJobHasSavedItselfCounts) {
  const test::TemporaryFolder other;
  test::save_model(Group(), other.path(), 7, Dealing::kReplicated).or_throw();
  EXPECT_EQ(found({.folder = folder(), .resume = other.path(), .restarted = true}), "7");
  EXPECT_EQ(found({.folder = folder(), .resume = "never", .restarted = true}), "anew");
  save(100);
  EXPECT_EQ(found({.folder = folder(), .resume = other.path(), .restarted = true}), "100");
  EXPECT_EQ(found({.folder = folder(), .resume = "never", .restarted = true}), "100");
}

TEST_F(Resuming, TheLauncherSaysWhetherItHasRestarted) {
  ::unsetenv("TUTTI_GENERATION");
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  EXPECT_FALSE(was_restarted());
  ::setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
  EXPECT_FALSE(was_restarted());
  ::setenv("TUTTI_GENERATION", "1", 1);
  EXPECT_TRUE(was_restarted());
  ::unsetenv("TUTTI_GENERATION");
  ::setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
  EXPECT_TRUE(was_restarted());
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
}

TEST_F(Resuming, TheLastAndEveryMthAreKept) {
  for (const int step : {10, 20, 30, 40, 50, 60, 70}) save(step, {.keep = 2, .keep_every = 30});
  std::vector<std::int64_t> steps;
  const auto left = list_checkpoints(folder()).or_throw();
  for (const CheckpointFolder& one : left) steps.push_back(one.step);
  EXPECT_THAT(steps, ElementsAre(30, 60, 70));
  const auto mine = test::rank_model(Dealing::kReplicated, 0, 1);
  EXPECT_THAT(to_string(save_checkpoint(folder(), mine.boxes, {.step = 2}, {.keep_every = -1}).error()),
              HasSubstr("cannot keep every -1-th of them"));
}

TEST_F(Resuming, WhatALinkLeadsToIsNotOverwritten) {
  const std::string victim = folder() + "/victim";
  test::set_file(victim, "mine");
  fs::create_symlink(victim, folder() + "/latest");
  fs::create_symlink(victim, folder() + "/.latest.partial");
  fs::create_directory(folder() + "/elsewhere");
  test::set_file(folder() + "/elsewhere/file", "mine");
  fs::create_directory_symlink(folder() + "/elsewhere", folder() + "/step-0000001");
  fs::create_directory_symlink(folder() + "/elsewhere", folder() + "/.step-0000001.partial");
  save(1);
  EXPECT_EQ(test::file_text(victim), "mine");
  EXPECT_EQ(test::file_text(folder() + "/elsewhere/file"), "mine");
  EXPECT_FALSE(fs::is_symlink(folder() + "/latest"));
  EXPECT_EQ(test::file_text(folder() + "/latest"), "step-0000001\n");
  EXPECT_FALSE(fs::is_symlink(folder() + "/step-0000001"));
  EXPECT_EQ(test::compare_model(CheckpointReader::open(folder()).or_throw(), Dealing::kWhole, 0, 1, 1), "");
}

// What each of three ranks hears of folders that it knows by one name.
std::vector<std::string> checked(const std::function<std::string(int rank)>& folder_of) {
  std::vector<std::string> texts(3);
  test::run_threads(3, [&](Group& world) {
    const Status good = check_shared_folder(world, folder_of(world.rank()));
    texts[std::size_t(world.rank())] = good.ok() ? "" : to_string(good.error());
  });
  return texts;
}

TEST_F(Resuming, AFolderThatAllShare) {
  const std::string fresh = folder() + "/a/b";
  EXPECT_THAT(checked([&](int) { return fresh; }), testing::Each(""));
  EXPECT_TRUE(fs::is_directory(fresh));
  EXPECT_TRUE(fs::is_empty(fresh)) << "nothing is left behind";
  EXPECT_TRUE(check_shared_folder(Group(), fresh).ok());
}

TEST_F(Resuming, AFolderThatIsNotTheSameForAll) {
  const auto texts = checked([&](int rank) { return folder() + (rank == 1 ? "/own" : "/shared"); });
  EXPECT_THAT(texts[0], HasSubstr("rank 1: the folder " + folder() + "/own on host "));
  EXPECT_THAT(texts[0], HasSubstr("is not the one of rank 0 on host "));
  EXPECT_THAT(texts[0], HasSubstr("checkpoints need a folder that all nodes share"));
  EXPECT_THAT(texts, testing::Each(texts[0]));
}

TEST_F(Resuming, AFolderThatCannotBe) {
  test::set_file(folder() + "/file", "");
  const auto texts = checked([&](int) { return folder() + "/file"; });
  EXPECT_THAT(texts, testing::Each(HasSubstr("rank 0: cannot make ")));
  EXPECT_THAT(texts, testing::Each(HasSubstr(folder() + "/file")));
}

// Runs `act` in a child process, which may give up rights; what it says, or "cannot" where it may not even try.
std::string in_a_child(const std::function<std::string()>& act) {
  int ends[2];
  if (::pipe(ends) != 0) return "cannot";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = act();
    ::_exit(::write(ends[1], said.data(), said.size()) == ssize_t(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, std::size_t(got));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

std::string words(const Status& status) { return status.ok() ? "ok" : to_string(status.error()); }

TEST_F(Resuming, APathOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  save(1);
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  const auto as_another = [&](const std::function<Status()>& act) {
    return in_a_child([&] {
      constexpr uid_t kNobody = 65534;
      if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return std::string("cannot");
      return words(act());
    });
  };
  EXPECT_EQ(as_another([&] { return CheckpointReader::open(folder()).status(); }), "ok") << "may be read by all";
  EXPECT_THAT(as_another([&] { return check_shared_folder(Group(), folder()); }),
              HasSubstr("cannot make a file in the folder " + folder() + ": Permission denied"));
  EXPECT_THAT(as_another([&] { return test::save_model(Group(), folder(), 2, Dealing::kReplicated); }),
              HasSubstr("cannot make the file " + folder() + "/.write.lock: Permission denied"));
  ASSERT_EQ(::chmod((folder() + "/step-0000001").c_str(), 0700), 0);
  EXPECT_THAT(as_another([&] { return CheckpointReader::open(folder()).status(); }),
              testing::AllOf(HasSubstr(folder() + "/step-0000001"), HasSubstr("Permission denied")));
  ASSERT_EQ(::chmod(folder().c_str(), 0700), 0);
  EXPECT_THAT(as_another([&] { return resume_point(Group(), {.folder = folder()}).status(); }),
              testing::AllOf(HasSubstr(folder()), HasSubstr("Permission denied")));
  EXPECT_THAT(as_another([&] { return resume_point(Group(), {.folder = folder() + "/inside"}).status(); }),
              HasSubstr("cannot look for the folder " + folder() + "/inside: Permission denied"));
}

// What is found by itself must not be somebody else's; what is named is told.
TEST_F(Resuming, FilesOfAnotherUserAreNotFoundButMayBeNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  save(1);
  const std::string saved = folder() + "/step-0000001", file = saved + "/model-00001-of-00001.safetensors";
  for (const std::string& path : {saved, saved + "/manifest.json", file}) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
    EXPECT_THAT(found({.folder = folder()}),
                testing::AllOf(HasSubstr("the checkpoint to resume from is not safe: " + path +
                                         " belongs to the user 12345, and this run to root (0)"),
                               HasSubstr("if you trust it, name it: --resume " + saved)));
    testing::internal::CaptureStderr();
    EXPECT_EQ(found({.folder = folder(), .resume = saved}), "1");
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr(path + " belongs to the user 12345, and this run to root (0): anyone who can write to it"));
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(found({.folder = folder()}), "1");
}

// Whoever has a link lets it lead elsewhere tomorrow.
TEST_F(Resuming, ALinkOfAnotherUserIsNotTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  save(1);
  const std::string step = folder() + "/step-0000001";
  fs::rename(step, folder() + "/mine");
  fs::create_symlink("mine", step);
  EXPECT_EQ(found({.folder = folder()}), "1");
  ASSERT_EQ(::lchown(step.c_str(), 12345, 12345), 0);
  EXPECT_THAT(found({.folder = folder()}), HasSubstr(step + " belongs to the user 12345, and this run to root (0)"));
}

TEST_F(Resuming, WhereNoneIsWholeItIsSaidWhatToDo) {
  save(1);
  save(2);
  corrupt(1);
  corrupt(2);
  EXPECT_THAT(found({.folder = folder()}),
              testing::AllOf(HasSubstr("none of the 2 checkpoints in "), HasSubstr("tutti ckpt verify " + folder()),
                             HasSubstr("restore what is missing, or start from scratch: in another folder")));
}

TEST_F(Resuming, WorldWritableFilesAreNotTrusted) {
  save(1);
  const std::string file = folder() + "/step-0000001/optimizer-00001-of-00001.safetensors";
  ASSERT_EQ(::chmod(file.c_str(), 0646), 0);
  EXPECT_THAT(found({.folder = folder()}), HasSubstr(file + " may be written by every user (its mode is 0646)"));
  ASSERT_EQ(::chmod(file.c_str(), 0664), 0);
  EXPECT_EQ(found({.folder = folder()}), "1") << "a group may share its runs";
  ASSERT_EQ(::chmod((folder() + "/step-0000001").c_str(), 0777), 0);
  EXPECT_THAT(found({.folder = folder()}), HasSubstr("/step-0000001 may be written by every user"));
}

// As under NFS, where what root makes belongs to nobody: a run's own checkpoints are its own.
TEST_F(Resuming, WhatBelongsToWhomNewFilesBelongIsOnesOwn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  save(1);
  const std::string saved = folder() + "/step-0000001";
  ASSERT_EQ(::chmod(folder().c_str(), 0777), 0);
  ASSERT_EQ(::chown(saved.c_str(), 12345, 12345), 0);
  const std::string said = in_a_child([&] {
    if (::setfsuid(12345) < 0) return std::string("cannot");  // what it makes now is 12345's, though it stays root
    return words(resume_point(Group(), {.folder = folder()}).status());
  });
  EXPECT_EQ(said, "ok");
}

TEST_F(Resuming, AMisspeltAutoOrNeverIsReportedWithAHint) {
  EXPECT_THAT(found({.folder = folder(), .resume = "nver"}), HasSubstr("did you mean --resume never?"));
  EXPECT_THAT(found({.folder = folder(), .resume = "Auto"}), HasSubstr("did you mean --resume auto?"));
  EXPECT_THAT(found({.folder = folder(), .resume = folder()}), testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(
      found({.folder = folder(), .resume = "latest"}),
      testing::AllOf(HasSubstr("--resume latest: rank 0: cannot read the folder latest: No such file or directory"),
                     HasSubstr("--resume takes auto (the newest in --save-dir, if there is one), never, or the path")));
}

TEST_F(Resuming, AFolderThatIsReadOnly) {
  const std::string said = in_a_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder().c_str(), "tmpfs", MS_RDONLY, nullptr) != 0)
      return std::string("cannot");
    return words(check_shared_folder(Group(), folder())) + "\n" +
           words(test::save_model(Group(), folder(), 1, Dealing::kReplicated));
  });
  if (said == "cannot") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_THAT(said, HasSubstr("cannot make a file in the folder " + folder() + ": Read-only file system"));
  EXPECT_THAT(said, HasSubstr("cannot make the file " + folder() + "/.write.lock: Read-only file system"));
}

}  // namespace
}  // namespace tutti
