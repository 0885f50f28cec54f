/* The declarations that the runtime's own files share. */
#ifndef KINTUNE_INTERNAL_H
#define KINTUNE_INTERNAL_H

#define KT_BUILDING
#include "kintune.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define KT_ALIGNMENT 64 /* bytes; what kernels assume of every tensor */
#define KT_PAGE 4096
#define KT_MAX_RANK 32

/* ---- error.c ---- */

/* Keeps the text for `kt_last_error` and returns `status`. */
kt_status kt_fail(kt_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- checksum.c ---- */

/* Exported for the Python package, which writes files.
 *
 * Differs for any two contents of the same length that differ in one 8-byte word. */
KT_API uint64_t kt_checksum(const void *data, size_t nbytes);

/* ---- denormals.c ---- */

/* Exported for the Python package, too: sessions of onnxruntime, and the processes that time programs.
 *
 * Sets whether this thread flushes denormal numbers to zero; returns the state before, for kt_denormals_restore. */
KT_API uint64_t kt_denormals_set(int flush);
KT_API void kt_denormals_restore(uint64_t before);

/* From here until kt_denormals_restore, kt_denormals_met says whether operations of this thread met denormal numbers. */
KT_API uint64_t kt_denormals_watch(void);
KT_API int kt_denormals_met(void);

/* A task of another thread pool (`TVMBackendParallelLaunch`), for good: flushes where `flush` is not NULL. */
KT_API int kt_denormals_task(int task, void *group, void *flush);

/* ---- file.c: the members of a `.kt` file ---- */

typedef struct {
  const uint8_t *data;
  size_t nbytes;
} kt_bytes;

typedef struct kt_watch kt_watch;

typedef struct {
  kt_bytes whole;
  bool mapped;     /* whether `whole` is to be unmapped */
  kt_watch *watch; /* NULL where nobody else can change what was mapped */
} kt_file;

/* Maps a file, which others may change in place; or reads it, which takes memory and time.  `name` is for messages. */
kt_status kt_file_map(const char *path, const char *name, kt_file *file);
kt_status kt_file_read(const char *path, const char *name, kt_file *file);
/* A copy of `content`; with NULL data, of so many zeros. */
kt_status kt_file_copy(kt_bytes content, const char *name, kt_file *file);
void kt_file_unmap(kt_file *file);

/* Tells the system that this part of the file will be read soon. */
void kt_file_expect(const kt_file *file, kt_bytes part);

/* Finds a member that is stored plainly at a multiple of KT_PAGE; `name` is for messages, too. */
kt_status kt_file_member(const kt_file *file, const char *path, const char *name, kt_bytes *member);
bool kt_file_has(const kt_file *file, const char *name);

/* ---- exit.c ---- */

/* Exported for the Python package: `exit` then runs only what is registered later (`atexit`), and flushes streams. */
KT_API int kt_skip_destructors(void);

/* ---- signature.c ---- */

/* Whether contents were signed with the private key of `key`, the 32 bytes of a public key of Ed25519. */
kt_status kt_signature_check(kt_bytes content, const uint8_t *key, const char *name);

/* ---- watch.c: a mapped file that is changed in place ---- */

struct stat;

/* Watches a file that was mapped when it was as `seen`.  The descriptor is kept; NULL where no memory is left. */
kt_watch *kt_watch_begin(kt_bytes mapped, int descriptor, const struct stat *seen);
void kt_watch_end(kt_watch *watch);

/* Copies pages in place: from now on, nobody who writes to the file changes this part of the mapping. */
kt_status kt_watch_copy(kt_watch *watch, kt_bytes part);

/* When a file was last written to, and when anything of it has last changed, such as its name; in nanoseconds. */
typedef struct {
  int64_t written;
  int64_t changed;
} kt_stamp;

/* False where the file was cut, or is cut now.  `stamp` stays as it is where the descriptor is lost. */
bool kt_watch_look(const kt_watch *watch, kt_stamp *stamp);

/* ---- plan.c: the execution plan ---- */

typedef enum { KT_AT_INPUT = 0, KT_AT_OUTPUT = 1, KT_AT_WEIGHTS = 2, KT_AT_ARENA = 3 } kt_place;
enum { KT_KEEPS_DENORMALS = 1, /* denormal numbers are not flushed to zero */
       KT_IS_OPEN = 2 };       /* takes more shapes than one: sections of open extents follow */
typedef enum { KT_CALL = 0, KT_COPY = 1, KT_BRANCH = 2, KT_JUMP = 3 } kt_opcode;

/* The records of `planN.bin`, little-endian, in the order of the header's counts; `kintune/runtime/plan_format.py`
 * writes them.  Every record has a size that is a multiple of 8 bytes. */
typedef struct {
  uint8_t magic[8];
  uint16_t version;
  uint16_t flags; /* KT_KEEPS_DENORMALS, KT_IS_OPEN */
  uint32_t threads; /* that the model was tuned for */
  uint64_t checksum; /* of the bytes before this field, xor that of the bytes after it */
  uint64_t arena_bytes;
  uint64_t weights_offset; /* of the variant's part of `weights.bin`, to which the offsets of tensors are relative */
  uint64_t weights_bytes;
  uint64_t weights_checksum;
  uint64_t library_bytes;
  uint64_t library_checksum;
  uint32_t tensor_count;
  uint32_t extent_count;
  uint32_t operation_count;
  uint32_t argument_count;
  uint32_t kernel_count;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t check_count;
  uint32_t size_count;
  uint32_t isa_count;
  uint32_t machine; /* as all names: an offset into the text */
  uint32_t text_bytes;
  uint32_t number; /* of this plan among the `total` plans of the file, from 0 */
  uint32_t total;
  uint32_t variant; /* number of the plan's variant, from 0 (see variant.c); plans of a variant are consecutive */
  uint32_t cpu;     /* name of the CPU that it was tuned on; "" where that is not known */
} kt_plan_header;

typedef struct {
  uint8_t place;
  uint8_t kind;
  uint8_t bits;
  uint8_t rank;
  uint32_t extents; /* the first of `rank` extents */
  uint64_t offset;  /* bytes into the weights or the arena; the number of an input or output */
  uint64_t nbytes;
} kt_plan_tensor;

typedef struct {
  uint32_t opcode;
  uint32_t threads;   /* KT_CALL: at most so many; 0: all */
  uint32_t subject;   /* KT_CALL: the kernel; KT_COPY: the source; KT_BRANCH: the condition */
  uint32_t arguments; /* KT_CALL: the first argument; KT_COPY: the target; KT_BRANCH, KT_JUMP: the next operation */
  uint32_t count;     /* KT_CALL: the number of arguments */
  uint32_t title;     /* KT_CALL: what it computes, in the user's words, as an offset into the text; "": not known */
} kt_plan_operation;

typedef struct {
  uint32_t tensor;
  uint32_t name;
  uint32_t bounded; /* whether an integer input must lie in [least, greatest] */
  uint32_t padding;
  int64_t least;
  int64_t greatest;
} kt_plan_port;

typedef struct {
  uint32_t port; /* the output that holds the indices; the caller does not see it */
  uint32_t node; /* name */
  uint32_t axis;
  uint32_t sizes; /* the first of `size_count` sizes, one for each of an index's columns, or one for all */
  uint32_t size_count;
  uint32_t negative; /* whether an index may count from the end */
} kt_plan_check;

/* An open plan is the plan for the greatest extents, and says which of its numbers follow from smaller ones. */
typedef struct {
  uint32_t dimension_count;
  uint32_t patch_count;
  uint32_t number_count;
  uint32_t padding;
} kt_plan_open;

typedef struct {
  uint32_t name;
  uint32_t input; /* whose extent at `axis` this is */
  uint32_t axis;
  uint32_t padding;
  int64_t least;
  int64_t greatest; /* least, or some steps more */
  int64_t step;
} kt_plan_dimension;

typedef enum { KT_EXTENT = 0, KT_OFFSET = 1, KT_SIZE = 2 } kt_subject; /* what a patch changes */

typedef struct {
  uint32_t subject;
  uint32_t place;  /* in the extents, the tensors or the sizes */
  uint32_t number; /* the first of `count` numbers, which are a formula: see open_plan.c */
  uint32_t count;
} kt_plan_patch;

typedef struct {
  kt_plan_header header;
  const kt_plan_tensor *tensors;
  const int64_t *extents;
  const kt_plan_operation *operations;
  const uint32_t *arguments;
  const uint32_t *kernels; /* names */
  const kt_plan_port *inputs;
  const kt_plan_port *outputs; /* those of the caller first, then those of checks */
  const kt_plan_check *checks;
  const int64_t *sizes;
  const uint32_t *isa; /* names */
  const char *text;
  kt_plan_open open; /* counts of 0 where all extents are fixed */
  const kt_plan_dimension *dimensions;
  const kt_plan_patch *patches;
  const int64_t *numbers;
  void *memory; /* a copy of the member: what was verified stays so */
} kt_plan;

/* Copies and verifies a plan: afterwards all indices, offsets and extents in it lie within what they refer to. */
kt_status kt_plan_read(kt_bytes content, const char *path, kt_plan *plan);
void kt_plan_free(kt_plan *plan);

/* What is wrong with the parts of a plan that patches change; NULL: nothing. */
const char *kt_plan_fault(const kt_plan *plan);

/* ---- open_plan.c ---- */

/* The plan for inputs of these shapes, which uses the memory of the open one.  KT_ERROR_ARGUMENT where it takes none. */
kt_status kt_plan_shape(const kt_plan *open, const kt_shape *shapes, kt_plan *made);

/* The extents that an input can have at `axis`; the step is 0 where they follow from others. */
kt_range kt_plan_range(const kt_plan *plan, uint32_t input, uint32_t axis);

static inline void kt_plan_describe(const kt_plan *plan, const kt_plan_port *port, kt_tensor *described) {
  const kt_plan_tensor *tensor = &plan->tensors[port->tensor];
  *described = (kt_tensor){plan->text + port->name, plan->extents + tensor->extents, tensor->rank, (kt_kind)tensor->kind,
                           tensor->bits,            (size_t)tensor->nbytes};
}

static inline uint32_t kt_plan_own_outputs(const kt_plan *plan) {
  return plan->header.output_count - plan->header.check_count;
}

/* ---- cpu.c ---- */

/* Whether this CPU is of the plan's architecture and has all its extensions; else `missing` says what it lacks. */
bool kt_cpu_runs(const kt_plan *plan, char *missing, size_t size);

/* Whether the plan was tuned on a CPU of this one's name. */
bool kt_cpu_is_same(const kt_plan *plan);

/* Asks the system for permission to use AMX in this process, where the plan's kernels use it. */
kt_status kt_cpu_prepare(const kt_plan *plan);

/* ---- library.c: the kernels ---- */

/* The compiler's own interface of kernels (TVM FFI 0.1.14, DLPack 1). */
typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    double real;
    void *pointer;
    const char *text;
  };
} kt_any;

