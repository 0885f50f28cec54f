/* Opens and runs `.kt` files that were changed at random: a target for libFuzzer, with a mutator that knows the format.
 *
 * The mutator changes a plan and repairs its checksum, so that the checks behind the checksum are tried.  It never
 * repairs that of a kernels' library: such a file would be machine code drawn at random.  Compiled with OWN_DRIVER it
 * is a program of its own, for compilers without libFuzzer: `fuzz FOLDER SEED COUNT [FILE]` changes files of FOLDER;
 * with FILE, it opens that one alone.  The runtime is compiled with mmap and munmap renamed to those below: what it maps
 * lies in memory whose ends a sanitizer watches. */
#define _GNU_SOURCE
#undef mmap
#undef munmap

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, kt_last_error()); \
      abort();                                                                      \
    }                                                                               \
  } while (0)

enum { MOST_MAPPED = 4 << 20, MOST_RUN = 1 << 20, MOST_PORTS = 64, MOST_PARTS = 64, SECTIONS = 11, ROOM = 1 << 14 };

/* ---- memory that a sanitizer watches ---- */

static void *mapped[64];

void *fuzz_mmap(void *wanted, size_t nbytes, int protection, int flags, int descriptor, off_t offset) {
  if (!(flags & MAP_ANONYMOUS) || wanted != NULL) return mmap(wanted, nbytes, protection, flags, descriptor, offset);
  void *made = NULL;
  if (nbytes > MOST_MAPPED || posix_memalign(&made, KT_PAGE, nbytes) != 0) return MAP_FAILED;
  memset(made, 0, nbytes);
  for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++)
    if (mapped[i] == NULL) {
      mapped[i] = made;
      return made;
    }
  abort();
}

int fuzz_munmap(void *memory, size_t nbytes) {
  for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++)
    if (mapped[i] == memory) {
      mapped[i] = NULL;
      free(memory);
      return 0;
    }
  return munmap(memory, nbytes);
}

/* ---- use of a model ---- */

static uint64_t state;
static uint64_t reshaped; /* how often shapes were set */

static uint64_t next(void) { /* xorshift64* (Vigna, 2016) */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1Du;
}

static size_t below(size_t count) { return count == 0 ? 0 : (size_t)(next() % count); }

static void serial_for(void *user, kt_part part, void *data, int32_t count) {
  (void)user;
  for (int32_t i = 0; i < count; i++) part(data, i);
}

/* Reads what a description points to. */
static void look_at(const kt_tensor *tensor) {
  CHECK(strlen(tensor->name) < 1u << 20 && tensor->rank >= 0 && tensor->rank <= KT_MAX_RANK);
  for (int32_t i = 0; i < tensor->rank; i++) CHECK(tensor->shape[i] >= 0);
}

/* Memory for a tensor, at an address that may be odd; a sanitizer watches its end. */
static kt_buffer buffer_for(const kt_tensor *tensor, bool zeros) {
  size_t shift = below(3) == 0;
  uint8_t *memory = NULL;
  CHECK(posix_memalign((void **)&memory, KT_ALIGNMENT, tensor->nbytes + shift + !tensor->nbytes) == 0);
  for (size_t i = 0; i < tensor->nbytes + shift; i++) memory[i] = zeros ? 0 : (uint8_t)next();
  return (kt_buffer){memory + shift, tensor->nbytes};
}

static void free_buffer(const kt_buffer *buffer) { free((void *)((uintptr_t)buffer->data / KT_ALIGNMENT * KT_ALIGNMENT)); }

/* Sets shapes within the ranges of a plan: the least ones, the greatest, or others of which many are refused. */
static void set_shapes(kt_model *model, kt_context *context, int32_t plan, int32_t inputs) {
  int64_t extents[MOST_PORTS][KT_MAX_RANK];
  kt_shape shapes[MOST_PORTS];
  kt_range range, first = {0, 0, 0}; /* of the first open extent, which is `drawn` */
  int64_t drawn = 0;
  size_t kind = below(4);
  for (int32_t i = 0; i < inputs; i++) {
    kt_tensor tensor;
    kt_describe_input(model, plan, i, &tensor);
    shapes[i] = (kt_shape){extents[i], tensor.rank};
    for (int32_t axis = 0; axis < tensor.rank; axis++) {
      CHECK(kt_describe_range(model, plan, i, axis, &range) == KT_OK);
      uint64_t width = (uint64_t)range.greatest - (uint64_t)range.least;
      int64_t extent = kind == 0 ? range.least : range.greatest;
      if (kind > 1 && range.step > 0) {
        extent = range.least + (int64_t)below((size_t)(width / (uint64_t)range.step) + 1) * range.step;
        if (first.step == 0) first = range, drawn = extent;
      } else if (kind > 1 && range.greatest > range.least && first.greatest > first.least && width < 1 << 20) {
        extent = range.least + (int64_t)((uint64_t)(drawn - first.least) % (1 << 20) * width / (uint64_t)(first.greatest - first.least));
      }
      extents[i][axis] = extent;
    }
  }
  kt_status status = kt_context_set_shapes(context, shapes, inputs);
  CHECK(status == KT_OK || status == KT_ERROR_ARGUMENT || status == KT_ERROR_FORMAT || status == KT_ERROR_MEMORY);
  reshaped += status == KT_OK;
}

