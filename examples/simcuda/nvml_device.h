/* Functions shared by the files of the simulated NVML. */
#ifndef SIMCUDA_NVML_DEVICE_H
#define SIMCUDA_NVML_DEVICE_H

#include "nvml_sim.h"
#include "watch.h"

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

struct nvmlDevice_st {
	int ordinal;
	int part; /* number of the MIG device; -1 = the whole GPU */
};

/* Defined in nvml_mig.c. Returns true for the handle of a MIG device, which only few NVML
 * functions accept. */
bool is_mig(nvmlDevice_t device);
void mig_init(void);
void mig_uuid(nvmlDevice_t device, char *text, unsigned int length);
void mig_name(nvmlDevice_t device, char *text, unsigned int length);
uint64_t mig_memory(nvmlDevice_t device);

/* Checks the start of a query: the library is initialised, the arguments are valid, and
 * SIMCUDA_NVML sets no error for the function. */
nvmlReturn_t begin_query_of(const char *function, nvmlDevice_t device, const void *out);
#define begin_query(device, out) begin_query_of(__func__, device, out)

/* Like begin_query_of, and reads the device's current use from the shared state. */
nvmlReturn_t read_use_of(const char *function, nvmlDevice_t device, const void *out, struct device_use *use, struct process_use *list,
		      int max);
#define read_use(device, out, use) read_use_of(__func__, device, out, use, NULL, 0)

nvmlReturn_t check_ready(const void *out);
nvmlReturn_t copy_text(char *out, unsigned int length, const char *text);

/*
 * SIMCUDA_NVML names a file that overrides NVML's values. Each line is
 *   [DEVICE/]FUNCTION[:ARGUMENT…] VALUE…
 * or has an error instead of values: not_supported, lost, unknown. The last matching line counts.
 * Every NVML call reads the file again, so a test may change it at any time.
 *
 * answer replaces up to n values by the values of the file, and returns the error of the file.
 */
nvmlReturn_t override_values(int device, const char *key, double *values, int n);

/* Overrides one output value of the calling function. Without an override the value is
 * unchanged. override_value_of_argument also has the function's argument in the key. */
#define override_value(device, out) ({ \
	double value_ = (double)*(out); \
	nvmlReturn_t result_ = override_values((device)->ordinal, __func__, &value_, 1); \
	*(out) = (__typeof__(*(out)))value_; \
	result_; })
#define override_value_of_argument(device, argument, out) ({ \
	double value_ = (double)*(out); \
	nvmlReturn_t result_ = override_values_of_argument((device)->ordinal, __func__, (long)(argument), &value_, 1); \
	*(out) = (__typeof__(*(out)))value_; \
	result_; })
nvmlReturn_t override_values_of_argument(int device, const char *function, long argument, double *values, int n);

#endif
