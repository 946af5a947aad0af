// What a pickle calls is looked up in a table of names (pickle_names.h). There is no way from here to any code of the
// file's choice.
#include <fmt/format.h>

#include "tutti/checkpoint/torch/pickle_machine.h"
#include "tutti/checkpoint/torch/pickle_names.h"

namespace tutti {

using Meaning = PickleMeaning;

void PickleMachine::push_name(std::string_view module, std::string_view name) {
  const std::string whole = fmt::format("{}.{}", module, name);
  if (meaning_of(whole) == Meaning::kForeign) {
    push_text(Kind::kForeign, printable(whole));
  } else {
    push_text(Kind::kName, whole);
  }
}

void PickleMachine::push_foreign(const std::string& name, std::vector<Number> items) {
  spend(name.size());
  push({.kind = Kind::kForeign, .text = name, .items = std::move(items)});
}

void PickleMachine::call(Number function, Number arguments) {
  if (at(arguments).kind != Kind::kTuple) corrupt("calls with what is no tuple");
  const std::string name = at(function).text;
  if (at(function).kind == Kind::kForeign) return push_foreign(name, {function, arguments});
  if (at(function).kind != Kind::kName) corrupt("calls what is no name");
  spend(at(arguments).items.size());
  const std::vector<Number> given = at(arguments).items;
  // What is made of a foreign object is none that is known.
  if (meaning_of(name) != Meaning::kRecord)
    for (const Number argument : given)
      if (at(argument).kind == Kind::kForeign && !at(argument).items.empty()) return push_foreign(name, {arguments});
  const auto need = [&](std::size_t count) {
    if (given.size() < count) corrupt(fmt::format("calls {} with {} arguments", name, given.size()));
  };
  switch (meaning_of(name)) {
    case Meaning::kNothing:
      fail_pickle(Code::kUnsupported, fmt::format("the pickle calls {}, which is only known as a name", name));
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
    case Meaning::kTypedTensor: {
      const bool typed = meaning_of(name) == Meaning::kTypedTensor;
      need(typed ? 7 : 4);
      std::vector<Number> items(given.begin(), given.begin() + 4);
      if (typed && at(given[6]).kind == Kind::kForeign) return push_foreign(name, {arguments});
      if (typed && at(given[6]).kind != Kind::kName) corrupt("makes a tensor of what is no type");
      if (typed) items.push_back(given[6]);
      const std::size_t bits = typed ? 7 : 6;  // which bits the view has: "conj", "neg"
      if (given.size() > bits && at(given[bits]).kind == Kind::kDict) items.push_back(given[bits]);
      return push_items(Kind::kTensor, std::move(items));
    }
    case Meaning::kParameter:
      need(1);
      if (at(given[0]).kind != Kind::kTensor) corrupt("makes a parameter of what is no tensor");
      return stack_.push_back(given[0]);
    case Meaning::kFromType:
      need(4);
      if (at(given[1]).kind != Kind::kName && at(given[1]).kind != Kind::kForeign)
        corrupt("makes a tensor of what is no type");
      // A tensor with attributes of its own is that tensor.
      if (at(given[1]).text == "torch.Tensor" && at(given[0]).kind == Kind::kName &&
          meaning_of(at(given[0]).text) == Meaning::kTensor)
        return call(given[0], given[2]);
      if (meaning_of(at(given[1]).text) != Meaning::kRecord) {
        const std::string type = at(given[1]).text;
        return push_foreign(type, {arguments});
      }
      return push({.kind = Kind::kRecord, .text = at(given[1]).text, .items = {given[2], given[3]}});
    case Meaning::kMember: {
      need(2);
      const PickleNode &of = at(given[0]), &member = at(given[1]);
      if (of.kind != Kind::kForeign && member.kind != Kind::kString) corrupt("asks for a member without a name");
      if (of.kind == Kind::kName && meaning_of(of.text) == Meaning::kRecord) {
        const std::string record = of.text, attribute = member.text;
        return push_name(record, attribute);
      }
      // A function of a known class, or of a value, is foreign.
      const std::string type = of.kind == Kind::kForeign ? of.text
                               : of.kind == Kind::kName  ? fmt::format("{}.{}", of.text, printable(member.text))
                                                         : name;
      return push_foreign(type, {arguments});
    }
    case Meaning::kRecord:
      return push({.kind = Kind::kRecord, .text = name, .items = {arguments}});
    case Meaning::kForeign:
      return push_foreign(name, {arguments});
  }
}

std::vector<PickleMachine::Number> PickleMachine::pairs_of(const std::vector<Number>& given) {
  std::vector<Number> items;
  for (const Number argument : given) {
    const Kind kind = at(argument).kind;  // of a defaultdict the first is a name
    if (kind == Kind::kName || kind == Kind::kForeign || kind == Kind::kNone) continue;
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

std::vector<PickleMachine::Number> PickleMachine::sequence_of(const std::vector<Number>& given) {
  if (given.empty()) return {};
  const Kind kind = at(given[0]).kind;
  if (given.size() != 1 || (kind != Kind::kList && kind != Kind::kTuple && kind != Kind::kSet))
    corrupt("makes a list of what is none");
  spend(at(given[0]).items.size());
  return at(given[0]).items;
}

void PickleMachine::push_latin1(Number given) {
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

void PickleMachine::build() {
  const Number state = pop(), object = top();
  const Kind kind = at(object).kind;
  if (kind == Kind::kRecord || kind == Kind::kForeign) return at(object).items.push_back(state);
  // An OrderedDict with attributes (_metadata of a state_dict) is the dict that it is.
  if (kind != Kind::kDict && kind != Kind::kTensor) corrupt("sets the state of what has none");
}

}  // namespace tutti
