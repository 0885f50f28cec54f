/* Reads the execution plan: afterwards nothing in it can lead outside of the plan, the weights or the arena. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t MAGIC[8] = {'K', 'T', 'P', 'L', 'A', 'N', 0, 0};
enum { VERSION = 2, MOST = 1 << 24, MOST_THREADS = 4096 };

typedef struct {
  const uint8_t *at;
  size_t left;
} cursor;

/* The next `count` records of `size` bytes, which end at a multiple of 8; NULL if there are not as many. */
static const void *take(cursor *from, uint64_t count, size_t size) {
  uint64_t nbytes = (count * size + 7) / 8 * 8;
  if (count > MOST || nbytes > from->left) return NULL;
  const void *taken = from->at;
  from->at += nbytes;
  from->left -= nbytes;
  return taken;
}

/* The checksum of a plan: that of the bytes before its own field, xor that of the bytes after it. */
static uint64_t checksum_of(kt_bytes content) {
  size_t field = offsetof(kt_plan_header, checksum), after = field + sizeof(uint64_t);
  return kt_checksum(content.data, field) ^ kt_checksum(content.data + after, content.nbytes - after);
}

static bool is_text(const kt_plan *plan, uint32_t offset) { return offset < plan->header.text_bytes; }

static bool is_kind(uint8_t kind, uint8_t bits) {
  switch (kind) {
    case KT_FLOAT: return bits == 16 || bits == 32 || bits == 64;
    case KT_BFLOAT: return bits == 16;
    case KT_INT:
    case KT_UINT: return bits == 8 || bits == 16 || bits == 32 || bits == 64;
    case KT_BOOL: return bits == 8;
    default: return false;
  }
}

static bool is_tensor(const kt_plan *plan, const kt_plan_tensor *tensor) {
  if (!is_kind(tensor->kind, tensor->bits) || tensor->rank > KT_MAX_RANK) return false;
  if (tensor->extents > plan->header.extent_count || plan->header.extent_count - tensor->extents < tensor->rank)
    return false;
  uint64_t nbytes = tensor->bits / 8;
  bool empty = false;
  for (int i = 0; i < tensor->rank; i++) {
    int64_t extent = plan->extents[tensor->extents + i];
    if (extent < 0) return false;
    if (extent == 0) empty = true;
    else if (__builtin_mul_overflow(nbytes, (uint64_t)extent, &nbytes)) return false;
  }
  if (tensor->nbytes != (empty ? 0 : nbytes)) return false;
  switch (tensor->place) {
    case KT_AT_INPUT: return tensor->offset < plan->header.input_count;
    case KT_AT_OUTPUT: return tensor->offset < plan->header.output_count;
    case KT_AT_WEIGHTS:
    case KT_AT_ARENA: {
      uint64_t limit = tensor->place == KT_AT_ARENA ? plan->header.arena_bytes : plan->header.weights_bytes;
      return tensor->offset % KT_ALIGNMENT == 0 && tensor->offset <= limit && tensor->nbytes <= limit - tensor->offset;
    }
    default: return false;
  }
}

/* An input's (or output's) tensors are views of it: none is larger. */
static bool fits_port(const kt_plan *plan, const kt_plan_tensor *tensor) {
  const kt_plan_port *ports = tensor->place == KT_AT_INPUT ? plan->inputs : plan->outputs;
  if (tensor->place > KT_AT_OUTPUT) return true;
  return tensor->nbytes <= plan->tensors[ports[tensor->offset].tensor].nbytes;
}

static bool are_ports(const kt_plan *plan, const kt_plan_port *ports, uint32_t count, kt_place place) {
  for (uint32_t i = 0; i < count; i++) {
    if (ports[i].tensor >= plan->header.tensor_count || !is_text(plan, ports[i].name)) return false;
    const kt_plan_tensor *tensor = &plan->tensors[ports[i].tensor];
    if (tensor->place != place || tensor->offset != i) return false;
    if (ports[i].bounded && tensor->kind != KT_INT && tensor->kind != KT_UINT) return false;
  }
  return true;
}

static bool is_writable(const kt_plan_tensor *tensor) {
  return tensor->place == KT_AT_OUTPUT || tensor->place == KT_AT_ARENA;
}

