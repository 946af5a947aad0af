// Files that PyTorch wrote, made by Python where there is one; and small ones made by hand.
#include "tutti/checkpoint/torch/torch_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <zlib.h>

#include <cstdlib>
#include <set>

#include "tests/harness/checkpoints.h"
#include "tests/harness/python.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/torch/torch_optimizer.h"
#include "tutti/checkpoint/torch/zip_directory.h"

namespace tutti {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::uint32_t crc_of(const std::string& text) {
  return std::uint32_t(::crc32(0, reinterpret_cast<const Bytef*>(text.data()), uInt(text.size())));
}

// A zip archive of stored records.
std::string zip(const std::vector<std::pair<std::string, std::string>>& records, std::uint16_t method = 0) {
  std::string out, directory;
  for (const auto& [name, text] : records) {
    const std::string common = raw(method) + raw(std::uint32_t(0)) + raw(crc_of(text)) +
                               raw(std::uint32_t(text.size())) + raw(std::uint32_t(text.size())) +
                               raw(std::uint16_t(name.size())) + raw(std::uint16_t(0));
    directory += raw(std::uint32_t(0x02014b50)) + std::string(4, '\0') + raw(std::uint16_t(0)) + common +
                 std::string(10, '\0') + raw(std::uint32_t(out.size())) + name;
    out += raw(std::uint32_t(0x04034b50)) + std::string(2, '\0') + raw(std::uint16_t(0)) + common + name + text;
  }
  const auto begin = std::uint32_t(out.size());
  return out + directory + raw(std::uint32_t(0x06054b50)) + std::string(4, '\0') + raw(std::uint16_t(records.size())) +
         raw(std::uint16_t(records.size())) + raw(std::uint32_t(directory.size())) + raw(begin) + raw(std::uint16_t(0));
}

std::string text_of(const std::string& text) { return "X" + raw(std::uint32_t(text.size())) + text; }
// A tensor [2, 2] whose strides are these, in the storage 0. `bits`: a dict.
std::string tensor_of(int stride0, int stride1, int elements = 4, const std::string& type = "Float",
                      const std::string& bits = "") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text_of("storage") + "ctorch\n" + type + "Storage\n" + text_of("0") +
         text_of("cpu") + "K" + char(elements) + "tQK\0K\x02K\x02\x86K"s + char(stride0) + "K" + char(stride1) +
         "\x86\x89}" + bits + "tR";
}
std::string pickle_of(const std::vector<std::pair<std::string, std::string>>& dict) {
  std::string text = "\x80\x02}";
  for (const auto& [name, value] : dict) text += text_of(name) + value + "s";
  return text + ".";
}
std::string pickle_of_w(int stride0, int stride1, int elements = 4) {
  return pickle_of({{"w", tensor_of(stride0, stride1, elements)}});
}
std::string floats(std::initializer_list<float> values) {
  std::string out;
  for (const float value : values) out += raw(value);
  return out;
}

class TorchFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    test::set_file(path(name), text);
    return path(name);
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string error_of(const std::string& text) const {
    const auto source = open_tensors(write("x.pt", text));
    if (!source.ok()) return to_string(source.error());
    for (const auto& [key, tensor] : (*source)->tensors()) {
      std::vector<std::byte> bytes(tensor.elements() * tensor.element_bytes);
      if (const Status read = (*source)->read(key, bytes); !read.ok()) return to_string(read.error());
    }
    return "no error";
  }
  static std::vector<float> values(const TensorSource& source, const std::string& name) {
    std::vector<float> out(source.find({name, ""})->elements());
    source.read({name, ""}, std::as_writable_bytes(std::span(out))).or_throw();
    return out;
  }
  // Runs a program of Python with `path("")` as its argument; false: there is no Python with torch.
  bool run_python(const std::string& program) const {
    const std::string python = test::python_that_runs("import torch");
    if (python.empty()) return false;
    test::set_file(path("program.py"), program);
    EXPECT_EQ(std::system((python + " " + path("program.py") + " " + folder_.path() + " 2>" + path("log")).c_str()), 0)
        << test::file_text(path("log"));
    return true;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(TorchFiles, ATensorMadeByHand) {
  const std::string storage = floats({1, 2, 3, 4});
  const auto packed =
      open_tensors(write("a.pt", zip({{"a/data.pkl", pickle_of_w(2, 1)}, {"a/data/0", storage}}))).or_throw();
  EXPECT_EQ(packed->format(), "PyTorch file");
  EXPECT_THAT(values(*packed, "w"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(tree_text(packed->about(), 10), "w: F32[2, 2]\n");
  const auto turned =
      open_tensors(write("b.pt", zip({{"b/data.pkl", pickle_of_w(1, 2)}, {"b/data/0", storage}}))).or_throw();
  EXPECT_THAT(values(*turned, "w"), ElementsAre(1, 3, 2, 4));
  std::vector<float> column(2);
  turned->read({"w", ""}, {{0, 1}, {2, 1}}, std::as_writable_bytes(std::span(column))).or_throw();
  EXPECT_THAT(column, ElementsAre(3, 4));
}

// No GPU is needed, and no map_location.
TEST_F(TorchFiles, ATensorOfAGpuIsReadOnTheCpu) {
  const std::string module_of_releases[] = {"torch", "torch.cuda"};  // new and old ones
  for (const std::string& module : module_of_releases) {
    std::string tensor = tensor_of(2, 1);
    const auto put = [&](const std::string& what, const std::string& other) {
      tensor.replace(tensor.find(what), what.size(), other);
    };
    put("ctorch\nFloatStorage", "c" + module + "\nFloatStorage");
    put(text_of("cpu"), text_of("cuda:3"));
    const auto source =
        open_tensors(
            write("x.pt", zip({{"a/data.pkl", pickle_of({{"w", tensor}})}, {"a/data/0", floats({1, 2, 3, 4})}})))
            .or_throw();
    EXPECT_THAT(values(*source, "w"), ElementsAre(1, 2, 3, 4));
  }
}

// torch.save() of a view such as z.conj() or z.conj().imag stores the numbers as they were, and a bit.
TEST_F(TorchFiles, ConjugatesAndNegativesAreWhatTheyMean) {
  const auto file = [&](const std::string& type, const std::string& bits, const std::string& storage) {
    return zip({{"a/data.pkl", pickle_of({{"w", tensor_of(1, 2, 4, type, bits)}})}, {"a/data/0", storage}});
  };
  const auto real = [&](const std::string& bits) {
    return values(*open_tensors(write("x.pt", file("Float", bits, floats({1, -2, 3, 4})))).or_throw(), "w");
  };
  const auto complex = [&](const std::string& bits) {
    const auto source =
        open_tensors(write("x.pt", file("ComplexFloat", bits, floats({1, 2, 3, 4, 5, 6, 7, 8})))).or_throw();
    std::vector<float> out(8);
    source->read({"w", ""}, std::as_writable_bytes(std::span(out))).or_throw();
    return out;
  };
  const std::string negative = "}" + text_of("neg") + "\x88s", conjugate = "}" + text_of("conj") + "\x88s",
                    both = "}(" + text_of("neg") + "\x88" + text_of("conj") + "\x88u";
  EXPECT_THAT(real(negative), ElementsAre(-1, -3, 2, -4));
  EXPECT_THAT(real("}"), ElementsAre(1, 3, -2, 4));
  EXPECT_THAT(complex(conjugate), ElementsAre(1, -2, 5, -6, 3, -4, 7, -8));
  EXPECT_THAT(complex(negative), ElementsAre(-1, -2, -5, -6, -3, -4, -7, -8));
  EXPECT_THAT(complex(both), ElementsAre(-1, 2, -5, 6, -3, 4, -7, 8));
  EXPECT_THAT(error_of(file("Long", negative, std::string(32, '\0'))),
              HasSubstr("w is I64 with the neg bit, which is not read"));
  EXPECT_THAT(error_of(file("Float", conjugate, floats({1, 2, 3, 4}))),
              HasSubstr("w is F32 with the conj bit, which is not read"));
}

TEST_F(TorchFiles, ObjectsThatAreNotReadAreSkippedAndListed) {
  const std::string scalar =
      "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n" + text_of("f8") + "\x85R" + text_of("12345678") + "tR";
  const std::string pickle = pickle_of({{"test_acc", scalar},
                                        {"args", "cargparse\nNamespace\n)\x81}" + text_of("lr") + "K\x05sb"},
                                        {"model", "}" + text_of("w") + tensor_of(2, 1) + "s"},
                                        {"holder", "c__main__\nHolder\n)\x81}" + text_of("v") + tensor_of(1, 2) + "sb"},
                                        {"sparse", "ctorch._utils\n_rebuild_sparse_tensor\n(K\x01tR"},
                                        {"raw", "(" + text_of("storage") + "ctorch.storage\nUntypedStorage\n" +
                                                    text_of("0") + text_of("cpu") + "K\x10tQ"}});
  const auto source =
      open_tensors(write("x.pt", zip({{"a/data.pkl", pickle}, {"a/data/0", floats({1, 2, 3, 4})}}))).or_throw();
  EXPECT_EQ(source->tensors().size(), 1u);
  EXPECT_THAT(values(*source, "model.w"), ElementsAre(1, 2, 3, 4));
  std::vector<std::string> skipped;
  for (const auto& [place, type, tensors] : source->skipped())
    skipped.push_back(fmt::format("{} {} {}", place, type, tensors));
  EXPECT_THAT(skipped, ElementsAre("test_acc numpy.core.multiarray.scalar 0", "args argparse.Namespace 0",
                                   "holder __main__.Holder 1", "sparse torch._utils._rebuild_sparse_tensor 1",
                                   "raw torch.storage.UntypedStorage 1"));
}

TEST_F(TorchFiles, WhatIsWrongIsNamed) {
  const std::string storage = floats({1, 2, 3, 4});
  const std::string good = zip({{"a/data.pkl", pickle_of_w(2, 1)}, {"a/data/0", storage}});
  EXPECT_EQ(error_of(good), "no error");
  const auto with = [&](const std::string& what, const std::string& other) {
    std::string text = good;
    return text.replace(text.find(what), other.size(), other);
  };
  EXPECT_THAT(error_of(with(storage, "\1")), HasSubstr("of its record a/data/0, have changed: their CRC-32 is "));
  EXPECT_THAT(error_of(with("cpu", "CPU")), HasSubstr("of its record a/data.pkl, have changed"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 3)), HasSubstr("has no directory at its end: it was cut off"));
  EXPECT_THAT(error_of(good.substr(0, 40)), HasSubstr("it was cut off"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", pickle_of_w(2, 1)}})), HasSubstr("there is no storage 0"));
  EXPECT_THAT(error_of(zip({{"a/other", "x"}})), HasSubstr("has no data.pkl: torch.save() did not write it"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", pickle_of_w(2, 1)}, {"a/data/0", storage}}, 8)),
              HasSubstr("the record a/data.pkl of the zip archive is compressed"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", pickle_of_w(9, 1)}, {"a/data/0", storage}})),
              HasSubstr("w has elements 0 to 11 of its storage 0, which has 4"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", pickle_of_w(0, 0)}, {"a/data/0", floats({1})}})),
              HasSubstr("w [2, 2] is expanded: its storage has 1 elements"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", "cos\nsystem\n."}})),
              HasSubstr("x.pt: the file is one object of type os.system"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", "N."}, {"a/byteorder", "big"}})), HasSubstr("on a big-endian machine"));
  EXPECT_THAT(error_of(zip({{"a/data.pkl", "N."}, {"a/data.pkl", "N."}})), HasSubstr("has two records a/data.pkl"));
  for (std::size_t byte = 0; byte < good.size(); ++byte) {
    for (const char change : {'\x01', '\x80'}) {
      std::string text = good;
      text[byte] ^= change;
      const std::string error = error_of(text);  // some bytes mean nothing: times, versions, attributes
      if (error == "no error") {
        EXPECT_THAT(values(*open_tensors(path("x.pt")).or_throw(), "w"), ElementsAre(1, 2, 3, 4)) << byte;
      }
    }
  }
}

TEST_F(TorchFiles, WhatPyTorchSaves) {
  if (!run_python(R"(
import sys, torch
from collections import OrderedDict
f = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
with torch.no_grad():
    for i, p in enumerate(model.parameters()): p.copy_(torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape) + i)
opt = torch.optim.Adam(model.parameters(), lr=0.125)
model(torch.ones(2, 4)).sum().backward()
opt.step()
with torch.no_grad():
    for i, p in enumerate(model.parameters()): p.copy_(torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape) + i)
sched = torch.optim.lr_scheduler.StepLR(opt, 5)
base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
state = {"state": {"model": model.state_dict(), "optimizers": [opt.state_dict()], "schedulers": [sched.state_dict()]},
         "epoch": 7, "name": "a run", "flag": True, "none": None, "big": 2**80, "bytes": bytes([0, 255]), "size": torch.Size([2, 3]),
         "dtype": torch.bfloat16, "device": torch.device("cpu"), "nested": [1, (2.5, {"k": [torch.tensor(3.0)]})],
         "turned": base.t(), "column": base[:, 2], "part": base[1:3, 2:5], "empty": torch.empty(0, 5),
         "half": torch.tensor([1.5, -2], dtype=torch.float16), "bf": torch.tensor([1.5, -2], dtype=torch.bfloat16),
         "mask": torch.tensor([True, False]), "short": torch.tensor([1, -2], dtype=torch.int16),
         "parameter": torch.nn.Parameter(torch.ones(2))}
torch.save(state, f + "/new.pt")
torch.save(state, f + "/old.pt", _use_new_zipfile_serialization=False)
torch.save(state, f + "/four.pt", pickle_protocol=4)
torch.save(model, f + "/module.pt")
torch.save(torch.ones(3), f + "/tensor.pt")
)"))
    GTEST_SKIP() << "no Python that can import torch (apt install python3-torch, or set TUTTI_PYTHON to one that can)";
  for (const std::string name : {"new.pt", "old.pt", "four.pt"}) {
    const auto opened = open_tensors(path(name));
    ASSERT_TRUE(opened.ok()) << to_string(opened.error());
    const TensorSource& source = **opened;
    EXPECT_EQ(source.has_digests(), name != "old.pt") << name;
    EXPECT_THAT(values(source, "state.model.0.weight"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    EXPECT_EQ(source.find({"state.model.1.num_batches_tracked", ""})->dtype, "I64");
    EXPECT_EQ(source.find({"state.optimizers.0.state.0.exp_avg", ""})->shape, (TensorShape{3, 4}));
    EXPECT_EQ(source.find({"short", ""})->dtype, "I16");
    EXPECT_EQ(source.find({"bf", ""})->dtype, "BF16");
    EXPECT_EQ(source.find({"empty", ""})->elements(), 0u);
    EXPECT_THAT(values(source, "nested.1.1.k.0"), ElementsAre(3));
    std::vector<double> part(6), column(4), turned(24);
    source.read({"part", ""}, std::as_writable_bytes(std::span(part))).or_throw();
    EXPECT_THAT(part, ElementsAre(8, 9, 10, 14, 15, 16));
    source.read({"column", ""}, std::as_writable_bytes(std::span(column))).or_throw();
    EXPECT_THAT(column, ElementsAre(2, 8, 14, 20));
    source.read({"turned", ""}, std::as_writable_bytes(std::span(turned))).or_throw();
    EXPECT_EQ(turned[1], 6);
    EXPECT_EQ(turned[4], 1);
    const auto shown = [&](const char* at) { return tree_text(**find_value(source.about(), at), 100); };
    EXPECT_EQ(shown("epoch"), "7\n");
    EXPECT_EQ(shown("state.optimizers.0.param_groups.0.lr"), "0.125\n");
    EXPECT_EQ(shown("state.schedulers.0.step_size"), "5\n");
    EXPECT_EQ(shown("size"), "(2, 3)\n");
    EXPECT_EQ(shown("dtype"), "torch.bfloat16\n");
    EXPECT_EQ(shown("bytes"), "2 bytes\n");
    EXPECT_THAT(shown("state.optimizers.0"), HasSubstr("params: [0, 1, 2, 3]\n"));
  }
  EXPECT_THAT(values(*open_tensors(path("tensor.pt")).or_throw(), "tensor"), ElementsAre(1, 1, 1));
  const auto module = open_tensors(path("module.pt"));
  ASSERT_FALSE(module.ok());
  EXPECT_THAT(to_string(module.error()),
              HasSubstr("the file is one object of type torch.nn.modules.container.Sequential, which is not"));
}

// Beside tensors, as training programs put them there. The second file is what the --save-model of DLRM's reference
// holds.
TEST_F(TorchFiles, ObjectsOfPythonAreSkippedAndListed) {
  if (!run_python(R"(
import argparse, collections, datetime, enum, fractions, pathlib, sys
import numpy, torch
f = sys.argv[1]
class Color(enum.Enum):
    RED = 1
w = torch.ones(2)
torch.save({"w": w, "args": argparse.Namespace(lr=0.1, data=pathlib.Path("/data")), "accuracy": numpy.float64(0.5),
            "array": numpy.arange(3.0), "random": numpy.random.get_state(), "path": pathlib.PurePosixPath("/data"),
            "color": Color.RED, "queue": collections.deque([1, 2]), "complex": 1 + 2j, "slice": slice(1, 2),
            "counter": collections.Counter("aab"), "date": datetime.date(2026, 1, 2), "half": fractions.Fraction(1, 2),
            "tensor in it": collections.deque([torch.ones(3)])}, f + "/objects.pt")
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.save({"epoch": 0, "nepochs": 1, "nbatches": 3, "nbatches_test": 1, "iter": 3, "train_loss": numpy.float32(0.25),
            "test_acc": numpy.float64(0.75), "test_auc": numpy.float64(0.5), "state_dict": model.state_dict(),
            "opt_state_dict": opt.state_dict()}, f + "/dlrm.pt")
)"))
    GTEST_SKIP() << "no Python that can import torch (apt install python3-torch, or set TUTTI_PYTHON to one that can)";
  const auto skipped = [](const TensorSource& source) {
    std::set<std::string> places;
    for (const auto& [place, type, tensors] : source.skipped()) places.insert(place + (tensors > 0 ? " (tensor)" : ""));
    return places;
  };
  const auto objects = open_tensors(path("objects.pt")).or_throw();
  EXPECT_THAT(values(*objects, "w"), ElementsAre(1, 1));
  EXPECT_EQ(objects->tensors().size(), 1u);
  EXPECT_THAT(skipped(*objects), ElementsAre("accuracy", "args", "array", "color", "complex", "counter", "date", "half",
                                             "path", "queue", "random.1", "slice", "tensor in it (tensor)"));
  const auto dlrm = open_tensors(path("dlrm.pt")).or_throw();
  EXPECT_EQ(dlrm->find({"state_dict.weight", ""})->shape, (TensorShape{1, 2}));
  EXPECT_THAT(skipped(*dlrm), ElementsAre("test_acc", "test_auc", "train_loss"));
}

TEST_F(TorchFiles, WhatAnOptimizerKeepsGetsTheNamesOfTheParameters) {
  if (!run_python(R"(
import sys, torch
f = sys.argv[1]
model = net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3, bias=False))
def save(name, opt, **more):
    for _ in range(5):
        opt.zero_grad()
        model(torch.randn(6, 4)).square().sum().backward()
        opt.step()
    torch.save({"model": model.state_dict(), "optimizers": [opt.state_dict()], **more}, f + "/" + name + ".pt")
save("adam", torch.optim.Adam(model.parameters(), lr=0.125, amsgrad=True))
save("plain", torch.optim.SGD(model.parameters(), lr=0.5))
p = list(model.parameters())
save("turned", torch.optim.Adagrad(p[2:] + p[:2]))
save("groups", torch.optim.Adagrad([{"params": p[2:], "lr": 0.5}, {"params": p[:2]}]))
same = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
model, p = same, list(same.parameters())
save("same", torch.optim.Adam([{"params": [p[1]], "lr": 0.5}, {"params": [p[0]]}]))
save("same_plain", torch.optim.SGD([{"params": [p[1]], "lr": 0.5}, {"params": [p[0]]}], lr=0.1))
model, p = net, list(net.parameters())
save("frozen", torch.optim.SGD([p[0], torch.nn.Parameter(torch.ones(2))] + p[1:], lr=0.1, momentum=0.5))
)"))
    GTEST_SKIP() << "no Python that can import torch (apt install python3-torch, or set TUTTI_PYTHON to one that can)";
  const auto read = [&](const char* name, std::vector<std::string> parameters = {}) {
    return read_torch_optimizer(*open_tensors(path(name + ".pt"s)).or_throw(),
                                {.optimizer = "optimizers.0", .model = "model", .parameters = parameters, .step = 7});
  };
  const TorchOptimizer adam = read("adam").or_throw();
  EXPECT_EQ(adam.tensors.size(), 5u * 3);  // of batch normalisation the weight and the bias
  EXPECT_EQ(adam.tensors.at({"1.bias", "exp_avg_sq"}), (TensorKey{"optimizers.0.state.3.exp_avg_sq", ""}));
  EXPECT_EQ(adam.tensors.at({"2.weight", "max_exp_avg_sq"}), (TensorKey{"optimizers.0.state.4.max_exp_avg_sq", ""}));
  EXPECT_EQ(adam.numbers.at({"0.weight", "step"}), 5);
  EXPECT_EQ(std::get<double>(adam.values.at("optimizer.param_groups.0.lr")), 0.125);
  const TorchOptimizer plain = read("plain").or_throw();
  EXPECT_TRUE(plain.tensors.empty());
  EXPECT_EQ(plain.numbers.at({"0.weight", "step"}), 7) << "it does not say how many it has made";

  // Another order than that of the model, which the shapes tell.
  EXPECT_THAT(to_string(read("turned").error()),
              HasSubstr("optimizers.0.state.0.sum of " + path("turned.pt") +
                        " is [3], and 0.weight, which it would belong to, is [3, 4]"));
  // Of several groups nothing tells the order where shapes are equal.
  for (const std::string name : {"groups", "same"})
    EXPECT_THAT(to_string(read(name.c_str()).error()),
                HasSubstr("optimizers.0 of " + path(name + ".pt") +
                          " has 2 groups of parameters without names, which need not be in the order of model (hint: "
                          "give the names in the optimizer's order, one on each line: --parameters FILE)"));
  const auto same = read("same", {"1.weight", "0.weight"}).or_throw();
  EXPECT_EQ(same.tensors.at({"1.weight", "exp_avg"}), (TensorKey{"optimizers.0.state.0.exp_avg", ""}));
  EXPECT_TRUE(read("same_plain").or_throw().tensors.empty()) << "nothing is kept";
  const auto groups = read("groups", {"1.weight", "1.bias", "2.weight", "0.weight", "0.bias"}).or_throw();
  EXPECT_EQ(groups.tensors.at({"0.bias", "sum"}), (TensorKey{"optimizers.0.state.4.sum", ""}));
  EXPECT_EQ(std::get<double>(groups.values.at("optimizer.param_groups.0.lr")), 0.5);
  EXPECT_THAT(to_string(read("frozen").error()), HasSubstr("has 6 parameters, and model has 5 names"));
  // What never had a gradient has no state, and needs a name only.
  EXPECT_EQ(read("frozen", {"0.weight", "?", "0.bias", "1.weight", "1.bias", "2.weight"}).or_throw().tensors.size(),
            5u);
  const auto wrong = read("adam", {"0.weight", "0.bias", "1.weight", "1.bias", "2.wait"});
  EXPECT_THAT(to_string(wrong.error()), HasSubstr("keeps something for 2.wait, and model has no such tensor"));
  const auto source = open_tensors(path("adam.pt")).or_throw();
  EXPECT_EQ(find_torch_optimizer(*source), "optimizers.0");
  EXPECT_THAT(to_string(read_torch_optimizer(*source, {.optimizer = "model"}).error()),
              HasSubstr("is no state_dict() of an optimizer"));
}

TEST_F(TorchFiles, OneRanksFileOfManyOpensAlone) {
  if (!run_python(R"(
import sys, torch
import torch.distributed as dist
f = sys.argv[1]
import torch.multiprocessing as mp
def work(rank):
    dist.init_process_group("gloo", init_method="file://" + f + "/meet", rank=rank, world_size=2)
    import torch.distributed._shard.sharded_tensor as st
    from torch.distributed._shard.sharded_tensor import Shard, ShardMetadata
    rows = torch.arange(30.).reshape(6, 5)[rank * 3:rank * 3 + 3].clone()
    meta = ShardMetadata(shard_offsets=[rank * 3, 0], shard_sizes=[3, 5], placement=f"rank:{rank}/cpu")
    sharded = st.init_from_local_shards([Shard(rows, meta)], 6, 5)
    torch.save({"state": {"emb": sharded, "fc": torch.ones(2)}}, f + f"/rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    try:
        import torch.distributed._shard.sharded_tensor
    except Exception:
        open(f + "/cannot", "w").write("")  # PyTorch 1.13 under Python 3.11
        sys.exit(0)
    mp.spawn(work, nprocs=2)
)"))
    GTEST_SKIP() << "no Python that can import torch (apt install python3-torch, or set TUTTI_PYTHON to one that can)";
  if (std::filesystem::exists(path("cannot")))
    GTEST_SKIP() << "this Python cannot import torch.distributed._shard (set TUTTI_PYTHON to one that can)";
  const auto alone = open_tensors(path("rank1.pt"));
  ASSERT_TRUE(alone.ok()) << to_string(alone.error());
  const SourceTensor& emb = *(*alone)->find({"state.emb", ""});
  EXPECT_EQ(emb.shape, (TensorShape{6, 5}));
  EXPECT_FALSE(emb.is_whole());
  std::vector<float> row(5), all(30);
  (*alone)->read({"state.emb", ""}, TensorBox::rows({6, 5}, 4, 1), std::as_writable_bytes(std::span(row))).or_throw();
  EXPECT_THAT(row, ElementsAre(20, 21, 22, 23, 24));
  EXPECT_THAT(to_string((*alone)->read({"state.emb", ""}, std::as_writable_bytes(std::span(all))).error()),
              HasSubstr("of state.emb [6, 5] there is only [3:6, 0:5]; [0:6, 0:5] was wanted"));
  EXPECT_THAT(tree_text((*alone)->about(), 10), HasSubstr("emb: ShardedTensor F32[6, 5], of which [3:6, 0:5] is here"));
  const std::vector<std::string> paths = {path("rank0.pt"), path("rank1.pt")};
  const auto both = open_tensors(paths).or_throw();
  both->read({"state.emb", ""}, std::as_writable_bytes(std::span(all))).or_throw();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(all[std::size_t(i)], float(i));
}

// What one of 256 ranks saved, with all that it knows of the others.
TEST_F(TorchFiles, OneOfTwoHundredAndFiftySixOpensAlone) {
  if (!run_python(R"(
import sys, torch
f = sys.argv[1]
try:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.distributed._shard.sharded_tensor import ShardedTensor, Shard, ShardMetadata
    from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
except Exception:
    open(f + "/cannot", "w").write("")
    sys.exit(0)
rank, world, rows, dim = 137, 256, 100, 16
dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
model = {}
for t in range(4):
    shards = [ShardMetadata([r * rows, 0], [rows, dim], f"rank:{r}/cpu") for r in range(world)]
    all = ShardedTensorMetadata(shards, torch.Size([rows * world, dim]), TensorProperties())
    mine = Shard(torch.arange(rows * dim, dtype=torch.float32).reshape(rows, dim) + t, shards[rank])
    model[f"emb.{t}"] = ShardedTensor._init_from_local_shards_and_global_metadata([mine], all)
dense = torch.nn.Linear(8, 4)
optimizer = torch.optim.Adam(dense.parameters(), lr=0.25)
dense(torch.ones(1, 8)).sum().backward()
optimizer.step()
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
torch.save({"state": {"model": {**model, **dense.state_dict()}, "optimizers": [optimizer.state_dict()],
                      "schedulers": [scheduler.state_dict()]}}, f + "/rank137.pt")
)"))
    GTEST_SKIP() << "no Python that can import torch (apt install python3-torch, or set TUTTI_PYTHON to one that can)";
  if (std::filesystem::exists(path("cannot")))
    GTEST_SKIP() << "this Python cannot import torch.distributed._shard (set TUTTI_PYTHON to one that can)";
  const auto alone = open_tensors(path("rank137.pt"));
  ASSERT_TRUE(alone.ok()) << to_string(alone.error());
  const TensorKey key{"state.model.emb.3", ""};
  EXPECT_EQ((*alone)->find(key)->shape, (TensorShape{25600, 16}));
  EXPECT_EQ((*alone)->find(key)->parts.at(0).box, (TensorBox{{13700, 0}, {100, 16}}));
  std::vector<float> row(16);
  (*alone)->read(key, TensorBox::rows({25600, 16}, 13701, 1), std::as_writable_bytes(std::span(row))).or_throw();
  EXPECT_EQ(row[0], 16 + 3);
  const std::string optimizers = tree_text(**find_value((*alone)->about(), "state.optimizers"), 100);
  EXPECT_THAT(optimizers, HasSubstr("exp_avg: F32[4, 8]\n"));
  EXPECT_THAT(optimizers, HasSubstr("lr: 0.25\n"));
  EXPECT_THAT(tree_text(**find_value((*alone)->about(), "state.schedulers"), 100), HasSubstr("step_size: 5\n"));
}

}  // namespace
}  // namespace tutti
