#include "tutti/data/clicks/criteo.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <cstring>
#include <map>

#include "tutti/data/clicks/clicks_testing.h"
#include "tutti/data/clicks/criteo_text.h"
#include "tutti/data/clicks/packed.h"
#include "tutti/data/clicks/planted_files.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PlantedClicks clicks() { return PlantedClicks::create({.rows = criteo_rows(500)}).or_throw(); }

std::string text_of(std::uint64_t samples) {
  const TestFolder folder;
  write_planted_text(clicks(), {.output = folder.file("text"), .samples = samples}).or_throw();
  return bytes_of_file(folder.file("text"));
}

std::string compressed(const TestFolder& folder, const std::string& name, const std::string& text) {
  const gzFile file = gzopen(folder.file(name).c_str(), "wb1");
  gzwrite(file, text.data(), unsigned(text.size()));
  gzclose(file);
  return folder.file(name);
}

// A line whose ids are those of `base`, with some columns (from 1) replaced.
std::string line(const std::map<int, std::string>& replaced = {}, int columns = 40) {
  std::string text;
  for (int column = 1; column <= columns; ++column) {
    const auto other = replaced.find(column);
    if (column > 1) text += '\t';
    text += other != replaced.end() ? other->second : column == 1 ? "0" : column <= 14 ? "5" : "0000000a";
  }
  return text + "\n";
}

CriteoReport pack(CriteoOptions options) { return pack_criteo(options).or_throw(); }
std::string refusal(const CriteoOptions& options) {
  const auto report = pack_criteo(options);
  return report.ok() ? "no error" : to_string(report.error());
}
std::vector<std::int64_t> column(const std::string& folder, int table, ClickSplit split = ClickSplit::kAll) {
  const auto source = open_packed_clicks({.path = folder, .split = split, .batch_size = 1 << 20}).or_throw();
  return read_part(*source, 0, {.tables = {table}}).lookups[0].indices;
}

TEST(Criteo, TheSamplesAreThoseOfTheTextAndIdsAreNumberedAsTheyAppear) {
  const TestFolder folder;
  constexpr std::int64_t kSamples = 40000;
  const std::string text = folder.write("train.txt", text_of(kSamples));
  const CriteoReport report =
      pack({.inputs = {text}, .output = folder.file("out"), .randomize = Randomize::kNone, .threads = 3});
  EXPECT_EQ(report.samples, std::uint64_t(kSamples));
  EXPECT_EQ(report.lines, std::uint64_t(kSamples));
  EXPECT_THAT(report.samples_of_days, ElementsAre(5715, 5715, 5714, 5714, 5714, 5714, 5714));
  const auto packed =
      open_packed_clicks({.path = folder.file("out"), .split = ClickSplit::kAll, .batch_size = kSamples}).or_throw();
  const auto source = make_planted_source(clicks(), 0, kSamples, kSamples).or_throw();
  const ClickBatch found = read_whole(*packed, 0), expected = read_whole(*source, 0);
  EXPECT_EQ(found.dense, expected.dense);
  EXPECT_EQ(found.targets, expected.targets);
  for (int table = 0; table < kCriteoTables; ++table) {
    std::map<std::int64_t, std::int64_t> numbers;
    std::vector<std::uint32_t> ids;
    std::vector<std::int64_t> numbered;
    for (const std::int64_t row : expected.lookups[std::size_t(table)].indices) {
      const auto [entry, is_new] = numbers.try_emplace(row, numbers.size());
      if (is_new) ids.push_back(id_of_row(table, row));
      numbered.push_back(entry->second);
    }
    EXPECT_EQ(found.lookups[std::size_t(table)].indices, numbered) << "table " << table;
    EXPECT_EQ(packed->shape().rows[std::size_t(table)], std::int64_t(numbers.size()));
    const std::string written =
        bytes_of_file(folder.file("out/ids_" + std::string(table < 10 ? "0" : "") + std::to_string(table) + ".bin"));
    ASSERT_EQ(written.size(), 4 * ids.size());
    EXPECT_EQ(std::memcmp(written.data(), ids.data(), written.size()), 0);
  }
}

TEST(Criteo, TheResultDoesNotDependOnThreadsOrCompression) {
  const TestFolder folder;
  const std::string text = text_of(50000);
  const std::string plain = folder.write("plain", text), gz = compressed(folder, "train.gz", text);
  pack({.inputs = {plain}, .output = folder.file("a"), .threads = 1});
  pack({.inputs = {gz}, .output = folder.file("b"), .threads = 5});
  EXPECT_EQ(bytes_of_file(folder.file("a/clicks.bin")), bytes_of_file(folder.file("b/clicks.bin")));
}