static void run(kt_model *model, int32_t plan, int32_t inputs, int32_t outputs) {
  kt_buffer in[MOST_PORTS], out[MOST_PORTS];
  kt_tensor tensor;
  size_t total = 0;
  if (inputs > MOST_PORTS || outputs > MOST_PORTS) return;
  for (int32_t i = 0; i < inputs + outputs; i++) {
    CHECK((i < inputs ? kt_describe_input(model, plan, i, &tensor) : kt_describe_output(model, plan, i - inputs, &tensor)) == KT_OK);
    if (tensor.nbytes > MOST_RUN || (total += tensor.nbytes) > MOST_RUN) return;
  }
  kt_options options = {sizeof options, 1 + (int32_t)below(2), serial_for, NULL};
  kt_context *context;
  if (kt_context_create(model, plan, &options, &context) != KT_OK) return;
  bool zeros = below(2) == 0;
  for (int again = 0; again < 3; again++) {
    if (again > 0 && below(4) != 0) set_shapes(model, context, plan, inputs);
    for (int32_t i = 0; i < inputs; i++) {
      CHECK(kt_context_describe_input(context, i, &tensor) == KT_OK);
      in[i] = buffer_for(&tensor, zeros);
    }
    for (int32_t i = 0; i < outputs; i++) {
      CHECK(kt_context_describe_output(context, i, &tensor) == KT_OK);
      out[i] = buffer_for(&tensor, true);
    }
    kt_status status = kt_run(context, in, inputs, out, outputs);
    CHECK(status == KT_OK || status == KT_ERROR_VALUE);
    for (int32_t i = 0; i < inputs; i++) free_buffer(&in[i]);
    for (int32_t i = 0; i < outputs; i++) free_buffer(&out[i]);
  }
  kt_context_close(context);
}

