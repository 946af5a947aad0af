#include "tutti/checkpoint/format/safetensors.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/harness/python.h"
#include "tutti/checkpoint/io/replace_file.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::temp_directory_path() / ("tutti-safetensors-" + std::to_string(::getpid()) + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write_raw(std::string json, std::string data = {}, std::int64_t lie = 0) {
    const std::uint64_t length = std::uint64_t(std::int64_t(json.size()) + lie);
    const auto file = path("raw.safetensors");
    std::ofstream(file, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), 8) << json << data;
    return file;
  }
  std::string error_of(std::string json, std::size_t data_bytes = 0) {
    auto file = SafetensorsFile::open(write_raw(std::move(json), std::string(data_bytes, 'x')));
    return file.ok() ? "no error" : to_string(file.error());
  }
  std::string write_sample() {
    EXPECT_TRUE(write_safetensors(path("sample.safetensors"), sample_, {{"step", "7"}}).ok());
    return path("sample.safetensors");
  }

  std::filesystem::path folder_;
  const std::vector<float> weights_ = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint8_t> mask_ = {1, 0, 1};
  const double scalar_ = 2.5;
  const std::vector<SafetensorsTensor> sample_ = {{"mask", DType::kBool, {3}, mask_.data()},
                                                  {"fc.weight", DType::kF32, {2, 3}, weights_.data()},
                                                  {"scale", DType::kF64, {}, &scalar_},
                                                  {"none", DType::kF32, {0, 5}, nullptr}};
};

