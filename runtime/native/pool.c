/* The threads of a context, and the memory that its kernels ask for while they run.
 *
 * Each worker has a word of its own: the caller hands it a part of a launch there, and it spins on it for a while
 * before it sleeps.  Workers that a launch does not use are not disturbed.  A part that its worker has not begun when
 * the caller is done with its own is the caller's again: nobody waits for a thread that gets no processor. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  IDLE = 0,
  WORK = 1, /* offered: the worker takes it, or the caller takes it back */
  ASLEEP = 2,
  STOP = 3,
  BUSY = 4,
};

#define SPIN_NS 200000  /* a worker waits so long for the next launch before it sleeps */
#define PAUSES 64       /* between two looks at the clock */
#define AWAITED 0x80000000u

/* ---- memory of kernels: a stack for each task ---- */

/* Before each piece of memory. */
typedef struct block {
  size_t below; /* where the stack ended before it; BESIDE where it does not lie in the stack */
  size_t nbytes;
  struct block *next, *previous; /* of those beside the stack */
  uint8_t padding[KT_ALIGNMENT - 4 * sizeof(size_t)];
} block;

#define BESIDE SIZE_MAX

typedef struct {
  uint8_t *memory;
  size_t nbytes;
  size_t used;
  size_t wanted; /* the most that was ever asked for at once */
  size_t beside; /* bytes that did not fit, and were allocated elsewhere */
  block *pieces; /* of these */
  uint8_t padding[KT_ALIGNMENT - 6 * sizeof(size_t)];
} stack;

static _Thread_local kt_pool *current;
static _Thread_local stack *current_stack;
static _Thread_local bool inside; /* whether this thread runs a task; a launch within a task uses no other thread */

static void *beside(stack *of, size_t size) {
  block *made = NULL;
  if (posix_memalign((void **)&made, KT_ALIGNMENT, sizeof *made + size) != 0) return NULL;
  *made = (block){.below = BESIDE, .nbytes = size, .next = of->pieces};
  if (of->pieces != NULL) of->pieces->previous = made;
  of->pieces = made;
  of->beside += sizeof *made + size;
  if (of->used + of->beside > of->wanted) of->wanted = of->used + of->beside;
  return made + 1;
}

static void *push(stack *of, uint64_t nbytes) {
  size_t size = (size_t)(nbytes + KT_ALIGNMENT - 1) / KT_ALIGNMENT * KT_ALIGNMENT;
  if (nbytes > SIZE_MAX / 2) return NULL;
  if (of->used == 0 && of->beside == 0 && of->wanted > of->nbytes) { /* once nothing is in use it may move */
    uint8_t *larger = NULL;
    if (posix_memalign((void **)&larger, KT_ALIGNMENT, of->wanted) == 0) {
      free(of->memory);
      of->memory = larger;
      of->nbytes = of->wanted;
    }
  }
  if (of->nbytes - of->used < sizeof(block) + size) return beside(of, size);
  block *made = (block *)(of->memory + of->used);
  *made = (block){.below = of->used, .nbytes = size};
  of->used += sizeof *made + size;
  if (of->used + of->beside > of->wanted) of->wanted = of->used + of->beside;
  return made + 1;
}

static void free_piece(stack *of, block *freed) {
  of->beside -= sizeof *freed + freed->nbytes;
  if (freed->next != NULL) freed->next->previous = freed->previous;
  if (freed->previous != NULL) freed->previous->next = freed->next;
  else of->pieces = freed->next;
  free(freed);
}

/* Frees what kernels that failed have left. */
static void empty(stack *of) {
  while (of->pieces != NULL) free_piece(of, of->pieces);
  of->used = 0;
}

static void pop(stack *of, void *memory) {
  block *freed = (block *)memory - 1;
  if (freed->below == BESIDE) {
    free_piece(of, freed);
    return;
  }
  /* blocks are freed in the opposite order; what lies above this one is free, too */
  if (freed->below < of->used) of->used = freed->below;
}

void *kt_workspace_alloc(int device_type, int device, uint64_t nbytes, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  if (current_stack == NULL) return NULL;
  return push(current_stack, nbytes);
}

int kt_workspace_free(int device_type, int device, void *memory) {
  (void)device_type, (void)device;
  if (current_stack == NULL || memory == NULL) return -1;
  pop(current_stack, memory);
  return 0;
}

/* ---- threads ---- */

/* The cores that this process may use. */
typedef struct {
  int count;
  int processor[CPU_SETSIZE]; /* by core: one of its processors */
  int16_t of[CPU_SETSIZE];    /* by processor: its core, or -1 */
} cores;

