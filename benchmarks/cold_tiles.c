/* At which speeds AMX runs here, and what asking for the next panel of weights gains in a product of bf16 matrices.

       cc -O2 -march=sapphirerapids -pthread -o cold_tiles benchmarks/cold_tiles.c && ./cold_tiles

   First, for single tiles on one core: microseconds of 1600 products, with operands in registers, tiles in the first
   cache (one load for each product), tiles in the second, and of the loads alone; percentiles of 20000 turns.

   Then for products on two cores: 32 rows and 32 columns are computed at once, weights lie in panels of 32 columns and
   come from memory (another copy in each turn).  "plain": nothing is asked for.  "next": each step asks for a part of
   the next panel, into the first or the second cache.  "near": the same few weights again and again, which is as fast as
   it can become.  Microseconds, percentiles of 400 turns. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PERMIT = 0x1023, TILE_DATA = 18, LINE = 64, TILE = 1024, STEP = 2 * TILE, TURNS = 20000, RUNS = 400, WAYS = 4 };
enum { PLAIN, NEXT_FIRST, NEXT_SECOND, NEAR };
static const char *const names[WAYS] = {"plain", "next, first cache", "next, second cache", "near"};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

static void *memory(long bytes) {
    char *made = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(made, 0, bytes);
    return made;
}

static void begin(int core) {
    struct {
        unsigned char palette, start, unused[14];
        unsigned short widths[16];
        unsigned char heights[16];
    } tiles = {.palette = 1};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (int i = 0; i < 8; i++) tiles.widths[i] = 64, tiles.heights[i] = 16;
    __asm__ volatile("" ::"m"(tiles));  /* the compiler does not know that all of it is read */
    _tile_loadconfig(&tiles);
}

static void single(int kind, const char *data) {
    long span = kind == 2 ? 1 << 20 : 4 * TILE * 4;
    for (long i = 0, at = 0; i < 400; i++, at = (at + 4 * TILE) % span) {
        const char *a = data + at;
        if (kind) {
            _tile_loadd(4, a, 64);
            _tile_loadd(6, a + TILE, 64);
        }
        if (kind != 3) _tile_dpbf16ps(0, 4, 6);
        if (kind) _tile_loadd(7, a + 2 * TILE, 64);
        if (kind != 3) _tile_dpbf16ps(1, 4, 7);
        if (kind) _tile_loadd(5, a + 3 * TILE, 64);
        if (kind != 3) {
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
}

static void speeds(void) {
    static const char *const kinds[] = {"registers", "first cache", "second cache", "loads alone"};
    static double times[4][TURNS];
    char *data = memory(1 << 20);
    begin(0);
    for (int turn = 0; turn < TURNS; turn++)
        for (int kind = 0; kind < 4; kind++) {
            double begun = now();
            single(kind, data);
            times[kind][turn] = now() - begun;
        }
    for (int kind = 0; kind < 4; kind++) {
        qsort(times[kind], TURNS, sizeof(double), ascending);
        printf("%-13s 1%% %5.1f  50%% %5.1f  90%% %5.1f us\n", kinds[kind], times[kind][TURNS / 100], times[kind][TURNS / 2],
               times[kind][TURNS * 9 / 10]);
    }
    _tile_release();
    free(data);
}

static inline __attribute__((always_inline)) void block(const char *a, long line, const char *b, char *c, int steps, const char *next,
                                                        int way) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < steps; i++) {
        _tile_loadd(4, a, line);
        _tile_loadd(6, b, 2 * LINE);
                _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + LINE, 2 * LINE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * line, line);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        for (int asked = 0; way != PLAIN && asked < 8; asked++, next += LINE)
            if (way == NEXT_FIRST)
                _mm_prefetch(next, _MM_HINT_T0);
            else
                _mm_prefetch(next, _MM_HINT_T1);
        a += LINE, b += STEP;
    }
    _tile_stored(0, c, 2 * LINE);
    _tile_stored(1, c + LINE, 2 * LINE);
    _tile_stored(2, c + 16 * 2 * LINE, 2 * LINE);
    _tile_stored(3, c + 16 * 2 * LINE + LINE, 2 * LINE);
}

typedef struct {
    int core, from, to;
    char *data, *sums;
} Share;

static int rows, columns, depth, way;
static const char *weights;
static char *all_weights;
static long copies;
static pthread_barrier_t barrier;
static double times[WAYS][RUNS];

static void multiply(const Share *share) {
    long line = 2L * depth + LINE, panel = (long)depth / 32 * STEP;
    for (int number = share->from; number < share->to; number++)
        for (int pair = 0; pair < rows / 32; pair++) {
            const char *b = weights + number * panel, *a = share->data + pair * 32 * line;
            const char *next = b + panel + pair * (depth / 32L) * 8 * LINE;
            char *c = share->sums + pair * 2 * STEP;
            if (way == PLAIN) block(a, line, b, c, depth / 32, next, PLAIN);
            if (way == NEXT_FIRST) block(a, line, b, c, depth / 32, next, NEXT_FIRST);
            if (way == NEXT_SECOND) block(a, line, b, c, depth / 32, next, NEXT_SECOND);
            if (way == NEAR) block(a, line, weights, c, depth / 32, next, PLAIN);
        }
}

static void *work(void *given) {
    const Share *share = given;
    begin(share->core);
    for (long run = 0; run < (long)RUNS * WAYS; run++) {
        pthread_barrier_wait(&barrier);
        if (!share->core) way = run % WAYS, weights = all_weights + run % copies * 2 * depth * columns;
        pthread_barrier_wait(&barrier);
        double begun = now();
        multiply(share);
        pthread_barrier_wait(&barrier);
        if (!share->core) times[run % WAYS][run / WAYS] = now() - begun;
    }
    _tile_release();
    return NULL;
}

static void products(int given_rows, int given_depth, int given_columns) {
    rows = given_rows, depth = given_depth, columns = given_columns;
    copies = 160000000L / (2L * depth * columns) + 1;
    all_weights = memory(copies * 2 * depth * columns + (1 << 20));
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t threads[2];
    Share shares[2];
    for (int i = 0; i < 2; i++) {
        int panels = columns / 32;
        shares[i] = (Share){i, panels * i / 2, panels * (i + 1) / 2, memory((rows + 32L) * (2 * depth + LINE)), memory(rows * 2L * STEP)};
        pthread_create(&threads[i], NULL, work, &shares[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        free(shares[i].data), free(shares[i].sums);
    }
    printf("%d x %d x %d\n", rows, depth, columns);
    for (int each = 0; each < WAYS; each++) {
        qsort(times[each], RUNS, sizeof(double), ascending);
        printf("  %-18s 10%% %4.0f  50%% %4.0f  90%% %4.0f us\n", names[each], times[each][RUNS / 10], times[each][RUNS / 2],
               times[each][RUNS * 9 / 10]);
    }
    free(all_weights);
}

int main(void) {
    if (syscall(SYS_arch_prctl, PERMIT, TILE_DATA)) return puts("the system does not permit tiles"), 1;
    speeds();
    products(128, 768, 768);
    products(128, 768, 3072);
    return 0;
}
