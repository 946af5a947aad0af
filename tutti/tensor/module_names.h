#pragma once
// Names of modules inside a module, as named_modules() gives them: "layers.3.up".
#include <string_view>

namespace tutti {

// "layers.3.up" fits "layers.*.up": a `*` stands for one part of a name.
bool name_fits(std::string_view pattern, std::string_view name);

}  // namespace tutti
