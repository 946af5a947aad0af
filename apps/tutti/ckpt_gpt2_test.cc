// `tutti ckpt gpt2` as a user types it.
#include <filesystem>

#include "apps/tutti/ckpt_command_fixture.h"
#include "tutti/base/float16.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::Ended;
using ::testing::HasSubstr;
using testing::run;

// A GPT-2 of one layer, 96 numbers a token and no meaning.
class CkptGpt2 : public CkptCommand {
 protected:
  struct Named {
    const char* name;
    TensorShape shape;
  };
  static const std::vector<Named>& names() {
    static const std::vector<Named> names = {{"wte.weight", {5, 96}},
                                             {"wpe.weight", {4, 96}},
                                             {"ln_f.weight", {96}},
                                             {"ln_f.bias", {96}},
                                             {"h.0.ln_1.weight", {96}},
                                             {"h.0.ln_1.bias", {96}},
                                             {"h.0.attn.c_attn.weight", {96, 288}},
                                             {"h.0.attn.c_attn.bias", {288}},
                                             {"h.0.attn.c_proj.weight", {96, 96}},
                                             {"h.0.attn.c_proj.bias", {96}},
                                             {"h.0.ln_2.weight", {96}},
                                             {"h.0.ln_2.bias", {96}},
                                             {"h.0.mlp.c_fc.weight", {96, 384}},
                                             {"h.0.mlp.c_fc.bias", {384}},
                                             {"h.0.mlp.c_proj.weight", {384, 96}},
                                             {"h.0.mlp.c_proj.bias", {96}}};
    return names;
  }
  // Element i of every tensor is i % 16, which each of the types can be.
  template <class T, class Convert>
  std::string write(DType dtype, const std::string& file, const Convert& convert,
                    const std::vector<Named>& named = names()) const {
    std::vector<T> values;
    for (int i = 0; i < 96 * 384; ++i) values.push_back(convert(float(i % 16)));
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, shape] : named) tensors.push_back({name, dtype, shape, values.data()});
    write_safetensors(path(file), tensors).or_throw();
    return path(file);
  }
  std::string write_f32(const std::string& file, const std::vector<Named>& named = names()) const {
    return write<float>(
        DType::kF32, file, [](float value) { return value; }, named);
  }
  // Another shape for the tensor `name`.
  static std::vector<Named> names_with(const std::string& name, const TensorShape& shape) {
    std::vector<Named> changed = names();
    for (Named& tensor : changed)
      if (name == tensor.name) tensor.shape = shape;
    return changed;
  }
  std::int64_t heads_in(const std::string& folder) const {
    return std::get<std::int64_t>(CheckpointReader::open(path(folder)).or_throw().facts().values.at("heads"));
  }
};

TEST_F(CkptGpt2, HeadsAreThoseOfConfigJson) {
  fs::create_directory(path("hf"));
  const std::string file = write_f32("hf/model.safetensors");
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"ckpt", "gpt2", file, path("no")};
    line.insert(line.end(), more.begin(), more.end());
    const Ended ended = run(line);
    EXPECT_EQ(ended.code, 2);
    EXPECT_FALSE(fs::exists(path("no")));
    return ended.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("has 96 numbers a token, which are not heads of 64 numbers as in GPT-2\nhint: say "
                                     "how many heads of attention it has: --heads N, or config.json beside it"));
  ASSERT_EQ(run({"ckpt", "gpt2", file, path("given"), "--heads", "6"}).code, 0);
  EXPECT_EQ(heads_in("given"), 6);
  test::set_file(path("hf/config.json"),
                 R"({"n_head": 3, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-6})");
  for (const std::string& from : {file, path("hf")}) {
    const std::string folder = from == file ? "of_file" : "of_folder";
    const Ended ended = run({"ckpt", "gpt2", from, path(folder)});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(heads_in(folder), 3);
  }
  EXPECT_EQ(std::get<double>(CheckpointReader::open(path("of_file")).or_throw().facts().values.at("norm_epsilon")),
            1e-6);
  EXPECT_THAT(refusal({"--heads", "4"}), HasSubstr("--heads 4 is given, and config.json beside "));
  for (const auto& [config, expected] : std::map<std::string, std::string>{
           {R"({"n_head": 5})", "96 numbers a token cannot be divided into 5 heads"},
           {R"({"n_head": 0})", "config.json: n_head is 0, expected a whole number from 1 to 1048576"},
           {R"({"n_head": 3, "n_layer": 7})", "its config.json has n_layer 7, and the weights have 1 layer"},
           {R"({"n_head": 3, "tie_word_embeddings": false})",
            "config.json has tie_word_embeddings false, and only models with tied embeddings are converted"},
           {R"({"n_head": 3, "layer_norm_epsilon": "x"})",
            "config.json: layer_norm_epsilon is \"x\", expected a number above 0"},
           {R"({"n_head": 3, "layer_norm_epsilon": -1})", "layer_norm_epsilon is -1, expected a number above 0"},
           {R"({"n_head": 3, "activation_function": "relu"})",
            "config.json has activation_function \"relu\", and pretrain_gpt computes with \"gelu_new\""},
           {R"({"n_head": 3, "scale_attn_by_inverse_layer_idx": true})",
            "config.json has scale_attn_by_inverse_layer_"},
           {"[]", "config.json is no JSON object"}}) {
    test::set_file(path("hf/config.json"), config);
    const Ended ended = run({"ckpt", "gpt2", file, path("no")});
    EXPECT_NE(ended.code, 0) << config;
    EXPECT_THAT(ended.err, HasSubstr(expected));
    EXPECT_FALSE(fs::exists(path("no")));
  }
}

