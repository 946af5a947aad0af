// Looked for before the options are parsed, because CLI11 reads -host as -h and a rest: it would print the help.
#include "apps/tutti/other_launchers.h"

#include <algorithm>

#include "apps/options/command_line.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

struct Habit {
  const char* names;
  const char* here;  // {} stands for the value that was given
};
constexpr Habit kHabits[] = {
    {"-np --np -nprocs --nprocs --ntasks --num_processes --num-processes --num_gpus --num-gpus --world-size "
     "--world_size",
     "here that is -n: tutti run -n {} ..., for the ranks of one host; on several tutti run --hosts a:4,b:4 ..."},
    {"-N -npernode --npernode -ppn --ppn -perhost --ntasks-per-node --tasks-per-node --gpus-per-node",
     "here that is -n: the ranks of each host; --hosts a,b or --nnodes K sets the number of hosts"},
    {"--nodes --num_nodes --num-nodes --num_machines --num-machines",
     "here that is --nnodes {}, with the same command on each host; tutti run --hosts a:8,b:2 starts all of them by "
     "ssh"},
    {"-host --host -hosts -w --nodelist --include", "here that is --hosts: tutti run --hosts a:8,b:2 ..."},
    {"-hostfile -machinefile --machinefile --default-hostfile -f",
     "here that is --hostfile FILE, with lines such as 'a slots=8'"},
    {"-bind-to --bind-to -bind-to-core --bind-to-core -map-by --map-by -rank-by --rank-by --cpu-bind --cpu_bind",
     "here that is --bind core, socket or numa; ranks follow one another, host after host"},
    {"-report-bindings --report-bindings -display-map --display-map",
     "drop it: a table of ranks, hosts and cores is printed at the start"},
    {"-oversubscribe --oversubscribe --overcommit --allow-run-as-root --use-hwthread-cpus -K --kill-on-bad-exit",
     "drop it: tutti run always does this"},
    {"-mca --mca -gmca --gmca --prtemca --pmixmca",
     "it is for the parts of Open MPI, which carries bytes here only with TUTTI_ENGINE=mpi; then set "
     "OMPI_MCA_NAME=VALUE"},
    {"-env -genv --env -envall -genvall --export-all",
     "write it before the command: NAME=VALUE tutti run ...; with --hosts -x NAME=VALUE sends it to all hosts"},
    {"-wd --wd -wdir --wdir --chdir -D", "the job starts in the folder that you are in: cd there first"},
    {"-tag-output --tag-output -prepend-rank --label -l",
     "drop it: each line begins with its rank (--no-prefix: none does)"},
    {"--output-filename --output -o", "here that is --log-dir DIR, with a folder for each rank"},
    {"--gpus --gpus-per-task --gres -G",
     "here -n gpu starts a rank for each GPU of the host, and --devices 0,2-3 takes only these"},
    {"--cpus-per-task -c",
     "write OMP_NUM_THREADS={} before the command; by itself each rank gets its share of the cores"},
    {"-rank --rank --local-rank --local_rank",
     "tutti run numbers the ranks of this host itself; the number of this host among several is --node-rank"},
    {"--time", "here that is --timeout, for example --timeout 2h"},
};

bool lists(const Habit& habit, const std::string& name) {
  const std::vector<std::string> names = split(habit.names, ' ');
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string with_value(std::string text, const std::string& value) {
  if (const auto at = text.find("{}"); at != std::string::npos) text.replace(at, 2, value);
  return text;
}

}  // namespace

std::optional<Error> option_of_another_launcher(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.size() < 2 || word[0] != '-' || word == "--") return std::nullopt;  // the program
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (const CLI::Option* const ours = app.get_option_no_throw(name)) {
      if (ours->get_items_expected_max() > 0 && equals == std::string::npos) ++i;
      continue;
    }
    const std::string next = i + 1 < arguments.size() ? arguments[i + 1] : std::string();
    const std::string value = equals != std::string::npos             ? word.substr(equals + 1)
                              : next.empty() || next.starts_with('-') ? std::string("N")
                                                                      : next;
    for (const Habit& habit : kHabits)
      if (lists(habit, name)) return usage("unknown option " + name, with_value(habit.here, value));
  }
  return std::nullopt;
}

}  // namespace tutti::cli