typedef struct {
  void *data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} kt_dltensor;

typedef int (*kt_kernel)(void *self, const kt_any *arguments, int32_t count, kt_any *result);

enum { KT_ANY_NONE = 0, KT_ANY_INT = 1, KT_ANY_BOOL = 2, KT_ANY_FLOAT = 3, KT_ANY_TENSOR = 7, KT_ANY_TEXT = 8, KT_ANY_SMALL_TEXT = 11 };

typedef struct {
  void *handle;
  int descriptor; /* of the file that it was loaded from */
  dev_t device;   /* of that file, as its inode */
  ino_t inode;
  kt_kernel *kernels;
} kt_library;

kt_status kt_library_load(kt_bytes content, const kt_plan *plan, const char *path, kt_library *library);
void kt_library_unload(kt_library *library);

/* Around what the dynamic loader does for us: no fork happens meanwhile. */
void kt_loader_lock(void);
void kt_loader_unlock(void);

/* Exported for the Python package: the descriptor of a new file in memory, which can be sealed; or -errno. */
KT_API int kt_memory_file(void);

/* The message of the last kernel that failed in this thread; "" if there is none. */
const char *kt_kernel_message(void);
void kt_kernel_forget(void);
void kt_kernel_says(const char *text);

/* ---- sort.c: what kernels call of the runtime ---- */

