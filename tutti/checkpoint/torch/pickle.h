#pragma once
// A reader of Python's pickles that executes nothing. A pickle is a program for a machine with a stack; here the
// machine knows dicts, lists, tuples, strings and numbers, and a list of names (docs/how-to/import-weights.md) each of
// which it gives a meaning of its own. Whatever else a pickle names is opaque: an object of that name, and nothing is
// made of it.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// An object of a pickle; others are meant by their numbers, since several may hold the same one.
struct PickleNode {
  enum class Kind {
    kNone,
    kBool,
    kInt,      // whole
    kBig,      // a whole number beyond 64 bits: text
    kFloat,    // real
    kString,   // text
    kBytes,    // text
    kList,     // items
    kTuple,    // items
    kSet,      // items
    kDict,     // items: key, value, key, value
    kName,     // text: "torch.FloatStorage", which is on the list
    kStored,   // items: the tuple by which torch.save() names a storage
    kTensor,   // items: storage, offset, size, stride; then a dtype (kName) and bits of the view (kDict), if given
    kRecord,   // text: the name of its class; items: what it was made of, then its state
    kForeign,  // text: a name that is not on the list; items: of an object of it, what it was made of and holds
    kMark,     // of the machine; never in what is returned
  };
  Kind kind = Kind::kNone;
  std::int64_t whole = 0;
  double real = 0;
  std::string text;
  std::vector<std::uint32_t> items;
};

struct Pickle {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;
  std::size_t bytes = 0;  // of the text that were read: others may follow

  const PickleNode& operator[](std::uint32_t number) const { return nodes[number]; }
};

// kCorrupt: it is no pickle, with the byte; kUnsupported: it calls what is no function. Takes memory in proportion to
// the text.
Result<Pickle> parse_pickle(std::string_view text);

// The value of a dict for this key; nullptr: it is no dict, or has no such key.
const PickleNode* pickle_member(const Pickle& pickle, const PickleNode& dict, std::string_view key);

}  // namespace tutti
