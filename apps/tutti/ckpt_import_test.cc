// `tutti ckpt import` as a user types it, and files that others made.
#include <filesystem>
#include <set>

#include "apps/tutti/ckpt_command_fixture.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::Ended;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::run;

TEST_F(CkptCommand, ImportRefusesWhatItCannot) {
  save(1);
  EXPECT_THAT(run({"ckpt", "import", path("a"), path("b")}).err, HasSubstr("is a checkpoint of Tutti already"));
  EXPECT_THAT(run({"ckpt", "import", path("a")}).err, HasSubstr("no output given"));
  // One rank's file holds a part only.
  const std::string part = path("a/step-0000001/model-00001-of-00003.safetensors");
  ASSERT_EQ(run({"ckpt", "import", part, path("b")}).code, 0);  // its tensors have names with boxes
  const std::string header = R"({"x":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}})";
  const std::uint64_t length = header.size();
  test::set_file(path("i16.safetensors"), std::string(reinterpret_cast<const char*>(&length), 8) + header + "ab");
  const Ended ended = run({"ckpt", "import", path("i16.safetensors"), path("c")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("x is I16, which a checkpoint does not know"));
}

// What torch.save() of before 1.6 wrote, with one storage of 4 floats.
std::string torch_file(const std::string& pickle) {
  const std::uint64_t elements = 4;
  const float values[] = {1, 2, 3, 4};
  return std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.") + "\x80\x02M\xe9\x03." +
         "}S'little_endian'\nI01\ns." + pickle + "]S'0'\na." +
         std::string(reinterpret_cast<const char*>(&elements), sizeof elements) +
         std::string(reinterpret_cast<const char*>(values), sizeof values);
}
// A tensor of these.
const std::string kFourFloats =
    "ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\ntQI0\n(I4\nt(I1\nt"
    "I00\n}tR";
const std::string kNumpyScalar = "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'f8'\ntRS'12345678'\ntR";

// As dlrm_s_pytorch.py --save-model has it: results beside the model are scalars of numpy.
TEST_F(CkptCommand, ImportSkipsObjectsThatAreNotReadAndListsThem) {
  test::set_file(path("dlrm.pt"),
                 torch_file("}S'epoch'\nI3\nsS'state_dict'\n}S'bot_l.0.bias'\n" + kFourFloats + "ssS'test_acc'\n" +
                            kNumpyScalar + "sS'train_loss'\n" + kNumpyScalar +
                            "sS'opt_state_dict'\n}S'state'\n}sS'param_groups'\n(lp1\n(dS'lr'\nF0.5\nsS'params'\n"
                            "(lI0\nasass."));
  const Ended ended = run({"ckpt", "import", path("dlrm.pt"), path("run"), "--path", "state_dict", "--optimizer",
                           "opt_state_dict", "--step", "7"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("dlrm.pt: skipped 2 objects that are not read: test_acc "
                                   "(numpy.core.multiarray.scalar), train_loss (numpy.core.multiarray.scalar)\n"));
  const auto saved = CheckpointReader::open(path("run")).or_throw();
  EXPECT_EQ(saved.manifest().tensors.size(), 2u) << "the weight, and the steps that were made";
  std::vector<float> bias(4);
  saved.read({"bot_l.0.bias"}, std::as_writable_bytes(std::span(bias))).or_throw();
  EXPECT_THAT(bias, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(run({"ckpt", "import", path("dlrm.pt"), path("all")}).code, 0);
  EXPECT_THAT(run({"ckpt", "ls", path("dlrm.pt")}).err, HasSubstr("skipped 2 objects"));
  EXPECT_THAT(run({"ckpt", "verify", path("dlrm.pt")}).err, HasSubstr("skipped 2 objects"));
}

// A weight must not be lost for the class that it is in.
TEST_F(CkptCommand, ImportSkipsATensorOnlyIfTheUserExcludesIt) {
  test::set_file(path("x.pt"), torch_file("}S'fc'\n" + kFourFloats +
                                          "sS'ema'\n}S'shadow'\nc__main__\nEma\n)\x81}S'w'\n" + kFourFloats + "sbss."));
  const auto import = [&](const std::string& to, const std::vector<std::string>& more) {
    std::vector<std::string> line = {"ckpt", "import", path("x.pt"), path(to)};
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  };
  for (const auto& more : {std::vector<std::string>(), {"--path", "ema"}, {"--path", "ema.shadow"}}) {
    const Ended refused = import("no", more);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                HasSubstr("x.pt: ema.shadow, of type __main__.Ema with 1 tensor, is not read\nhint: save a "
                          "state_dict() of plain tensors, or exclude it by --path or --tensor"));
  }
  const Ended taken = import("fc", {"--tensor", "fc"});
  EXPECT_EQ(taken.code, 0) << taken.err;
  EXPECT_THAT(taken.err, HasSubstr("skipped 1 object that is not read: ema.shadow (__main__.Ema, with 1 tensor)"));
  // The state of an optimizer belongs to the chosen tensors.
  test::set_file(path("x.pt"), torch_file("}S'model'\n}S'fc'\n" + kFourFloats +
                                          "ssS'opt'\n}S'state'\n}I0\n}S'exp_avg'\nc__main__\nLazy\n)\x81}S'w'\n" +
                                          kFourFloats + "sbsssS'param_groups'\n(lp1\n(dS'params'\n(lI0\nasass."));
  for (const auto& more : {std::vector<std::string>{"--path", "model"}, {"--path", "model", "--tensor", "fc"}}) {
    std::vector<std::string> with_optimizer = more;
    with_optimizer.insert(with_optimizer.end(), {"--optimizer", "opt"});
    const Ended refused = import("no", with_optimizer);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("opt.state.0.exp_avg, of type __main__.Lazy with 1 tensor, is not read\nhint: "
                                       "save a state_dict() of plain tensors, or import without --optimizer"));
    EXPECT_EQ(import(more.size() == 2 ? "model" : "tensor", more).code, 0);
  }
}

// DistributedDataParallel.state_dict() has "module." before each name.
TEST_F(CkptCommand, ImportStripsAPrefixOfTheNames) {
  test::set_file(path("ddp.pt"),
                 torch_file("}S'model'\n}S'module.fc'\n" + kFourFloats + "ssS'opt'\n}S'state'\n}I0\n}S'exp_avg'\n" +
                            kFourFloats + "sssS'param_groups'\n(lp1\n(dS'params'\n(lI0\nasass."));
  const auto import = [&](const std::string& to, const std::string& prefix) {
    return run({"ckpt", "import", path("ddp.pt"), path(to), "--path", "model", "--optimizer", "opt", "--step", "3",
                "--strip", prefix});
  };
  const Ended ended = import("run", "module.");
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::set<std::string> names;
  const auto saved = CheckpointReader::open(path("run")).or_throw();
  for (const auto& [key, tensor] : saved.manifest().tensors) names.insert(to_string(key));
  EXPECT_THAT(names, ::testing::IsSupersetOf({"fc", "exp_avg of fc"}));
  EXPECT_THAT(names, ::testing::Each(::testing::Not(HasSubstr("module"))));

  const Ended none = import("none", "modul_");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("--strip modul_: no name begins with it; the first is module.fc"));
  EXPECT_THAT(import("whole", "module.fc").err, HasSubstr("--strip module.fc: module.fc has no other name"));
  test::set_file(path("ddp.pt"),
                 torch_file("}S'model'\n}S'fc'\n" + kFourFloats + "sS'module.fc'\n" + kFourFloats + "ss."));
  const Ended twice = run({"ckpt", "import", path("ddp.pt"), path("two"), "--path", "model", "--strip", "module."});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--strip module.: module.fc would have the name of another tensor"));
}

