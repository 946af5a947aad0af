#pragma once
// The names that a pickle may mention, and what each means here: the whole list, so that one file shows all that a
// file of somebody else's can ask for.
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

// What a name means where it is called, or made an object of.
enum class PickleMeaning {
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
  kForeign,      // not on the list: an opaque object
};

PickleMeaning meaning_of(std::string_view name);

// At most 120 characters of a text that came from elsewhere, none of which plays with a terminal.
std::string printable(std::string_view text);
[[noreturn]] void fail_pickle(Code code, std::string detail);

}  // namespace tutti
