#include "tutti/checkpoint/format/manifest.h"

#include <gmock/gmock.h>

#include <cmath>

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Manifest sample() {
  Manifest manifest;
  manifest.facts = {.step = 100,
                    .values = {{"lr", 0.1}, {"best_auc", std::nan("")}, {"worst", -INFINITY}, {"done", true}},
                    .data = {{"epoch", std::int64_t(2)}, {"order", std::string("shuffled \xc3\xa9")}},
                    .layout = {{"ranks", std::int64_t(4)}, {"whole", 4.0}},
                    .versions = {{"tutti", std::string("0.1.0")}}};
  manifest.chunk_bytes = 4096;
  manifest.files = {{.name = "model-1.safetensors", .bytes = 100 + 8000, .header_bytes = 100, .header_crc32c = 7},
                    {.name = "model-2.safetensors", .bytes = 64 + 4000 + 4, .header_bytes = 64},
                    {.name = "optimizer-1.safetensors", .bytes = 64 + 400, .header_bytes = 64}};
  manifest.tensors[{"emb", ""}] = {
      .shape = {100, 30},
      .boxes = {{.box = {{0, 0}, {100, 20}}, .file = 0, .offset = 100, .crc32c = {1, 0xabcdef01}},
                {.box = {{0, 20}, {100, 10}}, .file = 1, .offset = 68, .crc32c = {3}}}};
  manifest.tensors[{"emb", "sum"}] = {.shape = {100},
                                      .boxes = {{.box = {{0}, {100}}, .file = 2, .offset = 64, .crc32c = {4}}}};
  manifest.tensors[{"scale", ""}] = {
      .dtype = DType::kI32, .shape = {}, .boxes = {{.file = 1, .offset = 64, .crc32c = {5}}}};
  manifest.tensors[{"none", "m"}] = {.dtype = DType::kBF16, .shape = {0, 4}};
  return manifest;
}

std::string sample_text() { return compose_manifest(sample()).or_throw(); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

TEST(Manifest, ComesBackAsItWas) {
  const std::string text = sample_text();
  const auto read = parse_manifest(text);
  ASSERT_TRUE(read.ok()) << to_string(read.error()) << "\n" << text;
  EXPECT_EQ(*compose_manifest(*read), text);
  EXPECT_EQ(read->facts.step, 100);
  EXPECT_EQ(read->facts.values.at("lr"), CheckpointValue(0.1));
  EXPECT_TRUE(std::isnan(std::get<double>(read->facts.values.at("best_auc"))));
  EXPECT_EQ(read->facts.values.at("worst"), CheckpointValue(-INFINITY));
  EXPECT_EQ(read->facts.values.at("done"), CheckpointValue(true));
  EXPECT_EQ(read->facts.layout.at("ranks"), CheckpointValue(std::int64_t(4)));
  EXPECT_EQ(read->facts.layout.at("whole"), CheckpointValue(4.0));
  EXPECT_EQ(read->facts.data.at("order"), CheckpointValue(std::string("shuffled \xc3\xa9")));
  const StoredTensor& emb = read->tensors.at({"emb", ""});
  EXPECT_EQ(emb.boxes[1].box, (TensorBox{{0, 20}, {100, 10}}));
  EXPECT_EQ(emb.boxes[0].crc32c, (std::vector<std::uint32_t>{1, 0xabcdef01}));
  EXPECT_EQ(read->tensors.at({"none", "m"}).dtype, DType::kBF16);
  EXPECT_EQ(read->files[0].header_crc32c, 7u);
}

TEST(Manifest, EveryByteThatIsChangedIsSeen) {
  const std::string text = sample_text();
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const int flip : {1, 32, 128}) {
      std::string changed = text;
      changed[at] = char(changed[at] ^ flip);
      const auto read = parse_manifest(changed);
      ASSERT_FALSE(read.ok()) << "byte " << at;
      EXPECT_EQ(read.error().code, Code::kCorrupt);
    }
}

TEST(Manifest, EveryLengthThatIsCutOffIsSeen) {
  const std::string text = sample_text();
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_manifest(std::string_view(text).substr(0, size)).ok()) << size;
  EXPECT_THAT(to_string(parse_manifest(text + "\n").error()), HasSubstr("it does not end with its digest"));
  EXPECT_THAT(to_string(parse_manifest(replaced(text, "\"step\":100", "\"step\":101")).error()),
              HasSubstr("it has changed: its digest is"));
}

TEST(Manifest, AnotherVersionIsNotRead) {
  const auto read =
      parse_manifest(detail::with_manifest_digest(replaced(sample_text(), "\"version\":1", "\"version\":2")));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(to_string(read.error()),
            "Unsupported: it is of version 2; this program reads version 1 (hint: read it with the program that wrote "
            "it, or a newer one)");
}

