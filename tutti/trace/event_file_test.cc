// The file is read back by a decoder that knows the format from its documents alone, and where there is one by
// TensorBoard itself.
#include "tutti/trace/event_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/harness/python.h"
#include "tutti/base/file.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// Bit by bit, so that it shares nothing with base/crc32c.
std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}
std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = slow_crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

struct Message {
  std::map<int, std::vector<std::string>> fields;  // raw bytes; varints as 8 bytes

  template <class T>
  T number(int field) const {
    T value{};
    std::memcpy(&value, fields.at(field).at(0).data(), sizeof value);
    return value;
  }
};

Message decode(std::string_view bytes) {
  Message message;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(0));
      bytes.remove_prefix(1);
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (!bytes.empty()) {
    const std::uint64_t key = varint();
    std::string value;
    if (key % 8 == 0) {
      const std::uint64_t number = varint();
      value.assign(reinterpret_cast<const char*>(&number), 8);
    } else {
      const std::size_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
      value = bytes.substr(0, size);
      EXPECT_EQ(value.size(), size);
      bytes.remove_prefix(size);
    }
    message.fields[int(key / 8)].push_back(value);
  }
  return message;
}

struct ScalarEvent {
  std::string tag;
  float value;
  std::int64_t step;
  bool operator==(const ScalarEvent&) const = default;
};
void PrintTo(const ScalarEvent& event, std::ostream* out) {
  *out << event.tag << " " << event.value << " at " << event.step;
}

std::vector<ScalarEvent> scalars_of(const std::string& path) {
  const std::string all = *read_file(path, 1 << 24);
  std::vector<ScalarEvent> scalars;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t size = 0;
    std::uint32_t sum = 0;
    std::memcpy(&size, all.data() + at, 8);
    std::memcpy(&sum, all.data() + at + 8, 4);
    EXPECT_EQ(sum, masked(std::string_view(all).substr(at, 8)));
    const std::string_view bytes = std::string_view(all).substr(at + 12, size);
    EXPECT_EQ(bytes.size(), size);
    std::memcpy(&sum, all.data() + at + 12 + size, 4);
    EXPECT_EQ(sum, masked(bytes));
    const Message event = decode(bytes);
    EXPECT_NEAR(event.number<double>(1), double(std::time(nullptr)), 600);
    if (at == 0) {
      EXPECT_EQ(event.fields.at(3).at(0), "brain.Event:2");
    } else {
      const Message value = decode(decode(event.fields.at(5).at(0)).fields.at(1).at(0));
      scalars.push_back({value.fields.at(1).at(0), value.number<float>(2), event.number<std::int64_t>(2)});
    }
    at += 16 + size;
  }
  return scalars;
}

class EventFiles : public testing::Test {
 protected:
  ~EventFiles() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }
  std::unique_ptr<EventFile> create(double flush_seconds = 120) {
    return EventFile::create(folder_, {.flush_seconds = flush_seconds}).or_throw();
  }
  const std::string folder_ =
      std::filesystem::temp_directory_path() / ("tutti_events_" + std::to_string(::getpid())) / "run";
};

TEST_F(EventFiles, WhatIsAddedIsReadBack) {
  std::string path;
  {
    const auto file = create();
    path = file->path();
    EXPECT_THAT(path, HasSubstr("/events.out.tfevents."));
    file->add_scalar("Train/Loss", 0.5, 1);
    file->add_scalar("Test/Acc", 77.25, std::int64_t(1) << 40);
    file->add_scalar("odd \xc3\xa9", std::nan(""), -1);
  }
  const auto scalars = scalars_of(path);
  ASSERT_EQ(scalars.size(), 3u);
  EXPECT_EQ(scalars[0], (ScalarEvent{"Train/Loss", 0.5f, 1}));
  EXPECT_EQ(scalars[1], (ScalarEvent{"Test/Acc", 77.25f, std::int64_t(1) << 40}));
  EXPECT_EQ(scalars[2].step, -1);
  EXPECT_TRUE(std::isnan(scalars[2].value));
}