static bool is_operation(const kt_plan *plan, const kt_plan_operation *operation, uint32_t place) {
  const kt_plan_header *header = &plan->header;
  switch (operation->opcode) {
    case KT_CALL:
      if (operation->subject >= header->kernel_count || operation->arguments > header->argument_count) return false;
      if (operation->threads > MOST_THREADS || !is_text(plan, operation->title)) return false;
      return operation->count <= header->argument_count - operation->arguments;
    case KT_COPY: {
      if (operation->subject >= header->tensor_count || operation->arguments >= header->tensor_count) return false;
      const kt_plan_tensor *source = &plan->tensors[operation->subject], *target = &plan->tensors[operation->arguments];
      return source->nbytes == target->nbytes && is_writable(target);
    }
    case KT_BRANCH:
      if (operation->subject >= header->tensor_count || plan->tensors[operation->subject].nbytes == 0) return false;
      /* fall through */
    case KT_JUMP: /* forward alone, so that every run ends */
      return operation->arguments > place && operation->arguments <= header->operation_count;
    default: return false;
  }
}

static bool is_check(const kt_plan *plan, const kt_plan_check *check) {
  if (check->port < kt_plan_own_outputs(plan) || check->port >= plan->header.output_count) return false;
  const kt_plan_tensor *tensor = &plan->tensors[plan->outputs[check->port].tensor];
  if ((tensor->kind != KT_INT && tensor->kind != KT_UINT) || !is_text(plan, check->node)) return false;
  if (check->size_count == 0 || check->sizes > plan->header.size_count) return false;
  if (check->size_count > plan->header.size_count - check->sizes) return false;
  if (check->size_count == 1) return true;
  return tensor->rank > 0 && plan->extents[tensor->extents + tensor->rank - 1] == (int64_t)check->size_count;
}

static kt_status damaged(const char *path, const char *what) {
  return kt_fail(KT_ERROR_FORMAT, "%s: damaged plan (%s); copy it again, or build it again", path, what);
}

void kt_plan_free(kt_plan *plan) {
  free(plan->memory);
  plan->memory = NULL;
}

const char *kt_plan_fault(const kt_plan *plan) {
  const kt_plan_header *header = &plan->header;
  for (uint32_t i = 0; i < header->tensor_count; i++)
    if (!is_tensor(plan, &plan->tensors[i])) return "a tensor";
  if (!are_ports(plan, plan->inputs, header->input_count, KT_AT_INPUT) ||
      !are_ports(plan, plan->outputs, header->output_count, KT_AT_OUTPUT))
    return "an input or output";
  for (uint32_t i = 0; i < header->tensor_count; i++)
    if (!fits_port(plan, &plan->tensors[i])) return "a view";
  for (uint32_t i = 0; i < header->operation_count; i++)
    if (!is_operation(plan, &plan->operations[i], i)) return "an operation";
  for (uint32_t i = 0; i < header->check_count; i++)
    if (!is_check(plan, &plan->checks[i])) return "a check";
  return NULL;
}

static bool is_dimension(const kt_plan *plan, const kt_plan_dimension *dimension) {
  if (!is_text(plan, dimension->name) || dimension->input >= plan->header.input_count) return false;
  const kt_plan_tensor *tensor = &plan->tensors[plan->inputs[dimension->input].tensor];
  if (dimension->axis >= tensor->rank || dimension->step < 1 || dimension->least < 0) return false;
  return dimension->least <= dimension->greatest && (dimension->greatest - dimension->least) % dimension->step == 0;
}

static bool is_patch(const kt_plan *plan, const kt_plan_patch *patch) {
  const kt_plan_header *header = &plan->header;
  uint32_t counts[] = {header->extent_count, header->tensor_count, header->size_count};
  if (patch->subject > KT_SIZE || patch->place >= counts[patch->subject]) return false;
  return patch->number <= plan->open.number_count && patch->count <= plan->open.number_count - patch->number;
}

/* Reads which numbers of an open plan follow from its extents. */
static kt_status read_open(cursor *from, const char *path, kt_plan *plan) {
  const kt_plan_open *open = take(from, 1, sizeof *open);
  if (open == NULL) return damaged(path, "of another length");
  plan->open = *open;
  plan->dimensions = take(from, open->dimension_count, sizeof *plan->dimensions);
  plan->patches = take(from, open->patch_count, sizeof *plan->patches);
  plan->numbers = take(from, open->number_count, sizeof *plan->numbers);
  if (!plan->dimensions || !plan->patches || !plan->numbers || from->left != 0) return damaged(path, "of another length");
  return KT_OK;
}