// Names of tensors come from files of others, and are no paths.
TEST_F(CkptCommand, NoFileIsNamedAfterATensor) {
  const std::vector<std::string> names = {"../pwned", "../../pwned", path("pwned"), "a/b", "..", ".", "x\\..\\y"};
  std::vector<float> data(64);
  std::vector<SafetensorsTensor> tensors;
  std::vector<StateBox> boxes;
  for (const std::string& name : names) {
    tensors.push_back({name, DType::kF32, {8, 8}, data.data()});
    boxes.push_back({.key = {name, ""}, .shape = {8, 8}, .data = data.data()});
    boxes.push_back({.key = {name, "../state"}, .shape = {8, 8}, .data = data.data()});
  }
  fs::create_directories(path("deep/er"));
  const auto at = [&](const std::string& name) { return path("deep/er/" + name); };
  write_safetensors(at("in.safetensors"), tensors).or_throw();
  save_checkpoint(at("saved"), boxes, {.step = 1}).or_throw();
  test::set_file(at("in.pt"), torch_file("}S'../../pwned'\n" + kFourFloats + "s."));
  // Every file and folder, except the output of the commands below.
  const std::set<std::string> made = {
      "imported",        "imported_pt",           "resharded",       "merged", "merged_all",
      "box.safetensors", "extracted.safetensors", "rank.safetensors"};
  const auto others = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      const std::string place = fs::relative(entry.path(), path("deep/er")).string();
      if (!made.contains(place.substr(0, place.find('/'))) && !place.ends_with(".lock")) found.insert(place);
    }
    return found;
  };
  const auto before = others();
  for (const auto& line : std::vector<std::vector<std::string>>{
           {"import", at("in.safetensors"), at("imported"), "--ranks", "2"},
           {"import", at("in.pt"), at("imported_pt")},
           {"reshard", at("saved"), at("resharded"), "--ranks", "3"},
           {"merge", at("saved"), at("merged"), "--max-shard-size", "300"},
           {"merge", at("in.safetensors"), at("merged_all")},
           {"extract", at("saved"), "-o", at("extracted.safetensors")},
           {"extract", at("saved"), "-o", at("rank.safetensors"), "--rank", "0"},
           {"extract", at("in.safetensors"), "-o", at("box.safetensors"), "--tensor", "../pwned", "--box", "0:4"},
           {"ls", at("saved")},
           {"show", at("saved"), "--tensor", "../pwned"},
           {"verify", at("saved")},
           {"diff", at("saved"), at("in.safetensors")},
           {"prune", at("saved"), "--keep", "1"}}) {
    std::vector<std::string> words = {"ckpt"};
    words.insert(words.end(), line.begin(), line.end());
    const Ended ended = run(words);
    EXPECT_LE(ended.code, line[0] == "diff" ? 1 : 0) << line[0] << ": " << ended.err;
  }
  for (const std::string folder : {"imported", "imported_pt", "resharded", "merged", "merged_all"}) {
    for (const auto& entry : fs::recursive_directory_iterator(at(folder)))
      EXPECT_THAT(entry.path().filename().string(),
                  MatchesRegex("step-[0-9]+|latest|manifest.json|.*lock|(model|optimizer)-[0-9]+-of-[0-9]+.safetensors|"
                               "model.safetensors(.index.json)?"));
  }
  EXPECT_EQ(others(), before);
  const Ended gpt2 = run({"ckpt", "gpt2", at("in.safetensors"), at("gpt2")});
  EXPECT_EQ(gpt2.code, 2);
  EXPECT_EQ(others(), before);
}

}  // namespace
}  // namespace tutti
