/* What the parts of the NVML stand-in share. */
#ifndef SIMCUDA_NVML_DEVICE_H
#define SIMCUDA_NVML_DEVICE_H

#include "nvml_sim.h"
#include "watch.h"

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

struct nvmlDevice_st {
	int ordinal;
	int part; /* of a divided device; of the device itself -1 */
};

/* nvml_mig.c. Whether a handle is that of a MIG device: few functions know those. */
bool is_mig(nvmlDevice_t device);
void mig_init(void);
void mig_uuid(nvmlDevice_t device, char *text, unsigned int length);
void mig_name(nvmlDevice_t device, char *text, unsigned int length);
uint64_t mig_memory(nvmlDevice_t device);

/* Whether a function may be asked for something of a device: the library is ready, the arguments are there, and no answer
 * says otherwise. */
nvmlReturn_t asked_for(const char *function, nvmlDevice_t device, const void *out);
#define asked(device, out) asked_for(__func__, device, out)

/* The same, and what the device is doing. */
nvmlReturn_t look_for(const char *function, nvmlDevice_t device, const void *out, struct device_use *use, struct process_use *list,
		      int max);
#define look(device, out, use) look_for(__func__, device, out, use, NULL, 0)

nvmlReturn_t ready(const void *out);
nvmlReturn_t copy_text(char *out, unsigned int length, const char *text);

/*
 * SIMCUDA_NVML names a file that says what NVML answers instead of what would follow from the work. Each line is
 *   [DEVICE/]FUNCTION[:ARGUMENT…] VALUE…
 * or an error instead of values: not_supported, lost, unknown. The last line that fits counts. The file is read at
 * every call, so that a test may change it meanwhile.
 *
 * answer replaces at most n values by what the file says and returns the error that it says.
 */
nvmlReturn_t answer(int device, const char *key, double *values, int n);

/* One value of a function, with its arguments in the key; values that nobody gave are as they were. */
#define answered(device, out) ({ \
	double value_ = (double)*(out); \
	nvmlReturn_t result_ = answer((device)->ordinal, __func__, &value_, 1); \
	*(out) = (__typeof__(*(out)))value_; \
	result_; })
#define answered_with(device, argument, out) ({ \
	double value_ = (double)*(out); \
	nvmlReturn_t result_ = answer_argument((device)->ordinal, __func__, (long)(argument), &value_, 1); \
	*(out) = (__typeof__(*(out)))value_; \
	result_; })
nvmlReturn_t answer_argument(int device, const char *function, long argument, double *values, int n);

#endif
