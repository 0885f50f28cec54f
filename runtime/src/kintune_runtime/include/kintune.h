/*
 * Kintune's runtime: runs networks that `kintune tune` or `kintune compile` has written to a `.kt` file.
 *
 * A model is opened once; it is shared and immutable.  A context belongs to one caller at a time: it has the memory
 * between kernels and the threads.  Any number of contexts of a model run at once, without a lock.
 *
 *     kt_model *model;
 *     kt_context *context;
 *     if (kt_open("model.kt", &model) || kt_context_create(model, 0, NULL, &context)) puts(kt_last_error());
 *     kt_buffer in = {image, sizeof image}, out = {scores, sizeof scores};
 *     if (kt_run(context, &in, 1, &out, 1)) puts(kt_last_error());
 *     kt_context_close(context);
 *     kt_close(model);
 *
 * Functions return a `kt_status`; none of them aborts the process or writes to its standard streams.  They may be
 * called from any thread.  The comment of a function lists the statuses that it returns besides KT_OK.  A handle that
 * was to be made (`model`, `context`) is NULL then, unless an argument was a null pointer.
 */
#ifndef KINTUNE_H
#define KINTUNE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(KT_BUILDING)
#define KT_API __attribute__((visibility("default")))
#else
#define KT_API
#endif

/* The version of this interface.  A library serves callers that were compiled with the same major version. */
#define KT_VERSION_MAJOR 1
#define KT_VERSION_MINOR 3

/* Whether a call worked; `kt_last_error` has the text of what went wrong. */
typedef enum {
  KT_OK = 0,
  KT_ERROR_ARGUMENT = 1,    /* a null pointer, a wrong number of buffers, a buffer of another size */
  KT_ERROR_FILE = 2,        /* no such file, or it cannot be read, or it was changed in place since it was opened */
  KT_ERROR_FORMAT = 3,      /* no Kintune executable, of another format, or damaged */
  KT_ERROR_UNSUPPORTED = 4, /* this CPU lacks instructions that the kernels use, or the model runs partly in onnxruntime */
  KT_ERROR_MEMORY = 5,      /* no memory left, or no descriptor for the kernels */
  KT_ERROR_BUSY = 6,        /* the context is running in another thread */
  KT_ERROR_VALUE = 7,       /* an index, given or computed, is outside of what it indexes */
  KT_ERROR_KERNEL = 8,      /* a kernel refused its arguments */
  KT_ERROR_UNTRUSTED = 9    /* not signed with the trusted key, or altered since then */
} kt_status;

/* What the elements of a tensor are; `bits` says how wide. */
typedef enum {
  KT_FLOAT = 1,    /* 16, 32 or 64 bits */
  KT_BFLOAT = 2,   /* 16 bits */
  KT_INT = 3,      /* 8 to 64 bits, signed */
  KT_UINT = 4,     /* 8 to 64 bits, unsigned */
  KT_BOOL = 5      /* 8 bits */
} kt_kind;

/* An opened file, and what one caller needs to run it. */
typedef struct kt_model kt_model;
typedef struct kt_context kt_context;

/* An input or output: `shape` has `rank` extents, row-major; a buffer for it has `nbytes` bytes. */
typedef struct {
  const char *name;
  const int64_t *shape;
  int32_t rank;
  kt_kind kind;
  int32_t bits;
  size_t nbytes;
} kt_tensor;

/* Plans for one kind of CPU.  A file may have several variants of its model: see `kintune merge`. */
typedef struct {
  int32_t number;      /* of this variant, from 0 */
  int32_t total;       /* of the variants in the file */
  const char *machine; /* "x86_64", "aarch64" */
  const char *cpu;     /* name of the CPU that it was tuned on; "" where that is not known */
  const char *isa;     /* extensions that it uses, with spaces between them */
  int32_t threads;     /* that it was tuned for */
} kt_variant;

/* The shape of an input: `rank` extents. */
typedef struct {
  const int64_t *extents;
  int32_t rank;
} kt_shape;

/* The extents from `least` to `greatest` that an input can have along an axis, `step` apart.  Where both are the same, the
 * extent is fixed; where the step is 0, it follows from other extents. */
typedef struct {
  int64_t least;
  int64_t greatest;
  int64_t step;
} kt_range;

/* Memory of the caller.  Inputs at multiples of 64 bytes are read in place, others are copied first, and so are those
 * that share memory with an output.  Outputs at multiples of 64 bytes are written in place, others are copied last.
 * Outputs must not share memory with each other. */
