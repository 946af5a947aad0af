// Protocols 0 to 5 (Lib/pickle.py and Lib/pickletools.py of CPython say what each opcode does). Objects lie in one
// list, in the order of their making, and the stack and the memo hold their numbers: so an object that holds itself, or
// one that ten thousand hold, costs nothing here, and nothing recurses. An opcode makes at most one object, and what it
// appends it takes from the stack: hence memory in proportion to the text.
//
// What a pickle calls is looked up in a table of names. There is no way from here to any code of the file's choice.
#include "tutti/checkpoint/torch/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <unordered_map>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using Kind = PickleNode::Kind;
using Number = std::uint32_t;

constexpr std::size_t kMostNodes = std::size_t(1) << 28, kMostCopies = std::size_t(1) << 20;

[[noreturn]] void fail(Code code, std::string detail) {
  throw Exception(Error{.code = code, .detail = std::move(detail)});
}

std::string printable(std::string_view text) {
  std::string out;
  for (const unsigned char c : text.substr(0, 120))
    out += c < 0x20 || c >= 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, char(c));
  return out;
}

// What a name means where it is called, or made an object of.
enum class Meaning {
  kNothing,  // a name that may be mentioned, and not called
  kDict,     // an empty dict, or of a list of pairs
  kList,
  kTuple,
  kSet,
  kBytes,        // _codecs.encode(text, "latin1")
  kText,         // torch.device("cpu"), _get_layout("torch.strided"): its first argument
  kTensor,       // (storage, offset, size, stride, requires_grad, hooks)
  kTypedTensor,  // the same, and a dtype
  kParameter,    // (tensor, requires_grad, hooks): the tensor
  kFromType,     // (function, type, arguments, state): a record of the type
  kMember,       // getattr(class, name), of a class of the list
  kRecord,       // keeps what it is made of
};

struct Known {
  std::string_view name;
  Meaning meaning;
};