/* The function of a name such as "tvm.contrib.sort.topk"; NULL if there is none. */
kt_kernel kt_builtin(const char *name);

/* ---- quota.c: the CPU time that control groups leave to this process ---- */

#define KT_NO_QUOTA 1e9

/* The seconds of CPU time a second that this process may use; KT_NO_QUOTA where there is no limit.  `groups` is usually
 * /proc/self/cgroup, `mount` where groups are mounted. */
double kt_cpu_quota(const char *groups, const char *mount);

/* ---- pool.c: threads and the memory that kernels ask for ---- */

typedef struct kt_pool kt_pool;

typedef struct {
  void *sync;
  int32_t tasks;
} kt_group;

typedef int (*kt_lambda)(int task, kt_group *group, void *data);

/* The cores that this process may use; 0 where that is not known. */
int32_t kt_usable_cores(void);

/* With `flush`, all threads flush denormal numbers to zero while they run a part of a launch; without, they keep them. */
kt_status kt_pool_create(int32_t threads, kt_parallel_for parallel_for, void *user, bool flush, kt_pool **pool);
void kt_pool_close(kt_pool *pool);

/* Until kt_pool_leave, launches of the calling thread use the threads of the pool, and it treats denormal numbers as
 * they do. */
kt_status kt_pool_enter(kt_pool *pool);
/* How many times this process, or one it comes from, was forked since the first pool was made. */
unsigned kt_fork_count(void);
/* Launches that follow use at most `limit` threads; 0: all of the pool. */
void kt_pool_limit(kt_pool *pool, int32_t limit);
void kt_pool_leave(kt_pool *pool);