TEST(Manifest, EveryBrokenRuleIsReported) {
  struct Case {
    std::string from, to, expected;
  };
  const Case cases[] = {
      {"\"format\":\"tutti checkpoint\"", "\"format\":\"x\"", "it is \"x\", not \"tutti checkpoint\""},
      {"\"step\":100", "\"step\":-1", "\"step\" of it is no whole number from 0 on"},
      {"\"step\":100", "\"step\":1e2", "\"step\" of it is no whole number from 0 on"},
      {"\"step\":100,", "", "it has no \"step\""},
      {"\"step\":100", "\"step\":100,\"step\":100", "the key \"step\" occurs twice"},
      {"\"step\":100", "\"step\":18446744073709551615", "\"step\" is too large a number"},
      {"\"step\":100", "\"step\":1e999", "it is no JSON"},
      {"\"step\":100", "\"step\":[[[[[[[[[[[[[[1]]]]]]]]]]]]]]", "it nests more than 12 deep"},
      {"\"lr\":0.1", "\"lr\":[1]", "\"lr\" of \"values\" is no number, string, true or false"},
      {"\"lr\":0.1", "\"lr\":{\"float\":\"x\"}", "\"lr\" of \"values\" is no number"},
      {"\"lr\":0.1", "\"lr\":18446744073709551615", "too large a number"},
      {"\"lr\":0.1", "\"lr\":\"\xff\"", "it is no JSON: it cannot be read from byte"},
      {"\"layout\":{", "\"other\":{", "it has no \"layout\""},
      {"\"chunk_bytes\":4096", "\"chunk_bytes\":0", "\"chunk_bytes\" is 0, which is not from 4 KiB to 1 GiB"},
      {"\"files\":[", "\"files\":{},\"x\":[", "\"files\" of it is no list"},
      {"{\"name\":\"model-2.safetensors\"", "{\"name\":\"model-1.safetensors\"",
       "two files are named \"model-1.safetensors\""},
      {"{\"name\":\"model-2.safetensors\"", "{\"name\":\"../x\"", "\"../x\" is no plain name in the folder"},
      {"{\"name\":\"model-2.safetensors\"", "{\"name\":\"a/b\"", "\"a/b\" is no plain name in the folder"},
      {"\"header_crc32c\":\"00000007\"", "\"header_crc32c\":\"7\"", "is no digest of 8 hexadecimal digits"},
      {"\"header_bytes\":100", "\"header_bytes\":9000", "has 8100 bytes, of which 9000 header"},
      {"\"tensors\":{", "\"tensors\":3,\"x\":{", "\"tensors\" of it is no object"},
      {"\"scale\":{", "\"\":{", "a tensor has an empty name"},
      {"\"scale\":{", "\"x\":{},\"scale\":{", "the tensor \"x\" has neither \"dtype\" nor \"state\""},
      {"\"scale\":{", "\"x\":5,\"scale\":{", "the tensor \"x\" is no object"},
      {"\"dtype\":\"I32\"", "\"dtype\":\"I33\"", "the tensor \"scale\" has the unknown dtype \"I33\""},
      {"\"shape\":[100,30]", "\"shape\":[100,-30]", "\"shape\" of the tensor \"emb\" is no whole number"},
      {"\"shape\":[100,30]", "\"shape\":[100,31]",
       "the tensor \"emb\" [100, 31] is not whole: the boxes have 3000 of its 3100"},
      {"\"shape\":[100,30]", "\"shape\":[100,29]",
       "a box of the tensor \"emb\" is [0, 20] and [100, 10] long, which is not inside"},
      {"\"shape\":[100,30]", "\"shape\":[4294967296,4294967296,2]",
       "the shape of the tensor \"emb\" overflows 64 bits"},
      {"\"begin\":[0,20]", "\"begin\":[0,19]", "is not whole: the boxes [0:100, 0:20] and [0:100, 19:29] overlap"},
      {"\"begin\":[0,20]", "\"begin\":[0]", "which is not inside [100, 30]"},
      {"\"file\":\"model-2.safetensors\"", "\"file\":\"model-9\"", "lies in \"model-9\", which is not among the files"},
      {"\"offset\":68", "\"offset\":60",
       "takes 4000 bytes from byte 60 of \"model-2.safetensors\", which has 64 to 4068"},
      {"\"offset\":68", "\"offset\":69", "takes 4000 bytes from byte 69"},
      {"\"offset\":68", "\"offset\":18446744073709551615", "takes 4000 bytes from byte 18446744073709551615"},
      {"\"offset\":68", "\"offset\":66",
       "begins at byte 66 of \"model-2.safetensors\", but what is before it ends at 68: a hole or an overlap"},
      {"\"bytes\":8100", "\"bytes\":8101", "the tensors in \"model-1.safetensors\" end at byte 8100, but it has 8101"},
      {"00000001abcdef01", "00000001", "has 8 digits of digests; its 2 chunks take 16"},
      {"00000001abcdef01", "00000001abcdeF01", "has the digest \"abcdeF01\""},
      {"\"state\":{\"sum\"", "\"state\":{\"\"", "a state of the tensor \"emb\" has an empty name"},
  };
  const std::string text = sample_text();
  for (const auto& [from, to, expected] : cases) {
    const auto read = parse_manifest(detail::with_manifest_digest(replaced(text, from, to)));
    ASSERT_FALSE(read.ok()) << to;
    EXPECT_THAT(to_string(read.error()), StartsWith("Corrupt: ")) << to;
    EXPECT_THAT(to_string(read.error()), HasSubstr(expected)) << to;
  }
}

TEST(Manifest, KeysThatAreNotKnownAreLeftAlone) {
  EXPECT_TRUE(
      parse_manifest(detail::with_manifest_digest(replaced(sample_text(), "\"step\":100", "\"x\":[],\"step\":100")))
          .ok());
}

TEST(Manifest, NamesThatAreNoTextAreRefused) {
  Manifest manifest = sample();
  manifest.facts.values["x"] = std::string("\xff");
  EXPECT_THAT(to_string(compose_manifest(manifest).error()), HasSubstr("not valid UTF-8"));
}

}  // namespace
}  // namespace tutti