typedef struct {
  void *data;
  size_t nbytes;
} kt_buffer;

/* Runs `part(part_data, 0)` to `part(part_data, count - 1)`, in any order and on any threads, and returns then. */
typedef void (*kt_part)(void *part_data, int32_t index);
typedef void (*kt_parallel_for)(void *user, kt_part part, void *part_data, int32_t count);

/* How a context runs. */
typedef struct {
  uint32_t size;                /* sizeof(kt_options) */
  int32_t threads;              /* at most so many, up to 4096; 0: as many as tuned for, but no more than cores */
  kt_parallel_for parallel_for; /* the caller's threads instead of the context's own; may be NULL */
  void *user;                   /* handed to parallel_for */
} kt_options;

/* Called after each kernel, in the thread that called `kt_run`, with its name, its place in the plan and the
 * nanoseconds that it took.  It and `kt_parallel_for` are called in the middle of a run: see `kt_run`. */
typedef void (*kt_hook)(void *user, const char *kernel, int32_t place, int64_t nanoseconds);

/* (KT_VERSION_MAJOR << 16) + KT_VERSION_MINOR of the library. */
KT_API uint32_t kt_version(void);

/* Text for the last call of this thread that failed: one line, "" before that.  Valid until the next one fails. */
KT_API const char *kt_last_error(void);

/* Opens a `.kt` file: the weights are mapped, and verified once.
 *
 * The file may be renamed, deleted, or replaced by renaming another one to its name: the model goes on.  One that is
 * overwritten or cut in place is noticed: its runs return KT_ERROR_FILE from then on.  For that, a descriptor of the
 * file stays open, and the first file that is opened installs a handler of SIGBUS, which calls the handler that was
 * there before for what does not concern the file.  With `copy`, neither is needed: see kt_open_with.
 *
 * KT_ERROR_ARGUMENT, KT_ERROR_FILE, KT_ERROR_FORMAT, KT_ERROR_UNSUPPORTED, KT_ERROR_MEMORY. */
KT_API kt_status kt_open(const char *path, kt_model **model);

/* The same with one variant of a file for several CPUs, by its number from 0, or KT_BEST.
 *
 * `kt_open` takes the best of those that this CPU can run: one that was tuned on a CPU of this name, else one that uses
 * the most extensions, else the first.  The statuses of `kt_open`; KT_ERROR_ARGUMENT where there is no such variant. */
enum { KT_BEST = -1 };
KT_API kt_status kt_open_variant(const char *path, int32_t variant, kt_model **model);

/* Opens the contents of a `.kt` file, at a multiple of 64 bytes.  They must stay in place until the model and all its
 * contexts are closed, since contexts read the weights there.
 *
 * KT_ERROR_ARGUMENT, KT_ERROR_FORMAT, KT_ERROR_UNSUPPORTED, KT_ERROR_MEMORY. */
KT_API kt_status kt_open_memory(const void *data, size_t nbytes, kt_model **model);

/* How a model is opened. */
typedef struct {
  uint32_t size;    /* sizeof(kt_open_options) */
  int32_t variant;  /* its number from 0, or KT_BEST */
  int32_t copy;     /* not 0: all of it is copied, and neither the file nor the contents are needed any more */
  const char *name; /* for messages; NULL: the path */
  /* NULL, or the 32 bytes of a public key of Ed25519, with whose private key the file must be signed (`kintune sign`).
   * All of it is copied then, and what was checked is what is loaded. */
  const uint8_t *trusted;
} kt_open_options;

/* `kt_open` and `kt_open_memory` with options.  Contents that are copied may lie at any address, and be freed.
 *
 * Signatures are checked by the system's libcrypto (OpenSSL since 1.1.1), which is loaded for that; where there is none,
 * nothing is opened: KT_ERROR_UNSUPPORTED.  KT_ERROR_UNTRUSTED; all else as for these functions. */
KT_API kt_status kt_open_with(const char *path, const kt_open_options *options, kt_model **model);
KT_API kt_status kt_open_memory_with(const void *data, size_t nbytes, const kt_open_options *options, kt_model **model);

/* Releases the model; it is freed with the last of its contexts.  NULL is fine. */
KT_API void kt_close(kt_model *model);

/* The file's `manifest.json`, `*nbytes` bytes of JSON that no zero follows; it lives as long as the model.  NULL where
 * an argument is NULL or the file has none. */
