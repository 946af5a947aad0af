#include "tutti/checkpoint/torch/pickle.h"

#include <gmock/gmock.h>

#include "tutti/checkpoint/torch/torch_tree.h"

namespace tutti {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using NodeKind = PickleNode::Kind;

std::string shown(const std::string& text) {
  const auto pickle = parse_pickle(text);
  if (!pickle.ok()) return to_string(pickle.error());
  const auto tree = read_torch_tree(*pickle);
  return tree.ok() ? tree_text(tree->tree, 1000) : to_string(tree.error());
}

TEST(Pickle, ReadsScalarsAndContainersOfAllProtocols) {
  EXPECT_EQ(shown("I42\n."), "42\n");
  EXPECT_EQ(shown("L42L\n."), "42\n");
  EXPECT_EQ(shown("I01\n."), "true\n");
  EXPECT_EQ(shown("F1.5\n."), "1.5\n");
  EXPECT_EQ(shown("S'abc'\n."), "\"abc\"\n");
  EXPECT_EQ(shown("\x80\x02K\x07."), "7\n");
  EXPECT_EQ(shown("\x80\x02J\xfe\xff\xff\xff."), "-2\n");
  EXPECT_EQ(shown("\x80\x02\x8a\x01\xff."), "-1\n");
  EXPECT_EQ(shown("\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."s), "0x010000000000000000\n");
  EXPECT_EQ(shown("\x80\x02G?\xf8\0\0\0\0\0\0."s), "1.5\n");
  EXPECT_EQ(shown("\x80\x02N."), "None\n");
  EXPECT_EQ(shown("\x80\x02(K\x01K\x02K\x03t."), "(1, 2, 3)\n");
  EXPECT_EQ(shown("\x80\x02]q\0(K\x01\x88\x89"
                  "e."s),
            "[1, true, false]\n");
  EXPECT_EQ(shown("\x80\x02}q\0(X\x01\0\0\0aK\x01X\x01\0\0\0b]u."s), "a: 1\nb: []\n");
  EXPECT_EQ(shown("\x80\x04\x95\x05\0\0\0\0\0\0\0\x8c\x02hi\x94."s), "\"hi\"\n");
  EXPECT_EQ(shown("(dp0\nS'a'\np1\nI5\ns."), "a: 5\n");
  EXPECT_EQ(shown("ccollections\nOrderedDict\n)R."), "");
  EXPECT_EQ(shown("ctorch\nSize\n((K\x02K\x03ttR."), "(2, 3)\n");
  EXPECT_EQ(shown("ctorch\nfloat32\n."), "torch.float32\n");
  EXPECT_EQ(shown("c_codecs\nencode\n(X\x03\0\0\0xyzX\x06\0\0\0latin1tR."s), "3 bytes\n");
}

TEST(Pickle, WhatIsNotKnownIsNotRead) {
  EXPECT_EQ(
      shown("cos\nsystem\n(S'echo hi'\ntR."),
      "Unsupported: the file is one object of type os.system, which is not among what is read: nothing of a file is "
      "ever executed (hint: save its state_dict())");
  // Beside what is read, each of these is skipped under its name, whatever is made of it.
  for (const auto& [name, object] : std::map<std::string, std::string>{
           {"os.system", "cos\nsystem\n(S'echo hi'\ntR"},
           {"builtins.eval",
            "\x8c\x08"
            "builtins\x8c\x04"
            "eval\x93"},
           {"argparse.Namespace", "cargparse\nNamespace\n)\x81}S'lr'\nI5\nsb"},
           {"collections.Counter", "ccollections\nCounter\n}S'a'\nI2\ns\x85R"},
           {"collections.deque", "ccollections\ndeque\n)RI1\naI2\na"},
           {"my.dict", "cmy\ndict\n)RS'a'\nI1\ns"},
           {"my.new", "cmy\nnew\n)}\x92"},
           {"__main__.Color", "c__builtin__\ngetattr\n(c__main__\nColor\nS'RED'\ntR"},
           {"collections.OrderedDict.fromkeys", "c__builtin__\ngetattr\n(ccollections\nOrderedDict\nS'fromkeys'\ntR"},
           {"builtins.float.fromhex", "cbuiltins\ngetattr\n(cbuiltins\nfloat\nS'fromhex'\ntR"},
           {"builtins.getattr", "cbuiltins\ngetattr\n(]I1\naS'append'\ntR"},
           {"collections.OrderedDict", "ccollections\nOrderedDict\n(cmy\nitems\n)RtR"},
           {"numpy.core.multiarray.scalar",
            "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'f8'\nI00\nI01\ntR"
            "(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbS'12345678'\ntR"},
           {"torch.load", "ctorch\nload\n"},
           {"torch.distributed._shard.evil.run", "ctorch.distributed._shard.evil\nrun\n"}}) {
    const Pickle pickle = parse_pickle("}S'before'\nI1\nsS'it'\n" + object + "sS'after'\nI2\ns.").or_throw();
    const TorchTree tree = read_torch_tree(pickle).or_throw();
    EXPECT_EQ(tree_text(tree.tree, 10), "before: 1\nit: " + name + " (not read)\nafter: 2\n");
    ASSERT_EQ(tree.skipped.size(), 1u) << name;
    EXPECT_EQ(tree.skipped[0].path, "it");
    EXPECT_EQ(tree.skipped[0].type, name);
    EXPECT_EQ(tree.skipped[0].tensors, 0u);
  }
  EXPECT_EQ(shown("ccollections\ndefaultdict\nc__builtin__\nlong\n\x85RS'a'\nI1\ns."), "a: 1\n");
  EXPECT_EQ(shown("ccollections\ndefaultdict\ncmy\nfactory\n\x85RS'a'\nI1\ns."), "a: 1\n");
  EXPECT_EQ(shown("ctorch.torch_version\nTorchVersion\nS'2.1'\n\x85\x81."), "\"2.1\"\n");
  EXPECT_THAT(shown("ctorch\nfloat32\n)R."), HasSubstr("calls torch.float32, which is only known as a name"));
  EXPECT_THAT(shown("c__builtin__\ngetattr\n(ccollections\nOrderedDict\nS'pop'\ntR."),
              HasSubstr("the file is one object of type collections.OrderedDict.pop"));
  EXPECT_THAT(shown("(i__main__\nX\n."), HasSubstr("has the opcode 0x69, which is not read"));
  EXPECT_THAT(shown("\x80\x09N."), HasSubstr("is of protocol 9; 0 to 5 are read"));
}

TEST(Pickle, PairsWhoseKeyIsNotReadAreSkippedAndListed) {
  const auto member = [](const std::string& name) { return "c__builtin__\ngetattr\n(c__main__\nE\nS'" + name + "'\ntR"; };
  const std::string pairs = "}(" + member("A") + "I1\n" + member("B") + "}" + "(" + member("C") + "I2\ntI3\nS'x'\nI4\nu";
  const TorchTree tree = read_torch_tree(parse_pickle("}S'it'\n" + pairs + "s.").or_throw()).or_throw();
  EXPECT_EQ(tree_text(tree.tree, 10), "it:\n  x: 4\n");
  ASSERT_EQ(tree.skipped.size(), 3u);
  for (const SkippedObject& skipped : tree.skipped) EXPECT_EQ(skipped.type, "__main__.E");
  EXPECT_EQ(tree.skipped[0].path, "it.__main__.E");
}

TEST(Pickle, TextThatIsNoneIsSaidToBe) {
  for (const auto& [text, expected] : std::map<std::string, std::string>{
           {"", "ends before its STOP: it was cut off"},
           {"\x80\x02K", "wants 1 bytes where it has 0"},
           {".", "takes from an empty stack at byte 1"},
           {"(.", "takes from an empty stack"},
           {"0", "takes from an empty stack"},
           {"e", "takes to a mark that is not there"},
           {"h\x05", "asks for object 5, which it has not kept"},
           {"NNs.", "takes from an empty stack"},
           {"]NNs.", "adds to what is no such container"},
           {"}(Nu.", "has a key without a value"},
           {"(Nd.", "has a key without a value"},
           {"NNR.", "calls with what is no tuple"},
           {"N)R.", "calls what is no name"},
           {"N}b.", "sets the state of what has none"},
           {"X\xff\xff\xff\xff"
            "abc.",
            "wants 4294967295 bytes where it has 4"},
           {"Iseven\n.", "has no number"},
           {"Isss", "has a line without an end"},
           {"ctorch._utils\n_rebuild_tensor_v2\n)R.", "calls torch._utils._rebuild_tensor_v2 with 0 arguments"},
           {"NQ.", "names a storage by no tuple"}})
    EXPECT_THAT(shown(text), HasSubstr(expected)) << text;
}

TEST(Pickle, HoldsItselfOrUnfoldsWithoutHarm) {
  EXPECT_THAT(shown("]q\0h\0"
                    "a."s),
              HasSubstr("nests more than 200 deep, or holds itself"));
  std::string deep(100'000, ']');  // a list in a list ...
  deep += std::string(99'999, 'a') + ".";
  EXPECT_THAT(shown(deep), HasSubstr("nests more than 200 deep"));
  // Each list holds the one before twice: 2^60 leaves.
  std::string doubling = "]q\0"s;
  for (int level = 1; level < 60; ++level) {
    doubling += "]q"s + char(level);
    doubling += "(h"s + char(level - 1) + "h" + char(level - 1) + "e";
  }
  EXPECT_THAT(shown(doubling + "."), HasSubstr("unfolds into far more than it holds"));
  // A long list that is copied again and again.
  std::string copies = "]q\0("s + std::string(5000, 'N') + "e";
  for (int copy = 0; copy < 5000; ++copy) copies += "ctorch\nSize\nh\0\x85R0"s;
  EXPECT_THAT(shown(copies + "."), HasSubstr("copies far more than it holds"));
}

}  // namespace
}  // namespace tutti
