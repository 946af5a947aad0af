#pragma once
// A command's manual page, made of the options that it declares: so it says what --help says, and cannot fall behind.
#include <string>

namespace CLI {
class App;
}

namespace tutti::cli {

// In man(7)'s language. The name of the page is the app's with '-' for ' ': "tutti-run".
std::string man_page(const CLI::App& app);

}  // namespace tutti::cli