static void use(kt_model *model) {
  size_t nbytes;
  const char *manifest = kt_manifest(model, &nbytes);
  if (manifest != NULL) CHECK(kt_checksum(manifest, nbytes) != 1);
  kt_variant variant;
  CHECK(kt_describe_variant(model, &variant) == KT_OK && variant.number < variant.total && variant.threads >= 0);
  CHECK(strlen(variant.machine) + strlen(variant.cpu) + strlen(variant.isa) < 1u << 20);
  int32_t inputs = kt_input_count(model), outputs = kt_output_count(model);
  for (int32_t plan = 0; plan < kt_plan_count(model) && plan < 4; plan++) {
    kt_shape shapes[MOST_PORTS];
    kt_tensor tensor;
    for (int32_t i = 0; i < inputs; i++) {
      CHECK(kt_describe_input(model, plan, i, &tensor) == KT_OK);
      look_at(&tensor);
      if (i < MOST_PORTS) shapes[i] = (kt_shape){tensor.shape, tensor.rank};
    }
    for (int32_t i = 0; i < outputs; i++) {
      CHECK(kt_describe_output(model, plan, i, &tensor) == KT_OK);
      look_at(&tensor);
    }
    int32_t found = -1;
    if (inputs <= MOST_PORTS) {
      kt_status status = kt_find_plan(model, shapes, inputs, &found); /* an open plan may have a damaged formula */
      bool open = model->plans[plan].plan.header.flags & KT_IS_OPEN;
      CHECK(status == KT_OK ? found >= 0 && found <= plan : open || found == 0);
      CHECK(status == KT_OK || status == KT_ERROR_ARGUMENT || status == KT_ERROR_FORMAT || status == KT_ERROR_MEMORY);
    }
    int64_t strange[2] = {-1, 3};
    if (inputs > 0 && inputs <= MOST_PORTS) {
      shapes[0] = (kt_shape){strange, 2};
      CHECK(kt_find_plan(model, shapes, inputs, &found) != KT_OK);
    }
    run(model, plan, inputs, outputs);
  }
  kt_close(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t key[32] = {1};
  state = kt_checksum(data, size) | 1;
  uint8_t *content = NULL;
  CHECK(posix_memalign((void **)&content, KT_ALIGNMENT, size + !size) == 0);
  memcpy(content, data, size);
  kt_open_options options = {sizeof options, (int32_t)below(4) - 1, below(4) == 0, "fuzz", below(16) == 0 ? key : NULL};
  kt_model *model;
  if (kt_open_memory_with(content, size, &options, &model) == KT_OK) use(model);
  else CHECK(model == NULL && *kt_last_error() != '\0');
  kt_file file = {{content, size}, false, NULL};
  uint32_t regions = kt_hybrid_is(&file) ? kt_hybrid_count(&file) : 0;
  for (uint32_t i = 0; i < regions && i < 3; i++)
    if (kt_hybrid_open(&file, "fuzz", i, &model) == KT_OK) use(model);
  for (size_t i = 0; i < sizeof mapped / sizeof *mapped; i++) CHECK(mapped[i] == NULL);
  free(content);
  return 0;
}

/* ---- mutations ---- */

typedef struct {
  uint8_t *at;
  size_t nbytes;
  uint8_t *entry; /* in the directory of the file that it is in; NULL for what is no member */
  bool is_plan;
} part;

static part parts[MOST_PARTS];
static size_t part_count;

static void add_part(uint8_t *at, size_t nbytes, uint8_t *entry, bool is_plan) {
  if (part_count < MOST_PARTS && nbytes > 0) parts[part_count++] = (part){at, nbytes, entry, is_plan};
}

/* Finds plans, weights, manifests, and headers, in regions as well. */
static void find_parts(uint8_t *data, size_t size, bool inner) {
  static const char *const names[] = {"plan0.bin", "plan1.bin", "plan2.bin", "weights.bin", "manifest.json", "region0.kt", "region1.kt"};
  kt_file file = {{data, size}, false, NULL};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    kt_bytes found;
    if (kt_file_member(&file, "", names[i], &found) != KT_OK) continue;
    uint8_t *at = data + (found.data - data), *name = NULL;
    for (uint8_t *from = at; (from = memmem(from, size - (size_t)(from - data), names[i], strlen(names[i]))) != NULL; from++) name = from;
    if (names[i][0] == 'r' && !inner) find_parts(at, found.nbytes, true);
    add_part(at, found.nbytes, name != NULL && name - at >= 46 ? name - 46 : NULL, names[i][0] == 'p');
  }
  add_part(data + size - (size < 1024 ? size : 1024), size < 1024 ? size : 1024, NULL, false); /* the directory */
  add_part(data, size < 256 ? size : 256, NULL, false);
}

static uint64_t interesting(const part *of) {
  static const uint64_t values[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 4095, 4096, 65535, 1u << 24, INT32_MAX,
                                    1u << 31, UINT32_MAX, 1ull << 32, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX};
  uint64_t value = 0;
  switch (below(3)) {
    case 0: return values[below(sizeof values / sizeof *values)] + (below(4) == 0 ? below(5) - 2 : 0);
    case 1: return next();
    default: memcpy(&value, of->at + below(of->nbytes), below(of->nbytes) + 8 <= of->nbytes ? 1 : 0); return value + below(3) - 1;
  }
}

static void write_value(const part *of) {
  static const size_t widths[] = {1, 2, 4, 4, 4, 8};
  size_t width = widths[below(sizeof widths / sizeof *widths)], place = below(of->nbytes) / width * width;
  if (place + width > of->nbytes) return;
  uint64_t value = interesting(of), before = 0;
  memcpy(&before, of->at + place, width);
  if (below(3) == 0) value = before + below(9) - 4;
  if (below(8) == 0) value = before ^ (uint64_t)1 << below(8 * width);
  memcpy(of->at + place, &value, width);
}

static size_t padded(size_t nbytes) { return (nbytes + 7) / 8 * 8; }

