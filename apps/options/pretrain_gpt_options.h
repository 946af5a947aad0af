#pragma once
// The command line of pretrain_gpt: Megatron-LM's options, as far as they mean something on CPUs, and ours.
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/option_pairs.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/models/gpt/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::cli {

// What the options say, each for itself, under Megatron-LM's names. -1, 0 or empty where it is not given and another
// option decides.
struct PretrainGptTexts {
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<std::string>> words;  // of options that take several
  std::map<std::string, bool> flags;

  const std::string& value(const std::string& name) const { return values.at(name); }
  bool has(const std::string& name) const { return !values.at(name).empty(); }
  bool flag(const std::string& name) const { return flags.at(name); }
};

class PretrainGptCommandLine {
 public:
  // Binds all options to `app`; this has to outlive the parsing.
  void declare(CLI::App& app);
  // What they mean together, but for the size of the world. `vocabulary` is the tokenizer's, see below. kUsage.
  Result<gpt::Options> interpret(const Tokenizer* tokenizer) const;
  // The tokenizer that is named; null: none is (--vocab-size alone). Reads its files. kUsage, kNotFound, kCorrupt.
  Result<std::unique_ptr<Tokenizer>> tokenizer() const;
  // "tutti", "gloo" or "mpi", and the seconds that a collective may take. kUsage; where options are rejected, all of
  // them.
  Result<std::string> backend() const;
  Result<Duration> collective_timeout() const;
  // A sentence for each option that was given and has no effect; the command line is right.
  std::vector<std::string> without_effect() const;
  // The mistake that parsing found, and with it every option given that is rejected.
  Error with_rejected(const Error& mistake) const;
  // Name and text of every option that all ranks must have alike.
  std::vector<std::pair<std::string, std::string>> texts() const;

 private:
  Status reject() const;

  PretrainGptTexts texts_;
  std::map<std::string, const CLI::Option*> declared_, foreign_;
  std::vector<std::string> unused_;
};

// From the texts of options to what the training is told; kUsage names the option.
Result<gpt::Options> interpret_pretraining(const PretrainGptTexts& texts, std::int64_t vocabulary);

std::span<const ExcludedPair> pretrain_gpt_pairs();
// kUsage, if both options of a pair are given.
Status check_pairs(const PretrainGptTexts& texts);

// "--top-k has no effect without --generate"; `given`: on the command line, whatever the value.
std::vector<std::string> options_without_effect(const PretrainGptTexts& texts, const std::set<std::string>& given);

// An option of Megatron-LM that pretrain_gpt does not have.
struct ForeignOption {
  const char* name;
  bool takes_value;  // one or several
  const char* why;
  const char* instead = "";  // what to do, if it is rejected
};
const std::vector<ForeignOption>& rejected_pretraining_options();
// Accepted with a warning: they mean what is always so here, or change nothing.
const std::vector<ForeignOption>& ignored_pretraining_options();

}  // namespace tutti::cli
