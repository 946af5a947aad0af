#include "apps/same_kernels.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/launch/tuning.h"

namespace tutti::cli {

void use_kernels_of_tutti_run() {
  const char* const kVariable = "OPENBLAS_CORETYPE";
  const std::string wanted = openblas_coretype(cpu_features()), loaded = loaded_openblas_core();
  if (wanted.empty() || loaded.empty() || loaded == wanted || env(kVariable)) return;
  std::vector<std::string> words;
  std::ifstream line("/proc/self/cmdline");
  for (std::string word; std::getline(line, word, '\0');) words.push_back(word);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::setenv(kVariable, wanted.c_str(), 1);
  ::execv("/proc/self/exe", arguments.data());
  ::unsetenv(kVariable);
  log::warn("OpenBLAS runs its kernels for " + loaded +
            ", not those that tutti run chooses: the last bits may differ; set " + kVariable + "=" + wanted);
}

}  // namespace tutti::cli