constexpr Known kKnown[] = {
    {"collections.OrderedDict", Meaning::kDict},
    {"collections.defaultdict", Meaning::kDict},
    {"builtins.dict", Meaning::kDict},
    {"__builtin__.dict", Meaning::kDict},
    {"builtins.list", Meaning::kList},
    {"__builtin__.list", Meaning::kList},
    {"builtins.tuple", Meaning::kTuple},
    {"__builtin__.tuple", Meaning::kTuple},
    {"builtins.set", Meaning::kSet},
    {"__builtin__.set", Meaning::kSet},
    {"builtins.frozenset", Meaning::kSet},
    {"__builtin__.frozenset", Meaning::kSet},
    {"builtins.int", Meaning::kNothing},
    {"__builtin__.int", Meaning::kNothing},
    {"builtins.float", Meaning::kNothing},
    {"__builtin__.float", Meaning::kNothing},
    {"builtins.getattr", Meaning::kMember},
    {"__builtin__.getattr", Meaning::kMember},
    {"_codecs.encode", Meaning::kBytes},
    {"torch.Size", Meaning::kTuple},
    {"torch.device", Meaning::kText},
    {"torch.serialization._get_layout", Meaning::kText},
    {"torch._utils._rebuild_tensor", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v2", Meaning::kTensor},
    {"torch._utils._rebuild_tensor_v3", Meaning::kTypedTensor},
    {"torch._utils._rebuild_parameter", Meaning::kParameter},
    {"torch._utils._rebuild_parameter_with_state", Meaning::kParameter},
    {"torch._utils._rebuild_wrapper_subclass", Meaning::kNothing},
    {"torch._tensor._rebuild_from_type_v2", Meaning::kFromType},
    {"torch.storage.UntypedStorage", Meaning::kNothing},
    {"torch.storage.TypedStorage", Meaning::kNothing},
    {"torch.distributed.remote_device._remote_device", Meaning::kRecord},
    {"torch.distributed._remote_device._remote_device", Meaning::kRecord},
};

constexpr std::string_view kTypes[] = {"Double", "Float", "Half", "BFloat16", "Long",          "Int",
                                       "Short",  "Char",  "Byte", "Bool",     "ComplexDouble", "ComplexFloat"};
constexpr std::string_view kDTypes[] = {"float64",
                                        "float32",
                                        "float16",
                                        "bfloat16",
                                        "int64",
                                        "int32",
                                        "int16",
                                        "int8",
                                        "uint8",
                                        "uint16",
                                        "uint32",
                                        "uint64",
                                        "bool",
                                        "complex128",
                                        "complex64",
                                        "float8_e4m3fn",
                                        "float8_e5m2",
                                        "float8_e4m3fnuz",
                                        "float8_e5m2fnuz",
                                        "float8_e8m0fnu",
                                        "strided",
                                        "contiguous_format",
                                        "preserve_format"};
// Of torch.distributed._shard and what is below it, wherever in it a version has them.
constexpr std::string_view kShardModule = "torch.distributed._shard.";
constexpr std::string_view kShardClasses[] = {"ShardedTensor",        "Shard",
                                              "ShardMetadata",        "ShardedTensorMetadata",
                                              "TensorProperties",     "ChunkShardingSpec",
                                              "ShardingSpec",         "EnumerableShardingSpec",
                                              "DevicePlacementSpec",  "MEM_FORMAT_ENCODING",
                                              "MEM_FORMAT_ENCODINGS", "ProcessGroupState"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

Meaning meaning_of(std::string_view name) {
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](auto& k) { return k.name == name; });
  if (known != std::end(kKnown)) return known->meaning;
  if (name.starts_with(kShardModule) && contains(kShardClasses, name.substr(name.rfind('.') + 1)))
    return Meaning::kRecord;
  if (name.starts_with("torch.")) {
    std::string_view rest = name.substr(6);
    if (contains(kDTypes, rest)) return Meaning::kNothing;
    if (rest.starts_with("cuda.")) rest.remove_prefix(5);
    if (rest.ends_with("Storage") && contains(kTypes, rest.substr(0, rest.size() - 7))) return Meaning::kNothing;
  }
  fail(Code::kUnsupported,
       fmt::format("the pickle names {}, which is not among what is read: nothing of a file is ever executed",
                   printable(name)));
}

class Machine {
 public:
  explicit Machine(std::string_view text) : text_(text) {}

  Pickle run() {
    while (true) {
      if (at_ == text_.size()) fail(Code::kCorrupt, "the pickle ends before its STOP: it was cut off");
      const auto opcode = std::uint8_t(text_[at_++]);
      if (opcode == '.') break;
      step(opcode);
    }
    pickle_.root = pop();
    pickle_.bytes = at_;
    return std::move(pickle_);
  }

