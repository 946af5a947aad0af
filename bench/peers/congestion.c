/* Preloaded into a peer (LD_PRELOAD): every TCP socket that it makes asks for the congestion control that TUTTI_BENCH_CONGESTION names, as
 * ours do by themselves. The system's default could be changed instead, but not in a network namespace where the control is not one of
 * those that everybody may use. A socket that is not given it ends the program: figures under another control would be taken for these. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol) {
    static int (*next)(int, int, int);
    if (!next) next = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    const int fd = next(domain, type, protocol);
    const char *const name = getenv("TUTTI_BENCH_CONGESTION");
    const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 || !name || kind != SOCK_STREAM || (domain != AF_INET && domain != AF_INET6)) return fd;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) != 0) {
        fprintf(stderr, "this system permits no congestion control %s\n", name);
        _Exit(3);
    }
    return fd;
}
