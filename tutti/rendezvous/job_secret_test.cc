#include "tutti/rendezvous/job_secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

namespace tutti::rendezvous {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SecretOfJob : public ::testing::Test {
 protected:
  SecretOfJob() {
    std::string pattern = fs::temp_directory_path() / "tutti-secret-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    environment_ = {{"XDG_RUNTIME_DIR", folder_}};
  }
  ~SecretOfJob() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string print(const transport::Secret& secret) { return secret.fingerprint(); }

  std::string folder_;
  Environment environment_;
};

TEST_F(SecretOfJob, RanksOfOneHostMakeAndShareAFile) {
  const auto first = job_secret(environment_, "port-1", true, "");
  ASSERT_TRUE(first.ok()) << to_string(first.error());
  EXPECT_EQ(first->file, folder_ + "/tutti/port-1.secret");
  struct stat info;
  ASSERT_EQ(::stat(first->file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((folder_ + "/tutti").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto second = job_secret(environment_, "port-1", true, "");
  EXPECT_EQ(print(first->secret), print(second->secret));
  EXPECT_NE(print(first->secret), print(job_secret(environment_, "port-2", true, "")->secret));
  fs::remove(first->file);
  EXPECT_NE(print(first->secret), print(job_secret(environment_, "port-1", true, "")->secret))
      << "a secret is random, not derived";
}

TEST_F(SecretOfJob, ARaceHasOneWinner) {
  std::vector<std::string> seen(8);
  std::vector<JobSecret> held;  // as ranks keep it until all have come
  for (std::size_t i = 0; i < seen.size(); ++i) held.push_back({.secret = transport::Secret::none()});
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < seen.size(); ++i)
      threads.emplace_back([&, i] {
        auto secret = job_secret(environment_, "race", true, "");
        if (secret.ok()) held[i] = *std::move(secret), seen[i] = print(held[i].secret);
      });
  }
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 1u);
  EXPECT_NE(seen[0], "");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/tutti"), {}), 1) << "nothing but the secret is left";
}

TEST_F(SecretOfJob, SeveralHostsWithoutASecretAreRefused) {
  const auto secret = job_secret(environment_, "j", false, "its ranks are on several hosts");
  ASSERT_FALSE(secret.ok());
  EXPECT_EQ(secret.error().code, Code::kRefused);
  EXPECT_EQ(to_string(secret.error()),
            "Refused: the job has no secret, and its ranks are on several hosts: anybody who reaches its ports could "
            "join it (hint: give every "
            "rank the same TUTTI_SECRET_FILE (a file of mode 0600, for example from openssl rand -hex 32) or "
            "TUTTI_SECRET, or do without one: TUTTI_INSECURE=1)");
}

TEST_F(SecretOfJob, InsecureIsAskedForAndNeverAssumed) {
  environment_["TUTTI_INSECURE"] = "1";
  EXPECT_TRUE(job_secret(environment_, "j", false, "")->secret.is_none());
  environment_["TUTTI_INSECURE"] = "0";
  EXPECT_FALSE(job_secret(environment_, "j", false, "").ok());
  environment_["TUTTI_INSECURE"] = "maybe";
  EXPECT_THAT(to_string(job_secret(environment_, "j", false, "").error()),
              HasSubstr("TUTTI_INSECURE is \"maybe\", expected 1 or 0"));
}

TEST_F(SecretOfJob, FromTheEnvironmentInOrder) {
  environment_["TUTTI_SECRET"] = "swordfish";
  EXPECT_EQ(print(job_secret(environment_, "j", false, "")->secret), print(transport::Secret::from_text("swordfish")));
  environment_["TUTTI_SECRET_FILE"] = write("key", "from a file\n", 0600);
  EXPECT_EQ(print(job_secret(environment_, "j", false, "")->secret),
            print(transport::Secret::from_text("from a file")));
  const Fd memory(::memfd_create("secret", MFD_CLOEXEC));
  const transport::Secret made = transport::Secret::random();
  ASSERT_EQ(::write(memory.get(), made.bytes().data(), 32), 32);
  environment_["TUTTI_SECRET_FD"] = std::to_string(memory.get());
  for (int again = 0; again < 2; ++again) {
    const auto found = job_secret(environment_, "j", false, "");
    ASSERT_TRUE(found.ok()) << to_string(found.error());
    EXPECT_EQ(print(found->secret), print(made));
    EXPECT_EQ(found->file, "");
  }
}

TEST_F(SecretOfJob, AShortTextIsWarnedAbout) {
  EXPECT_THAT(transport::Secret::from_text("swordfish").warning(), HasSubstr("fewer than 20 characters"));
  EXPECT_EQ(transport::Secret::from_text("7f8a9c0d1e2f3a4b5c6d7e8f90a1b2c3").warning(), "");
  EXPECT_EQ(transport::Secret::random().warning() + transport::Secret::none().warning(), "");
  EXPECT_EQ(job_secret(environment_, "j", true, "")->secret.warning(), "") << "we make long ones";
  environment_["TUTTI_SECRET_FILE"] = write("key", "swordfish\n", 0600);
  EXPECT_NE(given_secret(environment_).or_throw()->warning(), "");
}

TEST_F(SecretOfJob, ADescriptorThatAWrapperClosedSaysSo) {
  const auto text = [&](const std::string& fd) {
    environment_["TUTTI_SECRET_FD"] = fd;
    return to_string(job_secret(environment_, "j", true, "").error());
  };
  EXPECT_THAT(
      text("1048577"),
      HasSubstr("TUTTI_SECRET_FD is \"1048577\", but no such descriptor is open (hint: a program between tutti run"));
  EXPECT_THAT(text("five"), HasSubstr("expected the number of a descriptor"));
  const Fd empty(::memfd_create("empty", MFD_CLOEXEC));
  EXPECT_THAT(text(std::to_string(empty.get())), HasSubstr("but it holds no secret of 32 bytes"));
  EXPECT_EQ(::ftruncate(empty.get(), 33), 0);
  EXPECT_THAT(text(std::to_string(empty.get())), HasSubstr("but it holds no secret of 32 bytes"));
}

TEST_F(SecretOfJob, AFileOpenToOthersIsRefused) {
  environment_["TUTTI_SECRET_FILE"] = write("key", "x", 0640);
  EXPECT_THAT(to_string(job_secret(environment_, "j", false, "").error()), HasSubstr("chmod 600"));
}

TEST_F(SecretOfJob, AJobsFileOpenToOthersIsRefused) {
  ASSERT_TRUE(runtime_directory(environment_).ok());
  write("tutti/j.secret", "known to all", 0644);
  EXPECT_THAT(to_string(job_secret(environment_, "j", true, "").error()),
              HasSubstr("can be read or written by others"));
}

TEST_F(SecretOfJob, AnOpenRuntimeFolderIsPassedOver) {
  ::chmod(folder_.c_str(), 0755);
  const std::string tmp = folder_ + "/tmp";
  fs::create_directory(tmp);
  const auto folder = runtime_directory({{"XDG_RUNTIME_DIR", folder_}, {"TMPDIR", tmp}});
  ASSERT_TRUE(folder.ok()) << to_string(folder.error());
  EXPECT_THAT(*folder, ::testing::Not(::testing::StartsWith(folder_ + "/tutti")));
}

TEST_F(SecretOfJob, AFolderInTmpThatIsNotOursAloneIsRefused) {
  if (fs::exists("/run/user/" + std::to_string(::geteuid())))
    GTEST_SKIP() << "this user has a folder in /run/user, so TMPDIR is not asked";
  const Environment environment = {{"TMPDIR", folder_}};
  const std::string path = folder_ + "/tutti-" + std::to_string(::geteuid());
  fs::create_directory(path);
  ::chmod(path.c_str(), 0755);
  EXPECT_THAT(to_string(runtime_directory(environment).error()),
              HasSubstr(path + " can be entered by others, so no secret can be kept there"));
  fs::remove(path);
  fs::create_directory(folder_ + "/elsewhere");
  ::chmod((folder_ + "/elsewhere").c_str(), 0700);
  fs::create_symlink(folder_ + "/elsewhere", path);
  EXPECT_THAT(to_string(runtime_directory(environment).error()), HasSubstr(path + " is no folder"));
  fs::remove(path);
  EXPECT_EQ(*runtime_directory(environment), path);
}

int files_in(const std::string& folder) { return int(std::distance(fs::directory_iterator(folder), {})); }

TEST_F(SecretOfJob, WhatKilledJobsLeftIsSweptAtTheNextStart) {
  auto held = job_secret(environment_, "alive", true, "");
  { const auto dead = job_secret(environment_, "dead", true, ""); }  // a process that is gone holds nothing
  const std::string folder = folder_ + "/tutti", dead_socket = folder + "/mpirun-1.sock";
  const auto bound_to = [&](const std::string& path) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    (void)::fchmod(socket.get(), 0600);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::chmod(path.c_str(), 0600);
    return socket;
  };
  const auto age = [](const std::string& path) {
    const timespec hour_ago[2] = {{std::time(nullptr) - 3600, 0}, {std::time(nullptr) - 3600, 0}};
    ::utimensat(AT_FDCWD, path.c_str(), hour_ago, 0);
  };
  bound_to(dead_socket).reset();
  const std::string live_socket = folder + "/mpirun-2.sock", young_socket = folder + "/mpirun-3.sock";
  const Fd live = bound_to(live_socket);
  ASSERT_EQ(::listen(live.get(), 4), 0);
  const Fd young = bound_to(young_socket);  // it does not listen yet
  age(dead_socket), age(live_socket);
  ASSERT_EQ(files_in(folder), 5);

  sweep_runtime_directory(folder);
  EXPECT_TRUE(fs::exists(held->file));
  EXPECT_TRUE(fs::exists(live_socket));
  EXPECT_TRUE(fs::exists(young_socket));
  EXPECT_EQ(files_in(folder), 3);
  const auto other = job_secret(environment_, "alive", true, "");
  EXPECT_EQ(print(other->secret), print(held->secret));
  held->give_up();
  EXPECT_TRUE(fs::exists(other->file)) << "another rank still needs it";
}

TEST_F(SecretOfJob, TheLastThatGivesUpRemovesTheFile) {
  auto one = job_secret(environment_, "j", true, ""), two = job_secret(environment_, "j", true, "");
  one->give_up();
  EXPECT_TRUE(fs::exists(two->file));
  two->give_up();
  EXPECT_FALSE(fs::exists(two->file));
}

}  // namespace
}  // namespace tutti::rendezvous