TEST_F(CkptGpt2, RejectsShapesThatDoNotFitTogether) {
  const auto refusal = [&](const std::string& name, const TensorShape& shape) {
    const Ended ended =
        run({"ckpt", "gpt2", write_f32("x.safetensors", names_with(name, shape)), path("no"), "--heads", "3"});
    EXPECT_EQ(ended.code, 2) << name;
    EXPECT_FALSE(fs::exists(path("no")));
    return ended.err;
  };
  EXPECT_THAT(refusal("h.0.attn.c_attn.weight", {96, 96}),
              HasSubstr("is no GPT-2: h.0.attn.c_attn.weight is [96, 96], expected [96, 288]"));
  EXPECT_THAT(refusal("h.0.mlp.c_fc.bias", {96}), HasSubstr("h.0.mlp.c_fc.bias is [96], expected [384]"));
  EXPECT_THAT(refusal("wpe.weight", {4, 95}), HasSubstr("wpe.weight is [4, 95], expected [4, 96]"));
  EXPECT_THAT(refusal("ln_f.bias", {96, 1}), HasSubstr("ln_f.bias is [96, 1], expected [96]"));
  EXPECT_THAT(refusal("wte.weight", {5}), HasSubstr("wte.weight is no matrix: [5]"));
}

TEST_F(CkptGpt2, RejectsAnOutputLayerThatIsNotTheEmbedding) {
  auto named = names();
  named.push_back({"lm_head.weight", {5, 96}});
  EXPECT_EQ(run({"ckpt", "gpt2", write_f32("tied.safetensors", named), path("tied"), "--heads", "3"}).code, 0);
  std::vector<float> values(96 * 384);
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, shape] : names()) tensors.push_back({name, DType::kF32, shape, values.data()});
  const std::vector<float> others(5 * 96, 1);
  tensors.push_back({"lm_head.weight", DType::kF32, {5, 96}, others.data()});
  write_safetensors(path("untied.safetensors"), tensors).or_throw();
  const Ended ended = run({"ckpt", "gpt2", path("untied.safetensors"), path("no"), "--heads", "3"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              HasSubstr("lm_head.weight differs from wte.weight, and only models with tied embeddings are converted"));
}

TEST_F(CkptGpt2, ReplacesNothing) {
  const std::string file = write_f32("model.safetensors");
  const std::vector<std::string> line = {"ckpt", "gpt2", file, path("g"), "--heads", "3"};
  ASSERT_EQ(run(line).code, 0);
  const std::string manifest = test::file_text(path("g/step-0000000/manifest.json"));
  const Ended again = run(line);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("g/step-0000000 is there already\nhint: give another folder"));
  EXPECT_EQ(test::file_text(path("g/step-0000000/manifest.json")), manifest);
  save(100);
  const Ended before = run({"ckpt", "gpt2", file, path("a"), "--heads", "3"});
  EXPECT_EQ(before.code, 2);
  EXPECT_THAT(before.err, HasSubstr("has a checkpoint of step 100, and this one is of step 0"));
  EXPECT_EQ(test::file_text(path("a/latest")), "step-0000100\n");
  const std::string weights = test::file_text(file);
  const Ended back = run({"ckpt", "gpt2", path("g"), file});
  EXPECT_EQ(back.code, 2);
  EXPECT_THAT(back.err, HasSubstr(file + " is there already\nhint: give another name"));
  EXPECT_EQ(test::file_text(file), weights);
  ASSERT_EQ(run({"ckpt", "gpt2", path("g"), path("back.safetensors")}).code, 0);
  EXPECT_THAT(run({"ckpt", "diff", file, path("back.safetensors")}).out, HasSubstr("16 tensors are equal, 0 differ"));
}

TEST_F(CkptGpt2, TakesSixteenBits) {
  write_f32("f32.safetensors");
  write<Half>(DType::kF16, "f16.safetensors", [](float value) { return to_half(value); });
  write<BFloat16>(DType::kBF16, "bf16.safetensors", [](float value) { return to_bfloat16(value); });
  write<double>(DType::kF64, "f64.safetensors", [](float value) { return double(value); });
  for (const std::string type : {"f32", "f16", "bf16"}) {
    const Ended ended = run({"ckpt", "gpt2", path(type + ".safetensors"), path(type), "--heads", "3"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(run({"ckpt", "diff", path("f32"), path(type)}).code, 0) << type;
  }
  const auto saved = CheckpointReader::open(path("f16")).or_throw();
  std::vector<float> qkv(288 * 96);
  saved.read({"decoder.layers.0.self_attention.linear_qkv.weight"}, std::as_writable_bytes(std::span(qkv))).or_throw();
  for (int row = 0; row < 288; ++row)
    for (int column = 0; column < 96; ++column)
      ASSERT_EQ(qkv[std::size_t(row * 96 + column)], float((column * 288 + row) % 16)) << row << " " << column;
  const Ended ended = run({"ckpt", "gpt2", path("f64.safetensors"), path("f64"), "--heads", "3"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("is F64, and only F32, F16 and BF16 are turned into another model"));
}

}  // namespace
}  // namespace tutti
