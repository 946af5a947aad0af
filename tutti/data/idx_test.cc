#include "tutti/data/idx.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "tutti/data/fashion_mnist.h"
#include "tutti/data/placed_file.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

class Idx : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tutti-idx-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const Bytes& bytes) {
    const auto path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    return path;
  }
  std::string write_gz(const std::string& name, const Bytes& bytes) {
    const auto path = (folder_ / name).string();
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), unsigned(bytes.size()));
    gzclose(file);
    return path;
  }
  static Bytes header(std::vector<std::uint32_t> shape, std::uint8_t type = 8) {
    Bytes bytes = {0, 0, type, std::uint8_t(shape.size())};
    for (auto extent : shape) {
      for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(std::uint8_t(extent >> shift));
    }
    return bytes;
  }
  static Bytes array(std::vector<std::uint32_t> shape, std::size_t count) {
    Bytes bytes = header(std::move(shape));
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(std::uint8_t(i));
    return bytes;
  }
  static std::string error_of(const std::string& path) {
    auto result = read_idx(path);
    return result.ok() ? "no error" : to_string(result.error());
  }

  std::filesystem::path folder_;
};

TEST_F(Idx, ReadsPlainAndCompressedFiles) {
  for (const auto& path : {write("a", array({2, 3}, 6)), write_gz("a.gz", array({2, 3}, 6))}) {
    auto result = read_idx(path);
    ASSERT_TRUE(result.ok()) << to_string(result.error());
    EXPECT_THAT(result->shape, ElementsAre(2, 3));
    EXPECT_THAT(result->values, ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST_F(Idx, NamesTheByteThatIsWrong) {
  EXPECT_THAT(error_of(write("empty", {})),
              HasSubstr("byte 0: expected 4 more bytes of the IDX header, but the file ends"));
  EXPECT_THAT(error_of(write("magic", {'P', 'K', 8, 1})),
              HasSubstr("byte 0: expected the IDX magic 00 00, found 50 4b"));
  EXPECT_THAT(error_of(write("type", header({1}, 0x0D))),
              HasSubstr("byte 2: expected element type 08 (unsigned bytes), found 0d (32-bit floats)"));
  EXPECT_THAT(error_of(write("none", {0, 0, 8, 0})), HasSubstr("byte 3: expected 1 to 8 dimensions, found 0"));
  EXPECT_THAT(error_of(write("dims", {0, 0, 8, 2, 0, 0, 0, 1, 0})),
              HasSubstr("byte 9: expected 3 more bytes of dimension 1"));
  EXPECT_THAT(
      error_of(write("short", array({2, 3}, 5))),
      HasSubstr("byte 17: expected 1 more bytes of the elements of an array of shape [2, 3], but the file ends"));
  EXPECT_THAT(error_of(write("long", array({2, 3}, 7))), HasSubstr("byte 18: expected the end of the file"));
  EXPECT_THAT(error_of(write("short", array({2, 3}, 5))), HasSubstr((folder_ / "short").string()));
}

TEST_F(Idx, ClaimsOfHugeArraysCostNothing) {
  EXPECT_THAT(error_of(write("overflow", header({0xffffffff, 0xffffffff, 0xffffffff}))),
              HasSubstr("larger than 16 GiB"));
  EXPECT_THAT(error_of(write("large", header({0xffffffff}))), HasSubstr("byte 8: expected 4294967295 more bytes"));
}

TEST_F(Idx, DetectsDamagedCompression) {
  const auto path = write_gz("cut.gz", array({5000}, 5000));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(error_of(path), HasSubstr("compressed data is cut off"));
  const auto flipped = write_gz("flipped.gz", array({5000}, 5000));
  {
    std::fstream file(flipped, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-6, std::ios::end);  // within the checksum
    file.put('\x5a');
  }
  EXPECT_THAT(error_of(flipped), HasSubstr("compressed data is damaged somewhere before byte 5009 of what it holds"));
  const auto tail = write_gz("tail.gz", array({5000}, 5000));
  for (std::uintmax_t cut = 1; cut <= 8; ++cut) {  // the checksum and the length
    std::filesystem::resize_file(tail, std::filesystem::file_size(tail) - 1);
    EXPECT_THAT(error_of(tail), HasSubstr("byte 5008: the compressed data is cut off before its checksum"));
  }
}

TEST_F(Idx, AFlippedByteAnywhereIsSeenAndNotMisplaced) {
  const auto path = write_gz("whole.gz", array({5000}, 5000));
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t at = 10; at < whole.size(); ++at) {  // behind the head, which holds times and flags
    std::string changed = whole;
    changed[at] = char(changed[at] ^ 0x24);
    const auto error = error_of(write("changed.gz", Bytes(changed.begin(), changed.end())));
    EXPECT_THAT(error, testing::AnyOf(HasSubstr("somewhere before byte"), HasSubstr("expected"), HasSubstr("cut off"),
                                      HasSubstr("not of gzip")))
        << at;
    EXPECT_THAT(error, testing::Not(HasSubstr("after byte 0:"))) << at;
  }
}

TEST_F(Idx, MembersFollowEachOtherAndNothingElseDoes) {
  const Bytes all = array({2, 3}, 6);
  const auto append = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary | std::ios::app) << bytes;
  };
  const auto first = write_gz("two.gz", Bytes(all.begin(), all.begin() + 7));
  std::ifstream second(write_gz("second.gz", Bytes(all.begin() + 7, all.end())), std::ios::binary);
  append("two.gz", std::string((std::istreambuf_iterator<char>(second)), {}));
  const auto both = read_idx(first);
  ASSERT_TRUE(both.ok()) << to_string(both.error());
  EXPECT_THAT(both->values, ElementsAre(0, 1, 2, 3, 4, 5));
  append("two.gz", "garbage");
  EXPECT_THAT(error_of(first), HasSubstr("the compressed data ends with byte 18, but the file continues"));
}