typedef struct {
  _Alignas(KT_ALIGNMENT) atomic_uint word;
  int32_t index;
  int core;
  kt_pool *pool;
  pthread_t thread;
} worker;

struct kt_pool {
  int32_t threads;
  int32_t limit;
  kt_parallel_for parallel_for;
  void *user;
  worker *workers; /* threads - 1; the caller is the first thread */
  int32_t started;
  stack *stacks;
  unsigned forks; /* the number of forks of the process when the workers were started */
  cores *bound;
  int caller; /* the core that is left to the caller; -1 where the workers are not bound to cores */
  int64_t spin_ns;
  bool flush;           /* denormal numbers */
  uint64_t outer_state; /* the calling thread's, of kt_denormals_set */
  kt_pool *outer; /* the calling thread's pool when it entered this one, if it is in a run of another context */
  stack *outer_stack;
  bool outer_inside;
  kt_lambda lambda;
  void *data;
  int32_t tasks;
  int32_t width; /* threads of the launch */
  _Alignas(KT_ALIGNMENT) atomic_uint pending;
  atomic_bool failed;
  atomic_flag telling;
  char failure[256];
};

static atomic_uint forks;
static atomic_uint next_core;
static pthread_once_t watch = PTHREAD_ONCE_INIT;

static void note_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

unsigned kt_fork_count(void) { return atomic_load(&forks); }

static void futex_wait(atomic_uint *word, unsigned expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

/* Spins until the word is no longer `value`, for at most `ns`; returns what it is then. */
static unsigned spin(atomic_uint *word, unsigned value, int64_t ns) {
  int64_t end = 0;
  for (;;) {
    for (int i = 0; i < PAUSES; i++) {
      unsigned found = atomic_load_explicit(word, memory_order_acquire);
      if (found != value || ns == 0) return found;
      relax();
    }
    int64_t time = now();
    if (end == 0) end = time + ns;
    else if (time >= end) return atomic_load_explicit(word, memory_order_acquire);
  }
}

static void run_task(kt_pool *pool, int32_t task) {
  kt_pool *pool_before = current;
  stack *stack_before = current_stack;
  bool inside_before = inside;
  kt_group group = {NULL, pool->tasks};
  current = pool;
  current_stack = &pool->stacks[task % pool->width]; /* of its share, see run_share */
  inside = true;
  if (pool->lambda(task, &group, pool->data) != 0) {
    atomic_store(&pool->failed, true);
    if (!atomic_flag_test_and_set(&pool->telling)) snprintf(pool->failure, sizeof pool->failure, "%s", kt_kernel_message());
    kt_kernel_forget();
  }
  current = pool_before;
  current_stack = stack_before;
  inside = inside_before;
}

static void run_share(kt_pool *pool, int32_t thread) {
  for (int32_t task = thread; task < pool->tasks; task += pool->width) run_task(pool, task);
}

static void *work(void *argument) {
  worker *own = argument;
  kt_pool *pool = own->pool;
  kt_denormals_set(pool->flush);
  for (;;) {
    unsigned word = spin(&own->word, IDLE, pool->spin_ns);
    if (word == IDLE) {
      if (atomic_compare_exchange_strong(&own->word, &word, ASLEEP)) {
        do futex_wait(&own->word, ASLEEP);
        while ((word = atomic_load(&own->word)) == ASLEEP);
      }
    }
    if (word == STOP) return NULL;
    unsigned expected = WORK;
    if (!atomic_compare_exchange_strong(&own->word, &expected, BUSY)) continue;
    run_share(pool, own->index);
    expected = BUSY;
    atomic_compare_exchange_strong(&own->word, &expected, IDLE);
    if (atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_acq_rel) == (AWAITED | 1)) futex_wake(&pool->pending);
  }
}

static void find_cores(cores *found) {
  cpu_set_t allowed;
  found->count = 0;
  memset(found->of, -1, sizeof found->of);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    int first = cpu;
    FILE *file = fopen(path, "re");
    if (file != NULL) {
      if (fscanf(file, "%d", &first) != 1) first = cpu;
      fclose(file);
    }
    bool known = first >= 0 && first < CPU_SETSIZE && found->of[first] >= 0;
    found->of[cpu] = known ? found->of[first] : (int16_t)found->count;
    if (!known) found->processor[found->count++] = cpu;
  }
}

int32_t kt_usable_cores(void) {
  cores found;
  find_cores(&found);
  return found.count;
}

static cpu_set_t processor_of(const cores *known, int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(known->processor[core], &one);
  return one;
}

