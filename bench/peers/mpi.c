/* Peer: MPI's collectives on vectors of float, by the method of `tutti bench` (docs/reference/benchmarks.md), with the keys of its --json.
 *
 *   mpirun -np N peer_mpi [--rounds R] [--warm-up W] [--rewrite] OP:BYTES...
 *
 * all_reduce and broadcast work in place. A round is many calls in a row and counts as the slowest rank's mean. With --rewrite each rank
 * reads and writes its buffer before every call and all meet in a barrier; neither counts. Best setting for Open MPI 4.1, which faults
 * its temporaries anew at every call otherwise: MALLOC_MMAP_THRESHOLD_=2147483648 MALLOC_TRIM_THRESHOLD_=4294967296. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostRounds = 1000 };

static int rank, ranks;
static float *a, *b;

static void all_reduce(int count) { MPI_Allreduce(MPI_IN_PLACE, a, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void reduce(int count) { MPI_Reduce(a, b, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); }
static void broadcast(int count) { MPI_Bcast(a, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void all_gather(int count) { MPI_Allgather(a, count / ranks, MPI_FLOAT, b, count / ranks, MPI_FLOAT, MPI_COMM_WORLD); }
static void gather(int count) { MPI_Gather(a, count / ranks, MPI_FLOAT, b, count / ranks, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void scatter(int count) { MPI_Scatter(a, count / ranks, MPI_FLOAT, b, count / ranks, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void reduce_scatter(int count) { MPI_Reduce_scatter_block(a, b, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void all_to_all(int count) { MPI_Alltoall(a, count / ranks, MPI_FLOAT, b, count / ranks, MPI_FLOAT, MPI_COMM_WORLD); }
static void send_recv(int count) {
    MPI_Sendrecv(a, count, MPI_FLOAT, (rank + 1) % ranks, 0, b, count, MPI_FLOAT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}
static void ping_pong(int count) {
    const int partner = rank ^ 1;
    if (partner >= ranks) return;
    if (rank % 2 == 0) MPI_Send(a, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD);
    MPI_Recv(b, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank % 2 == 1) MPI_Send(a, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD);
}
static void barrier(int count) {
    (void)count;
    MPI_Barrier(MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*call)(int count);
} kOperations[] = {{"all_reduce", all_reduce}, {"reduce", reduce},   {"broadcast", broadcast}, {"all_gather", all_gather},
                   {"gather", gather},         {"scatter", scatter}, {"reduce_scatter", reduce_scatter},
                   {"all_to_all", all_to_all}, {"send_recv", send_recv}, {"ping_pong", ping_pong}, {"barrier", barrier}};

static int calls_in_a_round(size_t bytes) {
    const int calls = bytes <= 4096 ? 1000 : bytes <= 262144 ? 100 : bytes <= ((size_t)4 << 20) ? 10 : 2;
    return ranks > 2 && calls > 100 ? 100 : calls;
}

/* Each word is read, and written as it was. */
static void rewrite(size_t bytes) {
    uint64_t all_ones = ~(uint64_t)0, *words = (uint64_t *)a;
    __asm__ volatile("" : "+r"(all_ones));
    for (size_t i = 0; i < bytes / 8; ++i) words[i] &= all_ones;
    __asm__ volatile("" : : "r"(a) : "memory");
}

static double seconds_of_a_round(void (*call)(int), size_t bytes, int rewriting) {
    const int calls = calls_in_a_round(bytes), count = (int)(bytes / sizeof *a);
    double sum = 0, begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) {
        if (rewriting) {
            rewrite(bytes);
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        call(count);
        if (rewriting) sum += MPI_Wtime() - begin;
    }
    double mine = (rewriting ? sum : MPI_Wtime() - begin) / calls, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int ascending(const void *x, const void *y) {
    const double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

static void measure(size_t item, size_t bytes, int warm_up, int rounds, int rewriting) {
    double seconds[kMostRounds];
    for (int round = -warm_up; round < rounds; ++round) {
        memset(a, 0, bytes), memset(b, 0, bytes); /* written anew each round: caches hold no stale copy */
        MPI_Barrier(MPI_COMM_WORLD);
        const double slowest = seconds_of_a_round(kOperations[item].call, bytes, rewriting);
        if (round >= 0) seconds[round] = slowest;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
    if (rank == 0)
        printf("{\"peer\":\"mpi\",\"op\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f}\n", kOperations[item].name, ranks,
               bytes, seconds[rounds / 2] * 1e6, seconds[0] * 1e6);
    fflush(stdout);
}

static size_t operation_of(const char *text, const char *colon) {
    for (size_t i = 0; i < sizeof kOperations / sizeof *kOperations; ++i)
        if (strlen(kOperations[i].name) == (size_t)(colon - text) && !strncmp(kOperations[i].name, text, (size_t)(colon - text))) return i;
    fprintf(stderr, "peer_mpi: no operation in '%s'\n", text);
    exit(2);
}

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!memory) {
        fprintf(stderr, "peer_mpi: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(memory, 0, bytes);
    return memory;
}

int main(int argc, char **argv) {
    int rounds = 7, warm_up = 1, rewriting = 0, first = 1;
    for (; first < argc && argv[first][0] == '-'; ++first) {
        if (!strcmp(argv[first], "--rewrite")) rewriting = 1;
        else if (!strcmp(argv[first], "--rounds") && first + 1 < argc) rounds = atoi(argv[++first]);
        else if (!strcmp(argv[first], "--warm-up") && first + 1 < argc) warm_up = atoi(argv[++first]);
        else first = argc;
    }
    if (first >= argc || rounds < 1 || rounds > kMostRounds) {
        fprintf(stderr, "usage: peer_mpi [--rounds R] [--warm-up W] [--rewrite] OP:BYTES...\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t most = 0;
    for (int i = first; i < argc; ++i) {
        const char *colon = strchr(argv[i], ':');
        const size_t bytes = colon ? strtoull(colon + 1, NULL, 10) : 0;
        if (bytes > most) most = bytes;
    }
    a = allocate(most), b = allocate(most);
    for (int i = first; i < argc; ++i) {
        const char *colon = strchr(argv[i], ':');
        if (!colon) colon = argv[i] + strlen(argv[i]);
        measure(operation_of(argv[i], colon), *colon ? strtoull(colon + 1, NULL, 10) : 0, warm_up, rounds, rewriting);
    }
    MPI_Finalize();
    return 0;
}
