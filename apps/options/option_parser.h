#pragma once
// Parses, checks and explains the command line of a training program by its table of options (option.h).
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/options/option.h"
#include "apps/options/report.h"
#include "tutti/base/option_pairs.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::cli {

struct ProgramHelp {
  const char* name;
  const char* about;   // the first line of the help
  const char* footer;  // examples and exit codes
  bool has_local_rank = true;  // launchers pass --local-rank to what they start
};

class OptionParser {
 public:
  OptionParser(const ProgramHelp& help, OptionTable table);
  ~OptionParser();

  // Parses, checks and sets. An exit code if nothing is left to do: 0 after --help, 2 after a mistake, which has been
  // reported: all unknown and all rejected options at once, else the first pair that excludes each other, the first
  // option whose need is not met, the first wrong value.
  std::optional<int> parse(const std::vector<std::string>& arguments, const Reporter& reporter = report_once);

  // After parse().
  const OptionTexts& texts() const { return texts_; }
  // A sentence for each option that was given and has no effect.
  std::vector<std::string> without_effect() const;
  // "--save is --save-dir", for each option that was given by another name.
  std::vector<std::string> aliases_given() const;
  // Name and text of every option, which all ranks must have alike. Those of `of_a_host`, such as folders, may have
  // another text on each host; it is compared whether they were given.
  std::vector<std::pair<std::string, std::string>> compared(
      std::initializer_list<std::string_view> of_a_host = {}) const;
  // The value of --local-rank; empty: not given.
  const std::string& local_rank() const { return local_rank_; }

  const OptionTable& table() const { return table_; }
  // All options that exclude each other.
  std::vector<ExcludedPair> pairs() const;

 private:
  struct Declared {
    CLI::Option* option = nullptr;
    std::vector<std::pair<const char*, CLI::Option*>> aliases;
  };
  template <class Do>  // Do(const Option&)
  void for_each(const Do& run) const;
  void declare();
  void collect();
  Status check() const;
  Status check_foreign() const;
  Status check_empty() const;
  Status check_pairs() const;
  Status check_needs() const;
  Error with_rejected(const Error& mistake) const;

  const ProgramHelp help_;
  const OptionTable table_;
  const std::unique_ptr<CLI::App> app_;
  std::map<std::string, Declared> declared_;
  std::map<std::string, CLI::Option*> foreign_;
  std::string local_rank_;
  OptionTexts texts_;
};

}  // namespace tutti::cli