 private:
  // ---- bytes
  [[noreturn]] void corrupt(const std::string& what) const {
    fail(Code::kCorrupt, fmt::format("the pickle {} at byte {}", what, at_));
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > text_.size() - at_) corrupt(fmt::format("wants {} bytes where it has {},", bytes, text_.size() - at_));
    const std::string_view out = text_.substr(at_, bytes);
    at_ += bytes;
    return out;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) corrupt("has a line without an end");
    const std::string_view out = take(end - at_);
    ++at_;
    return out;
  }

  // ---- objects
  Number add(PickleNode node) {
    if (pickle_.nodes.size() == kMostNodes) fail(Code::kLimit, "the pickle has too many objects");
    pickle_.nodes.push_back(std::move(node));
    return Number(pickle_.nodes.size() - 1);
  }
  void push(PickleNode node) { stack_.push_back(add(std::move(node))); }
  void push_text(Kind kind, std::string_view text) { push({.kind = kind, .text = std::string(text), .items = {}}); }
  void push_int(std::int64_t value) { push({.kind = Kind::kInt, .whole = value, .text = {}, .items = {}}); }
  void push_bool(bool value) { push({.kind = Kind::kBool, .whole = value, .text = {}, .items = {}}); }
  void push_float(double value) { push({.kind = Kind::kFloat, .real = value, .text = {}, .items = {}}); }
  void push_items(Kind kind, std::vector<Number> items = {}) {
    push({.kind = kind, .text = {}, .items = std::move(items)});
  }

  PickleNode& at(Number number) { return pickle_.nodes[number]; }
  // Copies are counted, so that a short text cannot unfold into much.
  void spend(std::size_t copied) {
    copied_ += copied;
    if (copied_ > kMostCopies + 16 * text_.size()) fail(Code::kLimit, "the pickle copies far more than it holds");
  }
  Number top() {
    if (stack_.empty() || at(stack_.back()).kind == Kind::kMark) corrupt("takes from an empty stack");
    return stack_.back();
  }
  Number pop() {
    const Number number = top();
    stack_.pop_back();
    return number;
  }
  // What lies above the last mark, without the mark.
  std::vector<Number> pop_to_mark() {
    auto mark = stack_.end();
    while (true) {
      if (mark == stack_.begin()) corrupt("takes to a mark that is not there");
      if (at(*--mark).kind == Kind::kMark) break;
    }
    std::vector<Number> items(mark + 1, stack_.end());
    stack_.erase(mark, stack_.end());
    return items;
  }
  void append(Kind kind, const std::vector<Number>& items) {
    PickleNode& into = at(top());
    // Records that are dicts or lists of their own keep their class.
    if (into.kind != kind) corrupt("adds to what is no such container");
    if (kind == Kind::kDict && items.size() % 2 != 0) corrupt("has a key without a value");
    into.items.insert(into.items.end(), items.begin(), items.end());
  }

  // ---- numbers
  void push_long(std::string_view bytes) {  // little-endian, two's complement
    if (bytes.size() <= 8) {
      std::int64_t value = !bytes.empty() && (bytes.back() & 0x80) ? -1 : 0;
      std::memcpy(&value, bytes.data(), bytes.size());
      return push_int(value);
    }
    std::string text;
    for (std::size_t i = bytes.size(); i > 0 && text.size() < 64; --i)
      text += fmt::format("{:02x}", std::uint8_t(bytes[i - 1]));
    push_text(Kind::kBig, "0x" + text);
  }
  void push_decimal(std::string_view text) {
    if (text == "00" || text == "01") return push_bool(text == "01");
    if (text.ends_with('L')) text.remove_suffix(1);
    const auto value = parse_int(text);
    if (value) return push_int(*value);
    if (text.empty() || text.find_first_not_of("-0123456789") != std::string_view::npos) corrupt("has no number");
    push_text(Kind::kBig, text.substr(0, 64));
  }

  // ---- calls
  void push_name(std::string_view module, std::string_view name) {
    const std::string whole = fmt::format("{}.{}", module, name);
    (void)meaning_of(whole);
    push_text(Kind::kName, whole);
  }

  // Calls `function`, a name, with `arguments`.
  void call(Number function, Number arguments) {
    if (at(arguments).kind != Kind::kTuple) corrupt("calls with what is no tuple");
    if (at(function).kind != Kind::kName) corrupt("calls what is no name");
    const std::string name = at(function).text;
    spend(at(arguments).items.size());
    const std::vector<Number> given = at(arguments).items;
    const auto need = [&](std::size_t count) {
      if (given.size() < count) corrupt(fmt::format("calls {} with {} arguments", name, given.size()));
    };
    switch (meaning_of(name)) {
      case Meaning::kNothing:
        fail(Code::kUnsupported, fmt::format("the pickle calls {}, which is only known as a name", name));
      case Meaning::kDict:
        return push_items(Kind::kDict, pairs_of(given));
      case Meaning::kList:
        return push_items(Kind::kList, sequence_of(given));
      case Meaning::kTuple:
        return push_items(Kind::kTuple, sequence_of(given));
      case Meaning::kSet:
        return push_items(Kind::kSet, sequence_of(given));
      case Meaning::kBytes:
        need(1);
        return push_latin1(given[0]);
      case Meaning::kText:
        need(1);
        if (at(given[0]).kind != Kind::kString) corrupt(fmt::format("calls {} without a text", name));
        spend(at(given[0]).text.size());
        return push_text(Kind::kString, given.size() > 1 && at(given[1]).kind == Kind::kInt
                                            ? fmt::format("{}:{}", at(given[0]).text, at(given[1]).whole)
                                            : at(given[0]).text);
      case Meaning::kTensor:
        need(4);
        return push_items(Kind::kTensor, {given[0], given[1], given[2], given[3]});
      case Meaning::kTypedTensor:
        need(7);
        return push_items(Kind::kTensor, {given[0], given[1], given[2], given[3], given[6]});
      case Meaning::kParameter:
        need(1);
        if (at(given[0]).kind != Kind::kTensor) corrupt("makes a parameter of what is no tensor");
        return stack_.push_back(given[0]);
      case Meaning::kFromType:
        need(4);
        if (at(given[1]).kind != Kind::kName || meaning_of(at(given[1]).text) != Meaning::kRecord)
          fail(Code::kUnsupported, "the pickle makes a tensor of a type that is not among what is read");
        return push({.kind = Kind::kRecord, .text = at(given[1]).text, .items = {given[2], given[3]}});
      case Meaning::kMember: {
        need(2);
        if (at(given[0]).kind != Kind::kName || at(given[1]).kind != Kind::kString)
          corrupt("asks for a member of what is no class");
        if (meaning_of(at(given[0]).text) != Meaning::kRecord)
          fail(Code::kUnsupported, fmt::format("the pickle takes {} out of {}, which is not among what is read",
                                               printable(at(given[1]).text), at(given[0]).text));
        const std::string of = at(given[0]).text, member = at(given[1]).text;
        return push_name(of, member);
      }
      case Meaning::kRecord:
        return push({.kind = Kind::kRecord, .text = name, .items = {arguments}});
    }
  }
  // Of the arguments of dict(): none, a list of pairs, or (of a defaultdict) a name.
  std::vector<Number> pairs_of(const std::vector<Number>& given) {
    std::vector<Number> items;
    for (const Number argument : given) {
      if (at(argument).kind == Kind::kName || at(argument).kind == Kind::kNone) continue;
      spend(at(argument).items.size());
      if (at(argument).kind == Kind::kDict) {
        const auto& other = at(argument).items;
        items.insert(items.end(), other.begin(), other.end());
        continue;
      }
      if (at(argument).kind != Kind::kList && at(argument).kind != Kind::kTuple)
        corrupt("makes a dict of what is no list");
      for (const Number pair : at(argument).items) {
        spend(2);
        if (at(pair).items.size() != 2) corrupt("makes a dict of what are no pairs");
        items.insert(items.end(), at(pair).items.begin(), at(pair).items.end());
      }
    }
    return items;
  }
  std::vector<Number> sequence_of(const std::vector<Number>& given) {
    if (given.empty()) return {};
    const Kind kind = at(given[0]).kind;
    if (given.size() != 1 || (kind != Kind::kList && kind != Kind::kTuple && kind != Kind::kSet))
      corrupt("makes a list of what is none");
    spend(at(given[0]).items.size());
    return at(given[0]).items;
  }
  // Bytes in protocol 2: each is a character below 256, in UTF-8.
  void push_latin1(Number given) {
    if (at(given).kind != Kind::kString) corrupt("makes bytes of what is no text");
    spend(at(given).text.size());
    const std::string text = at(given).text;
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto c = std::uint8_t(text[i]);
      bytes += c >= 0xc0 && i + 1 < text.size() ? char((c & 3) << 6 | (text[++i] & 0x3f)) : char(c);
    }
    push_text(Kind::kBytes, bytes);
  }
  void build() {
    const Number state = pop(), object = top();
    const Kind kind = at(object).kind;
    if (kind == Kind::kRecord) return at(object).items.push_back(state);
    // An OrderedDict with attributes (_metadata of a state_dict) is the dict that it is.
    if (kind != Kind::kDict && kind != Kind::kTensor) corrupt("sets the state of what has none");
  }

  void step(std::uint8_t opcode);
  void step_container(std::uint8_t opcode);
  void step_memo(std::uint8_t opcode);
  void step_text(std::uint8_t opcode);
  Number remembered(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) corrupt(fmt::format("asks for object {}, which it has not kept,", place));
    return found->second;
  }

  const std::string_view text_;
  std::size_t at_ = 0, copied_ = 0;
  Pickle pickle_;
  std::vector<Number> stack_;
  std::unordered_map<std::uint64_t, Number> memo_;
};