/* Adds records to a section of a plan, or removes some, and tells the directory; the plan may grow into its padding. */
static void resize(part *of, uint8_t *end) {
  static const size_t sizes[SECTIONS] = {sizeof(kt_plan_tensor), 8, sizeof(kt_plan_operation), 4, 4, sizeof(kt_plan_port),
                                         sizeof(kt_plan_port), sizeof(kt_plan_check), 8, 4, 1};
  static const size_t counts[SECTIONS] = {
      offsetof(kt_plan_header, tensor_count), offsetof(kt_plan_header, extent_count), offsetof(kt_plan_header, operation_count),
      offsetof(kt_plan_header, argument_count), offsetof(kt_plan_header, kernel_count), offsetof(kt_plan_header, input_count),
      offsetof(kt_plan_header, output_count), offsetof(kt_plan_header, check_count), offsetof(kt_plan_header, size_count),
      offsetof(kt_plan_header, isa_count), offsetof(kt_plan_header, text_bytes)};
  size_t chosen = below(SECTIONS), start = sizeof(kt_plan_header);
  uint32_t count = 0;
  if (of->nbytes < start) return;
  for (size_t i = 0; i <= chosen; i++) {
    if (i > 0) start += padded(count * sizes[i - 1]);
    memcpy(&count, of->at + counts[i], sizeof count);
    if (count > ROOM || start > of->nbytes) return;
  }
  uint32_t wanted = below(2) == 0 ? count + 1 + (uint32_t)below(3) : count - (uint32_t)below(count + 1);
  size_t before = padded(count * sizes[chosen]), after = padded(wanted * sizes[chosen]), rest = of->nbytes - start;
  if (before > rest || (size_t)(end - of->at) < start + rest - before + after) return;
  memmove(of->at + start + after, of->at + start + before, rest - before);
  for (size_t i = before; i < after && before > 0; i++) of->at[start + i] = of->at[start + i % before];
  memcpy(of->at + counts[chosen], &wanted, sizeof wanted);
  of->nbytes = of->nbytes - before + after;
  if (of->entry != NULL)
    for (int place = 20; place <= 24; place += 4) memcpy(of->entry + place, &(uint32_t){(uint32_t)of->nbytes}, 4);
}

static void repair_plan(const part *of) {
  size_t field = offsetof(kt_plan_header, checksum), after = field + 8;
  if (of->nbytes < after || memcmp(of->at, "KTPLAN", 6) != 0) return;
  uint64_t checksum = kt_checksum(of->at, field) ^ kt_checksum(of->at + after, of->nbytes - after);
  memcpy(of->at + field, &checksum, sizeof checksum);
}

/* The bytes of a tensor by its extents. */
static uint64_t bytes_of(const kt_plan_tensor *tensor, const uint8_t *extents, uint32_t count) {
  uint64_t nbytes = tensor->bits / 8u;
  for (uint32_t i = 0; i < tensor->rank && tensor->extents < count && i < count - tensor->extents; i++) {
    int64_t extent;
    memcpy(&extent, extents + (tensor->extents + i) * sizeof extent, sizeof extent);
    nbytes *= (uint64_t)extent;
  }
  return nbytes;
}

/* Changes where a tensor lies, its type or its extents, and the bytes of all tensors accordingly. */
static void change_tensor(const part *of) {
  kt_plan_header header;
  if (of->nbytes < sizeof header) return;
  memcpy(&header, of->at, sizeof header);
  uint32_t count = header.tensor_count, extent_count = header.extent_count;
  if (count == 0 || extent_count == 0 || count > ROOM || extent_count > ROOM) return;
  uint8_t *tensors = of->at + sizeof header, *extents = tensors + count * sizeof(kt_plan_tensor);
  if (extents + extent_count * 8 > of->at + of->nbytes) return;
  size_t chosen = below(count), place = below(extent_count);
  int64_t extent;
  memcpy(&extent, extents + place * 8, sizeof extent);
  if (below(3) == 0) extent = (int64_t)(below(2) == 0 ? (uint64_t)extent * (1 + below(40)) : below(70));
  memcpy(extents + place * 8, &extent, sizeof extent);
  for (size_t i = 0; i < count; i++) {
    kt_plan_tensor tensor;
    memcpy(&tensor, tensors + i * sizeof tensor, sizeof tensor);
    if (i == chosen && below(2) == 0) tensor.offset = below(2) == 0 ? below(3) : below(128) * KT_ALIGNMENT;
    if (i == chosen && below(4) == 0) tensor.place = (uint8_t)below(4);
    if (i == chosen && below(4) == 0) tensor.bits = (uint8_t)(8u << below(4));
    if (i == chosen && below(4) == 0) tensor.kind = (uint8_t)(1 + below(5));
    if (i == chosen && below(4) == 0) tensor.rank = (uint8_t)below(4);
    if (i == chosen && below(3) == 0) tensor.extents = (uint32_t)below(extent_count);
    tensor.nbytes = bytes_of(&tensor, extents, extent_count);
    memcpy(tensors + i * sizeof tensor, &tensor, sizeof tensor);
  }
}