KT_API const char *kt_manifest(const kt_model *model, size_t *nbytes);

/* Describes the variant that was opened; what `variant` points to lives as long as the model.  KT_ERROR_ARGUMENT. */
KT_API kt_status kt_describe_variant(const kt_model *model, kt_variant *variant);

/* The number of plans of the variant: one for each combination of input shapes that the model was tuned for.  0 where
 * `model` is NULL, here and below. */
KT_API int32_t kt_plan_count(const kt_model *model);

/* The number of inputs and of outputs, the same in all plans. */
KT_API int32_t kt_input_count(const kt_model *model);
KT_API int32_t kt_output_count(const kt_model *model);

/* Describes an input or output of a plan, by places from 0; what `tensor` points to lives as long as the model.
 * KT_ERROR_ARGUMENT where there is no such plan or place. */
KT_API kt_status kt_describe_input(const kt_model *model, int32_t plan, int32_t place, kt_tensor *tensor);
KT_API kt_status kt_describe_output(const kt_model *model, int32_t plan, int32_t place, kt_tensor *tensor);

/* Which extents an input of a plan can have along an axis.  A plan with open extents is described, above, with the
 * greatest ones.  KT_ERROR_ARGUMENT where there is no such plan, place or axis. */
KT_API kt_status kt_describe_range(const kt_model *model, int32_t plan, int32_t place, int32_t axis, kt_range *range);

/* Finds the plan for inputs of these shapes, one for each input in the model's order.  KT_ERROR_ARGUMENT if the model
 * was not tuned for them; the text names those that it was tuned for. */
KT_API kt_status kt_find_plan(const kt_model *model, const kt_shape *shapes, int32_t count, int32_t *plan);

/* Makes a context of one plan; `options` may be NULL.  The model stays open as long as it has contexts.
 *
 * KT_ERROR_ARGUMENT, KT_ERROR_MEMORY (also where a thread cannot be started). */
KT_API kt_status kt_context_create(kt_model *model, int32_t plan, const kt_options *options, kt_context **context);

/* Takes inputs of these shapes in later runs, one for each input in the model's order.  A context of a plan with open
 * extents begins with the greatest ones.  This calls no compiler and packs nothing; it takes microseconds.  After an
 * error the shapes are those of before.
 *
 * KT_ERROR_ARGUMENT (the text says what is possible), KT_ERROR_FORMAT, KT_ERROR_MEMORY, KT_ERROR_BUSY. */
KT_API kt_status kt_context_set_shapes(kt_context *context, const kt_shape *shapes, int32_t count);

/* Describes an input or output of a context as it is now; what `tensor` points to lives until shapes are set again, or
 * the context is closed.  KT_ERROR_ARGUMENT. */
KT_API kt_status kt_context_describe_input(const kt_context *context, int32_t place, kt_tensor *tensor);
KT_API kt_status kt_context_describe_output(const kt_context *context, int32_t place, kt_tensor *tensor);

/* Calls `hook` after each kernel of later runs; NULL ends that.  KT_ERROR_ARGUMENT, KT_ERROR_BUSY. */
KT_API kt_status kt_set_hook(kt_context *context, kt_hook hook, void *user);

/* Runs the network once on the caller's buffers, one for each input and output, in the model's order.  A buffer has
 * exactly the `nbytes` of its tensor, row-major without gaps.  Outputs hold nothing of use after an error.
 *
 * All threads flush denormal numbers to zero while they run it (x86-64: FTZ and DAZ of MXCSR; aarch64: FZ of FPCR),
 * unless the model was built with --keep-denormals: then they keep them.  Afterwards the calling thread's
 * floating-point state is what it was, also after an error.
 *
 * KT_ERROR_ARGUMENT, KT_ERROR_BUSY, KT_ERROR_VALUE, KT_ERROR_KERNEL, KT_ERROR_FILE (the model's file was changed in
 * place since it was opened, or during the run), KT_ERROR_MEMORY (the child of a fork cannot start its threads). */
KT_API kt_status kt_run(kt_context *context, const kt_buffer *inputs, int32_t input_count, const kt_buffer *outputs,
                        int32_t output_count);

/* Ends the context's threads and frees its memory; not while it runs.  NULL is fine. */
KT_API void kt_context_close(kt_context *context);

#ifdef __cplusplus
}
#endif
#endif