void Machine::step(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const auto protocol = number<std::uint8_t>(); protocol > 5)
        fail(Code::kUnsupported, fmt::format("the pickle is of protocol {}; 0 to 5 are read", protocol));
      return;
    case 0x95:  // FRAME
      (void)number<std::uint64_t>();
      return;
    case '(':
      return push({.kind = Kind::kMark, .text = {}, .items = {}});
    case '0':  // POP
      if (!stack_.empty() && at(stack_.back()).kind == Kind::kMark) return stack_.pop_back();
      (void)pop();
      return;
    case '1':
      (void)pop_to_mark();
      return;
    case '2':
      return stack_.push_back(top());
    case 'N':
      return push({});
    case 0x88:
      return push_bool(true);
    case 0x89:
      return push_bool(false);
    case 'J':
      return push_int(number<std::int32_t>());
    case 'K':
      return push_int(number<std::uint8_t>());
    case 'M':
      return push_int(number<std::uint16_t>());
    case 'I':
    case 'L':
      return push_decimal(line());
    case 0x8a:
      return push_long(take(number<std::uint8_t>()));
    case 0x8b:
      return push_long(take(number<std::uint32_t>()));
    case 'F': {
      const auto value = parse_double(line());
      if (!value) corrupt("has no number");
      return push_float(*value);
    }
    case 'G':
      return push_float(std::bit_cast<double>(__builtin_bswap64(number<std::uint64_t>())));
    case 'c': {
      const std::string_view module = line();
      return push_name(module, line());
    }
    case 0x93: {  // STACK_GLOBAL
      const Number name = pop(), module = pop();
      if (at(name).kind != Kind::kString || at(module).kind != Kind::kString) corrupt("names something by no text");
      const std::string first = at(module).text, second = at(name).text;
      return push_name(first, second);
    }
    case 'R': {
      const Number arguments = pop(), function = pop();
      return call(function, arguments);
    }
    case 0x81: {  // NEWOBJ
      const Number arguments = pop(), type = pop();
      return call(type, arguments);
    }
    case 0x92: {  // NEWOBJ_EX
      (void)pop();
      const Number arguments = pop(), type = pop();
      return call(type, arguments);
    }
    case 'b':
      return build();
    case 'Q': {  // BINPERSID
      const Number name = pop();
      if (at(name).kind != Kind::kTuple) corrupt("names a storage by no tuple");
      spend(at(name).items.size());
      return push_items(Kind::kStored, std::vector<Number>(at(name).items));
    }
    default:
      return step_container(opcode);
  }
}

