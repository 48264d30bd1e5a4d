/*
 * Launches an empty kernel, on a GPU or on simcuda, to measure the cost of recording launches. It reads a
 * number N per input line, launches N kernels with a synchronize after every 200, and answers
 * with a line. With the argument "values", the kernel has five parameters, one of them a structure.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry empty()\n{\n	ret;\n}\n"
	".visible .entry values(.param .u64 a, .param .u64 b, .param .u32 n, .param .f32 factor, .param .align 8 .b8 shape[24])\n"
	"{\n	ret;\n}\n";

static void *driver;

static void *find(const char *name)
{
	void *function = dlsym(driver, name);

	if (!function) {
		fprintf(stderr, "launches: libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	return function;
}

static void check(int result, const char *call)
{
	if (result) {
		fprintf(stderr, "launches: %s: error %d\n", call, result);
		exit(1);
	}
}
#define CALL(name, types, ...) check(((int (*) types)find(#name))(__VA_ARGS__), #name)

int main(int argc, char **argv)
{
	unsigned long a = 0x7f0000000000, b = 0x7f0000100000, shape[3] = {30, 40, 50};
	unsigned n_values = 1000;
	float factor = 0.5f;
	void *values[] = {&a, &b, &n_values, &factor, shape}, **arguments = argc > 1 ? values : NULL;
	int device, (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), (*wait)(void *);
	void *context, *module, *kernel, *stream;
	char line[32];
	long n;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "launches: %s\n", dlerror());
		return 1;
	}
	CALL(cuInit, (unsigned), 0);
	CALL(cuDeviceGet, (int *, int), &device, 0);
	CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
	CALL(cuCtxSetCurrent, (void *), context);
	CALL(cuModuleLoadData, (void **, const void *), &module, ptx);
	CALL(cuModuleGetFunction, (void **, void *, const char *), &kernel, module, argc > 1 ? argv[1] : "empty");
	CALL(cuStreamCreate, (void **, unsigned), &stream, 0);
	launch = find("cuLaunchKernel");
	wait = find("cuStreamSynchronize");
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "%ld", &n) == 1) {
		for (long i = 1; i <= n; i++) {
			check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
			if (i % 200 == 0 || i == n)
				check(wait(stream), "cuStreamSynchronize");
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