static kt_status read_plan(kt_bytes content, const char *path, kt_plan *plan) {
  cursor from = {content.data, content.nbytes};
  const kt_plan_header *header = take(&from, 1, sizeof *header);
  if (header == NULL || memcmp(header->magic, MAGIC, sizeof MAGIC) != 0) return damaged(path, "no header");
  if (header->version != VERSION)
    return kt_fail(KT_ERROR_FORMAT, "%s: its plan is of version %u, this library reads version %d; build it again with"
                   " `kintune compile`, or install the library of the Kintune that wrote it", path, header->version, VERSION);
  if (checksum_of(content) != header->checksum) return damaged(path, "bad checksum");
  if (header->flags & ~(KT_KEEPS_DENORMALS | KT_IS_OPEN))
    return kt_fail(KT_ERROR_FORMAT, "%s: written by a later Kintune; install its library", path);
  plan->header = *header;
  plan->tensors = take(&from, header->tensor_count, sizeof *plan->tensors);
  plan->extents = take(&from, header->extent_count, sizeof *plan->extents);
  plan->operations = take(&from, header->operation_count, sizeof *plan->operations);
  plan->arguments = take(&from, header->argument_count, sizeof *plan->arguments);
  plan->kernels = take(&from, header->kernel_count, sizeof *plan->kernels);
  plan->inputs = take(&from, header->input_count, sizeof *plan->inputs);
  plan->outputs = take(&from, header->output_count, sizeof *plan->outputs);
  plan->checks = take(&from, header->check_count, sizeof *plan->checks);
  plan->sizes = take(&from, header->size_count, sizeof *plan->sizes);
  plan->isa = take(&from, header->isa_count, sizeof *plan->isa);
  plan->text = take(&from, header->text_bytes, 1);
  if (!plan->tensors || !plan->extents || !plan->operations || !plan->arguments || !plan->kernels || !plan->inputs ||
      !plan->outputs || !plan->checks || !plan->sizes || !plan->isa || !plan->text)
    return damaged(path, "of another length");
  if (header->flags & KT_IS_OPEN) {
    kt_status status = read_open(&from, path, plan);
    if (status != KT_OK) return status;
  }
  if (from.left != 0) return damaged(path, "of another length");
  if (header->text_bytes == 0 || plan->text[header->text_bytes - 1] != '\0') return damaged(path, "names");
  if (header->weights_offset % KT_ALIGNMENT != 0) return damaged(path, "weights");
  if (header->check_count > header->output_count || header->threads > MOST_THREADS ||
      !is_text(plan, header->machine) || !is_text(plan, header->cpu))
    return damaged(path, "counts");
  for (uint32_t i = 0; i < header->argument_count; i++)
    if (plan->arguments[i] >= header->tensor_count) return damaged(path, "an argument");
  for (uint32_t i = 0; i < header->kernel_count; i++)
    if (!is_text(plan, plan->kernels[i])) return damaged(path, "a kernel");
  for (uint32_t i = 0; i < header->isa_count; i++)
    if (!is_text(plan, plan->isa[i])) return damaged(path, "an instruction set");
  const char *fault = kt_plan_fault(plan);
  if (fault != NULL) return damaged(path, fault);
  for (uint32_t i = 0; i < plan->open.dimension_count; i++)
    if (!is_dimension(plan, &plan->dimensions[i])) return damaged(path, "an open extent");
  for (uint32_t i = 0; i < plan->open.patch_count; i++)
    if (!is_patch(plan, &plan->patches[i])) return damaged(path, "a formula");
  return KT_OK;
}

kt_status kt_plan_read(kt_bytes content, const char *path, kt_plan *plan) {
  *plan = (kt_plan){.memory = malloc(content.nbytes + 1)};
  if (plan->memory == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a plan of %zu bytes", content.nbytes);
  memcpy(plan->memory, content.data, content.nbytes);
  kt_status status = read_plan((kt_bytes){plan->memory, content.nbytes}, path, plan);
  if (status != KT_OK) kt_plan_free(plan);
  return status;
}