TEST(Criteo, TheOrderIsNumpysPermutation) {
  const TestFolder folder;
  const std::string text = folder.write("train.txt", text_of(7000));
  std::map<Randomize, std::vector<std::int64_t>> columns;
  for (const Randomize randomize : {Randomize::kNone, Randomize::kDay, Randomize::kTotal}) {
    const std::string out = folder.file("out" + std::to_string(int(randomize)));
    pack({.inputs = {text}, .output = out, .randomize = randomize, .seed = 123});
    columns[randomize] = column(out, 2);
  }
  const auto& plain = columns[Randomize::kNone];
  std::vector<std::int64_t> total, day;
  for (const std::int64_t from : NumpyRandom(123).permutation(6000)) total.push_back(plain[std::size_t(from)]);
  NumpyRandom random(123);
  for (int begin = 0; begin < 6000; begin += 1000)
    for (const std::int64_t from : random.permutation(1000)) day.push_back(plain[std::size_t(begin + from)]);
  for (auto* order : {&total, &day}) order->insert(order->end(), plain.begin() + 6000, plain.end());
  EXPECT_EQ(columns[Randomize::kTotal], total);
  EXPECT_EQ(columns[Randomize::kDay], day);
}

TEST(Criteo, SeveralFilesAreADayEach) {
  const TestFolder folder;
  const std::string first = folder.write("day_0", line({{15, "1"}}) + line({{15, "2"}}));
  const std::string second = folder.write("day_1", "");
  const std::string third = folder.write("day_2", line({{15, "2"}}) + line({{15, "3"}}) + line({{15, "1"}}));
  const CriteoReport report = pack({.inputs = {first, second, third}, .output = folder.file("out")});
  EXPECT_THAT(report.samples_of_days, ElementsAre(2, 0, 3));
  EXPECT_THAT(column(folder.file("out"), 0, ClickSplit::kTest), ElementsAre(1, 2));
  EXPECT_THAT(column(folder.file("out"), 0, ClickSplit::kValidation), ElementsAre(0));
}

TEST(Criteo, MissingNegativeAndShortValuesAndLineEnds) {
  const TestFolder folder;
  std::string last = line({{1, "1"}, {2, "-3"}, {3, ""}, {4, "2147483647"}, {15, ""}, {16, "F"}, {40, ""}});
  last.pop_back();
  std::string windows = line({{16, "0000000F"}});
  windows.insert(windows.size() - 1, "\r");
  const std::string text = folder.write("t", windows + last);
  const CriteoReport report = pack(
      {.inputs = {text}, .output = folder.file("out"), .days = 1, .max_ind_range = 10, .randomize = Randomize::kNone});
  EXPECT_EQ(report.clicked, 1u);
  EXPECT_EQ(report.rows[0], 1u);  // 10 modulo 10, and missing
  EXPECT_EQ(report.rows[1], 1u);
  const auto source =
      open_packed_clicks({.path = folder.file("out"), .split = ClickSplit::kAll, .batch_size = 2}).or_throw();
  const ClickBatch batch = read_whole(*source, 0);
  EXPECT_EQ(batch.dense[13], 0);
  EXPECT_EQ(batch.dense[14], 0);
  EXPECT_FLOAT_EQ(batch.dense[15], 21.487562f);
  EXPECT_THAT(batch.targets, ElementsAre(0, 1));
}

TEST(Criteo, DropsUnclickedSamplesByNumpysDraws) {
  const TestFolder folder;
  const std::string text = folder.write("train.txt", text_of(5000));
  const CriteoReport all =
      pack({.inputs = {text}, .output = folder.file("all"), .days = 5, .randomize = Randomize::kNone});
  const CriteoReport report = pack({.inputs = {text},
                                    .output = folder.file("out"),
                                    .days = 5,
                                    .sub_sample_rate = 0.875,
                                    .randomize = Randomize::kNone});
  EXPECT_EQ(report.clicked, all.clicked);
  EXPECT_EQ(report.samples + report.dropped, 5000u);
  const auto labels =
      read_whole(
          *open_packed_clicks({.path = folder.file("all"), .split = ClickSplit::kAll, .batch_size = 5000}).or_throw(),
          0)
          .targets;
  NumpyRandom random(123);
  std::vector<std::uint64_t> kept_of_days(5);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double chance = random.uniform();
    kept_of_days[i / 1000] += labels[i] == 1 || chance >= 0.875;
  }
  EXPECT_EQ(report.samples_of_days, kept_of_days);
}

