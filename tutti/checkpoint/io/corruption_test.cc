// A checkpoint that was harmed in any way is refused by name, and what is wrong is told; nothing of it is loaded.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <functional>
#include <random>

#include "tests/harness/checkpoints.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/tools/verify.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Corruption : public testing::Test {
 protected:
  // Small: 10,000 times is soon done.
  void save(std::int64_t step, const std::string& folder, float shift = 0) {
    std::vector<float> table(64 * 32), bias(7);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = float(i) + shift;
    auto* const rows = table.data();
    const StateBox boxes[] = {
        {.key = {"emb", ""}, .shape = {64, 32}, .box = {{0, 0}, {40, 32}}, .data = rows},
        {.key = {"emb", ""}, .shape = {64, 32}, .box = {{40, 0}, {24, 32}}, .data = rows + 40 * 32},
        {.key = {"emb", "sum"}, .shape = {7}, .data = bias.data()},
        {.key = {"fc.bias", ""}, .shape = {7}, .data = bias.data()},
    };
    save_checkpoint(path(folder), boxes, {.step = step}).or_throw();
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  // What open() says once this byte has changed; it is changed back.
  std::string told_after_flip(const std::string& folder, const std::string& name, std::uint64_t byte, unsigned change) {
    const std::string file = folder + "/" + name;
    const Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    std::uint8_t value = 0;
    read_all(fd.get(), byte, std::as_writable_bytes(std::span(&value, 1)), file).or_throw();
    const auto other = std::uint8_t(value ^ change);
    EXPECT_EQ(::pwrite(fd.get(), &other, 1, off_t(byte)), 1);
    const auto opened = CheckpointReader::open(folder);
    EXPECT_EQ(::pwrite(fd.get(), &value, 1, off_t(byte)), 1);
    return opened.ok() ? "opened" : to_string(opened.error());
  }
  std::string told_of(const std::string& folder) {
    const auto opened = CheckpointReader::open(folder);
    return opened.ok() ? "opened" : to_string(opened.error());
  }

  const test::TemporaryFolder folder_;
};

TEST_F(Corruption, EveryByteOfManifestAndHeadersIsInADigest) {
  save(1, "a");
  const std::string folder = path("a/step-0000001");
  const Manifest manifest = CheckpointReader::open(folder).or_throw().manifest();
  const std::uint64_t size = fs::file_size(folder + "/manifest.json");
  for (std::uint64_t byte = 0; byte < size; ++byte)
    for (const unsigned change : {1u, 0x20u, 0xffu}) {
      const std::string told = told_after_flip(folder, "manifest.json", byte, change);
      ASSERT_THAT(told, HasSubstr("manifest.json: ")) << byte;
      ASSERT_THAT(told, HasSubstr(fmt::format("; byte {} alone would explain it", byte)));
    }
  for (const StoredFile& file : manifest.files)
    for (std::uint64_t byte = 0; byte < file.header_bytes; ++byte)
      for (const unsigned change : {1u, 0x20u, 0xffu})
        ASSERT_THAT(told_after_flip(folder, file.name, byte, change),
                    testing::AllOf(HasSubstr(file.name + " has another header than the one that was saved"),
                                   HasSubstr(fmt::format("; byte {} alone would explain it", byte))))
            << byte;
  EXPECT_EQ(told_of(folder), "opened");
}

TEST_F(Corruption, TenThousandFlipsOfDataAreNamedToTheByte) {
  save(1, "a");
  const std::string folder = path("a/step-0000001");
  const Manifest manifest = CheckpointReader::open(folder).or_throw().manifest();
  std::mt19937_64 random(7);
  for (int flip = 0; flip < 10'000; ++flip) {
    const StoredFile& file = manifest.files[random() % manifest.files.size()];
    const std::uint64_t byte = file.header_bytes + random() % (file.bytes - file.header_bytes);
    const std::string told = told_after_flip(folder, file.name, byte, unsigned(1 + random() % 255));
    ASSERT_THAT(told, HasSubstr(file.name + ": bytes ")) << byte;
    ASSERT_THAT(told, HasSubstr(fmt::format("; byte {} alone would explain it", byte)));
  }
  EXPECT_EQ(told_of(folder), "opened");
}

