/* Error injection. SIMCUDA_FAIL="NAME:RESULT@N,…" makes the N-th call of NAME return RESULT.
 * Without @N every call of NAME returns RESULT. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAULTS_MAX = 64 };

static struct fault {
	char name[64];
	CUresult result;
	uint64_t at; /* number of the call that fails; 0 = every call */
	_Atomic uint64_t calls;
} faults[FAULTS_MAX];
static int faults_len;
bool faults_any;

static void refuse(const char *item)
{
	fprintf(stderr, "simcuda: error: SIMCUDA_FAIL: %s: want NAME:RESULT@N\n", item);
	_exit(1);
}

static void parse(const char *spec)
{
	char *copy = strdup(spec), *save = NULL;
	for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		struct fault *f = &faults[faults_len];
		char *colon = strchr(item, ':'), *end;
		if (faults_len == FAULTS_MAX || !colon || colon == item || (size_t)(colon - item) >= sizeof(f->name))
			refuse(item);
		memcpy(f->name, item, (size_t)(colon - item));
		f->result = (CUresult)strtoul(colon + 1, &end, 10);
		if (end == colon + 1 || (*end && *end != '@'))
			refuse(item);
		if (*end == '@') {
			char *n = end + 1;
			f->at = strtoull(n, &end, 10);
			if (f->at == 0 || *end)
				refuse(item);
		}
		faults_len++;
	}
	free(copy);
	faults_any = faults_len > 0;
}

void faults_read(void)
{
	if (config.fail)
		parse(config.fail);
}

/* Returns the result to inject into this call, or CUDA_SUCCESS for none. */
CUresult fault_of(const char *name)
{
	CUresult result = CUDA_SUCCESS;
	for (struct fault *f = faults; f < faults + faults_len; f++) {
		if (strcmp(f->name, name))
			continue;
		uint64_t n = atomic_fetch_add(&f->calls, 1) + 1;
		if (f->at == 0 || f->at == n)
			result = f->result;
	}
	return result;
}

void faults_after_fork(void)
{
	for (struct fault *f = faults; f < faults + faults_len; f++)
		atomic_store(&f->calls, 0);
}