TEST(Criteo, MalformedLinesAreReportedByFileLineAndColumn) {
  const TestFolder folder;
  const auto refusal_of = [&](const std::string& bad) {
    const std::string path = folder.write("day_0", line() + line() + bad + line());
    const std::string text = refusal({.inputs = {path}, .output = folder.file("out")});
    EXPECT_FALSE(std::filesystem::exists(folder.file("out.unfinished")));
    const std::size_t at = text.find("line");
    return at == std::string::npos ? text : text.substr(at, text.find(" (hint") - at);
  };
  EXPECT_EQ(refusal_of(line({{7, "12x"}})),
            "line 3, column 7 (integer 6): expected a whole number of at most 32 bits, or nothing, found '12x'");
  EXPECT_EQ(refusal_of(line({{2, "2147483648"}})),
            "line 3, column 2 (integer 1): expected a whole number of at most 32 bits, or nothing, found '2147483648'");
  EXPECT_THAT(refusal_of(line({{2, "18446744073709551617"}})), HasSubstr("found '18446744073709551617'"));  // 2^64 + 1
  EXPECT_EQ(refusal_of(line({{2, "-"}})),
            "line 3, column 2 (integer 1): expected a whole number of at most 32 bits, or nothing, found '-'");
  EXPECT_EQ(refusal_of(line({{15, "000000000"}})),
            "line 3, column 15 (id 1): expected at most 8 hexadecimal digits, or nothing, found '000000000'");
  EXPECT_EQ(refusal_of(line({{40, "0000000g"}})),
            "line 3, column 40 (id 26): expected at most 8 hexadecimal digits, or nothing, found '0000000g'");
  EXPECT_EQ(refusal_of(line({{1, "2"}})), "line 3, column 1 (the label): expected 0 or 1, found '2'");
  EXPECT_EQ(refusal_of(line({{1, ""}})), "line 3, column 1 (the label): expected 0 or 1, found ''");
  EXPECT_EQ(refusal_of(line({}, 39)), "line 3: expected 40 columns separated by TAB, found 39");
  EXPECT_EQ(refusal_of(line({}, 41)), "line 3: expected 40 columns separated by TAB, found 41");
  EXPECT_EQ(refusal_of("\n"), "line 3: expected 40 columns separated by TAB, found 1");
  EXPECT_EQ(refusal_of(line({{3, std::string("\0\xff", 2)}})),
            "line 3, column 3 (integer 2): expected a whole number of at most 32 bits, or nothing, found '\\x00\\xff'");
  EXPECT_EQ(refusal_of(line({{16, "abcdefghijklmnopqrstuvwxyz"}})),
            "line 3, column 16 (id 2): expected at most 8 hexadecimal digits, or nothing, found "
            "'abcdefghijklmnopqrstuvwx...'");
}

TEST(Criteo, BadLinesUpToTheLimitAreSkippedAndCounted) {
  const TestFolder folder;
  const std::string text =
      folder.write("t", line({{15, "1"}}) + "x\n" + line({{15, "2"}}) + line({{3, "y"}}) + line({{15, "3"}}));
  const CriteoReport report = pack(
      {.inputs = {text}, .output = folder.file("out"), .days = 2, .randomize = Randomize::kNone, .skip_bad_lines = 2});
  EXPECT_EQ(report.bad_lines, 2u);
  EXPECT_EQ(report.samples, 3u);
  EXPECT_EQ(report.lines, 5u);
  EXPECT_THAT(report.samples_of_days, ElementsAre(2, 1));  // lines 1-3 and 4-5
  EXPECT_THAT(report.bad_line_words,
              ElementsAre(HasSubstr("line 2: expected 40 columns"), HasSubstr("line 4, column 3 (integer 2)")));
  EXPECT_THAT(
      refusal({.inputs = {text}, .output = folder.file("other"), .skip_bad_lines = 1}),
      HasSubstr("line 4, column 3 (integer 2): expected a whole number of at most 32 bits, or nothing, found 'y': "
                "this is one malformed line more than the 1 that may be skipped"));
}

TEST(Criteo, TheFirstBadLineIsReportedWhateverTheThreadsDo) {
  const TestFolder folder;
  std::string text = text_of(60000);  // several pieces
  text += "late\n";
  const std::size_t early = text.find('\n', text.size() / 2) + 1;
  const auto lines_before = std::count(text.begin(), text.begin() + std::ptrdiff_t(early), '\n');
  text.insert(early, "early\n");
  const std::string path = folder.write("t", text);
  for (int turn = 0; turn < 5; ++turn)
    EXPECT_THAT(refusal({.inputs = {path}, .output = folder.file("out"), .threads = 4}),
                HasSubstr("line " + std::to_string(lines_before + 1) + ": expected 40 columns"));
}