void Machine::step_container(std::uint8_t opcode) {
  switch (opcode) {
    case ']':
      return push_items(Kind::kList);
    case ')':
      return push_items(Kind::kTuple);
    case '}':
      return push_items(Kind::kDict);
    case 0x8f:
      return push_items(Kind::kSet);
    case 'l':
      return push_items(Kind::kList, pop_to_mark());
    case 't':
      return push_items(Kind::kTuple, pop_to_mark());
    case 0x91:
      return push_items(Kind::kSet, pop_to_mark());
    case 'd': {
      auto items = pop_to_mark();
      if (items.size() % 2 != 0) corrupt("has a key without a value");
      return push_items(Kind::kDict, std::move(items));
    }
    case 0x85:
    case 0x86:
    case 0x87: {
      std::vector<Number> items(std::size_t(opcode - 0x84));
      for (std::size_t i = items.size(); i > 0; --i) items[i - 1] = pop();
      return push_items(Kind::kTuple, std::move(items));
    }
    case 'a': {
      const Number item = pop();
      return append(Kind::kList, {item});
    }
    case 'e':
      return append(Kind::kList, pop_to_mark());
    case 0x90:
      return append(Kind::kSet, pop_to_mark());
    case 's': {
      const Number value = pop(), key = pop();
      return append(Kind::kDict, {key, value});
    }
    case 'u':
      return append(Kind::kDict, pop_to_mark());
    default:
      return step_memo(opcode);
  }
}