TEST_F(Idx, MissingFile) { EXPECT_EQ(read_idx((folder_ / "nowhere").string()).error().code, Code::kNotFound); }

// A pipe that nobody writes to would keep a reader for ever.
TEST_F(Idx, WhatIsNoRegularFileIsRefusedAtOnce) {
  const auto pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& path : {pipe, folder_.string(), std::string("/dev/zero")}) {
    EXPECT_EQ(error_of(path), "InvalidArgument: " + path + " is not a regular file");
    const auto placed = PlacedFile::open(path);
    ASSERT_FALSE(placed.ok()) << path;
    EXPECT_EQ(to_string(placed.error()), "InvalidArgument: " + path + " is not a regular file");
  }
}

TEST_F(Idx, PicturesOfAnotherSizeOrNoneAreRefused) {
  const auto refused = [&](std::vector<std::uint32_t> shape, const std::string& words) {
    std::size_t count = 1;
    for (const auto extent : shape) count *= extent;
    const auto path = write("t10k-images-idx3-ubyte", array(shape, count));
    write("t10k-labels-idx1-ubyte", array({shape[0]}, shape[0]));
    const auto loaded = load_fashion_mnist(folder_.string(), Split::kTest);
    ASSERT_FALSE(loaded.ok()) << words;
    EXPECT_THAT(to_string(loaded.error()), HasSubstr(path + ": " + words));
  };
  refused({2, 14, 14}, "byte 8: expected images of 28 x 28 pixels, found 14 x 14");
  refused({2, 28, 14}, "byte 12: expected images of 28 x 28 pixels, found 28 x 14");
  refused({0, 28, 28}, "byte 4: expected at least one image, found none");
}

TEST_F(Idx, FashionMnistLoadsAndChecks) {
  write_gz("train-images-idx3-ubyte.gz", array({4, 28, 28}, 4 * 784));
  write("train-labels-idx1-ubyte", array({4}, 4));
  auto train = load_fashion_mnist(folder_.string(), Split::kTrain);
  ASSERT_TRUE(train.ok()) << to_string(train.error());
  EXPECT_EQ(train->size(), 4u);
  EXPECT_EQ(train->rows, 28u);
  EXPECT_EQ(train->picture(3)[0], 3 * 784 % 256);

  EXPECT_THAT(to_string(load_fashion_mnist(folder_.string(), Split::kTest).error()),
              testing::AllOf(HasSubstr("holds neither t10k-images-idx3-ubyte.gz nor t10k-images-idx3-ubyte"),
                             HasSubstr("apt-get install dataset-fashion-mnist")));
  EXPECT_THAT(to_string(load_fashion_mnist("/nowhere", Split::kTest).error()),
              HasSubstr("there is no folder /nowhere"));

  write("train-labels-idx1-ubyte", array({3}, 3));
  EXPECT_THAT(to_string(load_fashion_mnist(folder_.string(), Split::kTrain).error()), HasSubstr("holds 4 images"));
  auto labels = array({4}, 4);
  labels.back() = 10;
  write("train-labels-idx1-ubyte", labels);
  EXPECT_THAT(to_string(load_fashion_mnist(folder_.string(), Split::kTrain).error()),
              HasSubstr("byte 11: expected a label below 10, found 10"));
}

}  // namespace
}  // namespace tutti
