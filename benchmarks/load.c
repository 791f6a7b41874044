/* Load one HTTP server: N keep-alive connections, each sends a request, reads the answer, sends the next.

   The driver must cost little and judge nothing but the form: an answer counts as an error unless its status is 200 and
   its body has "result" in it. The request comes ready from a file; MARK, a number in it, is replaced by a new number of
   the same width for each request, wherever it stands. One raw answer is printed after the counts, for the caller to look
   into: the first error if there was one, else the last answer.

   load PORT CONNECTIONS WARM_SECONDS SECONDS PID MARK FILE

   PID is the server: its processor time over the measured stretch is read here, where the stretch begins and ends. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CAPACITY = 1 << 18, MARKS = 16, STALL_MS = 10000, KEPT = 1 << 16 };

struct connection {
    int fd;
    size_t filled;
    char *request;
    char *answer;
};

static size_t request_size, mark_width, mark_count, mark_at[MARKS];
static uint64_t next_number;
static struct sockaddr_in server;
static uint64_t answers, errors;
static char sample[KEPT];
static size_t sample_size;

static void fail(const char *what) {
    printf("{\"problem\": \"%s: %s\"}\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static uint64_t now(clockid_t clock) {
    struct timespec at;
    if (clock_gettime(clock, &at)) fail("the server's clock");
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void keep(const struct connection *one) {
    sample_size = one->filled < KEPT ? one->filled : KEPT;
    memcpy(sample, one->answer, sample_size);
}

/* Give the size of a complete chunked body, 0 while it is not complete. */
static size_t chunked(const char *body, size_t size) {
    size_t at = 0;
    for (;;) {
        const char *line = memmem(body + at, size - at, "\r\n", 2);
        if (!line) return 0;
        size_t length = strtoul(body + at, NULL, 16);
        at = (size_t)(line - body) + 2 + length + 2;
        if (at > size) return 0;
        if (!length) return at;
    }
}

/* Find a header's value in a head, or NULL. */
static const char *header(const char *head, const char *end, const char *name) {
    size_t length = strlen(name);
    for (const char *line = head; line < end; line += 2) {
        if (!strncasecmp(line, name, length)) return line + length;
        line = memmem(line, (size_t)(end - line) + 2, "\r\n", 2);
        if (!line) return NULL;
    }
    return NULL;
}

/* Say whether the answer is whole; if so, count it. */
static int judge(struct connection *one) {
    const char *end = memmem(one->answer, one->filled, "\r\n\r\n", 4);
    if (!end) return 0;
    const char *body = end + 4;
    size_t size = one->filled - (size_t)(body - one->answer);
    const char *given = header(one->answer, end, "content-length:");
    if (given) {
        if (size < strtoul(given, NULL, 10)) return 0;
    } else if (!chunked(body, size)) {
        return 0;
    }
    answers++;
    if (memcmp(one->answer + 9, "200", 3) || !memmem(body, size, "\"result\"", 8)) {
        if (!errors) keep(one);
        errors++;
    }
    return 1;
}

static void ask(struct connection *one) {
    char digits[32];
    int width = snprintf(digits, sizeof digits, "%llu", (unsigned long long)next_number++);
    if ((size_t)width != mark_width) fail("the numbers have outgrown the mark");
    for (size_t mark = 0; mark < mark_count; mark++) memcpy(one->request + mark_at[mark], digits, mark_width);
    one->filled = 0;
    ssize_t sent = send(one->fd, one->request, request_size, MSG_NOSIGNAL);
    if (sent != (ssize_t)request_size) fail("sending");
}

static void open_connection(int poll, struct connection *one) {
    int yes = 1;
    one->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&server, sizeof server)) fail("connecting");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = one};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, one->fd, &wanted)) fail("epoll");
    ask(one);
}

/* Take what has come; when the answer is whole, ask again. */
static void take(int poll, struct connection *one) {
    ssize_t got = recv(one->fd, one->answer + one->filled, CAPACITY - one->filled, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        /* A server that hangs up between answers wastes its own time; one that does so within an answer has erred. */
        if (one->filled) errors++;
        close(one->fd);
        open_connection(poll, one);
        return;
    }
    one->filled += (size_t)got;
    if (judge(one)) {
        ask(one);
    } else if (one->filled == CAPACITY) {
        errno = 0;
        fail("an answer over the capacity");
    }
}

static void run(int poll, uint64_t nanoseconds) {
    struct epoll_event ready[256];
    uint64_t until = now(CLOCK_MONOTONIC) + nanoseconds;
    while (now(CLOCK_MONOTONIC) < until) {
        int count = epoll_wait(poll, ready, 256, STALL_MS);
        if (count == 0) {
            errno = 0;
            fail("the server said nothing for 10 s");
        }
        for (int at = 0; at < count; at++) take(poll, ready[at].data.ptr);
    }
}

static void read_request(const char *path, const char *mark, char **request) {
    FILE *file = fopen(path, "rb");
    *request = malloc(CAPACITY);
    if (!file || !*request) fail(path);
    request_size = fread(*request, 1, CAPACITY, file);
    fclose(file);
    mark_width = strlen(mark);
    next_number = strtoull(mark, NULL, 10);
    for (char *at = *request; (at = memmem(at, request_size - (size_t)(at - *request), mark, mark_width)); at++)
        if (mark_count < MARKS) mark_at[mark_count++] = (size_t)(at - *request);
}

/* Read one whole answer the slow way, after the measured stretch, so that the last answer can be looked into. */
static void last_answer(struct connection *one) {
    while (!memmem(one->answer, one->filled, "\r\n\r\n", 4) || !judge(one)) {
        ssize_t got = recv(one->fd, one->answer + one->filled, CAPACITY - one->filled, 0);
        if (got <= 0) fail("reading the last answer");
        one->filled += (size_t)got;
    }
    if (!sample_size) keep(one);
}

int main(int count, char **given) {
    if (count != 8) {
        fprintf(stderr, "load PORT CONNECTIONS WARM_SECONDS SECONDS PID MARK FILE\n");
        return 2;
    }
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)atoi(given[1]));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int number = atoi(given[2]);
    clockid_t clock = (~(clockid_t)atoi(given[5]) << 3) | 2; /* Linux's number for the processor clock of a process */
    char *request;
    read_request(given[7], given[6], &request);
    struct connection *all = calloc((size_t)number, sizeof *all);
    int poll = epoll_create1(0);
    for (int at = 0; at < number; at++) {
        all[at].request = malloc(request_size);
        all[at].answer = malloc(CAPACITY);
        memcpy(all[at].request, request, request_size);
        open_connection(poll, &all[at]);
    }
    run(poll, (uint64_t)(atof(given[3]) * 1e9));
    answers = 0;
    uint64_t cpu = now(clock), wall = now(CLOCK_MONOTONIC), own = now(CLOCK_PROCESS_CPUTIME_ID);
    run(poll, (uint64_t)(atof(given[4]) * 1e9));
    cpu = now(clock) - cpu;
    wall = now(CLOCK_MONOTONIC) - wall;
    own = now(CLOCK_PROCESS_CPUTIME_ID) - own;
    uint64_t counted = answers, wrong = errors;
    last_answer(&all[0]);
    printf("{\"answers\": %llu, \"errors\": %llu, \"cpu_ns\": %llu, \"wall_ns\": %llu, \"driver_ns\": %llu}\n",
           (unsigned long long)counted, (unsigned long long)wrong, (unsigned long long)cpu, (unsigned long long)wall,
           (unsigned long long)own);
    fwrite(sample, 1, sample_size, stdout);
    return 0;
}