/* Changes the lengths, or the place, of a member in the directory. */
static void change_entry(const part *of) {
  uint64_t value = interesting(of);
  switch (below(3)) {
    case 0:
      memcpy(of->entry + 20, &value, 4);
      memcpy(of->entry + 24, &value, 4);
      break;
    case 1: memcpy(of->entry + 42, &value, 4); break;
    default: memcpy(of->entry + 28 + 2 * below(3), &value, 2);
  }
}

static void change_part(part *of, uint8_t *end) {
  for (size_t edits = 1 + below(4); edits > 0; edits--) {
    if (of->entry != NULL && below(16) == 0) change_entry(of);
    else if (of->is_plan && below(6) == 0) resize(of, end);
    else if (of->is_plan && below(2) == 0) change_tensor(of);
    else write_value(of);
  }
  if (below(16) != 0) repair_plan(of);
}

/* Copies a piece of the file over another one, or moves what follows. */
static size_t change_structure(uint8_t *data, size_t size, size_t most) {
  size_t nbytes = 1 + below(size < 4096 ? size : 4096), from = below(size - nbytes + 1), to = below(size - nbytes + 1);
  switch (below(4)) {
    case 0: return 1 + below(size);
    case 1: memmove(data + to, data + from, nbytes); return size;
    case 2:
      if (size + nbytes > most) return size;
      memmove(data + from + nbytes, data + from, size - from);
      return size + nbytes;
    default: memmove(data + from, data + from + nbytes, size - from - nbytes); return size - nbytes;
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  state = ((uint64_t)seed << 16 | 1) * 0x9E3779B97F4A7C15u;
  next();
  if (size == 0) return size;
  part_count = 0;
  find_parts(data, size, false);
  size_t plans = 0;
  for (size_t i = 0; i < part_count; i++) plans += parts[i].is_plan;
  size_t chosen = below(part_count);
  if (plans > 0 && below(3) != 0)
    while (!parts[chosen].is_plan) chosen = below(part_count);
  if (below(12) == 0) return change_structure(data, size, most);
  change_part(&parts[chosen], data + size);
  return size;
}

/* ---- a driver for compilers without libFuzzer ---- */

#ifdef OWN_DRIVER

static uint8_t *input;
static size_t input_bytes;

void __sanitizer_set_death_callback(void (*callback)(void));

static void keep_input(void) {
  FILE *file = fopen("crash", "wb");
  if (file == NULL || fwrite(input, 1, input_bytes, file) != input_bytes || fclose(file) != 0) perror("crash");
}

static void end(int number) {
  keep_input();
  fprintf(stderr, "signal %d: the input is in the file crash\n", number);
  _exit(1);
}

static size_t read_file(const char *path, uint8_t **content) {
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
  size_t size = (size_t)ftell(file);
  CHECK((*content = malloc(size + ROOM)) != NULL);
  rewind(file);
  CHECK(fread(*content, 1, size, file) == size);
  fclose(file);
  return size;
}

int main(int count, char **arguments) {
  CHECK(count >= 4);
  unsigned long seed = strtoul(arguments[2], NULL, 10), inputs = strtoul(arguments[3], NULL, 10);
  if (count > 4) return LLVMFuzzerTestOneInput(input, input_bytes = read_file(arguments[4], &input));
  struct dirent **names;
  int found = scandir(arguments[1], &names, NULL, alphasort), files = 0;
  uint8_t *contents[256];
  size_t sizes[256];
  for (int i = 0; i < found && files < 256; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", arguments[1], names[i]->d_name);
    if (names[i]->d_name[0] != '.') sizes[files] = read_file(path, &contents[files]), files++;
    free(names[i]);
  }
  free(names);
  CHECK(files > 0);
  __sanitizer_set_death_callback(keep_input);
  signal(SIGALRM, end);
  signal(SIGABRT, end);
  for (unsigned long i = 0; i < inputs; i++) {
    uint64_t number = (uint64_t)seed * 1000003 + i; /* an input depends on its number alone */
    int file = (int)(number * 0x9E3779B97F4A7C15u >> 33) % files;
    input = malloc(sizes[file] + ROOM);
    memcpy(input, contents[file], input_bytes = sizes[file]);
    for (unsigned turn = 0; turn <= number % 3; turn++)
      input_bytes = LLVMFuzzerCustomMutator(input, input_bytes, input_bytes + ROOM, (unsigned)(number * 4 + turn));
    alarm(20);
    LLVMFuzzerTestOneInput(input, input_bytes);
    free(input);
  }
  for (int i = 0; i < files; i++) free(contents[i]);
  return 0;
}
#endif
