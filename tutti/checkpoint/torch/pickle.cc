// Protocols 0 to 5 (Lib/pickle.py and Lib/pickletools.py of CPython say what each opcode does). Objects lie in one
// list, in the order of their making, and the stack and the memo hold their numbers: so an object that holds itself, or
// one that ten thousand hold, costs nothing here, and nothing recurses. An opcode makes at most one object, and what it
// appends it takes from the stack: hence memory in proportion to the text.
#include "tutti/checkpoint/torch/pickle.h"

#include <fmt/format.h>

#include <bit>

#include "tutti/base/text.h"
#include "tutti/checkpoint/torch/pickle_machine.h"
#include "tutti/checkpoint/torch/pickle_names.h"

namespace tutti {

Pickle PickleMachine::run() {
  while (true) {
    if (at_ == text_.size()) fail_pickle(Code::kCorrupt, "the pickle ends before its STOP: it was cut off");
    const auto opcode = std::uint8_t(text_[at_++]);
    if (opcode == '.') break;
    step(opcode);
  }
  pickle_.root = pop();
  pickle_.bytes = at_;
  return std::move(pickle_);
}

PickleMachine::Number PickleMachine::remembered(std::uint64_t place) {
  const auto found = memo_.find(place);
  if (found == memo_.end()) corrupt(fmt::format("asks for object {}, which it has not kept,", place));
  return found->second;
}

void PickleMachine::step(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const auto protocol = number<std::uint8_t>(); protocol > 5)
        fail_pickle(Code::kUnsupported, fmt::format("the pickle is of protocol {}; 0 to 5 are read", protocol));
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
      const Number keywords = pop(), arguments = pop(), type = pop();
      call(type, arguments);
      if (at(top()).kind == Kind::kForeign) at(top()).items.push_back(keywords);
      return;
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

void PickleMachine::step_container(std::uint8_t opcode) {
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

void PickleMachine::step_memo(std::uint8_t opcode) {
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

void PickleMachine::step_text(std::uint8_t opcode) {
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

Result<Pickle> parse_pickle(std::string_view text) {
  try {
    return PickleMachine(text).run();
  } catch (const Exception& error) {
    return error.error();
  }
}

const PickleNode* pickle_member(const Pickle& pickle, const PickleNode& dict, std::string_view key) {
  if (dict.kind != PickleNode::Kind::kDict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleNode& name = pickle[dict.items[i]];
    if (name.kind == PickleNode::Kind::kString && name.text == key) return &pickle[dict.items[i + 1]];
  }
  return nullptr;
}

}  // namespace tutti