TEST_F(Safetensors, ReadsBackWhatItWrote) {
  auto file = SafetensorsFile::open(write_sample());
  ASSERT_TRUE(file.ok()) << to_string(file.error());
  EXPECT_EQ(file->entries().size(), 4u);
  EXPECT_EQ(file->metadata().at("step"), "7");
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const auto* entry = file->find("fc.weight");
  ASSERT_NE(entry, nullptr);
  EXPECT_THAT(entry->shape, ElementsAre(2, 3));
  EXPECT_EQ(entry->known_dtype(), DType::kF32);
  std::vector<float> values(6);
  ASSERT_TRUE(file->read(*entry, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_EQ(values, weights_);
  EXPECT_EQ(file->find("scale")->bytes(), 8u);
  EXPECT_EQ(file->find("none")->bytes(), 0u);
  EXPECT_EQ(file->find("elsewhere"), nullptr);
}

TEST_F(Safetensors, DataIsAligned) {
  const auto file = write_sample();
  std::ifstream in(file, std::ios::binary);
  std::uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  EXPECT_EQ((8 + length) % 64, 0u);
  EXPECT_EQ(SafetensorsFile::open(file)->find("fc.weight")->begin % 4, 0u);
}

TEST_F(Safetensors, LeavesNothingBehindWhenItCannotWrite) {
  const auto status = write_safetensors(path("no/such/folder.safetensors"), sample_);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(to_string(status.error()), HasSubstr("No such file or directory"));
  std::filesystem::create_directory(path("taken"));
  EXPECT_FALSE(write_safetensors(path("taken"), sample_).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// As root a rename over /dev/full succeeds: the device is gone, and every later program writes to a file there.
TEST_F(Safetensors, NeverReplacesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(path("folder"));
  const bool device = ::mknod(path("device").c_str(), S_IFCHR | 0600, makedev(1, 7)) == 0;
  std::filesystem::create_symlink("pipe", path("link to pipe"));
  const auto refused = [&](const std::string& name, const std::string& words) {
    const auto status = write_safetensors(path(name), sample_);
    EXPECT_EQ(status.ok() ? "no error" : to_string(status.error()).substr(0, 15), "InvalidArgument") << name;
    EXPECT_THAT(status.ok() ? "" : to_string(status.error()), HasSubstr(words));
    EXPECT_FALSE(replaceable_file(path(name)).ok()) << name;
  };
  refused("pipe", "it is a pipe, not a file");
  refused("folder", "it is a folder, not a file");
  refused("link to pipe", "a link to ");
  if (device) refused("device", "it is a device, not a file");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  EXPECT_EQ(std::filesystem::is_character_file(path("device")), device);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), device ? 4 : 3);
}

TEST_F(Safetensors, FollowsLinksAndKeepsTheMode) {
  std::filesystem::create_directory(path("store"));
  std::filesystem::create_symlink("store/weights", path("latest"));
  std::filesystem::create_symlink("latest", path("best"));
  ASSERT_TRUE(write_safetensors(path("best"), sample_).ok());  // a link that leads nowhere yet
  EXPECT_TRUE(std::filesystem::is_symlink(path("best")) && std::filesystem::is_symlink(path("latest")));
  ::chmod(path("store/weights").c_str(), 0640);
  ASSERT_TRUE(write_safetensors(path("best"), sample_).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path("latest")));
  struct stat info {};
  ASSERT_EQ(::stat(path("store/weights").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_TRUE(SafetensorsFile::open(path("store/weights")).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("store")), {}), 1);
  std::filesystem::create_symlink("circle", path("circle"));
  EXPECT_EQ(write_safetensors(path("circle"), sample_).error().errno_value, ELOOP);
}

// /proc is there, and access() lets root write to it; what counts is whether a file can be made.
TEST_F(Safetensors, WhetherAPlaceTakesFilesIsTriedOut) {
  std::ofstream(path("old")) << "old";
  EXPECT_TRUE(try_to_replace(path("old")).ok());
  EXPECT_TRUE(try_to_replace(path("new")).ok());
  EXPECT_TRUE(make_writable_folder(path("a/b")).ok());
  EXPECT_EQ(std::filesystem::file_size(path("old")), 3u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "the old file and the new folder";
  EXPECT_TRUE(std::filesystem::is_empty(path("a/b")));
  const auto said = [](const Status& status) { return status.ok() ? "nothing" : to_string(status.error()); };
  EXPECT_THAT(said(try_to_replace("/proc/w")), AllOf(HasSubstr("cannot create /proc/w.tmp."),
                                                     HasSubstr("(hint: give a path in a folder that this user")));
  EXPECT_THAT(said(try_folder("/proc")),
              HasSubstr("cannot make a file in the folder /proc: No such file or directory (hint: give a folder that"));
  EXPECT_THAT(said(make_writable_folder("/proc/none")), HasSubstr("cannot make the folder /proc/none: No"));
}

TEST_F(Safetensors, RefusesNamesThatReadersWouldTrip) {
  const float x = 0;
  for (const std::string name : {"", "__metadata__", "a\nb"}) {
    const SafetensorsTensor tensor[] = {{name, DType::kF32, {}, &x}};
    EXPECT_FALSE(write_safetensors(path("x"), tensor).ok()) << name;
  }
  const SafetensorsTensor twice[] = {{"a", DType::kF32, {}, &x}, {"a", DType::kF32, {}, &x}};
  EXPECT_THAT(to_string(write_safetensors(path("x"), twice).error()), HasSubstr("two tensors are named \"a\""));
  const SafetensorsTensor not_utf8[] = {{"\xff", DType::kF32, {}, &x}};
  EXPECT_THAT(to_string(write_safetensors(path("x"), not_utf8).error()), HasSubstr("not valid UTF-8"));
}

TEST_F(Safetensors, NamesATensorWhoseBytesHaveChanged) {
  const auto name = write_sample();
  {
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);  // the last byte belongs to the tensor with the smallest elements
    file.put(7);
  }
  auto file = SafetensorsFile::open(name);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> bytes(3);
  EXPECT_THAT(to_string(file->read(*file->find("mask"), bytes).error()),
              HasSubstr(", of mask, have changed: checksum "));
}

TEST_F(Safetensors, EveryTruncationIsSeen) {
  const auto whole = write_sample();
  const auto size = std::filesystem::file_size(whole);
  const auto cut = path("cut");
  for (std::uintmax_t keep = 0; keep < size; ++keep) {
    std::filesystem::copy_file(whole, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, keep);
    EXPECT_FALSE(SafetensorsFile::open(cut).ok()) << keep << " of " << size << " bytes";
  }
}

// A flipped bit never loads as if nothing had happened: the header breaks a rule, or a name, shape or metadata value
// differs visibly, or the checksum of the tensor tells.
TEST_F(Safetensors, EveryFlippedDataBitIsSeen) {
  const auto name = write_sample();
  std::ifstream in(name, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  for (std::size_t at = 8 + length; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = char(flipped[at] ^ 0x10);
    std::ofstream(path("flipped"), std::ios::binary) << flipped;
    auto file = SafetensorsFile::open(path("flipped"));
    ASSERT_TRUE(file.ok());
    int refused = 0;
    for (const auto& entry : file->entries()) {
      std::vector<std::byte> bytes(entry.bytes());
      refused += !file->read(entry, bytes).ok();
    }
    EXPECT_EQ(refused, 1) << "byte " << at;
  }
}

TEST_F(Safetensors, HostileLengths) {
  auto error = [&](const std::string& json, std::int64_t lie) {
    return to_string(SafetensorsFile::open(write_raw(json, "", lie)).error());
  };
  EXPECT_THAT(error("{}", 1), HasSubstr("claims a header of 3 bytes, but the file has 10"));
  EXPECT_THAT(error("{}", 200'000'000), HasSubstr("the format allows 100000000"));
  EXPECT_THAT(error("{}", -3), HasSubstr("the format allows 100000000"));  // 2^64 - 1
  EXPECT_TRUE(SafetensorsFile::open(write_raw("{}")).ok());
  EXPECT_TRUE(SafetensorsFile::open(write_raw("{}   ")).ok());
}

TEST_F(Safetensors, HostileHeaders) {
  const auto tensor = [](const std::string& shape, const std::string& offsets, const std::string& dtype = "U8") {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {"{}\n", "does not end with '}' and spaces"},
      {"{\"a\":", "does not end with '}'"},
      {"{}{}", "not valid JSON"},
      {"{\"a\":{}}", "has no dtype"},
      {"{\"a\":" + tensor("[4]", "[0,4]") + ",\"a\":" + tensor("[0]", "[4,4]") + "}", "the key \"a\" occurs twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "the key \"dtype\" occurs twice"},
      {"{\"a\":" + tensor("[4]", "[0,4]", "U7") + "}", "unknown dtype \"U7\""},
      {"{\"a\":" + tensor("[3]", "[0,4]") + "}", "spans bytes 0 to 4, but its dtype and shape take 3"},
      {"{\"a\":" + tensor("[4]", "[4,0]") + "}", "begins at byte 4"},
      {"{\"a\":" + tensor("[2]", "[2,4]") + "}", "a hole or an overlap"},
      {"{\"a\":" + tensor("[3]", "[0,3]") + ",\"b\":" + tensor("[2]", "[2,4]") + "}", "a hole or an overlap"},
      {"{\"a\":" + tensor("[2]", "[0,2]") + "}", "the tensors end at byte 2, but 4 bytes follow"},
      {"{\"a\":" + tensor("[8]", "[0,8]") + "}", "the tensors end at byte 8, but 4 bytes follow"},
      {"{\"a\":" + tensor("[4294967296,4294967296,4294967296]", "[0,4]") + "}", "overflows 64 bits"},
      {"{\"a\":" + tensor("[2305843009213693952,8]", "[0,0]") + "}", "overflows 64 bits"},
      {"{\"a\":" + tensor("[3]", "[0,4]", "F4") + "}", "does not fill whole bytes"},
      {"{\"a\":" + tensor("[-4]", "[0,4]") + "}", "a negative number"},
      {"{\"a\":" + tensor("[4.0]", "[0,4]") + "}", "not a whole one"},
      {"{\"a\":" + tensor("[1e400]", "[0,4]") + "}", "not valid JSON"},
      {"{\"a\":" + tensor("[[4]]", "[0,4]") + "}", "is a list"},
      {"{\"a\":" + tensor("[4]", "[0]") + "}", "has 1 numbers; expected 2"},
      {"{\"a\":" + tensor("[4]", "[0,2,4]") + "}", "has more than 2 numbers"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", "has the key \"x\""},
      {R"({"a":{"dtype":{"b":1},"shape":[4],"data_offsets":[0,4]}})", "is an object"},
      {R"({"__metadata__":{"a":1}})", "is a number"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", "is an object"},
      {R"({"__metadata__":"a"})", "is a string"},
      {"{\"\":" + tensor("[4]", "[0,4]") + "}", "empty name"},
      {"{\"a\\u0000b\":" + tensor("[4]", "[0,4]") + "}", "control character"},
      {"{\"\xff\":" + tensor("[4]", "[0,4]") + "}", "not valid JSON"},
      {"{\"a\":null}", "is null"},
      {"{\"" + std::string(5000, 'n') + "\":" + tensor("[4]", "[0,4]") + "}", "more than 4096 bytes"},
      {"{\"a\":" + std::string(100000, '[') + "}", "is a list"},
  };
  for (const auto& [json, expected] : cases) EXPECT_THAT(error_of(json, 4), HasSubstr(expected)) << json.substr(0, 200);
}

TEST_F(Safetensors, OtherFilesAreRejectedByName) {
  EXPECT_EQ(SafetensorsFile::open(path("missing")).error().errno_value, ENOENT);
  EXPECT_THAT(to_string(SafetensorsFile::open(folder_.string()).error()), HasSubstr("is not a regular file"));
  std::ofstream(path("short")) << "abc";
  EXPECT_THAT(to_string(SafetensorsFile::open(path("short")).error()),
              HasSubstr("short: 3 bytes; a safetensors file has at least 8"));
}

TEST_F(Safetensors, PythonReadsTheSame) {
  const std::string python = test::python_that_runs("import numpy, safetensors");
  if (python.empty()) GTEST_SKIP() << test::no_python_with("numpy and safetensors");
  const std::string program = path("read.py");
  std::ofstream(program)
      << "import sys\n"
         "from safetensors import safe_open\n"
         "from safetensors.numpy import load_file\n"
         "t = load_file(sys.argv[1])\n"
         "assert sorted(t) == ['fc.weight', 'mask', 'none', 'scale'], sorted(t)\n"
         "assert t['fc.weight'].tolist() == [[1, 2, 3], [4, 5, 6]] and t['fc.weight'].dtype == 'float32'\n"
         "assert t['mask'].tolist() == [True, False, True] and t['mask'].dtype == bool\n"
         "assert t['scale'].shape == () and t['scale'] == 2.5 and t['none'].shape == (0, 5)\n"
         "assert safe_open(sys.argv[1], 'np').metadata()['step'] == '7'\n";
  EXPECT_EQ(std::system((python + " " + program + " " + write_sample()).c_str()), 0);
}

}  // namespace
}  // namespace tutti
