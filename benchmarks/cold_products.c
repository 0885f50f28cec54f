/* What fetching weights ahead gains in a product of matrices whose weights come from memory.

       cc -O3 -march=native -pthread -o cold_products benchmarks/cold_products.c && ./cold_products

   A tile of 6 rows by 64 columns (AVX-512) stays in registers for the whole sum; the weights are packed in panels of 64
   columns.  "warm": weights as the last run left them in the caches; "cold": flushed before each run.  "fetching": while a
   panel is multiplied, the next one is asked for, a cache line for each four products of a tile.  Threads share the
   panels.  GFLOP/s, medians of 15 runs. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 6, VECTORS = 4, PANEL = 64, LINE = 64, RUNS = 15 };

typedef struct {
    const float *data, *weights;
    float *result;
    int rows, columns, depth, from, to, fetching;
} Task;

#define TILE(R)                                                                                                        \
    static void tile##R(const Task *t, const float *a, const float *b, float *c, const char *next) {                   \
        __m512 sums[R][VECTORS];                                                                                       \
        for (int i = 0; i < R; i++)                                                                                    \
            for (int j = 0; j < VECTORS; j++) sums[i][j] = _mm512_setzero_ps();                                        \
        for (int k = 0; k < t->depth; k += 4) {                                                                        \
            if (next) _mm_prefetch(next + (long)k * (LINE / 4), _MM_HINT_T1);                                          \
            for (int u = 0; u < 4; u++) {                                                                              \
                __m512 w[VECTORS];                                                                                     \
                for (int j = 0; j < VECTORS; j++) w[j] = _mm512_load_ps(b + (long)(k + u) * PANEL + 16 * j);           \
                for (int i = 0; i < R; i++) {                                                                          \
                    __m512 value = _mm512_set1_ps(a[(long)i * t->depth + k + u]);                                      \
                    for (int j = 0; j < VECTORS; j++) sums[i][j] = _mm512_fmadd_ps(value, w[j], sums[i][j]);           \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < R; i++)                                                                                    \
            for (int j = 0; j < VECTORS; j++) _mm512_storeu_ps(c + (long)i * t->columns + 16 * j, sums[i][j]);         \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)

typedef void (*Tile)(const Task *, const float *, const float *, float *, const char *);
static const Tile tiles[] = {0, tile1, tile2, tile3, tile4, tile5, tile6};

static void run(const Task *t) {
    for (int column = t->from; column < t->to; column += PANEL) {
        const float *panel = t->weights + (long)column * t->depth;
        const char *next = (const char *)(panel + (long)PANEL * t->depth);
        long lines = (long)t->depth * VECTORS, at = 0;
        for (int row = 0; row < t->rows; row += ROWS, at += t->depth / 4) {
            int rows = t->rows - row < ROWS ? t->rows - row : ROWS;
            int fetches = t->fetching && column + PANEL < t->to && at < lines;
            tiles[rows](t, t->data + (long)row * t->depth, panel, t->result + (long)row * t->columns + column,
                        fetches ? next + at * LINE : NULL);
        }
    }
}

static _Atomic(const Task *) given;

static void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *helper(void *unused) {
    pin(1);
    for (;;) {
        const Task *task = atomic_load(&given);
        if (task) {
            run(task);
            atomic_store(&given, NULL);
        }
    }
    return unused;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

static double measure(Task task, int threads, int cold) {
    double seconds[RUNS];
    int half = task.columns / PANEL / 2 * PANEL;
    Task own = task, other = task;
    own.from = 0, own.to = threads == 2 ? half : task.columns;
    other.from = half, other.to = task.columns;
    for (int i = 0; i < RUNS; i++) {
        if (cold)
            for (long at = 0; at < (long)task.columns * task.depth; at += LINE / 4) _mm_clflushopt((void *)(task.weights + at));
        _mm_mfence();
        double begun = now();
        if (threads == 2) atomic_store(&given, &other);
        run(&own);
        while (threads == 2 && atomic_load(&given)) {}
        seconds[i] = now() - begun;
    }
    qsort(seconds, RUNS, sizeof *seconds, ascending);
    return 2e-9 * task.rows * task.columns * task.depth / seconds[RUNS / 2];
}

int main(void) {
    const int shapes[][3] = {{128, 768, 768}, {128, 3072, 768}, {128, 768, 3072}, {197, 3072, 768}, {196, 1024, 256}, {196, 256, 1024}};
    pthread_t thread;
    pin(0);
    pthread_create(&thread, NULL, helper, NULL);
    printf("threads rows columns depth  warm  warm, fetching  cold  cold, fetching\n");
    for (int threads = 1; threads <= 2; threads++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int rows = shapes[s][0], columns = shapes[s][1], depth = shapes[s][2];
            float *data = aligned_alloc(64, 4L * rows * depth), *weights = aligned_alloc(64, 4L * columns * depth);
            float *result = aligned_alloc(64, 4L * rows * columns);
            for (long i = 0; i < (long)rows * depth; i++) data[i] = (float)(i % 7);
            for (long i = 0; i < (long)columns * depth; i++) weights[i] = (float)(i % 5);
            memset(result, 0, 4L * rows * columns);
            printf("%d       %4d %7d %5d", threads, rows, columns, depth);
            for (int cold = 0; cold < 2; cold++)
                for (int fetching = 0; fetching < 2; fetching++) {
                    Task task = {data, weights, result, rows, columns, depth, 0, columns, fetching};
                    printf("  %5.0f", measure(task, threads, cold));
                    fflush(stdout);
                }
            printf("\n");
            free(data), free(weights), free(result);
        }
    return 0;
}