int kt_parallel_launch(kt_lambda lambda, void *data, int tasks);
int kt_parallel_barrier(int task, kt_group *group);
void *kt_workspace_alloc(int device_type, int device, uint64_t nbytes, int code, int bits);
int kt_workspace_free(int device_type, int device, void *memory);

/* ---- variant.c: the plans of a file, of which this CPU runs those of one variant ---- */

/* Reads all `count` plans of the file into `plans`, and verifies that they belong together. */
kt_status kt_variants_read(const kt_file *file, const char *path, kt_plan *plans, uint32_t count);

/* Finds the best variant that this CPU can run, or with a `wanted` other than KT_BEST that one, if this CPU can run it.
 * `first` receives the number of its first plan, `chosen` the number of its plans. */
kt_status kt_variants_choose(const kt_plan *plans, uint32_t count, int32_t wanted, const char *path, uint32_t *first,
                             uint32_t *chosen);

/* ---- model.c ---- */

typedef struct {
  kt_plan plan;
  kt_library library;
} kt_loaded_plan;

struct kt_model {
  atomic_int references;
  kt_file file;
  kt_file around;   /* that `file` is a part of, where it is to be unmapped as well */
  kt_bytes weights; /* those of the chosen variant */
  uint64_t weights_checksum;
  _Atomic int64_t written, changed; /* the stamp of the file when its weights were verified */
  kt_bytes manifest; /* a copy; NULL where there is none */
  char *path;        /* for messages */
  int32_t count;
  kt_loaded_plan *plans; /* of the chosen variant */
  int32_t variant_count; /* in the file */
  char *isa;             /* extensions that the chosen variant uses, with spaces between them */
};

void kt_model_release(kt_model *model);

/* Before a run: KT_ERROR_FILE where the file has other weights than when it was opened.  After it: also where it was
 * written to since then, as the stamp tells. */
kt_status kt_model_check(kt_model *model, kt_stamp *stamp);
kt_status kt_model_check_again(kt_model *model, kt_stamp stamp);

/* Opens a whole file that lies in `within`, which stays open for longer; `name` is for messages. */
kt_status kt_model_open_part(const kt_file *within, kt_bytes content, const char *name, kt_model **model);

/* Exported for the Python package: opens a whole file that is a member of the one at `path`. */
KT_API kt_status kt_open_member(const char *path, const char *member, const char *name, kt_model **model);

/* ---- hybrid.c: a file that runs partly in onnxruntime ---- */

bool kt_hybrid_is(const kt_file *file);
uint32_t kt_hybrid_count(const kt_file *file); /* of its regions */

/* Opens a region.  The file must stay mapped until the model and its contexts are closed. */
kt_status kt_hybrid_open(const kt_file *file, const char *path, uint32_t number, kt_model **model);

/* Fails with the error of opening such a file as one for CPUs. */
kt_status kt_hybrid_refuse(const kt_file *file, const char *path);

#endif
