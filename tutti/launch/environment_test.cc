#include "tutti/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Environment, RemovesRanksOfOthersAndKeepsTheRest) {
  Environment environment = {{"HOME", "/root"},
                             {"PATH", "/bin"},
                             {"PMI_RANK", "1"},
                             {"PMIX_RANK", "1"},
                             {"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_MCA_orte_hnp_uri", "1"},
                             {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_JOB_ID", "77"},
                             {"RANK", "3"},
                             {"TORCHELASTIC_RUN_ID", "x"},
                             {"TUTTI_ETCD_PASSWORD", "p"},
                             {"TUTTI_SECRET", "s"},
                             {"TUTTI_LOG", "debug"},
                             {"RANKING", "kept"}};
  const Environment tuning = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                              {"OMPI_MCA_btl", "self,tcp"},
                              {"PMIX_MCA_gds", "hash"},
                              {"MV2_USE_CUDA", "1"},
                              {"HYDRA_BOOTSTRAP", "ssh"}};
  Environment kept = tuning;
  EXPECT_THAT(remove_stale(kept), ::testing::IsEmpty());
  EXPECT_EQ(kept, tuning);
  const auto removed = remove_stale(environment);
  EXPECT_THAT(environment, ElementsAre(Pair("HOME", "/root"), Pair("PATH", "/bin"), Pair("RANKING", "kept"),
                                       Pair("SLURM_JOB_ID", "77"), Pair("TUTTI_LOG", "debug")));
  EXPECT_THAT(removed, ElementsAre("MV2_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_orte_hnp_uri",
                                   "PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID",
                                   "TORCHELASTIC_RUN_ID"));  // the secret was for this launcher
}

TEST(Environment, PlaceOfAWorker) {
  Environment environment{{"NCCL_SOCKET_IFNAME", "ib0"}};
  set_worker_variables(environment, WorkerVariables{.rank = 9,
                                                    .world_size = 10,
                                                    .local_rank = 1,
                                                    .local_world_size = 2,
                                                    .node = 1,
                                                    .nodes = 2,
                                                    .master_address = "10.0.0.1",
                                                    .master_port = 29500,
                                                    .job = "j",
                                                    .store = "10.0.0.1:29501",
                                                    .error_file = "/tmp/e",
                                                    .secret_fd = 5,
                                                    .kept_memory_fd = 6,
                                                    .interface = "eth1"});
  EXPECT_EQ(environment["RANK"], "9");
  EXPECT_EQ(environment["LOCAL_RANK"], "1");
  EXPECT_EQ(environment["GROUP_RANK"], "1");
  EXPECT_EQ(environment["GROUP_WORLD_SIZE"], "2");
  EXPECT_EQ(environment["ROLE_WORLD_SIZE"], "10");
  EXPECT_EQ(environment["MASTER_PORT"], "29500");
  EXPECT_EQ(environment["TUTTI_STORE"], "10.0.0.1:29501");
  EXPECT_EQ(environment["TUTTI_SECRET_FD"], "5");
  EXPECT_EQ(environment["TORCHELASTIC_ERROR_FILE"], "/tmp/e");
  EXPECT_EQ(environment.count("TUTTI_INSECURE"), 0u);
  EXPECT_EQ(environment["GLOO_SOCKET_IFNAME"], "eth1");
  EXPECT_EQ(environment["NCCL_SOCKET_IFNAME"], "ib0") << "the user's";
}

}  // namespace
}  // namespace tutti::launch