void Machine::step_memo(std::uint8_t opcode) {
  const auto place_in_line = [&] {
    const auto place = parse_int(line());
    if (!place || *place < 0) corrupt("has no place of an object");
    return std::uint64_t(*place);
  };
  switch (opcode) {
    case 'q':
      memo_[number<std::uint8_t>()] = top();
      return;
    case 'r':
      memo_[number<std::uint32_t>()] = top();
      return;
    case 'p':
      memo_[place_in_line()] = top();
      return;
    case 0x94: {  // MEMOIZE
      const std::uint64_t place = memo_.size();
      memo_[place] = top();
      return;
    }
    case 'h':
      return stack_.push_back(remembered(number<std::uint8_t>()));
    case 'j':
      return stack_.push_back(remembered(number<std::uint32_t>()));
    case 'g':
      return stack_.push_back(remembered(place_in_line()));
    default:
      return step_text(opcode);
  }
}

void Machine::step_text(std::uint8_t opcode) {
  switch (opcode) {
    case 'X':
      return push_text(Kind::kString, take(number<std::uint32_t>()));
    case 0x8c:
      return push_text(Kind::kString, take(number<std::uint8_t>()));
    case 0x8d:
      return push_text(Kind::kString, take(number<std::uint64_t>()));
    case 'V':
      return push_text(Kind::kString, line());
    case 'U':
      return push_text(Kind::kString, take(number<std::uint8_t>()));
    case 'T':
      return push_text(Kind::kString, take(number<std::uint32_t>()));
    case 'S': {
      const std::string_view quoted = line();
      if (quoted.size() < 2) corrupt("has a string without its quotes");
      return push_text(Kind::kString, quoted.substr(1, quoted.size() - 2));
    }
    case 'C':
      return push_text(Kind::kBytes, take(number<std::uint8_t>()));
    case 'B':
      return push_text(Kind::kBytes, take(number<std::uint32_t>()));
    case 0x8e:
    case 0x96:
      return push_text(Kind::kBytes, take(number<std::uint64_t>()));
    default:
      corrupt(fmt::format("has the opcode 0x{:02x}, which is not read,", opcode));
  }
}

}  // namespace

Result<Pickle> parse_pickle(std::string_view text) {
  try {
    return Machine(text).run();
  } catch (const Exception& error) {
    return error.error();
  }
}

const PickleNode* pickle_member(const Pickle& pickle, const PickleNode& dict, std::string_view key) {
  if (dict.kind != Kind::kDict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleNode& name = pickle[dict.items[i]];
    if (name.kind == Kind::kString && name.text == key) return &pickle[dict.items[i + 1]];
  }
  return nullptr;
}

}  // namespace tutti