TEST_F(Corruption, WhatElseCanHappenToAFile) {
  struct Case {
    const char* name;
    std::function<void(const std::string& folder, const std::string& file)> harm;
    const char* told;
  };
  const std::string model = "model-00001-of-00001.safetensors";
  const auto punch = [](const std::string& file, off_t begin, off_t bytes) {
    const Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, bytes), 0);
  };
  const auto write_at = [](const std::string& file, std::uint64_t place, const std::string& bytes) {
    const Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), off_t(place)), ::ssize_t(bytes.size()));
  };
  const auto set_length = [&](const std::string& file, std::uint64_t length) {
    write_at(file, 0, std::string(reinterpret_cast<const char*>(&length), sizeof length));
  };
  const auto place_of = [](const std::string& file, const char* text) { return test::file_text(file).find(text); };
  const auto edit = [](const std::string& folder, const std::string& from, const std::string& to) {
    std::string text = test::file_text(folder + "/manifest.json");
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    test::set_file(folder + "/manifest.json", detail::with_manifest_digest(text));
  };
  const Case cases[] = {
      {"truncated", [](auto&, auto& file) { fs::resize_file(file, 2000); }, "it was cut off or added to"},
      {"hole", [&](auto&, auto& file) { punch(file, 4096, 2048); }, "; bytes 4096 to 5120 are zeros: a hole?"},
      {"hole at the beginning of the header", [&](auto&, auto& file) { punch(file, 0, 64); },
       "; bytes 0 to 64, before the entry of any tensor, are zeros: a hole?"},
      {"hole in an entry of the header",
       [&](auto&, auto& file) { punch(file, off_t(place_of(file, "emb[40:64")) + 20, 30); },
       ", in the entry of \"emb[40:64, 0:32]\", are zeros: a hole?"},
      {"oversized header", [&](auto&, auto& file) { set_length(file, std::uint64_t(1) << 32 | 0x138); },
       "; its first 8 bytes claim a header of 4294967608 bytes, and it has "},
      {"length of zeros", [&](auto&, auto& file) { set_length(file, 0); },
       "; its first 8 bytes claim a header of 0 bytes, and it has "},
      {"header of another length", [&](auto&, auto& file) { set_length(file, 0x0123456789); },
       "; its first 8 bytes claim a header of 4886718345 bytes, and it has "},
      {"a word of the header", [&](auto&, auto& file) { write_at(file, place_of(file, "emb[40:64") + 5, "1"); },
       ", in the entry of \"emb"},
      {"of another step",
       [&](auto&, auto& file) {
         fs::copy_file(path("b/step-0000002/" + model), file, fs::copy_options::overwrite_existing);
       },
       "has another header"},
      {"manifest of another step",
       [&](auto& folder, auto&) {
         fs::copy_file(path("b/step-0000002/manifest.json"), folder + "/manifest.json",
                       fs::copy_options::overwrite_existing);
       },
       "manifest.json is of step 2, its folder is named for step 1: it was renamed or copied"},
      {"missing", [](auto&, auto& file) { fs::remove(file); }, "is missing"},
      {"link",
       [&](auto&, auto& file) {
         fs::remove(file);
         fs::create_symlink(path("b/step-0000002/" + model), file);
       },
       "is a link, where the checkpoint has a file"},
      {"pipe",
       [](auto&, auto& file) {
         fs::remove(file);
         ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
       },
       "is no regular file"},
      {"overlapping boxes", [&](auto& folder, auto&) { edit(folder, "\"begin\":[40,0]", "\"begin\":[39,0]"); },
       "overlap"},
      {"overlapping bytes",
       [&](auto& folder, auto&) {
         edit(folder, "\"begin\":[0,0],\"extent\":[40,32]", "\"begin\":[0,0],\"extent\":[39,32]");
       },
       "a hole or an overlap"},
      {"a path out of the folder",
       [&](auto& folder, auto&) { edit(folder, "\"name\":\"model-", "\"name\":\"../del-"); },
       "is no plain name in the folder"},
  };
  for (const Case& one : cases) {
    fs::remove_all(path("a"));
    fs::remove_all(path("b"));
    save(1, "a");
    save(2, "b", 1);
    const std::string folder = path("a/step-0000001");
    one.harm(folder, folder + "/" + model);
    EXPECT_THAT(told_of(folder), HasSubstr(one.told)) << one.name;
    const auto report = verify_tensors(folder).or_throw();
    ASSERT_FALSE(report.troubles.empty()) << one.name;
    EXPECT_THAT(to_string(report.troubles[0]), HasSubstr(one.told)) << one.name;
  }
}

TEST_F(Corruption, ACopyUnderTheNameOfAnotherStepIsNotThatStep) {
  save(6, "a");
  fs::copy(path("a/step-0000006"), path("a/step-0000099"));
  const char* const told = "step-0000099/manifest.json is of step 6, its folder is named for step 99: it was renamed";
  EXPECT_THAT(told_of(path("a/step-0000099")), HasSubstr(told));
  EXPECT_THAT(told_of(path("a/step-0000099//")), HasSubstr("is of step 6"));
  const auto newest = CheckpointReader::open(path("a")).or_throw();
  EXPECT_EQ(newest.folder(), path("a/step-0000006"));
  EXPECT_THAT(newest.passed_over(), testing::ElementsAre(HasSubstr(told)));
  fs::rename(path("a/step-0000099"), path("a/best"));
  EXPECT_EQ(told_of(path("a/best")), "opened");
}

// Where it is only looked at while it is read, what was read is an error, and not bytes.
TEST_F(Corruption, ReadingWithoutLookingBeforeRefusesAsWell) {
  save(1, "a");
  const std::string file = path("a/step-0000001/model-00001-of-00001.safetensors");
  std::string text = test::file_text(file);
  text[text.size() - 40] ^= 1;
  test::set_file(file, text);
  const auto saved = CheckpointReader::open(path("a"), VerifyLevel::kFiles).or_throw();
  std::vector<float> all(64 * 32);
  std::vector<std::string> told;
  for (const TensorKey& key : {TensorKey{"emb", ""}, TensorKey{"fc.bias", ""}, TensorKey{"emb", "sum"}}) {
    const std::uint64_t elements = saved.find(key)->shape.size() == 2 ? all.size() : 7;
    const Status read = saved.read(key, std::as_writable_bytes(std::span(all).first(elements)));
    if (!read.ok()) told.push_back(to_string(read.error()));
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("have changed: their digest is "));
}

}  // namespace
}  // namespace tutti