/* Where the caller runs on the core of a worker, this worker gets the core that was the caller's. */
static void leave_core_to_caller(kt_pool *pool) {
  int cpu = sched_getcpu();
  int core = cpu < 0 || cpu >= CPU_SETSIZE ? -1 : pool->bound->of[cpu];
  if (core < 0 || core == pool->caller) return;
  for (int32_t i = 0; i < pool->started; i++) {
    worker *each = &pool->workers[i];
    if (each->core != core) continue;
    cpu_set_t other = processor_of(pool->bound, pool->caller);
    if (pthread_setaffinity_np(each->thread, sizeof other, &other) != 0) return;
    each->core = pool->caller;
    break;
  }
  pool->caller = core;
}

/* The first core of a pool: those of a process follow each other, and those of another process lie elsewhere. */
static unsigned first_core(unsigned threads) {
  struct stat about; /* processes of different containers may have the same number */
  unsigned container = stat("/proc/self/ns/pid", &about) == 0 ? (unsigned)about.st_ino : 0;
  return atomic_fetch_add(&next_core, threads) + ((unsigned)getpid() + container) * threads;
}

static kt_status start_workers(kt_pool *pool) {
  if (pool->bound == NULL && (pool->bound = malloc(sizeof *pool->bound)) == NULL)
    return kt_fail(KT_ERROR_MEMORY, "no memory for threads");
  find_cores(pool->bound);
  int count = pool->bound->count;
  bool enough = count >= pool->threads && kt_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup") + 0.05 >= pool->threads;
  pool->forks = atomic_load(&forks);
  pool->spin_ns = enough ? SPIN_NS : 0; /* else spinning would take a core from another thread, or time of the quota */
  unsigned first = first_core((unsigned)pool->threads);
  pool->caller = enough ? (int)(first % (unsigned)count) : -1;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return kt_fail(KT_ERROR_MEMORY, "no memory for threads");
  sigset_t all, before;
  sigfillset(&all);         /* the caller's handlers run in the caller's threads */
  sigdelset(&all, SIGBUS); /* see watch.c: it comes in the thread that reads, which ends the process if it is blocked */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (pool->started = 0; pool->started < pool->threads - 1 && error == 0; pool->started += error == 0) {
    worker *each = &pool->workers[pool->started];
    *each = (worker){.index = pool->started + 1, .pool = pool, .core = -1};
    if (enough) {
      each->core = (int)((first + (unsigned)each->index) % (unsigned)count);
      cpu_set_t own = processor_of(pool->bound, each->core);
      pthread_attr_setaffinity_np(&attributes, sizeof own, &own);
    }
    error = pthread_create(&each->thread, &attributes, work, each);
    if (error != 0 && enough) { /* where affinities may not be set, the system places threads */
      each->core = pool->caller = -1;
      enough = false;
      error = pthread_create(&each->thread, NULL, work, each);
      pthread_attr_destroy(&attributes);
      pthread_attr_init(&attributes);
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error == 0 ? KT_OK : kt_fail(KT_ERROR_MEMORY, "cannot start a thread: %s", strerror(error));
}

static void stop_workers(kt_pool *pool) {
  if (pool->forks == atomic_load(&forks))
    for (int32_t i = 0; i < pool->started; i++) {
      if (atomic_exchange(&pool->workers[i].word, STOP) == ASLEEP) futex_wake(&pool->workers[i].word);
      pthread_join(pool->workers[i].thread, NULL);
    }
  pool->started = 0;
}

kt_status kt_pool_create(int32_t threads, kt_parallel_for parallel_for, void *user, bool flush, kt_pool **made) {
  pthread_once(&watch, watch_forks);
  kt_pool *pool = NULL;
  if (posix_memalign((void **)&pool, KT_ALIGNMENT, sizeof *pool) != 0) return kt_fail(KT_ERROR_MEMORY, "no memory for threads");
  memset(pool, 0, sizeof *pool);
  pool->threads = threads;
  pool->parallel_for = parallel_for;
  pool->user = user;
  pool->flush = flush;
  kt_status status = KT_OK;
  if (posix_memalign((void **)&pool->stacks, KT_ALIGNMENT, (size_t)threads * sizeof *pool->stacks) != 0) pool->stacks = NULL;
  else memset(pool->stacks, 0, (size_t)threads * sizeof *pool->stacks);
  if (posix_memalign((void **)&pool->workers, KT_ALIGNMENT, (size_t)threads * sizeof *pool->workers) != 0)
    pool->workers = NULL;
  if (pool->stacks == NULL || pool->workers == NULL) status = kt_fail(KT_ERROR_MEMORY, "no memory for threads");
  else if (parallel_for == NULL && threads > 1) status = start_workers(pool);
  if (status != KT_OK) {
    kt_pool_close(pool);
    return status;
  }
  *made = pool;
  return KT_OK;
}

void kt_pool_close(kt_pool *pool) {
  if (pool == NULL) return;
  stop_workers(pool);
  for (int32_t i = 0; pool->stacks != NULL && i < pool->threads; i++) {
    empty(&pool->stacks[i]);
    free(pool->stacks[i].memory);
  }
  free(pool->stacks);
  free(pool->workers);
  free(pool->bound);
  free(pool);
}

kt_status kt_pool_enter(kt_pool *pool) {
  if (pool->started && pool->forks != atomic_load(&forks)) { /* a child process has the caller's thread alone */
    pool->started = 0;
    kt_status status = start_workers(pool);
    if (status != KT_OK) return status;
  }
  if (pool->started && pool->caller >= 0) leave_core_to_caller(pool);
  for (int32_t i = 0; i < pool->threads; i++) empty(&pool->stacks[i]);
  pool->outer = current;
  pool->outer_stack = current_stack;
  pool->outer_inside = inside;
  current = pool;
  current_stack = &pool->stacks[0];
  inside = false;
  pool->outer_state = kt_denormals_set(pool->flush);
  return KT_OK;
}

void kt_pool_limit(kt_pool *pool, int32_t limit) {
  pool->limit = limit > 0 && limit < pool->threads ? limit : pool->threads;
}

void kt_pool_leave(kt_pool *pool) {
  kt_denormals_restore(pool->outer_state);
  current = pool->outer;
  current_stack = pool->outer_stack;
  inside = pool->outer_inside;
}

/* A part of a launch on a thread of the caller's. */
static void run_part(void *data, int32_t index) {
  kt_pool *pool = data;
  uint64_t before = kt_denormals_set(pool->flush);
  run_share(pool, index);
  kt_denormals_restore(before);
}

int kt_parallel_launch(kt_lambda lambda, void *data, int tasks) {
  kt_pool *pool = current;
  int32_t width = pool == NULL || inside ? 1 : pool->limit;
  if (tasks == 0) tasks = width;
  if (width > tasks) width = tasks;
  if (width <= 1) {
    kt_group group = {NULL, tasks};
    for (int task = 0; task < tasks; task++)
      if (lambda(task, &group, data) != 0) return -1;
    return 0;
  }
  pool->lambda = lambda;
  pool->data = data;
  pool->tasks = tasks;
  pool->width = width;
  atomic_store_explicit(&pool->failed, false, memory_order_relaxed);
  atomic_flag_clear_explicit(&pool->telling, memory_order_relaxed);
  if (pool->parallel_for != NULL) {
    pool->parallel_for(pool->user, run_part, pool, width);
  } else {
    atomic_store_explicit(&pool->pending, (unsigned)(width - 1), memory_order_relaxed);
    for (int32_t i = 0; i < width - 1; i++)
      if (atomic_exchange(&pool->workers[i].word, WORK) == ASLEEP) futex_wake(&pool->workers[i].word);
    run_share(pool, 0);
    for (int32_t i = 0; i < width - 1; i++) {
      unsigned offered = WORK;
      if (!atomic_compare_exchange_strong(&pool->workers[i].word, &offered, IDLE)) continue;
      run_share(pool, i + 1);
      atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_acq_rel);
    }
    unsigned left = atomic_load_explicit(&pool->pending, memory_order_acquire);
    for (int64_t end = 0; left != 0;) {
      for (int i = 0; i < PAUSES && left != 0; i++) {
        relax();
        left = atomic_load_explicit(&pool->pending, memory_order_acquire);
      }
      if (left == 0) break;
      int64_t time = now();
      if (end == 0) end = time + pool->spin_ns;
      if (time < end) continue;
      left = atomic_fetch_or(&pool->pending, AWAITED) | AWAITED;
      while ((left & ~AWAITED) != 0) {
        futex_wait(&pool->pending, left);
        left = atomic_load(&pool->pending);
      }
      break;
    }
  }
  if (!atomic_load(&pool->failed)) return 0;
  kt_kernel_says(pool->failure);
  return -1;
}

int kt_parallel_barrier(int task, kt_group *group) {
  (void)task;
  if (group->tasks == 1) return 0;
  kt_kernel_says("it waits for its other tasks, which this runtime does not know"); /* no tuned kernel does this */
  return -1;
}
