/*
 * Arguments of kernel launches. SIMCUDA_ARGUMENTS names a ledger with the values of each launch.
 * SIMCUDA_CHECK=arguments compares pointers with the memory of the process: a launch with a pointer
 * into memory that is not allocated makes the GPU fail when the kernel runs. simcuda knows that a
 * parameter is a pointer from .ptr in PTX.
 */
#include "arguments.h"

#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 32 << 10, VALUE_MAX = 1 << 10 };

static int fd = -1;
static bool checks, active;

void arguments_open(void)
{
	const char *path = getenv("SIMCUDA_ARGUMENTS"), *check = getenv("SIMCUDA_CHECK");
	if (path && *path && (fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0) {
		fprintf(stderr, "simcuda: error: %s: %m\n", path);
		_exit(1);
	}
	checks = check && !strcmp(check, "arguments");
	active = fd >= 0 || checks;
	calls_timed = calls_timed || fd >= 0;
}

/* Returns the address of the value of a parameter, or NULL. extra holds names and values: a name of 1 is
 * that of a buffer with all values. */
static const void *value_at(const struct parameters *p, uint32_t i, void **params, void **extra)
{
	if (params)
		return params[i];
	for (; extra && *extra; extra += 2)
		if (*extra == (void *)1 /* CU_LAUNCH_PARAM_BUFFER_POINTER */)
			return (const char *)extra[1] + p->at[i].offset;
	return NULL;
}

/* Writes pid, tid, start, function name, handle, kernel, stream, and the values as OFFSET:BYTES. */
static void write_line(const struct call *call, const struct parameters *p, void **params, void **extra)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char line[LINE_BYTES];
	pthread_mutex_lock(&lock);
	int n = snprintf(line, sizeof(line), "%d\t%d\t%llu\t%s\t%llu\t%.200s\t%llu\t", (int)process_pid, (int)call->thread->tid,
			 (unsigned long long)call->start_ns, call->name, (unsigned long long)call->function, call->kernel,
			 (unsigned long long)call->stream);
	for (uint32_t i = 0; i < p->len; i++) {
		const unsigned char *value = value_at(p, i, params, extra);
		uint32_t size = p->at[i].size;
		if (!value || size > VALUE_MAX || (size_t)n + 2 * size + 16 > sizeof(line))
			break;
		n += sprintf(line + n, "%s%u:", i ? "," : "", p->at[i].offset);
		for (uint32_t b = 0; b < size; b++)
			n += sprintf(line + n, "%02x", value[b]);
	}
	line[n++] = '\n';
	if (write(fd, line, (size_t)n) != n) {
		fprintf(stderr, "simcuda: error: ledger of arguments: %m\n");
		_exit(1);
	}
	pthread_mutex_unlock(&lock);
}

/* Reports whether every pointer among the arguments is in live memory, or null. */
static bool pointers_are_live(const struct parameters *p, void **params, void **extra)
{
	for (uint32_t i = 0; i < p->len; i++) {
		const uint64_t *value = value_at(p, i, params, extra);
		if (p->at[i].pointer && p->at[i].size == sizeof(*value) && value && *value && !memory_is_live(*value))
			return false;
	}
	return true;
}

void arguments_note(struct call *call, const void *handle, void **params, void **extra)
{
	struct parameters p;
	if (!active || call->result || (!params && !extra) || !parameters_of(handle, &p))
		return;
	if (fd >= 0)
		write_line(call, &p, params, extra);
	call->faults = checks && !pointers_are_live(&p, params, extra);
}

static CUresult parameter_info(struct call *call, const void *handle, size_t index, size_t *offset, size_t *size)
{
	struct parameters p;
	if (!kernel_name(handle))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!offset || !parameters_of(handle, &p) || index >= p.len)
		return CUDA_ERROR_INVALID_VALUE;
	call->src_ptr = *offset = p.at[index].offset;
	if (size)
		call->bytes = *size = p.at[index].size;
	return CUDA_SUCCESS;
}

#define GET_PARAM_INFO(fn, type)                                                              \
	EXPORT CUresult fn(type handle, size_t paramIndex, size_t *paramOffset, size_t *paramSize)  \
	{                                                                                     \
		BEGIN(fn, NEEDS_INIT, .ptr = H(handle), .value = (int64_t)paramIndex);        \
		DO(parameter_info(&call, handle, paramIndex, paramOffset, paramSize));        \
		return END();                                                                 \
	}
GET_PARAM_INFO(cuFuncGetParamInfo, CUfunction)
GET_PARAM_INFO(cuKernelGetParamInfo, CUkernel)
