/* Test macros of selftest. Each scenario runs in its own process, because the simulator reads
 * the environment once per process. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "cuda_sim.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int checks_passed;

#define CHECK(condition)                                                                      \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                              \
		}                                                                             \
		__atomic_fetch_add(&checks_passed, 1, __ATOMIC_RELAXED);                      \
	} while (0)

#define CHECK_RESULT(want, call)                                                                               \
	do {                                                                                                   \
		int got_ = (int)(call);                                                                        \
		if (got_ != (int)(want)) {                                                                     \
			fprintf(stderr, "%s:%d: %s: want %d, got %d\n", __FILE__, __LINE__, #call, (int)(want), got_); \
			exit(1);                                                                               \
		}                                                                                              \
		__atomic_fetch_add(&checks_passed, 1, __ATOMIC_RELAXED);                                       \
	} while (0)
#define CHECK_OK(call) CHECK_RESULT(0, call)

void *symbol_of(const char *library, const char *name);
/* Calls the exported driver function of that name. */
#define CU(fn, ...) (((__typeof__(fn) *)symbol_of("libcuda.so.1", #fn))(__VA_ARGS__))
#define CU_VARIANT(variant, fn, ...) (((__typeof__(fn) *)symbol_of("libcuda.so.1", #variant))(__VA_ARGS__))

double now_ms(void);
void sleep_ms(int ms);

/* Calls cuInit and makes the primary context of device 0 current. */
CUcontext start_cuda(void);
extern const char test_ptx[]; /* has the kernels _Z4gemmPKfS0_Pfi and scale_kernel */

/* A ledger line, split at its tabs. */
struct line {
	char text[4096];
	char *field[22];
};
enum { START_NS, END_NS, PID, TID, NAME, RESULT, PTR, BYTES, STREAM, CONTEXT, DEVICE, SRC_PTR, FUNCTION, GRID_X, GRID_Y, GRID_Z,
       BLOCK_X, BLOCK_Y, BLOCK_Z, SHARED_BYTES, VALUE, KERNEL, COLUMNS };
/* Reads all lines of $SIMCUDA_LEDGER except the header. The caller frees them. */
struct line *ledger_lines(int *count);
const struct line *ledger_last(const char *name); /* last line of that function; static memory */
bool field_is(const struct line *line, int column, const char *format, ...) __attribute__((format(printf, 3, 4)));

void test_init(void);
void test_contexts(void);
void test_time(void);
void test_modules(void);
void test_launches(void);
void test_proc_address(void);
void test_faults(void);
void test_capacity(void);
void test_addresses(void);
void test_pool(void);
void test_real_memory(void);
void test_memory_threads(void);
void test_pools(void);
void test_virtual(void);
void test_other_memory(void);
void test_shared_memory(void);
void test_capture(void);
void test_capture_errors(void);
void test_graph_nodes(void);
void test_host_functions(void);
void test_shapes(void);
void test_linking(void);
void test_more_contexts(void);
void test_ledger_columns(void);
void test_ledger_new_columns(void);
void test_every(void);
void test_torchrun(void);
void test_ledger_threads(void);
void test_ledger_fork(void);
void test_ledger_storm(void);
void test_nvml_alone(void);
void test_nvml_mig(void);
void test_nvml_follows(void);
void test_nvml_processes(void);
void test_runtime(void);

#endif