TEST(Criteo, WhatCannotBeReadOrWrittenIsRefused) {
  const TestFolder folder;
  const std::string text = text_of(2000), path = folder.write("t", text);
  EXPECT_THAT(refusal({.inputs = {path, folder.file("day_1")}, .output = folder.file("out")}),
              HasSubstr("cannot open " + folder.file("day_1")));
  const std::string gz = compressed(folder, "t.gz", text);
  const std::string bytes = bytes_of_file(gz);
  folder.write("t.gz", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(refusal({.inputs = {gz}, .output = folder.file("out")}),
              HasSubstr(gz + ": the compressed data is cut off after line "));
  folder.write("t.gz", bytes + "more");
  EXPECT_THAT(refusal({.inputs = {gz}, .output = folder.file("out")}), HasSubstr("bytes that are not of gzip"));
  EXPECT_THAT(refusal({.inputs = {folder.write("empty", "")}, .output = folder.file("out")}),
              HasSubstr("no sample came out of 0 lines"));
  EXPECT_THAT(refusal({.inputs = {path}, .output = folder.file("t")}), HasSubstr(path + " is there already"));
  EXPECT_THAT(refusal({.inputs = {path}, .output = folder.file("no/such/folder")}),
              HasSubstr("cannot make the folder " + folder.file("no/such/folder") + ".unfinished"));
  EXPECT_THAT(refusal({.inputs = {}, .output = folder.file("out")}), HasSubstr("no input was given"));
  EXPECT_THAT(refusal({.inputs = {path}, .output = folder.file("out"), .days = 0}),
              HasSubstr("one file cannot be cut into 0 days"));
  EXPECT_THAT(refusal({.inputs = {path}, .output = folder.file("out"), .sub_sample_rate = 1}),
              HasSubstr("--sub-sample-rate is at least 0 and below 1"));
  EXPECT_THAT(refusal({.inputs = {path}, .output = folder.file("out"), .threads = 2, .memory = 1 << 20}),
              HasSubstr("1 MiB of memory are too little for 2 threads"));
  EXPECT_THAT(refusal({.inputs = {folder.write("long", std::string(5 << 20, 'a'))}, .output = folder.file("out")}),
              HasSubstr("line 1 is longer than 4 MiB"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out.unfinished")));
}

TEST(Criteo, WhatAKilledRunLeftIsRemoved) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.file("out.unfinished"));
  folder.write("out.unfinished/blocks.tmp", "half");
  pack({.inputs = {folder.write("t", line())}, .output = folder.file("out"), .days = 1});
  EXPECT_FALSE(std::filesystem::exists(folder.file("out.unfinished")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out/blocks.tmp")));
}

TEST(PlantedFiles, PackedAreTheSamplesOfTheSource) {
  const TestFolder folder;
  const PlantedFileOptions options{.output = folder.file("out"), .samples = 40000, .days = 4, .threads = 3};
  write_planted_packed(clicks(), options).or_throw();
  const auto packed =
      open_packed_clicks({.path = folder.file("out"), .split = ClickSplit::kTest, .batch_size = 5000}).or_throw();
  const auto source = make_planted_source(clicks(), 30000, 5000, 5000).or_throw();
  const ClickBatch found = read_whole(*packed, 0), expected = read_whole(*source, 0);
  EXPECT_EQ(found.dense, expected.dense);
  EXPECT_EQ(found.targets, expected.targets);
  for (std::size_t table = 0; table < 26; ++table)
    EXPECT_EQ(found.lookups[table].indices, expected.lookups[table].indices);
  EXPECT_EQ(packed->shape().rows, source->shape().rows);
  EXPECT_THAT(to_string(write_planted_packed(clicks(), options).error()), HasSubstr("is there already"));
  EXPECT_THAT(to_string(write_planted_packed(clicks(), {.output = folder.file("b")}).error()), HasSubstr("0 samples"));
}

TEST(PlantedFiles, TextRefusesWhatItCannotHold) {
  const TestFolder folder;
  const auto other = PlantedClicks::create({.rows = {3, 4}, .pairs = 1}).or_throw();
  EXPECT_THAT(to_string(write_planted_text(other, {.output = folder.file("t"), .samples = 5}).error()),
              HasSubstr("Criteo's text has 13 dense features and 26 tables, not 13 and 2"));
  EXPECT_THAT(to_string(write_planted_text(clicks(), {.output = folder.write("t", ""), .samples = 5}).error()),
              HasSubstr("is there already"));
  EXPECT_THAT(folder.names(), ElementsAre("t"));
}

}  // namespace
}  // namespace tutti