TEST_F(EventFiles, FlushingAndItsTime) {
  const auto file = create();
  file->add_scalar("a", 1, 1);
  EXPECT_EQ(scalars_of(file->path()).size(), 0u);
  file->flush();
  EXPECT_EQ(scalars_of(file->path()).size(), 1u);
  const auto at_once = create(0);
  EXPECT_NE(at_once->path(), file->path());
  at_once->add_scalar("a", 1, 1);
  EXPECT_EQ(scalars_of(at_once->path()).size(), 1u);
}

TEST_F(EventFiles, ManyValuesDoNotWait) {
  const auto file = create();
  for (int i = 0; i < 3000; ++i) file->add_scalar("a", i, i);
  EXPECT_GT(scalars_of(file->path()).size(), 1000u);
  file->flush();
  EXPECT_EQ(scalars_of(file->path()).size(), 3000u);
}

TEST_F(EventFiles, ThreadsMayAddTogether) {
  const auto file = create(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) file->add_scalar("a", i, i);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(scalars_of(file->path()).size(), 400u);
}

TEST_F(EventFiles, AFullDiskLosesValuesAndNothingElse) {
  const auto file = create(0);
  for (int i = 0; i < 20; ++i) file->add_scalar("before", i, i);
  const auto was = std::filesystem::file_size(file->path());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = was + 100;  // in the middle of a record
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 30; ++i) file->add_scalar("during", i, i);
  const std::string warnings = testing::internal::GetCapturedStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  const std::string first = "training continues, but some values for TensorBoard are lost: System: cannot write ";
  EXPECT_THAT(warnings, HasSubstr(first + file->path() + ": File too large"));
  EXPECT_EQ(warnings.find(first), warnings.rfind(first)) << "told once";
  EXPECT_GT(file->lost(), 20u);
  EXPECT_EQ(scalars_of(file->path()).size(), 50 - file->lost()) << "the file ends with a whole record";

  testing::internal::CaptureStderr();
  file->add_scalar("after", 1, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("written again; " + std::to_string(file->lost()) + " values were lost"));
  const auto scalars = scalars_of(file->path());  // whole records only
  EXPECT_EQ(scalars.size(), 51 - file->lost());
  EXPECT_EQ(scalars.back(), (ScalarEvent{"after", 1, 1}));
}

TEST_F(EventFiles, AFolderThatCannotBeMadeIsAnErrorAtOnce) {
  std::filesystem::create_directories(std::filesystem::path(folder_).parent_path());
  std::ofstream(folder_) << "a file";
  EXPECT_THAT(to_string(EventFile::create(folder_ + "/below").error()), HasSubstr("cannot make the folder"));
}

TEST_F(EventFiles, TensorBoardReadsTheSame) {
  const std::string python = test::python_that_runs("import tensorboard");
  if (python.empty()) GTEST_SKIP() << test::no_python_with("tensorboard");
  {
    const auto file = create();
    for (int i = 0; i < 100; ++i) file->add_scalar("Train/Loss", 1.0 / (1 + i), i);
    file->add_scalar("Test/Acc", 77.25, 99);
  }
  const std::string program = folder_ + "/read.py";
  std::ofstream(program) << "import sys\n"
                            "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
                            "events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})\n"
                            "events.Reload()\n"
                            "assert sorted(events.Tags()['scalars']) == ['Test/Acc', 'Train/Loss'], events.Tags()\n"
                            "loss = events.Scalars('Train/Loss')\n"
                            "assert [e.step for e in loss] == list(range(100)), loss\n"
                            "assert all(abs(e.value * (1 + e.step) - 1) < 1e-6 for e in loss), loss\n"
                            "assert [(e.step, e.value) for e in events.Scalars('Test/Acc')] == [(99, 77.25)]\n";
  EXPECT_EQ(std::system((python + " " + program + " " + folder_).c_str()), 0);
}

}  // namespace
}  // namespace tutti
